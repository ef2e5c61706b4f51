//! Plays the programs that come by standard input, each in a process of its own.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use crosslane_exercise::calls::{exit_now, fork, wait_for};

use crate::player::play;
use crate::program::Program;
use crate::side::END;

/// How long a program may be played.
const LIMIT_S: u32 = 60;

/// Play until standard input ends.
pub fn serve(cautious: bool) -> ExitCode {
    let mut text = String::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if line != END {
            text.push_str(&line);
            text.push('\n');
            continue;
        }
        match Program::parse(&text) {
            Ok(program) => play_apart(&program, cautious),
            Err(error) => {
                eprintln!("crosslane-differ: {error}");
                return ExitCode::FAILURE;
            }
        }
        text.clear();
        println!("{END}");
        let _ = std::io::stdout().flush();
    }
    ExitCode::SUCCESS
}

/// What a program leaves behind ends with its process.
fn play_apart(program: &Program, cautious: bool) {
    let Some(child) = fork().expect("a process can be made") else {
        // SAFETY: no memory is passed, and nobody else uses the alarm.
        unsafe { libc::alarm(LIMIT_S) };
        play(program, cautious, &mut std::io::stdout());
        exit_now(0)
    };
    let status = wait_for(child);
    if status != Ok(0) {
        println!("the player => ended with {status:?}");
    }
}
