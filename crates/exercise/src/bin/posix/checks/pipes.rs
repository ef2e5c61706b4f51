//! Pipes between files and connections: splice(2), tee(2), vmsplice(2), and who refuses a connection.

use crosslane_exercise::Answer;
use crosslane_exercise::calls::{
    copy_file_range, epoll_create, epoll_ctl, epoll_wait, file_of, pipe, read, send, sendfile,
    set_nonblocking, shutdown, socketpair, splice, tee, vmsplice, write,
};
use libc::{POLLIN, POLLRDHUP, SHUT_WR, SPLICE_F_MORE, SPLICE_F_NONBLOCK};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, drain, epoll_text, pattern};

/// Far: say what came until the end.
fn listen(s: &mut Stage) {
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

/// Far: make no call on the connection before all is over, and see that it is unharmed.
fn listen_at_last(s: &mut Stage) {
    s.wait();
    listen(s);
}

/// Near: end what the far side hears at last.
fn end_unharmed(s: &mut Stage) {
    s.send(b"unharmed");
    s.say("shutdown", shutdown(s.fd, SHUT_WR));
    s.go();
}

fn made() -> [i32; 2] {
    pipe().expect("a pipe can be made")
}

fn piped(s: &mut Stage, out: i32) {
    let mut buffer = [0; 100];
    let answer = read(out, &mut buffer);
    s.say("piped", data(&buffer, answer));
}

/// More than a page, so that a part of a page is left.
static MAPPED: [u8; 10_000] = [b'm'; 10_000];

const MEBIBYTE: usize = 1 << 20;

/// Near: move all that comes to a second pipe and note it there, with a copy in between.
fn tee_all(s: &mut Stage) {
    let ([out, into], [copied, copies]) = (made(), made());
    let reader = std::thread::spawn(move || drain(copied));
    let mut spliced = 0;
    let end = loop {
        match splice(s.fd, into, 3000, SPLICE_F_MORE) {
            Ok(moved @ 1..) => {
                spliced += moved;
                let mut left = moved;
                while left > 0 {
                    let teed = tee(out, copies, left, 0).expect("there are bytes in the pipe");
                    left -= read(out, &mut vec![0; teed]).expect("there are bytes in the pipe");
                }
            }
            other => break other,
        }
    };
    s.say("spliced", spliced);
    s.say("at the end", end);
    crosslane_exercise::calls::close(copies).expect("it is open");
    let bytes = reader.join().expect("it does not panic");
    s.say("copied", bytes.map(|bytes| digest(&bytes)));
}

/// Near: splice until the connection has no room, and wait for the edge that tells of some.
fn splice_until_full(s: &mut Stage) {
    const EDGE: u32 = (libc::EPOLLET | libc::EPOLLOUT).cast_unsigned();
    let [out, into] = made();
    set_nonblocking(s.fd, true).expect("it is open");
    let epoll = epoll_create().expect("a set can be made");
    epoll_ctl(epoll, libc::EPOLL_CTL_ADD, s.fd, EDGE, 7).expect("a connection can be added");
    let told = || epoll_wait(epoll, 1, Some(3000)).map(|events| epoll_text(&events));
    s.say("at first", told());
    let mut left = 0;
    let refused = loop {
        if left == 0 {
            left = write(into, &[b's'; 4096]).expect("there is room");
        }
        match splice(out, s.fd, left, SPLICE_F_NONBLOCK) {
            Ok(moved) => left -= moved,
            Err(errno) => break errno,
        }
    };
    s.say("refused", refused);
    s.go();
    s.say("then", told());
    s.say("shutdown", shutdown(s.fd, SHUT_WR));
}

pub const CHECKS: &[Check] = &[
    pair(
        "splice_that_found_no_room_is_told_of_some",
        splice_until_full,
        |s| {
            s.wait();
            // How much there was room for is the machine's.
            s.say("heard", drain(s.fd).is_ok());
        },
    ),
    pair(
        "tee_into_a_connection",
        |s| {
            let ([out, into], [copied, copies]) = (made(), made());
            s.say("write", write(into, b"through a tee"));
            s.say("tee", tee(out, copies, 100, 0));
            s.say("splice", splice(copied, s.fd, 100, 0));
            s.send(b" and then ");
            s.say("splice", splice(out, s.fd, 100, SPLICE_F_MORE));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair("tee_of_all_that_comes", tee_all, |s| {
        for part in pattern(MEBIBYTE).chunks(5000) {
            send(s.fd, part, libc::MSG_NOSIGNAL).expect("somebody reads");
        }
        s.say("shutdown", shutdown(s.fd, SHUT_WR));
    }),
    pair(
        "vmsplice_into_a_connection",
        |s| {
            let [out, into] = made();
            s.say("vmsplice", vmsplice(into, &MAPPED, 0));
            let mut left = MAPPED.len();
            while let Ok(moved @ 1..) = splice(out, s.fd, left, 0) {
                left -= moved;
                if left == 0 {
                    break;
                }
            }
            s.say("left", left);
            s.send(b"more");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "splice_without_waiting",
        |s| {
            let [out, into] = made();
            s.say("none", splice(out, s.fd, 10, SPLICE_F_NONBLOCK));
            s.go();
            s.until(POLLIN);
            s.say("some", splice(s.fd, into, 3, SPLICE_F_NONBLOCK));
            piped(s, out);
            set_nonblocking(s.fd, true).expect("a flag can be set");
            s.say("rest", splice(s.fd, into, 10, 0));
            piped(s, out);
            s.say("none", splice(s.fd, into, 10, 0));
            s.go();
            s.until(POLLRDHUP);
            s.say("end", splice(s.fd, into, 10, 0));
        },
        |s| {
            s.wait();
            s.send(b"words");
            s.wait();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "splice_into_a_broken_connection_leaves_the_pipe",
        |s| {
            let [out, into] = made();
            s.say("write", write(into, b"kept"));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.say("splice", splice(out, s.fd, 10, 0));
            s.say("splice", splice(out, s.fd, 10, SPLICE_F_NONBLOCK));
            piped(s, out);
        },
        listen,
    ),
    pair(
        "pipes_only",
        |s| {
            let [out, into] = made();
            let [ours, _theirs] = socketpair().expect("a pair can be made");
            let file = file_of(b"bytes").expect("a file can be made");
            write(into, b"piped").expect("a pipe has room");
            s.say("tee from it", tee(s.fd, into, 10, 0));
            s.say("tee to it", tee(out, s.fd, 10, 0));
            s.say("vmsplice", vmsplice(s.fd, b"bytes", 0));
            s.say("splice of a file", splice(file, s.fd, 5, 0));
            s.say("splice to a file", splice(s.fd, file, 5, 0));
            s.say("splice of a socket", splice(ours, s.fd, 5, 0));
            s.say("splice to itself", splice(s.fd, s.fd, 5, 0));
            end_unharmed(s);
        },
        listen_at_last,
    ),
    pair(
        "files_only",
        |s| {
            let file = file_of(b"bytes").expect("a file can be made");
            let [ours, _theirs] = socketpair().expect("a pair can be made");
            let refused = |s: &mut Stage, what: &str, answer: Answer| s.say(what, answer);
            refused(s, "copy from it", copy_file_range(s.fd, file, 5));
            refused(s, "copy to it", copy_file_range(file, s.fd, 5));
            refused(s, "sendfile from it", sendfile(file, s.fd, None, 5));
            refused(s, "at an offset", sendfile(file, s.fd, Some(&mut 0), 5));
            refused(s, "to itself", sendfile(s.fd, s.fd, None, 5));
            refused(s, "to another", sendfile(ours, s.fd, None, 5));
            refused(s, "of another", sendfile(s.fd, ours, None, 5));
            refused(s, "at an offset", sendfile(s.fd, ours, Some(&mut 0), 5));
            end_unharmed(s);
        },
        listen_at_last,
    ),
];
