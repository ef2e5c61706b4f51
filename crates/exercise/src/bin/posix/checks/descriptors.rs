//! Several descriptors of one connection, and connections handed to others.

use std::time::Duration;

use crosslane_exercise::calls::{
    close, close_range, dup, dup2, dup3, epoll_create, epoll_ctl, epoll_wait, exit_now, fcntl,
    file_type, fork, getsockopt, poll_one, read, receive_fd, send, send_fd, setsockopt, shutdown,
    socketpair, take_own, wait_for, write,
};
use libc::{
    EPOLL_CTL_ADD, EPOLLIN, EPOLLONESHOT, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, MSG_NOSIGNAL, POLLIN,
    POLLRDHUP, SHUT_WR, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, drain, events_text, hears, pattern, says, take};

/// A number that nothing else uses.
const HIGH: i32 = 700;

/// Words of a long talk.
const ROUNDS: u32 = 200;

const IN: u32 = EPOLLIN.cast_unsigned();

/// More than the kernel takes of a connection whose buffers are so small.
const MUCH: usize = 2 << 20;
const BUFFER: i32 = 64 << 10;

fn read_from(s: &mut Stage, what: &str, fd: i32) {
    let mut buffer = [0; 100];
    let answer = read(fd, &mut buffer);
    s.say(what, data(&buffer, answer));
}

/// Far: send two words and read to the end.
fn two_words_then_listen(s: &mut Stage) {
    s.send(b"one");
    s.wait();
    s.send(b"two");
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

/// Far: repeat every word in capitals until the end.
fn echo(s: &mut Stage) {
    let mut buffer = [0; 100];
    while let Ok(count @ 1..) = read(s.fd, &mut buffer) {
        let loud = buffer[..count].to_ascii_uppercase();
        send(s.fd, &loud, MSG_NOSIGNAL).expect("somebody listens");
    }
    s.say("end", true);
}

/// Talk to [`echo`] for as many words as a connection needs to change its ways, and back.
fn talks(fd: i32) -> bool {
    (0..ROUNDS).all(|_| says(fd, b"word") && hears(fd, b"WORD"))
}

/// Pass the connection to a child that had been made before it, keep nothing, and see whether it gets
/// on with it.
fn pass_to_child(s: &mut Stage, child: impl FnOnce(i32) -> bool) {
    let [ours, theirs] = socketpair().expect("a pair can be made");
    let own = s.fd;
    let pid = match fork().expect("a process can be made") {
        Some(pid) => pid,
        None => {
            close(own).expect("it is open");
            let passed = receive_fd(theirs).expect("it was passed");
            exit_now(i32::from(!child(passed)))
        }
    };
    s.say("pass", send_fd(ours, s.fd));
    s.say("close", close(s.fd));
    s.say("child", wait_for(pid));
    s.go();
}

/// Pass the connection on when there is much to come, to a child that answers it.
fn pass_with_much_to_come(s: &mut Stage) {
    setsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, BUFFER).expect("a buffer can be made smaller");
    s.go();
    // It has been sent by then, or waits for room.
    std::thread::sleep(Duration::from_millis(100));
    pass_to_child(s, |fd| {
        take(fd, MUCH).is_ok_and(|bytes| bytes == pattern(MUCH)) && says(fd, b"child")
    });
}

fn say_much(s: &mut Stage) {
    setsockopt(s.fd, SOL_SOCKET, SO_SNDBUF, BUFFER).expect("a buffer can be made smaller");
    s.wait();
    s.send(&pattern(MUCH));
}

/// Far: say much, and wait for the answer in a set.
fn say_much_and_wait_in_a_set(s: &mut Stage, also: i32) {
    let set = epoll_create().expect("a set can be made");
    let events = (EPOLLIN | also).cast_unsigned();
    s.say("add", epoll_ctl(set, EPOLL_CTL_ADD, s.fd, events, 1));
    say_much(s);
    // The child may have ended by then.
    let reads = |told: Vec<(u32, u64)>| told.iter().all(|(events, _)| events & IN != 0);
    s.say("set", epoll_wait(set, 1, None).map(reads));
    s.read(100);
}

