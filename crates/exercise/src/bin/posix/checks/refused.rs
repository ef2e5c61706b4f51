//! What the kernel finds out before it moves anything, and whom it asks first.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use crosslane_exercise::Answer;
use crosslane_exercise::calls::{
    close, connect_to_nobody, epoll_create, eventfd, file_of, pipe, ppoll_by_number, ppoll_for,
    preadv2, pselect_by_number, pwritev2, read, readv_and_then, recvfrom_with_name,
    recvfrom_without_length, recvmmsg, recvmmsg_for, recvmsg, recvmsg_with_name,
    recvmsg_with_name_length, sendfile, sendmmsg, sendmsg, sendmsg_claiming, sendmsg_to_name,
    sendto_name, set_nonblocking, shutdown, socketpair, splice, thread_id, write,
};
use libc::{MSG_DONTWAIT, POLLIN, SHUT_WR, SPLICE_F_NONBLOCK};

use super::asleep::until_asleep;
use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{Shown, data, digest, drain, pattern};

/// Above all that a program can have.
const BEYOND: usize = 1 << 47;

fn made() -> [i32; 2] {
    pipe().expect("a pipe can be made")
}

fn piped(s: &mut Stage, out: i32) {
    let mut buffer = [0; 100];
    set_nonblocking(out, true).expect("a flag can be set");
    let answer = read(out, &mut buffer);
    s.say("piped", data(&buffer, answer));
}

/// Fill the connection until it takes no more.
fn fill(s: &Stage) {
    let bytes = pattern(1 << 16);
    while crosslane_exercise::calls::send(s.fd, &bytes, MSG_DONTWAIT).is_ok() {}
}

