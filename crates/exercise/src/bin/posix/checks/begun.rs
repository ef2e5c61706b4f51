//! Calls of several parts that end, or lose their descriptor, in the middle.

use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crosslane_exercise::calls::{
    cancel_in, close, close_range, file_of, getsockopt, pipe, poll, poll_one, read, send, sendfile,
    sendmmsg, sendmsg_with_name_length, shutdown, splice, thread_id, write,
};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN, SA_RESTART, SHUT_WR, SO_ERROR, SOL_SOCKET, pollfd};

use super::asleep::{interrupted_before_far, until_asleep};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, drain, events_text, hears, pattern, says};

/// Longer than any call of the near side waits.
const LONG: Duration = Duration::from_millis(250);
const SHORT: Duration = Duration::from_millis(40);
const TURNS: usize = 40;

/// More than a connection takes without a reader.
const MUCH: usize = 32 << 20;

/// The end of a pipe that [`splice_it`] moves from.
static FROM: AtomicI32 = AtomicI32::new(-1);

fn splice_it(fd: RawFd) {
    let _ = splice(FROM.load(Ordering::Relaxed), fd, 65536, 0);
}

/// Send until there is no room for a byte, nor any after a while.
fn fill_up(fd: RawFd) {
    for bytes in [100_000, 100_000, 1000, 1, 1] {
        while send(fd, &vec![7; bytes], MSG_DONTWAIT | MSG_NOSIGNAL).is_ok() {}
        sleep(SHORT);
    }
}

