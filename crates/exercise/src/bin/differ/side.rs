//! One of the two ways in which programs are played: a command that plays what it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crosslane_exercise::calls::kill;

use crate::program::Program;

/// The line after each program and each trace.
pub const END: &str = ".";
/// The remark behind a line whose send has found no room.
pub const FULL: &str = "full";
/// Longer than any program is played.
const PATIENCE: Duration = Duration::from_secs(90);

/// What was seen, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub lines: Vec<String>,
    /// Of which lines, whose sends found no room at some time.
    pub full: BTreeSet<usize>,
    pub tally: Tally,
}

/// How many steps were made, and left out for what reason.
pub type Tally = BTreeMap<String, u64>;

/// A way to play programs.
pub struct Side {
    prefix: Vec<String>,
    with_known: bool,
    player: Option<Playing>,
}

struct Playing {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Side {
    /// Play by `prefix` and this program; no words play natively.
    pub fn new(prefix: &str, with_known: bool) -> Self {
        Self {
            with_known,
            prefix: prefix.split_whitespace().map(str::to_owned).collect(),
            player: None,
        }
    }

    /// Play a program. A player that dies or hangs says so in the trace.
    pub fn play(&mut self, program: &Program) -> std::io::Result<Trace> {
        let mut player = match self.player.take() {
            Some(player) => player,
            None => self.start()?,
        };
        let sent = writeln!(player.stdin, "{program}{END}").and_then(|()| player.stdin.flush());
        let mut trace = Trace::default();
        if sent.is_err() {
            trace.lines.push("the player => has ended".into());
            return Ok(trace);
        }
        loop {
            match player.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == END => {
                    self.player = Some(player);
                    return Ok(trace);
                }
                Ok(line) => trace.read(line),
                Err(error) => {
                    trace.lines.push(format!("the player => {error}"));
                    return Ok(trace);
                }
            }
        }
    }

    fn start(&self) -> std::io::Result<Playing> {
        let this = std::env::current_exe()?;
        let mut command = match self.prefix.split_first() {
            None => Command::new(this),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(this);
                command
            }
        };
        command.arg("play");
        if self.with_known {
            command.arg("--known");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take().expect("it is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            lines.map(|line| send.send(line)).find(Result::is_err);
        });
        Ok(Playing {
            child,
            stdin,
            lines,
        })
    }
}

impl Trace {
    fn read(&mut self, line: String) {
        match line.strip_prefix("# ") {
            None => self.lines.push(line),
            Some(FULL) => {
                self.full.extend(self.lines.len().checked_sub(1));
            }
            Some(remark) => {
                if let Some((number, what)) = remark.split_once(' ') {
                    let count = number.parse().unwrap_or(0);
                    *self.tally.entry(what.to_owned()).or_default() += count;
                }
            }
        }
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        // Its group has what it plays by and what it plays with.
        let group = i32::try_from(self.child.id()).unwrap_or(0);
        if group > 1 {
            let _ = kill(-group, libc::SIGKILL);
        }
        let _ = self.child.wait();
    }
}
