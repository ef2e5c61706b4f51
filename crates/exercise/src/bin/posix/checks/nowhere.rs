//! Pointers to where nothing is.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use crosslane_exercise::calls::{
    Call, HalfThere, Nowhere, OF_ARGUMENTS, OF_BYTES, RECEIVE_HALF, SEND_HALF, getsockname,
    read_beyond_all, recv_beyond_all, recv_constant, send, send_two_of_one, write_beyond_all,
};
use crosslane_exercise::{Answer, Errno};
use libc::POLLIN;

use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{data, pattern, take};

/// Near: what calls answer that are given an address that nobody's memory has.
fn refused(s: &mut Stage, calls: &[(&str, Call)]) {
    s.until(POLLIN);
    for (name, call) in calls {
        s.say(name, call(s.fd, Nowhere::low()));
        s.say("far off", call(s.fd, Nowhere::high()));
        s.say("mapped once", call(s.fd, Nowhere::unmapped()));
        s.say("closed", call(s.fd, Nowhere::page(libc::PROT_NONE)));
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

/// Near: receive into buffers of which half is there, and send from such.
fn halves(s: &mut Stage, bytes: usize) {
    let whole = pattern(bytes);
    s.wait();
    s.until(POLLIN);
    for (name, call) in &RECEIVE_HALF {
        s.say(name, call(s.fd, HalfThere::new(bytes, b"")));
    }
    s.say("constant", recv_constant(s.fd, bytes));
    s.read_exactly(bytes);
    for (name, call) in &SEND_HALF {
        s.say(name, call(s.fd, HalfThere::new(bytes, &whole)));
    }
    s.send(b"unharmed");
}

/// Far: have something to receive there, and see that nothing was sent by mistake.
fn whole(s: &mut Stage, bytes: usize) {
    s.send(&pattern(bytes));
    s.go();
    s.read(2 * bytes + 100);
}

/// Many at a time, of which some may be moved before what is not there is found: what was is told of, and the stream goes on
/// behind it.
const MANY: usize = 1 << 16;

fn many_halves(s: &mut Stage) {
    s.wait();
    let whole = pattern(MANY);
    let mut found = Vec::new();
    for (name, call) in &RECEIVE_HALF {
        let half = HalfThere::new(MANY - found.len(), b"");
        match call(s.fd, half) {
            Ok(got) => found.extend(half.there(got)),
            Err(Errno(libc::EFAULT)) => {}
            Err(errno) => s.say(name, Answer::Err(errno)),
        }
    }
    let rest = take(s.fd, MANY - found.len()).unwrap_or_default();
    s.say("whole", [found, rest].concat() == whole);
    let mut sent = 0;
    for (name, call) in &SEND_HALF {
        match call(s.fd, HalfThere::new(MANY - sent, &whole[sent..])) {
            Ok(taken) => sent += taken,
            Err(Errno(libc::EFAULT)) => {}
            Err(errno) => s.say(name, Answer::Err(errno)),
        }
    }
    let rest = send(s.fd, &whole[sent..], 0);
    s.say("rest", rest == Ok(MANY - sent));
}

/// More than rings hold: while nobody reads, the rest is sent another way.
const MORE: usize = 12 << 20;

/// Near: bad buffers before, in and behind what has come by either way.
fn nowhere_on_each_way(s: &mut Stage) {
    const STEP: usize = 1 << 20;
    std::thread::sleep(std::time::Duration::from_millis(200));
    let whole = pattern(MORE);
    let mut found = Vec::new();
    while found.len() < MORE {
        for (name, call) in &OF_BYTES {
            let is_receive = name.starts_with("re");
            if is_receive && call(s.fd, Nowhere::unmapped()) != Err(Errno(libc::EFAULT)) {
                s.say(name, "no EFAULT");
            }
        }
        let step = STEP.min(MORE - found.len());
        found.extend(take(s.fd, step).unwrap_or_default());
    }
    s.say("whole", found == whole);
    s.send(b"unharmed");
}

pub const CHECKS: &[Check] = &[
    pair(
        "nowhere_while_more_comes_than_rings_hold",
        nowhere_on_each_way,
        |s| {
            s.send(&pattern(MORE));
            s.read(100);
        },
    ),
    pair(
        "buffers_of_a_word_that_are_half_there",
        |s| halves(s, 8),
        |s| whole(s, 8),
    ),
    pair(
        "buffers_of_a_line_that_are_half_there",
        |s| halves(s, 64),
        |s| whole(s, 64),
    ),
    pair(
        "buffers_of_a_page_that_are_half_there",
        |s| halves(s, 4096),
        |s| whole(s, 4096),
    ),
    pair(
        "buffers_of_many_pages_that_are_half_there",
        many_halves,
        |s| {
            s.send(&pattern(MANY));
            s.go();
            s.read_exactly(MANY);
        },
    ),
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
    solo("messages_elsewhere_of_which_the_second_is_nowhere", |s| {
        let (one, _other) = UnixDatagram::pair().expect("a pair can be made");
        s.say("sent", send_two_of_one(one.as_raw_fd()));
    }),
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
