//! sendfile(2) and splice(2).

use std::time::Duration;

use crosslane_exercise::Answer;
use crosslane_exercise::calls::{
    call_on_small_stack, close, disk_file_of, file_of, open, pipe, poll_one, read, seek, send,
    sendfile, set_nonblocking, shutdown, splice, take_error, truncate, write,
};
use libc::{O_DIRECTORY, O_RDONLY, O_WRONLY, POLLERR, POLLIN, POLLOUT, SHUT_WR};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, drain, pattern};

/// Far: say what came until the end.
fn listen(s: &mut Stage) {
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

/// Far: say how many bytes of each of two values came until the end.
fn count_two(s: &mut Stage) {
    let counts = drain(s.fd).map(|bytes| {
        let of = |value| bytes.iter().filter(|byte| **byte == value).count();
        format!("{}+{} of {}", of(b'f'), of(b's'), bytes.len())
    });
    s.say("heard", counts);
}

/// Splice some of a connection out, and tell how much.
fn splice_out(fd: i32) -> Answer {
    let [_, into] = pipe()?;
    splice(fd, into, 100, 0)
}

/// Splice a word into a connection.
fn splice_word_in(fd: i32) -> Answer {
    let [out, into] = pipe()?;
    write(into, b"word")?;
    splice(out, fd, 100, 0)
}

const MEBIBYTE: usize = 1 << 20;
/// More than there is room for.
const MUCH: usize = 32 * MEBIBYTE;
/// Until whoever sends without room is asleep.
const PAUSE: Duration = Duration::from_millis(300);

pub const CHECKS: &[Check] = &[
    pair(
        "sendfile_to_a_peer_that_closes_has_its_error_for_itself",
        |s| {
            let file = file_of(&pattern(MUCH)).expect("a file can be made");
            s.go();
            let sent = sendfile(s.fd, file, None, MUCH);
            s.say("some", sent.map(|sent| (1..MUCH).contains(&sent)));
            s.say("error", take_error(s.fd).map(|errno| errno.0));
            let seen = poll_one(s.fd, POLLIN | POLLOUT, Some(0));
            s.say("POLLERR", seen.map(|seen| seen & POLLERR));
        },
        |s| {
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.wait();
            std::thread::sleep(PAUSE);
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "splice_on_a_small_stack",
        |s| {
            s.say("to a pipe", call_on_small_stack(splice_out, s.fd));
            s.say("from a pipe", call_on_small_stack(splice_word_in, s.fd));
        },
        |s| {
            s.send(b"word");
            s.read(100);
        },
    ),
    pair(
        "sendfile_of_a_disk_between_sends",
        |s| {
            let file = disk_file_of(&pattern(5 * MEBIBYTE)).expect("a file can be made");
            let mut offset = 0;
            for bytes in [1, 100, 8_184, 8_185, 65_472, 65_473, 300_000, MEBIBYTE] {
                s.send(b"header");
                s.say("sent", sendfile(s.fd, file, Some(&mut offset), bytes));
            }
            s.say("offset", offset);
            s.say("file offset", seek(file));
            s.say("all", sendfile(s.fd, file, None, 6 * MEBIBYTE));
            s.say("file offset", seek(file));
            s.send(b"trailer");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "sendfile_of_a_disk_without_blocking",
        |s| {
            let file = disk_file_of(&pattern(8 * MEBIBYTE)).expect("a file can be made");
            set_nonblocking(s.fd, true).expect("a flag can be set");
            let mut offset = 0;
            let refusal = loop {
                match sendfile(s.fd, file, Some(&mut offset), 3 * MEBIBYTE) {
                    Ok(1..) => {}
                    Err(errno) if errno.0 == libc::EAGAIN => s.until(POLLOUT),
                    other => break other,
                }
            };
            s.say("at the end", refusal);
            s.say("offset", offset);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "sendfile_of_a_file_that_shrinks",
        |s| {
            let file = disk_file_of(&pattern(MEBIBYTE)).expect("a file can be made");
            s.say("sent", sendfile(s.fd, file, None, 500_000));
            s.say("truncate", truncate(file, 600_000));
            s.say("sent", sendfile(s.fd, file, None, 500_000));
            s.say("truncate", truncate(file, 0));
            s.say("sent", sendfile(s.fd, file, None, 500_000));
            s.say("file offset", seek(file));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
    pair(
        "sendfile_beside_another_thread_that_sends",
        |s| {
            let file = disk_file_of(&vec![b'f'; 4 * MEBIBYTE]).expect("a file can be made");
            let fd = s.fd;
            let other = std::thread::spawn(move || {
                let bytes = [b's'; 5000];
                (0..400)
                    .map(|_| send(fd, &bytes, libc::MSG_NOSIGNAL).unwrap_or(0))
                    .sum::<usize>()
            });
            s.say("sent", sendfile(s.fd, file, None, 4 * MEBIBYTE));
            s.say("and", other.join().unwrap_or(0));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        count_two,
    ),
    pair(
        "sendfile_from_what_is_no_file",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            s.say("write", write(into, b"piped"));
            s.say("from a pipe", sendfile(s.fd, out, None, 5));
            s.say("at an offset", sendfile(s.fd, out, Some(&mut 0), 5));
            let folder = open(c"/", O_RDONLY | O_DIRECTORY).expect("there is a root");
            s.say("from a folder", sendfile(s.fd, folder, None, 5));
            let null = open(c"/dev/null", O_WRONLY).expect("there is a /dev/null");
            s.say("for writing only", sendfile(s.fd, null, None, 5));
            let zero = open(c"/dev/zero", O_RDONLY).expect("there is a /dev/zero");
            s.say("from a device", sendfile(s.fd, zero, None, 50_000));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
    ),
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
        "splice_of_much_into_a_connection",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            let writer = std::thread::spawn(move || {
                let bytes = pattern(3 * MEBIBYTE);
                let mut written = 0;
                while let Ok(more @ 1..) = write(into, &bytes[written..]) {
                    written += more;
                }
                close(into).is_ok()
            });
            let mut total = 0;
            let end = loop {
                match splice(out, s.fd, MEBIBYTE, 0) {
                    Ok(moved @ 1..) => total += moved,
                    other => break other,
                }
            };
            s.say("spliced", total);
            s.say("at the end", end);
            s.say("closed", writer.join().unwrap_or(false));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        listen,
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
fn sendfile_quietly(s: &Stage, file: i32) -> Answer {
    sendfile(s.fd, file, Some(&mut 0), 3)
}
