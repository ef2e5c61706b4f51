//! Ends of streams: close, shutdown, reset, and what each side sees of them.

use std::time::Duration;

use crosslane_exercise::calls::{
    close, epoll_create, epoll_ctl, epoll_wait, getsockname, read, recv, send, set_linger,
    shutdown, take_error,
};
use libc::{
    EPOLL_CTL_ADD, EPOLLIN, MSG_NOSIGNAL, POLLERR, POLLHUP, POLLIN, POLLRDHUP, SHUT_RD, SHUT_RDWR,
    SHUT_WR,
};

use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{digest, drain, hears, pattern, says};

/// Close so that the peer sees a reset.
fn reset(s: &Stage) {
    set_linger(s.fd, Some(0)).expect("SO_LINGER can be set");
    close(s.fd).expect("a connection can be closed");
}

fn read_thrice(s: &mut Stage) {
    (0..3).for_each(|_| s.read(100));
}

/// quick_exit(3).
fn quick_exit(status: i32) -> ! {
    unsafe extern "C" {
        fn quick_exit(status: i32) -> !;
    }
    // SAFETY: a number only.
    unsafe { quick_exit(status) }
}

/// Far: be killed before the last word is read.
fn killed(s: &mut Stage) {
    assert!((0..40).all(|_| hears(s.fd, b"word") && says(s.fd, b"word")));
    s.wait();
    s.die();
}

/// Near: the peer is killed before it has read all.
fn have_killed(s: &mut Stage, before: fn(&mut Stage)) {
    assert!((0..40).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
    s.send(b"unread");
    before(s);
    s.go();
    s.until_gone();
    // Its kernel has told ours by then.
    std::thread::sleep(Duration::from_millis(20));
}

fn is_tcp(s: &Stage) -> bool {
    getsockname(s.fd).is_ok_and(|name| name.address().is_some())
}

/// What is told of it, again and again.
fn told_of_killed(s: &mut Stage, ask: fn(&mut Stage)) {
    have_killed(s, |_| {});
    for _ in 0..3 {
        s.poll();
        ask(s);
    }
    s.poll();
}

/// What is told of it where this end had shut down before. Over AF_UNIX the library cannot tell that from a shutdown of the peer's
/// (docs/differences.md).
fn told_behind_shutdown(s: &mut Stage, how: fn(&mut Stage)) {
    have_killed(s, how);
    if !is_tcp(s) {
        return;
    }
    read_thrice(s);
    s.poll();
    s.send(b"more");
}

/// What the first send that is refused is told, where nothing is asked between sends. The first need not be: somebody has to see the
/// peer die.
fn send_until_refused(s: &mut Stage) {
    let mut sends = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        send(s.fd, &[7; 20], MSG_NOSIGNAL)
    });
    let refused = sends.find(Result::is_err).unwrap_or(Ok(0));
    s.say("refused", refused);
}