pub const CHECKS: &[Check] = &[
    pair(
        "sendfile_into_a_pipe",
        |s| {
            let [out, into] = made();
            s.until(POLLIN);
            s.say("sendfile", sendfile(into, s.fd, None, 100));
            piped(s, out);
            s.send(b"more");
            s.read(10);
        },
        |s| {
            s.send(b"for a pipe");
            s.read(4);
            s.send(b"unharmed");
        },
    ),
    pair(
        "splice_by_the_wrong_end_of_a_pipe",
        |s| {
            let [out, into] = made();
            s.until(POLLIN);
            s.say("into its reader", splice(s.fd, out, 100, 0));
            s.say("from its writer", splice(into, s.fd, 100, 0));
            s.say("by unknown flags", splice(s.fd, into, 100, 1 << 9));
            s.read(100);
        },
        |s| s.send(b"all of it"),
    ),
    pair(
        "refused_splices_leave_what_is_unread",
        |s| {
            let [out, into] = made();
            let file = crosslane_exercise::calls::file_of(b"bytes").expect("a file can be made");
            s.until(POLLIN);
            s.say("to a file", splice(s.fd, file, 5, 0));
            s.say("tee", crosslane_exercise::calls::tee(s.fd, into, 5, 0));
            s.say(
                "vmsplice",
                crosslane_exercise::calls::vmsplice(s.fd, b"x", 0),
            );
            close(out).expect("it is open");
            s.read(100);
            s.go();
        },
        |s| {
            s.send(b"unread");
            // Makes no call on the connection meanwhile.
            s.wait();
        },
    ),
    pair(
        "splice_waits_for_the_pipe_first",
        |s| {
            let [out, into] = made();
            fill(s);
            set_nonblocking(out, true).expect("a flag can be set");
            s.say("empty", splice(out, s.fd, 10, 0));
            set_nonblocking(out, false).expect("a flag can be set");
            s.say("empty", splice(out, s.fd, 10, SPLICE_F_NONBLOCK));
            close(into).expect("it is open");
            s.say("over", splice(out, s.fd, 10, 0));
            s.go();
        },
        |s| s.wait(),
    ),
    pair(
        "splice_flag_is_about_the_pipe",
        |s| {
            let [out, into] = made();
            s.say("write", write(into, b"last"));
            fill(s);
            s.go();
            let fd = s.fd;
            let splicing = std::thread::spawn(move || splice(out, fd, 10, SPLICE_F_NONBLOCK));
            s.say("splice", splicing.join().expect("it does not panic"));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        |s| {
            s.wait();
            let came = drain(s.fd).expect("it ends in good order");
            s.say("last", digest(&came[came.len() - 4..]));
        },
    ),
    pair(
        "shutdown_while_a_splice_waits_for_the_pipe",
        |s| {
            let [out, into] = made();
            let fd = s.fd;
            let (tell, told) = std::sync::mpsc::channel();
            let splicing = std::thread::spawn(move || {
                tell.send(thread_id()).expect("it is waited for");
                splice(out, fd, 10, 0)
            });
            until_asleep(told.recv().expect("it is sent"));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.say("write", write(into, b"kept"));
            s.say("splice", splicing.join().expect("it does not panic"));
            piped(s, out);
        },
        |s| s.read(10),
    ),
    pair(
        "preadv2_without_waiting",
        |s| {
            let mut buffer = [0; 10];
            let mut parts = [IoSliceMut::new(&mut buffer)];
            s.say("none", preadv2(s.fd, &mut parts, -1, libc::RWF_NOWAIT));
            s.go();
            s.until(POLLIN);
            let answer = preadv2(s.fd, &mut parts, -1, libc::RWF_NOWAIT);
            s.say("some", data(&buffer, answer));
            let parts = [IoSlice::new(b"by pwritev2")];
            s.say("nowait", pwritev2(s.fd, &parts, -1, libc::RWF_NOWAIT));
            s.say("dsync", pwritev2(s.fd, &parts, -1, libc::RWF_DSYNC));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        |s| {
            s.wait();
            s.send(b"here and more that is left unread");
            s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
        },
    ),
    pair(
        "parts_that_are_refused_before_anything_is_taken",
        |s| {
            let mut four = [0; 4];
            s.say(
                "too long",
                readv_and_then(s.fd, &mut four, 1 << 20, usize::MAX),
            );
            s.say("beyond", readv_and_then(s.fd, &mut four, BEYOND, 10));
            s.say(
                "over the edge",
                readv_and_then(s.fd, &mut four, BEYOND - 5, 10),
            );
            s.go();
            s.until(POLLIN);
            s.say(
                "too long",
                readv_and_then(s.fd, &mut four, 1 << 20, usize::MAX),
            );
            s.say("beyond", readv_and_then(s.fd, &mut four, BEYOND, 10));
            s.read(100);
        },
        |s| {
            s.wait();
            s.send(b"nothing is taken");
        },
    ),
    pair(
        "lengths_of_names",
        |s| {
            s.until(POLLIN);
            let mut buffer = [0; 4];
            s.say("no room", recvfrom_without_length(s.fd, &mut buffer));
            let told = recvmsg_with_name_length(s.fd, &mut buffer, 123);
            s.say("no name", told.map(|told| format!("{told:?}")));
            s.say("too short", connect_to_nobody(s.fd, 1));
            s.say("too long", connect_to_nobody(s.fd, 500));
            s.read(100);
        },
        |s| s.send(b"abcdefghijkl"),
    ),
    pair(
        "lengths_of_names_that_are_refused",
        |s| {
            const NEGATIVE: u32 = u32::MAX;
            s.until(POLLIN);
            let mut buffer = [0; 4];
            s.say("sendmsg", sendmsg_to_name(s.fd, b"no", NEGATIVE));
            s.say("sendmsg", sendmsg_to_name(s.fd, b"yes", 500));
            s.say("sendto", sendto_name(s.fd, b"no", NEGATIVE));
            s.say("sendto", sendto_name(s.fd, b"no", 500));
            s.say("recvmsg", recvmsg_with_name(s.fd, &mut buffer, NEGATIVE));
            s.say("recvmsg", recvmsg_with_name(s.fd, &mut buffer, 500));
            s.say("recvfrom", recvfrom_with_name(s.fd, &mut buffer, NEGATIVE));
            s.say("recvfrom", recvfrom_with_name(s.fd, &mut buffer, 500));
            s.read(100);
            s.send(b"unharmed");
            s.go();
        },
        |s| {
            s.send(b"abcdefghijklmnopqrst");
            s.wait();
            s.read(100);
        },
    ),
    pair(
        "flags_of_32_bits",
        |s| {
            const COMPAT: i32 = i32::MIN;
            s.until(POLLIN);
            let mut buffer = [0; 4];
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let received = recvmsg(s.fd, &mut parts, COMPAT);
            s.say("recvmsg", received.map(|received| received.bytes));
            let received = recvmmsg(s.fd, &mut parts, COMPAT);
            s.say("recvmmsg", received.map(|lengths| lengths.len()));
            s.say("sendmsg", sendmsg(s.fd, &[IoSlice::new(b"no")], COMPAT));
            s.say("sendmmsg", sendmmsg(s.fd, &[IoSlice::new(b"no")], COMPAT));
            s.read(100);
            s.send(b"unharmed");
        },
        |s| {
            s.send(b"word");
            s.read(100);
        },
    ),
    pair(
        "sendfile_of_what_is_no_file",
        |s| {
            let event = eventfd().expect("an event can be made");
            s.say("event", sendfile(s.fd, event, None, 8));
            s.say("its place", sendfile(s.fd, event, Some(&mut 0), 8));
            let set = epoll_create().expect("a set can be made");
            s.say("set", sendfile(s.fd, set, None, 8));
            s.say("its place", sendfile(s.fd, set, Some(&mut 0), 8));
            let file = file_of(b"bytes").expect("a file can be made");
            s.say("too much", sendfile(s.fd, file, None, usize::MAX));
            s.say("too much", sendfile(s.fd, file, Some(&mut 0), 1 << 63));
            s.send(b"unharmed");
        },
        |s| s.read(100),
    ),
    pair(
        "waits_by_number",
        |s| {
            const LONG: Duration = Duration::from_secs(5);
            let told = |(answer, left): (Answer, i64)| {
                let spent = 5000 - left;
                format!("{} after {}", answer.shown(), spent / 40 * 40)
            };
            let short = |(answer, left): (Answer, i64)| format!("{}, {left} left", answer.shown());
            for wait in [ppoll_by_number, pselect_by_number] {
                s.say("in vain", short(wait(s.fd, LONG / 100, 8)));
                s.say("no mask", told(wait(s.fd, LONG, 128)));
                s.say("none", short(wait(s.fd, Duration::ZERO, 8)));
            }
            s.go();
            s.until(POLLIN);
            for wait in [ppoll_by_number, pselect_by_number] {
                s.say("at once", told(wait(s.fd, LONG, 8)));
            }
            s.read(100);
        },
        |s| {
            s.wait();
            s.send(b"word");
        },
    ),
    pair(
        "times_that_are_none",
        |s| {
            s.say("negative", ppoll_for(s.fd, -1, 0));
            s.say("too many", ppoll_for(s.fd, 0, 1_000_000_000));
            s.say("none", ppoll_for(s.fd, 0, 0));
            s.send(b"unharmed");
        },
        |s| s.read(100),
    ),
    pair(
        "recvmmsg_tells_how_much_time_is_left",
        |s| {
            s.until(POLLIN);
            let mut buffer = [0; 4];
            let told = recvmmsg_for(s.fd, &mut buffer, 50);
            let told = told.map(|(came, left)| format!("{came}, less: {}", left.tv_sec < 50));
            s.say("recvmmsg", told);
            s.read(100);
        },
        |s| s.send(b"abcdefgh"),
    ),
    solo("control_messages_that_are_longer_than_their_room", |s| {
        let [one, other] = socketpair().expect("a pair can be made");
        let header = size_of::<libc::cmsghdr>();
        for length in [0, header - 1, header + 9, 4096, usize::MAX] {
            s.say("sendmsg", sendmsg_claiming(one, other, length));
        }
        s.say("sendmsg", sendmsg_claiming(one, other, header + 4));
    }),
];
