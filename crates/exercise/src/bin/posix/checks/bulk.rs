//! sendfile(2) and splice(2).

use crosslane_exercise::calls::{
    close, file_of, pipe, read, seek, sendfile, set_nonblocking, shutdown, splice, write,
};
use libc::{POLLIN, SHUT_WR};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, drain, pattern};

/// Far: say what came until the end.
fn listen(s: &mut Stage) {
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

pub const CHECKS: &[Check] = &[
    pair(
        "sendfile_at_an_offset",
        |s| {
            let file = file_of(&pattern(100_000)).expect("a file can be made");
            let mut offset = 1000;
            s.say("sent", sendfile(s.fd, file, Some(&mut offset), 50_000));
            s.say("offset", offset);
            s.say("file offset", seek(file));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "sendfile_from_where_the_file_stands",
        |s| {
            let file = file_of(&pattern(100_000)).expect("a file can be made");
            s.say("sent", sendfile(s.fd, file, None, 30_000));
            s.say("file offset", seek(file));
            s.say("sent", sendfile(s.fd, file, None, 1_000_000));
            s.say("sent", sendfile(s.fd, file, None, 10));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "sendfile_of_much",
        |s| {
            let file = file_of(&pattern(5_000_000)).expect("a file can be made");
            s.send(b"header");
            let mut left = 5_000_000;
            while let Ok(sent @ 1..) = sendfile(s.fd, file, None, left) {
                left -= sent;
            }
            s.say("left", left);
            s.send(b"trailer");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "sendfile_without_blocking",
        |s| {
            let file = file_of(&vec![7; 64 << 20]).expect("a file can be made");
            set_nonblocking(s.fd, true).expect("a flag can be set");
            let mut offset = 0;
            let sent = sendfile(s.fd, file, Some(&mut offset), 64 << 20);
            s.say("part", sent.is_ok_and(|sent| sent > 0 && sent < 64 << 20));
            s.say(
                "offset agrees",
                sent.is_ok_and(|sent| usize::try_from(offset) == Ok(sent)),
            );
            while sendfile(s.fd, file, Some(&mut offset), 64 << 20).is_ok() {}
            let before = offset;
            s.say("full", sendfile(s.fd, file, Some(&mut offset), 10));
            s.say("offset stays", offset == before);
        },
        |s| {
            s.read(4);
        },
    ),
    pair(
        "sendfile_mistakes",
        |s| {
            let file = file_of(b"bytes").expect("a file can be made");
            s.say("from a connection", sendfile(file, s.fd, None, 10));
            s.say("from nothing", sendfile(s.fd, 4000, None, 10));
            let mut negative = -5;
            s.say(
                "before the start",
                sendfile(s.fd, file, Some(&mut negative), 10),
            );
            s.say("nothing", sendfile(s.fd, file, None, 0));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.say("after the end", sendfile_quietly(s, file));
        },
        listen,
    ),
    pair(
        "splice_from_a_connection",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            s.until(POLLIN);
            s.say("splice", splice(s.fd, into, 5, 0));
            let mut buffer = [0; 100];
            let answer = read(out, &mut buffer);
            s.say("piped", data(&buffer, answer));
            s.read(100);
            s.send(b"word");
        },
        |s| {
            s.send(b"hello world");
            s.read(100);
        },
    ),
    pair(
        "splice_into_a_connection",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            s.say("write", write(into, b"through a pipe"));
            s.say("splice", splice(out, s.fd, 100, 0));
            s.send(b" and not");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.say("close", close(out));
        },
        listen,
    ),
];

/// sendfile(2) with the signal of a broken pipe ignored, as this program does throughout.
fn sendfile_quietly(s: &Stage, file: i32) -> crosslane_exercise::Answer {
    sendfile(s.fd, file, Some(&mut 0), 3)
}
