//! What travels beside the bytes of an AF_UNIX stream, and how its peers end; for TCP there is none of it.

use std::io::IoSlice;

use crosslane_exercise::calls::{
    close, pipe, read, recv, recvfrom_with_room, recvmsg, recvmsg_beside, send_fd, sendmsg,
    sendmsg_beside, setsockopt, splice, write,
};
use libc::{
    MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT, MSG_PEEK, POLLHUP, POLLIN, SO_PASSCRED,
    SO_PEEK_OFF, SOL_SOCKET,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, says};

/// Send the end of a pipe in which `word` stands.
fn pass_pipe_with(s: &mut Stage, word: &[u8]) {
    let [out, into] = pipe().expect("a pipe can be made");
    assert_eq!(write(into, word), Ok(word.len()), "a pipe has room");
    let passed = send_fd(s.fd, out);
    s.say("pass", passed);
    for fd in [out, into] {
        close(fd).expect("it is open");
    }
}

/// recvmsg(2) and what came beside the bytes: the words in passed pipes.
fn receive(s: &mut Stage, most: usize, room: usize, flags: i32) {
    let mut buffer = vec![0; most];
    let found = recvmsg_beside(s.fd, &mut buffer, room, flags);
    let shown = found.map(|found| {
        let words = found.descriptors.iter().map(|fd| {
            let mut word = [0; 100];
            let answer = read(*fd, &mut word);
            close(*fd).expect("it was passed");
            data(&word, answer).unwrap_or_else(|errno| errno.to_string())
        });
        let words: Vec<String> = words.collect();
        format!(
            "{} beside={words:?} credentials={} cut={} flags={:x}",
            digest(&buffer[..found.bytes]),
            found.credentials,
            found.flags & MSG_CTRUNC != 0,
            found.flags,
        )
    });
    s.say("recvmsg", shown);
}

/// Far: a word, a pipe with a byte, a word; three times.
fn words_and_pipes(s: &mut Stage) {
    for word in [b"first", b"other", b"third"] {
        s.send(b"before");
        pass_pipe_with(s, word);
        s.send(b"after");
    }
    s.go();
    s.wait();
    // The ring is used again.
    (0..20).for_each(|_| echo(s));
}

fn echo(s: &Stage) {
    let mut byte = [0];
    assert_eq!(recv(s.fd, &mut byte, 0), Ok(1), "the connection is open");
    assert!(says(s.fd, &byte), "the connection is open");
}

fn ask(s: &mut Stage) {
    s.go();
    let fd = s.fd;
    let asked = (0..20).all(|_| says(fd, b"?") && recv(fd, &mut [0], 0) == Ok(1));
    s.say("asked", asked);
}

/// Receive with room for a part of the sender's name, by the ring and by the kernel.
fn name_in_little_room(s: &mut Stage) {
    for passes_credentials in [0, 1] {
        let set = setsockopt(s.fd, SOL_SOCKET, SO_PASSCRED, passes_credentials);
        s.say("set", set);
        s.send(b"word");
        s.until(POLLIN);
        let came = recvfrom_with_room(s.fd, &mut [0; 4], 4);
        // How long the name is depends on who has one.
        let shown = came.map(|(came, _, is_cut)| format!("{came} cut: {is_cut}"));
        s.say("recvfrom", shown);
    }
}

