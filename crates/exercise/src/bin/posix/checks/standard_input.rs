//! The C library's stream of descriptor 0, where that comes to name a connection of which something has been read.

use std::time::Duration;

use crosslane_exercise::calls::{
    close, dup2, receive_fd, send_fd, shutdown, socketpair, wait_for, write,
};
use libc::{FILE, SHUT_WR};

use super::processes::in_child;
use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, hears, limit_to_seconds, says};

unsafe extern "C" {
    static stdin: *mut FILE;
}

const ROUNDS: usize = 40;
const LINES: &[u8] = b"first\nsecond\nthird\n";

/// getline(3) of the standard input.
fn line() -> Option<Vec<u8>> {
    let (mut start, mut room) = (std::ptr::null_mut(), 0);
    // SAFETY: libc makes the room; the stream is its own.
    let count = unsafe { libc::getline(&raw mut start, &raw mut room, stdin) };
    let count = usize::try_from(count).ok()?;
    // SAFETY: libc has written so many.
    Some(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), count) }.to_vec())
}

/// Write the lines of the standard input back to it.
fn echo(fd: i32) -> bool {
    limit_to_seconds(10);
    assert!(dup2(fd, 0).is_ok() && close(fd).is_ok());
    echo_input()
}

/// The same, where the connection is passed and gets the number that is free.
fn echo_passed(fd: i32) -> bool {
    limit_to_seconds(10);
    let [ours, theirs] = socketpair().expect("a pair can be made");
    assert!(send_fd(ours, fd).is_ok() && close(fd).is_ok() && close(0).is_ok());
    receive_fd(theirs) == Ok(0) && echo_input()
}

fn echo_input() -> bool {
    std::iter::from_fn(line).all(|line| write(0, &line) == Ok(line.len()))
}

/// Whether the standard input is the rest.
fn hear_rest(fd: i32) -> bool {
    limit_to_seconds(10);
    assert!(dup2(fd, 0).is_ok() && close(fd).is_ok());
    let rest: Vec<u8> = std::iter::from_fn(line).flatten().collect();
    rest == LINES[b"first\n".len()..]
}

/// Become a program that does so.
fn sed(fd: i32) -> bool {
    assert!(dup2(fd, 0).is_ok() && dup2(fd, 1).is_ok() && close(fd).is_ok());
    let words = [c"/bin/sed", c"-u", c"s/^/by sed: /"].map(|word| word.as_ptr());
    let words = [words[0], words[1], words[2], std::ptr::null()];
    // SAFETY: the words are C strings, and the last is null.
    unsafe { libc::execv(words[0], words.as_ptr()) };
    false
}

/// Near: read a line, and leave the others to a child.
fn leave_to(s: &mut Stage, child: fn(i32) -> bool) {
    let fd = s.fd;
    assert!((0..ROUNDS).all(|_| hears(fd, b"word") && says(fd, b"word")));
    s.wait();
    s.read_exactly(b"first\n".len());
    let pid = in_child(|| child(fd));
    close(fd).expect("it is open");
    s.say("child", wait_for(pid));
}

/// Far: say all of it, and hear the rest again.
fn say(s: &mut Stage, then: fn(i32)) {
    assert!((0..ROUNDS).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
    s.send(LINES);
    then(s.fd);
    s.go();
    s.say("lines", drain(s.fd).map(|lines| digest(&lines)));
}

fn end(fd: i32) {
    shutdown(fd, SHUT_WR).expect("a stream can end");
}

/// Be away for a while, and then end.
fn end_late(fd: i32) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        end(fd);
    });
}

pub const CHECKS: &[Check] = &[
    pair(
        "the_rest_of_an_ended_stream_is_standard_input",
        |s| leave_to(s, echo),
        |s| say(s, end),
    ),
    pair(
        "the_rest_of_a_stream_is_standard_input",
        |s| leave_to(s, echo),
        |s| say(s, end_late),
    ),
    pair(
        "the_rest_of_an_ended_stream_is_the_input_of_another_program",
        |s| leave_to(s, sed),
        |s| say(s, end),
    ),
    pair(
        "the_rest_of_a_stream_is_the_input_of_another_program",
        |s| leave_to(s, sed),
        |s| say(s, end_late),
    ),
    pair(
        "the_rest_of_an_ended_stream_is_standard_input_that_is_passed",
        |s| leave_to(s, echo_passed),
        |s| say(s, end),
    ),
    pair(
        "the_rest_of_what_a_closed_peer_has_said_is_standard_input",
        |s| leave_to(s, hear_rest),
        |s| {
            assert!((0..ROUNDS).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
            s.send(LINES);
            s.say("close", close(s.fd));
            s.go();
        },
    ),
];