pub const CHECKS: &[Check] = &[
    pair(
        "dup_is_the_same_connection",
        |s| {
            let twin = dup(s.fd).expect("a descriptor is free");
            read_from(s, "twin", twin);
            s.go();
            s.read(100);
            s.send(b"a");
            s.say("twin", send(twin, b"b", MSG_NOSIGNAL));
            s.say("close", close(s.fd));
            s.say("twin", send(twin, b"c", MSG_NOSIGNAL));
            s.say("close", close(twin));
        },
        two_words_then_listen,
    ),
    pair(
        "dup2_onto_a_number",
        |s| {
            s.say("dup2", dup2(s.fd, HIGH));
            s.say("same", dup2(s.fd, s.fd).is_ok_and(|fd| fd == s.fd));
            s.say("close", close(s.fd));
            read_from(s, "twin", HIGH);
            s.go();
            read_from(s, "twin", HIGH);
            s.say("write", write(HIGH, b"x"));
            s.say("close", close(HIGH));
        },
        two_words_then_listen,
    ),
    pair(
        "dup2_onto_a_connection_closes_it",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("dup2", dup2(ours, s.fd).is_ok_and(|fd| fd == s.fd));
            s.go();
            s.say("write", write(theirs, b"other"));
            s.read(100);
            s.send(b"back");
            read_from(s, "theirs", theirs);
        },
        |s| {
            s.wait();
            s.until(POLLRDHUP);
            s.read(100);
        },
    ),
    pair(
        "dup2_of_nothing_changes_nothing",
        |s| {
            s.say("dup2", dup2(4000, s.fd));
            s.say("dup3", dup3(s.fd, s.fd, 0));
            s.send(b"alive");
        },
        |s| s.read(100),
    ),
    pair(
        "dup3_and_fcntl",
        |s| {
            s.say("dup3", dup3(s.fd, HIGH, libc::O_CLOEXEC));
            s.say("flags", fcntl(HIGH, F_GETFD, 0));
            let low = fcntl(s.fd, F_DUPFD, HIGH);
            s.say("dupfd", low);
            s.say("flags", fcntl(HIGH + 1, F_GETFD, 0));
            s.say("dupfd", fcntl(s.fd, F_DUPFD_CLOEXEC, HIGH));
            s.say("flags", fcntl(HIGH + 2, F_GETFD, 0));
            s.say("close", close(s.fd));
            s.say("close", close(HIGH));
            read_from(s, "twin", HIGH + 1);
            s.go();
            read_from(s, "twin", HIGH + 2);
            s.say("write", write(HIGH + 2, b"x"));
            s.say("close", close(HIGH + 1));
            s.say("close", close(HIGH + 2));
        },
        two_words_then_listen,
    ),
    pair(
        "close_range_closes",
        |s| {
            let fd = u32::try_from(s.fd).expect("a descriptor is positive");
            s.say("close_range", close_range(fd, fd, 0));
            s.say("read", read(s.fd, &mut [0]));
        },
        |s| {
            s.until(POLLRDHUP);
            s.read(10);
        },
    ),
    pair(
        "close_range_for_exec_only",
        |s| {
            let fd = u32::try_from(s.fd).expect("a descriptor is positive");
            s.say(
                "close_range",
                close_range(fd, fd, libc::CLOSE_RANGE_CLOEXEC),
            );
            s.say("flags", fcntl(s.fd, F_GETFD, 0));
            s.send(b"alive");
        },
        |s| s.read(10),
    ),
    pair(
        "a_number_used_again",
        |s| {
            let number = s.fd;
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("close", close(number));
            let reused = dup2(ours, number).is_ok_and(|fd| fd == number);
            s.say("reused", reused);
            s.say("write", write(theirs, b"fresh"));
            s.read(100);
            s.say("poll", poll_one(number, POLLIN, Some(0)).map(events_text));
            let domain = getsockopt(number, libc::SOL_SOCKET, libc::SO_DOMAIN);
            s.say("unix", domain == Ok(libc::AF_UNIX));
        },
        |s| s.read(10),
    ),
    pair(
        "it_is_a_socket",
        |s| s.say("socket", file_type(s.fd).map(|kind| kind == libc::S_IFSOCK)),
        |_| {},
    ),
    pair(
        "passed_over_a_unix_socket",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("pass", send_fd(ours, s.fd));
            let twin = receive_fd(theirs).expect("it was passed");
            s.say("close", close(s.fd));
            read_from(s, "twin", twin);
            s.go();
            read_from(s, "twin", twin);
            s.say("write", write(twin, b"from the twin"));
            s.say("close", close(twin));
        },
        two_words_then_listen,
    ),
    pair(
        "passed_and_kept",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("pass", send_fd(ours, s.fd));
            let twin = receive_fd(theirs).expect("it was passed");
            let mut two = [0; 2];
            let answer = read(twin, &mut two);
            s.say("twin", data(&two, answer));
            s.read(100);
            s.go();
            s.read(100);
            s.say("close", close(s.fd));
            s.say("write", write(twin, b"from the twin"));
            s.say("close", close(twin));
        },
        two_words_then_listen,
    ),
    pair(
        "passed_to_a_child",
        |s| pass_to_child(s, |fd| hears(fd, b"one") && says(fd, b"child")),
        two_words_then_listen,
    ),
    pair(
        "passed_to_a_child_that_waits_for_events",
        |s| {
            pass_to_child(s, |fd| {
                poll_one(fd, POLLIN, Some(5000)) == Ok(POLLIN)
                    && hears(fd, b"one")
                    && poll_one(fd, POLLIN, Some(0)) == Ok(0)
                    && says(fd, b"child")
            });
        },
        two_words_then_listen,
    ),
    pair(
        "passed_while_the_peer_that_has_said_much_receives",
        pass_with_much_to_come,
        |s| {
            say_much(s);
            s.read(100);
        },
    ),
    pair(
        "passed_while_the_peer_that_has_said_much_polls",
        pass_with_much_to_come,
        |s| {
            say_much(s);
            s.until(POLLIN);
            s.read(100);
        },
    ),
    pair(
        "passed_while_the_peer_that_has_said_much_waits_in_a_set",
        pass_with_much_to_come,
        |s| say_much_and_wait_in_a_set(s, 0),
    ),
    pair(
        "passed_while_the_peer_that_has_said_much_waits_once_in_a_set",
        pass_with_much_to_come,
        |s| say_much_and_wait_in_a_set(s, EPOLLONESHOT),
    ),
    pair(
        "passed_to_a_child_that_forks",
        |s| {
            pass_to_child(s, |fd| {
                let grandchild = match fork().expect("a process can be made") {
                    Some(pid) => pid,
                    None => exit_now(i32::from(!hears(fd, b"on"))),
                };
                wait_for(grandchild) == Ok(0) && hears(fd, b"e") && says(fd, b"child")
            });
        },
        two_words_then_listen,
    ),
    pair(
        "passed_after_the_peer_has_shut_down",
        |s| {
            s.until(POLLRDHUP);
            pass_to_child(s, |fd| {
                hears(fd, b"all there is") && read(fd, &mut [0]) == Ok(0) && says(fd, b"thanks")
            });
        },
        |s| {
            s.send(b"all there is");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
        },
    ),
    pair(
        "taken_from_itself",
        |s| {
            let copy = take_own(s.fd).expect("a process may take from itself");
            s.say("talk by the copy", talks(copy));
            s.say("talk", talks(s.fd));
            s.say("close", close(s.fd));
            s.say("talk by the copy alone", talks(copy));
            s.say("close", close(copy));
        },
        echo,
    ),
    pair(
        "passed_to_nobody",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("pass", send_fd(ours, s.fd));
            s.say("close", close(theirs));
            s.read(100);
            s.go();
            s.read(100);
            s.send(b"still here");
            s.say("close", close(s.fd));
        },
        two_words_then_listen,
    ),
    pair(
        "passed_to_a_child_that_talks",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            let own = s.fd;
            let pid = match fork().expect("a process can be made") {
                Some(pid) => pid,
                None => {
                    close(own).expect("it is open");
                    let passed = receive_fd(theirs).expect("it was passed");
                    exit_now(i32::from(!talks(passed)))
                }
            };
            s.say("talk", talks(s.fd));
            s.say("pass", send_fd(ours, s.fd));
            s.say("close", close(s.fd));
            s.say("child", wait_for(pid));
        },
        echo,
    ),
    pair(
        "passed_there_and_back",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            let own = s.fd;
            let pid = match fork().expect("a process can be made") {
                Some(pid) => pid,
                None => {
                    close(own).expect("it is open");
                    let is_well = (0..3).all(|_| {
                        let passed = receive_fd(theirs).expect("it was passed");
                        talks(passed) && send_fd(theirs, passed).is_ok() && close(passed).is_ok()
                    });
                    exit_now(i32::from(!is_well))
                }
            };
            let mut fd = s.fd;
            for _ in 0..3 {
                s.say("talk", talks(fd));
                s.say("pass", send_fd(ours, fd));
                s.say("close", close(fd));
                fd = receive_fd(ours).expect("it was passed");
            }
            s.say("talk", talks(fd));
            s.say("close", close(fd));
            s.say("child", wait_for(pid));
        },
        echo,
    ),
    pair(
        "passed_kept_and_used_in_turn",
        |s| {
            let [ours, theirs] = socketpair().expect("a pair can be made");
            let [go, gone] = socketpair().expect("a pair can be made");
            let own = s.fd;
            let pid = match fork().expect("a process can be made") {
                Some(pid) => pid,
                None => {
                    close(own).expect("it is open");
                    let passed = receive_fd(theirs).expect("it was passed");
                    let is_well =
                        (0..3).all(|_| hears(gone, b"go") && talks(passed) && says(gone, b"on"));
                    exit_now(i32::from(!is_well))
                }
            };
            s.say("pass", send_fd(ours, s.fd));
            for _ in 0..3 {
                s.say("talk", talks(s.fd));
                s.say("turn", says(go, b"go") && hears(go, b"on"));
            }
            s.say("child", wait_for(pid));
            s.say("talk", talks(s.fd));
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "passed_at_both_ends",
        |s| {
            pass_to_child(s, |fd| hears(fd, b"one") && talks(fd));
        },
        |s| {
            s.send(b"one");
            let [ours, theirs] = socketpair().expect("a pair can be made");
            s.say("pass", send_fd(ours, s.fd));
            s.say("close", close(s.fd));
            s.fd = receive_fd(theirs).expect("it was passed");
            echo(s);
            s.wait();
        },
    ),
];