/// Far: read nothing for long, then say what came until the end.
fn listen_late(s: &mut Stage) {
    s.wait();
    sleep(LONG);
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

/// Far: read nothing for long, then say whether all that came until the end is of one message.
fn sevens_late(s: &mut Stage) {
    s.wait();
    sleep(LONG);
    let are_all = drain(s.fd).map(|all| all.iter().all(|byte| *byte == 7));
    s.say("sevens", are_all);
}

/// Far: read nothing for long, then say whether what was spliced stands behind what was sent before.
fn in_order_late(s: &mut Stage) {
    s.wait();
    sleep(LONG);
    let is_so = drain(s.fd).map(|all| all.is_sorted() && all.last() == Some(&8));
    s.say("in order", is_so);
}

/// Far: read nothing for long, end the stream, and close with all of it unread.
fn leave_unread(s: &mut Stage) {
    s.wait();
    sleep(LONG);
    s.say("shutdown", shutdown(s.fd, SHUT_WR));
    sleep(SHORT);
    s.say("close", close(s.fd));
}

/// A connection beside the one of the stage, and its other end.
fn another() -> (RawFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it is bound");
    let near = TcpStream::connect(address).expect("somebody listens");
    let (far, _) = listener.accept().expect("somebody has connected");
    (near.into_raw_fd(), far)
}

pub const CHECKS: &[Check] = &[
    pair(
        "send_that_a_reset_behind_the_end_cuts_short",
        |s| {
            s.go();
            let sent = send(s.fd, &vec![7; MUCH], MSG_NOSIGNAL);
            s.say("sent some", sent.map(|sent| sent > 0 && sent < MUCH));
            s.poll();
            s.read(1);
            s.say("pending", getsockopt(s.fd, SOL_SOCKET, SO_ERROR));
            s.say("told", getsockopt(s.fd, SOL_SOCKET, SO_ERROR));
        },
        leave_unread,
    ),
    pair(
        "poll_that_loses_one_and_sees_another_shut_down",
        |s| {
            let (fd, (lost, _peer)) = (s.fd, another());
            let wish = |fd| pollfd {
                fd,
                events: POLLIN,
                revents: 0,
            };
            let (tells, told) = channel();
            let poller = spawn(move || {
                let _ = tells.send(thread_id());
                let mut both = [lost, fd].map(wish);
                // In vain it finds the one that is lost, too, when its time is over.
                let (began, limit) = (Instant::now(), Duration::from_secs(10));
                let found = poll(&mut both, i32::try_from(limit.as_millis()).ok());
                (found, both.map(|one| one.revents), began.elapsed() < limit)
            });
            until_asleep(told.recv().expect("it is sent"));
            s.say("close", close(lost));
            sleep(SHORT);
            s.say("still polls", !poller.is_finished());
            s.say("shutdown", shutdown(fd, SHUT_WR));
            let (found, [one, other], is_woken) = poller.join().expect("it does not panic");
            s.say("poll", found);
            s.say("woken", is_woken);
            s.say("lost", events_text(one));
            s.say("other", events_text(other));
            s.go();
        },
        |s| s.wait(),
    ),
    pair(
        "messages_behind_one_that_a_signal_cuts_short",
        |s| {
            let (fd, much) = (s.fd, vec![7; MUCH]);
            let parts = [&much[..], b"tail"].map(IoSlice::new);
            let sent = interrupted_before_far(s, 0, || sendmmsg(fd, &parts, MSG_NOSIGNAL));
            s.say("sendmmsg", sent);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        sevens_late,
    ),
    pair(
        "sendfile_that_loses_its_descriptor",
        |s| {
            let (fd, file) = (s.fd, file_of(&pattern(MUCH)).expect("a file can be made"));
            s.go();
            let sender = spawn(move || sendfile(fd, file, None, MUCH));
            sleep(SHORT);
            s.say("close", close(fd));
            let [out, into] = pipe().expect("a pipe can be made");
            s.say("again", [out, into].contains(&fd));
            s.say("sendfile", sender.join().expect("it does not panic"));
            s.say("in the pipe", poll_one(out, POLLIN, Some(0)));
        },
        listen_late,
    ),
    pair(
        "cancelled_in_a_splice_from_a_pipe",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            FROM.store(out, Ordering::Relaxed);
            s.say("piped", write(into, &[b'p'; 30_000]));
            fill_up(s.fd);
            s.say("cancelled", cancel_in(splice_it, s.fd, SHORT));
            let mut left = vec![0; 65536];
            let answer = read(out, &mut left);
            s.say("left", data(&left, answer));
            s.go();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        sevens_late,
    ),
    pair(
        "splice_from_a_pipe_and_a_signal_that_begins_it_again",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            s.say("piped", write(into, &[8; 30_000]));
            fill_up(s.fd);
            let fd = s.fd;
            let spliced = interrupted_before_far(s, SA_RESTART, || splice(out, fd, 30_000, 0));
            s.say("splice", spliced.map(|moved| moved > 0));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        in_order_late,
    ),
    pair(
        "splice_that_loses_its_descriptor",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            s.say("piped", write(into, &[8; 10_000]));
            fill_up(s.fd);
            let fd = s.fd;
            s.go();
            let mover = spawn(move || splice(out, fd, 10_000, 0));
            sleep(SHORT);
            s.say("close", close(fd));
            let [other, last] = pipe().expect("a pipe can be made");
            s.say("again", [other, last].contains(&fd));
            let moved = mover.join().expect("it does not panic");
            s.say("splice", moved.map(|moved| moved > 0));
            s.say("in the pipe", poll_one(other, POLLIN, Some(0)));
        },
        in_order_late,
    ),
    pair(
        "close_range_that_the_kernel_refuses",
        |s| {
            let number = s.fd.cast_unsigned();
            s.say("refused", close_range(number, number, 1 << 7));
            let turns = (0..TURNS).filter(|_| says(s.fd, b"word") && hears(s.fd, b"answer"));
            s.say("turns", turns.count());
        },
        |s| {
            let turns = (0..TURNS).filter(|_| hears(s.fd, b"word") && says(s.fd, b"answer"));
            s.say("turns", turns.count());
        },
    ),
    pair(
        "messages_without_a_name_that_has_a_length",
        |s| {
            let part = [IoSlice::new(b"word")];
            let speaks = |fd| sendmsg_with_name_length(fd, &part, 110, MSG_NOSIGNAL) == Ok(4);
            let turns = (0..TURNS).filter(|_| speaks(s.fd) && hears(s.fd, b"answer"));
            s.say("turns", turns.count());
        },
        |s| {
            let turns = (0..TURNS).filter(|_| hears(s.fd, b"word") && says(s.fd, b"answer"));
            s.say("turns", turns.count());
        },
    ),
];