pub const CHECKS: &[Check] = &[
    pair(
        "descriptors_at_their_place",
        |s| {
            s.wait();
            (0..4).for_each(|_| receive(s, 100, 64, 0));
            receive(s, 100, 64, MSG_DONTWAIT);
            ask(s);
        },
        words_and_pipes,
    ),
    pair(
        "descriptors_in_small_reads",
        |s| {
            s.wait();
            (0..9).for_each(|_| receive(s, 4, 64, 0));
            (0..4).for_each(|_| receive(s, 4, 64, MSG_DONTWAIT));
            ask(s);
        },
        words_and_pipes,
    ),
    pair(
        "descriptors_for_one_who_sleeps",
        |s| {
            s.go();
            (0..6).for_each(|_| receive(s, 1, 64, 0));
            s.go();
        },
        |s| {
            s.wait();
            for word in [b"one", b"two"] {
                std::thread::sleep(std::time::Duration::from_millis(20));
                s.send(b"<");
                pass_pipe_with(s, word);
                s.send(b">");
            }
            s.wait();
        },
    ),
    pair(
        "descriptors_thrown_away",
        |s| {
            s.wait();
            (0..4).for_each(|_| s.read(100));
            s.say("none", recv(s.fd, &mut [0], MSG_DONTWAIT));
            ask(s);
        },
        words_and_pipes,
    ),
    pair(
        "descriptors_without_room",
        |s| {
            s.wait();
            receive(s, 100, 0, 0);
            receive(s, 100, 8, 0);
            receive(s, 100, 24, 0);
            receive(s, 100, 24, 0);
            ask(s);
        },
        words_and_pipes,
    ),
    pair(
        "descriptors_peeked_at",
        |s| {
            s.wait();
            receive(s, 100, 64, MSG_PEEK | MSG_CMSG_CLOEXEC);
            receive(s, 6, 64, 0);
            receive(s, 100, 64, MSG_PEEK);
            (0..4).for_each(|_| receive(s, 100, 64, MSG_CMSG_CLOEXEC));
            ask(s);
        },
        words_and_pipes,
    ),
    pair(
        "descriptors_both_ways",
        |s| {
            for word in [b"a", b"b"] {
                pass_pipe_with(s, word);
                receive(s, 10, 64, 0);
            }
        },
        |s| {
            for word in [b"c", b"d"] {
                receive(s, 10, 64, 0);
                pass_pipe_with(s, word);
            }
        },
    ),
    pair(
        "descriptors_to_a_closed_peer",
        |s| {
            s.until(POLLHUP);
            pass_pipe_with(s, b"x");
            s.read(10);
        },
        |s| s.say("close", close(s.fd)),
    ),
    pair(
        "credentials_asked_for",
        |s| {
            s.until(POLLIN);
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_PASSCRED, 1));
            s.go();
            s.wait();
            receive(s, 4, 64, 0);
            receive(s, 100, 64, 0);
            s.say("unset", setsockopt(s.fd, SOL_SOCKET, SO_PASSCRED, 0));
        },
        |s| {
            s.send(b"soon");
            s.wait();
            s.send(b"late");
            s.go();
        },
    ),
    pair(
        "no_descriptors_in_a_plain_message",
        |s| {
            s.until(POLLIN);
            receive(s, 100, 64, MSG_CMSG_CLOEXEC);
            let flags = recvmsg(s.fd, &mut [], MSG_DONTWAIT).map(|received| received.flags);
            s.say("nothing", flags);
        },
        |s| {
            let slices = [IoSlice::new(b"plain "), IoSlice::new(b"words")];
            s.say("sendmsg", sendmsg(s.fd, &slices, 0));
        },
    ),
    pair(
        // Unlike TCP, which asks the descriptor's flag alone.
        "splice_of_nothing_without_waiting",
        |s| {
            let [_out, into] = pipe().expect("a pipe can be made");
            s.say("none", splice(s.fd, into, 10, libc::SPLICE_F_NONBLOCK));
            s.go();
            s.until(POLLIN);
            s.say("some", splice(s.fd, into, 10, libc::SPLICE_F_NONBLOCK));
        },
        |s| {
            s.wait();
            s.send(b"word");
        },
    ),
    pair(
        "killed_peer",
        |s| {
            s.until_gone();
            s.poll();
            s.send(b"x");
            s.read(10);
            s.read(10);
            s.send(b"x");
        },
        |s| s.die(),
    ),
    pair(
        "killed_peer_had_sent_something",
        |s| {
            s.until_gone();
            s.read(3);
            s.send(b"x");
            s.read(10);
            s.read(10);
        },
        |s| {
            s.send(b"last words");
            s.die();
        },
    ),
    pair(
        "killed_peer_had_read_all",
        |s| {
            s.send(b"something");
            s.until_gone();
            s.read(10);
            s.send(b"x");
        },
        |s| {
            s.read(9);
            s.die();
        },
    ),
    pair(
        "killed_peer_had_not_read_all",
        |s| {
            s.send(b"something");
            s.until_gone();
            s.poll();
            s.send(b"x");
            s.read(10);
            s.read(10);
            s.send(b"x");
        },
        |s| {
            s.read(8);
            s.die();
        },
    ),
    pair(
        "names_that_are_longer_than_their_room",
        name_in_little_room,
        name_in_little_room,
    ),
    pair(
        "descriptors_beside_no_byte",
        |s| {
            let [out, into] = pipe().expect("a pipe can be made");
            s.say("send", sendmsg_beside(s.fd, b"", &[out, s.fd], 0));
            for fd in [out, into] {
                close(fd).expect("it is open");
            }
            s.send(b"word");
            s.read(10);
        },
        |s| {
            receive(s, 10, 64, 0);
            s.send(b"answer");
        },
    ),
    pair(
        "looks_from_a_place_on",
        |s| {
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_PEEK_OFF, 0));
            s.go();
            s.until(POLLIN);
            for _ in 0..2 {
                let mut two = [0; 2];
                let answer = recv(s.fd, &mut two, MSG_PEEK);
                s.say("look", data(&two, answer));
            }
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_PEEK_OFF, -1));
            s.read(10);
        },
        |s| {
            s.wait();
            s.send(b"abcdef");
        },
    ),
];