pub const CHECKS: &[Check] = &[
    pair(
        "killed_before_it_has_read_and_only_sent_to",
        |s| {
            have_killed(s, |_| {});
            send_until_refused(s);
            s.send(b"more");
            s.read(100);
        },
        killed,
    ),
    pair(
        "killed_and_only_sent_to",
        |s| {
            assert!((0..40).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
            s.go();
            s.until_gone();
            send_until_refused(s);
            s.send(b"more");
            s.read(100);
        },
        killed,
    ),
    pair(
        "killed_before_it_has_read_and_sent_to",
        |s| told_of_killed(s, |s| s.send(b"more")),
        killed,
    ),
    pair(
        "killed_and_sent_nothing",
        |s| {
            assert!((0..40).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
            s.go();
            s.until_gone();
            s.until(POLLRDHUP);
            s.send(b"");
            s.send(b"x");
            pause();
            s.send(b"x");
        },
        killed,
    ),
    pair(
        "killed_before_it_has_read_behind_an_end",
        |s| told_behind_shutdown(s, |s| s.say("end", shutdown(s.fd, SHUT_WR))),
        killed,
    ),
    pair(
        "killed_in_the_middle_of_an_answer_to_who_has_ended",
        |s| {
            assert!((0..40).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
            s.send(&pattern(1000));
            s.say("end", shutdown(s.fd, SHUT_WR));
            s.go();
            s.until_gone();
            s.until(POLLRDHUP);
            s.read_exactly(300);
            if is_tcp(s) {
                s.poll();
                read_thrice(s);
            }
        },
        |s| {
            assert!((0..40).all(|_| hears(s.fd, b"word") && says(s.fd, b"word")));
            s.wait();
            s.read(500);
            s.send(&pattern(300));
            s.die();
        },
    ),
    pair(
        "killed_before_it_has_read_of_who_reads_no_more",
        |s| told_behind_shutdown(s, |s| s.say("end", shutdown(s.fd, SHUT_RD))),
        killed,
    ),
    pair(
        "killed_before_it_has_read_and_asked_at_once",
        |s| {
            have_killed(s, |_| {});
            s.say("error", take_error(s.fd));
            s.say("error", take_error(s.fd));
            read_thrice(s);
        },
        killed,
    ),
    pair(
        "killed_before_it_has_read_and_shut_down_at_once",
        |s| {
            have_killed(s, |_| {});
            if is_tcp(s) {
                s.say("end", shutdown(s.fd, SHUT_WR));
                read_thrice(s);
            }
        },
        killed,
    ),
    pair(
        "killed_before_it_has_read_and_asked_for_the_error",
        |s| {
            told_of_killed(s, |s| {
                s.say("error", take_error(s.fd));
            });
        },
        killed,
    ),
    pair(
        "killed_before_it_has_read",
        |s| {
            assert!((0..40).all(|_| says(s.fd, b"word") && hears(s.fd, b"word")));
            s.send(b"unread");
            s.go();
            s.until_gone();
            s.read(100);
            s.read(100);
        },
        |s| {
            assert!((0..40).all(|_| hears(s.fd, b"word") && says(s.fd, b"word")));
            s.wait();
            s.die();
        },
    ),
    pair(
        "eof_after_data",
        |s| {
            s.until(POLLRDHUP);
            read_thrice(s);
            s.poll();
        },
        |s| {
            s.send(b"hello");
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "eof_after_much_data",
        |s| s.say("drained", drain(s.fd).map(|bytes| digest(&bytes))),
        |s| {
            s.send(&pattern(3_000_000));
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "eof_without_data",
        |s| {
            s.until(POLLRDHUP);
            read_thrice(s);
        },
        |s| s.say("close", close(s.fd)),
    ),
    pair(
        "eof_wakes_a_blocked_reader",
        |s| {
            s.go();
            read_thrice(s);
        },
        |s| {
            s.wait();
            pause();
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "reset_after_data",
        |s| {
            s.until(POLLIN);
            s.go();
            s.until(POLLHUP);
            s.poll();
            read_thrice(s);
        },
        |s| {
            s.send(b"hello");
            s.wait();
            reset(s);
        },
    ),
    pair(
        "reset_without_data",
        |s| {
            s.until(POLLHUP);
            s.poll();
            read_thrice(s);
        },
        |s| reset(s),
    ),
    pair(
        "reset_wakes_a_blocked_reader",
        |s| {
            s.go();
            read_thrice(s);
        },
        |s| {
            s.wait();
            pause();
            reset(s);
        },
    ),
    pair(
        "reset_wakes_a_blocked_writer",
        |s| {
            s.go();
            let bytes = vec![7; 64 << 20];
            // Whether the send that is cut off tells of what it had taken, and whether the error has
            // been told by then, is a matter of moments.
            let mut sent = send(s.fd, &bytes, MSG_NOSIGNAL);
            while sent.is_ok() {
                sent = send(s.fd, &bytes, MSG_NOSIGNAL);
            }
            s.say("sent", sent);
            s.say("send", send(s.fd, b"x", MSG_NOSIGNAL));
            s.say("send", send(s.fd, b"x", MSG_NOSIGNAL));
        },
        |s| {
            s.wait();
            pause();
            reset(s);
        },
    ),
    pair(
        "reset_seen_by_a_writer",
        |s| {
            s.until(POLLHUP);
            s.send(b"x");
            s.send(b"x");
            s.read(10);
        },
        |s| reset(s),
    ),
    pair(
        "reset_seen_by_so_error",
        |s| {
            s.until(POLLHUP);
            s.say("error", take_error(s.fd));
            s.say("error", take_error(s.fd));
            s.read(10);
            s.send(b"x");
        },
        |s| reset(s),
    ),
    pair(
        "close_with_unread_data_resets_the_peer",
        |s| {
            s.send(&pattern(100));
            s.until(POLLERR | POLLHUP);
            s.poll();
            read_thrice(s);
            s.send(b"x");
        },
        |s| {
            s.until(POLLIN);
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "close_with_unread_data_after_a_last_word",
        |s| {
            s.send(&pattern(100));
            s.until(POLLERR | POLLHUP);
            read_thrice(s);
        },
        |s| {
            s.until(POLLIN);
            s.send(b"bye");
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "close_with_partly_read_data_resets_the_peer",
        |s| {
            s.send(&pattern(100));
            s.until(POLLERR | POLLHUP);
            read_thrice(s);
        },
        |s| {
            s.read(99);
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "data_to_a_closed_peer",
        |s| {
            s.until(POLLRDHUP);
            s.send(b"into the void");
            s.until(POLLERR | POLLHUP);
            s.poll();
            s.send(b"x");
            s.read(10);
            s.send(b"x");
        },
        |s| s.say("close", close(s.fd)),
    ),
    pair(
        "data_to_a_closed_peer_without_a_look",
        |s| {
            s.wait();
            s.send(b"into the void");
            s.say("error", take_error(s.fd));
            s.send(b"x");
            s.send(b"x");
        },
        |s| {
            s.say("close", close(s.fd));
            s.go();
        },
    ),
    pair(
        "end_before_the_answer_to_data_for_nobody",
        |s| {
            s.wait();
            s.send(b"into the void");
            s.until(POLLHUP);
            s.read(10);
            s.read(10);
            s.poll();
            s.send(b"x");
            s.say("error", take_error(s.fd));
            s.read(10);
        },
        |s| {
            s.say("close", close(s.fd));
            s.go();
        },
    ),
    pair(
        "nothing_after_shutting_down_reading",
        |s| {
            s.say("recv", recv(s.fd, &mut [0], libc::MSG_DONTWAIT));
            s.say("shutdown", shutdown(s.fd, SHUT_RD));
            s.say("recv", recv(s.fd, &mut [0], libc::MSG_DONTWAIT));
            s.say("recv", recv(s.fd, &mut [0], 0));
            s.poll();
            s.go();
        },
        |s| s.wait(),
    ),
    pair(
        "half_close",
        |s| {
            s.until(POLLRDHUP);
            s.poll();
            s.read(100);
            s.read(100);
            s.send(b"after your end");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.until(POLLHUP);
            s.poll();
        },
        |s| {
            s.send(b"mine");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.until(POLLHUP);
            read_thrice(s);
        },
    ),
    pair(
        "half_close_with_much_to_come",
        |s| {
            s.say("took", drain(s.fd).map(|bytes| digest(&bytes)));
            s.send(&pattern(2_000_000));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
        |s| {
            s.send(&pattern(500_000));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.say("took", drain(s.fd).map(|bytes| digest(&bytes)));
        },
    ),
    pair(
        "write_after_shutdown",
        |s| {
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.send(b"x");
            s.say("again", shutdown(s.fd, SHUT_WR));
            s.poll();
            s.go();
            s.read(10);
        },
        |s| {
            s.wait();
            s.read(10);
            s.send(b"still here");
        },
    ),
    pair(
        "shutdown_for_reading",
        |s| {
            s.say("shutdown", shutdown(s.fd, SHUT_RD));
            s.poll();
            s.read(10);
            s.go();
            s.until(POLLIN);
            s.wait();
            s.read(10);
            s.read(10);
            s.send(b"out");
        },
        |s| {
            s.wait();
            s.send(b"late");
            s.go();
            s.read(10);
        },
    ),
    pair(
        "shutdown_of_both",
        |s| {
            s.say("shutdown", shutdown(s.fd, SHUT_RDWR));
            s.read(10);
            s.send(b"x");
            s.go();
        },
        |s| {
            s.wait();
            s.read(10);
            s.send(b"x");
        },
    ),
    pair(
        "shutdown_of_nonsense",
        |s| {
            s.say("shutdown", shutdown(s.fd, 7));
            s.say("shutdown", shutdown(s.fd, -1));
            s.send(b"unharmed");
        },
        |s| s.read(100),
    ),
    solo("shutdown_without_a_connection", |s| {
        let fd = crosslane_exercise::calls::socket(libc::AF_INET, 0).expect("a socket");
        s.say("shutdown", shutdown(fd, SHUT_WR));
        s.say("closed", close(fd));
        s.say("shutdown", shutdown(fd, SHUT_WR));
    }),
    pair(
        "linger_until_delivered",
        |s| {
            s.wait();
            s.say("drained", drain(s.fd).map(|bytes| digest(&bytes)));
        },
        |s| {
            s.send(&pattern(200_000));
            s.say("linger", set_linger(s.fd, Some(5)));
            s.go();
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "closed_descriptors_are_gone",
        |s| {
            s.say("close", close(s.fd));
            s.say("close", close(s.fd));
            s.say("read", read(s.fd, &mut [0]));
            s.say("recv", recv(s.fd, &mut [0], 0));
            s.say("send", send(s.fd, b"x", MSG_NOSIGNAL));
            s.poll();
        },
        |s| s.read(10),
    ),
    pair(
        "exit_closes",
        |s| {
            s.until(POLLRDHUP);
            read_thrice(s);
        },
        |s| {
            s.send(b"last words");
            s.hand_over_trace_and(std::process::exit);
        },
    ),
    // A doorbell that several sets hear of is left on TCP, and an end by it alone would be a reset.
    pair(
        "quick_exit_beside_two_sets",
        |s| {
            s.wait();
            pause();
            s.send(b"word");
            s.until(POLLRDHUP);
            read_thrice(s);
        },
        |s| {
            let sets = [epoll_create(), epoll_create()].map(|set| set.expect("a set can be made"));
            for set in sets {
                let wish = EPOLLIN.cast_unsigned();
                epoll_ctl(set, EPOLL_CTL_ADD, s.fd, wish, 1).expect("it can be registered");
            }
            s.go();
            epoll_wait(sets[0], 1, None).expect("a wait ends");
            s.read(10);
            s.send(b"last words");
            s.hand_over_trace_and(quick_exit);
        },
    ),
];

/// Long enough for the other side to have gone to sleep.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(30));
}
