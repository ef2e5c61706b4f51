//! vfork(2) and execv(3), as C programs call them: the child has its parent's memory until it is another program.

use std::ffi::{CStr, CString};

use crosslane_exercise::calls::{
    NO_PROGRAM, close, send, shutdown, vfork_and_exec, wait_for, write,
};
use libc::{MSG_NOSIGNAL, POLLIN, SHUT_WR};

use super::processes::{echo, listen};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{hears, says};

const ROUNDS: usize = 60;

/// Have a program run with the connection as its standard input and output.
fn run(s: &mut Stage, path: &CStr, arguments: &[&CStr]) -> libc::pid_t {
    vfork_and_exec(path, arguments, Some(s.fd)).expect("a process can be made")
}

fn run_shell(s: &mut Stage, script: &CStr) -> libc::pid_t {
    run(s, c"/bin/sh", &[c"sh", c"-c", script])
}

fn talks(fd: i32) -> bool {
    (0..ROUNDS).all(|_| says(fd, b"word") && hears(fd, b"WORD"))
}

/// Far: talk with who gives back what it hears, and end it.
fn talk_to_a_copier(s: &mut Stage) {
    let fd = s.fd;
    s.say(
        "talk",
        (0..ROUNDS).all(|_| says(fd, b"word\n") && hears(fd, b"word\n")),
    );
    s.say("shutdown", shutdown(fd, SHUT_WR));
    listen(s);
}

pub const CHECKS: &[Check] = &[
    pair(
        "vfork_and_a_program_that_copies",
        |s| {
            let child = run(s, c"/bin/cat", &[c"cat"]);
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        talk_to_a_copier,
    ),
    pair(
        "vfork_and_unread_data",
        |s| {
            s.until(POLLIN);
            s.read(6);
            let child = run_shell(s, c"read b; echo \"got $b\"; exit 4");
            s.say("child", wait_for(child));
            s.say("write", write(s.fd, b"parent\n"));
            s.say("close", close(s.fd));
        },
        |s| {
            s.send(b"first\nsecond\n");
            listen(s);
        },
    ),
    pair(
        "vfork_and_a_number",
        |s| {
            let script = format!("read a <&{0}; echo \"got $a\" >&{0}; exit 5", s.fd);
            let script = CString::new(script).expect("it has no null");
            let child = vfork_and_exec(c"/bin/sh", &[c"sh", c"-c", &script], None);
            s.say("child", child.and_then(wait_for));
            s.say("talk", talks(s.fd));
            s.say("close", close(s.fd));
        },
        |s| {
            s.send(b"hello\n");
            s.read_exactly(b"got hello\n".len());
            echo(s);
        },
    ),
    pair(
        "vfork_and_no_program",
        |s| {
            for _ in 0..3 {
                let child = run(s, c"/nonexistent/missing", &[c"missing"]);
                s.say("child", wait_for(child).map(|status| status == NO_PROGRAM));
                s.say("talk", talks(s.fd));
            }
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "vfork_beside_a_talk",
        |s| {
            for _ in 0..4 {
                let child = run_shell(s, c"exit 3");
                s.say("talk", talks(s.fd));
                s.say("child", wait_for(child));
            }
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "vfork_in_turn_with_its_parent",
        |s| {
            for _ in 0..3 {
                let child = run_shell(s, c"read word; echo \"$word\"");
                s.say("child", wait_for(child));
                let fd = s.fd;
                s.say("sent", send(fd, b"parent\n", MSG_NOSIGNAL));
                s.read_exactly(b"thanks\n".len());
            }
            s.say("close", close(s.fd));
        },
        |s| {
            let fd = s.fd;
            for _ in 0..3 {
                s.say("child", says(fd, b"child\n") && hears(fd, b"child\n"));
                s.say("parent", hears(fd, b"parent\n") && says(fd, b"thanks\n"));
            }
            listen(s);
        },
    ),
];
