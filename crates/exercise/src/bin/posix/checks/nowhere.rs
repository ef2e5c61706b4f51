//! Pointers to where nothing is.

use crosslane_exercise::calls::{
    Call, Nowhere, OF_ARGUMENTS, OF_BYTES, getsockname, read_beyond_all, recv_beyond_all,
    write_beyond_all,
};
use libc::POLLIN;

use super::{Check, pair};
use crate::Stage;
use crate::stage::data;

/// Near: what calls answer that are given an address that nobody's memory has.
fn refused(s: &mut Stage, calls: &[(&str, Call)]) {
    s.until(POLLIN);
    for (name, call) in calls {
        s.say(name, call(s.fd, Nowhere::low()));
        s.say("far off", call(s.fd, Nowhere::high()));
    }
    // Neither has moved anything, nor made the connection another.
    s.say("named", getsockname(s.fd).is_ok());
    s.read(100);
    s.send(b"unharmed");
}

/// Far: have something to receive there, and see that nothing was sent by mistake.
fn untouched(s: &mut Stage) {
    // Where an address follows the bytes, they are gone when it is looked at.
    s.send(b"more data than names are asked for");
    s.read(100);
}

pub const CHECKS: &[Check] = &[
    pair(
        "bytes_that_are_nowhere",
        |s| refused(s, &OF_BYTES),
        untouched,
    ),
    pair(
        "arguments_that_are_nowhere",
        |s| refused(s, &OF_ARGUMENTS),
        untouched,
    ),
    pair(
        "counts_beyond_all",
        |s| {
            s.until(POLLIN);
            // On the heap, behind which there is room for what a receive cuts the count to; not so behind a stack.
            let mut buffer = vec![0; 100];
            s.say("read", read_beyond_all(s.fd, &mut buffer));
            s.say("write", write_beyond_all(s.fd, b"none of it"));
            let answer = recv_beyond_all(s.fd, &mut buffer);
            s.say("recv", data(&buffer, answer));
            s.send(b"unharmed");
        },
        |s| {
            s.send(b"word");
            s.read(100);
        },
    ),
];
