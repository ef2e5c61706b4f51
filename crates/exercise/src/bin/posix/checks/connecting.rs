//! connect, listen and accept.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    Name, accept, accept_with_room, accept4, bind, close, connect, dup, fcntl, getpeername,
    getsockname, getsockopt, is_nonblocking, listen, pipe, poll_one, read, receive_fd, recv, send,
    send_fd, sendto, set_nonblocking, set_timeout, setsockopt, shutdown, socket, socketpair,
    take_error, wait_for, write,
};
use libc::{
    AF_INET, F_GETFD, MSG_DONTWAIT, MSG_FASTOPEN, MSG_NOSIGNAL, POLLIN, POLLOUT, SHUT_RD,
    SHUT_RDWR, SHUT_WR, SO_ACCEPTCONN, SO_REUSEADDR, SOCK_CLOEXEC, SOCK_NONBLOCK, SOL_SOCKET,
};

use super::processes::in_child;
use super::{Check, solo};
use crate::Stage;
use crate::stage::{data, events_text, hears};
use crate::warm::v4;

fn fresh(flags: i32) -> RawFd {
    socket(AF_INET, flags).expect("a socket can be made")
}

/// A listener and where it listens.
pub(super) fn listener() -> (RawFd, SocketAddr) {
    let fd = fresh(0);
    bind(fd, v4()).expect("the loopback address is there");
    listen(fd, 8).expect("a bound socket can listen");
    (fd, address_of(fd))
}

fn address_of(fd: RawFd) -> SocketAddr {
    getsockname(fd)
        .ok()
        .and_then(|name| name.address())
        .expect("it is bound")
}

/// Where nobody listens: bound, so that nobody else takes the port meanwhile.
fn deserted() -> (RawFd, SocketAddr) {
    let fd = fresh(0);
    bind(fd, v4()).expect("the loopback address is there");
    (fd, address_of(fd))
}

fn events(fd: RawFd, timeout_ms: i32) -> Result<String, Errno> {
    poll_one(fd, POLLIN | POLLOUT, Some(timeout_ms)).map(events_text)
}

/// Whether a word gets from one to the other.
fn carries(from: RawFd, to: RawFd) -> bool {
    let mut buffer = [0; 4];
    send(from, b"word", MSG_NOSIGNAL) == Ok(4)
        && recv(to, &mut buffer, 0) == Ok(4)
        && &buffer == b"word"
}

fn refused(s: &mut Stage) {
    let (_taken, address) = deserted();
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    s.say("error", take_error(fd));
    s.say("read", read(fd, &mut [0; 10]));
    s.say("write", send(fd, b"x", MSG_NOSIGNAL));
    s.say("events", events(fd, 0));
    s.say("connect", connect(fd, address));
    let (listener, address) = listener();
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    s.say("carries", carries(fd, accepted));
}

fn refused_without_blocking(s: &mut Stage) {
    let (_taken, address) = deserted();
    let fd = fresh(SOCK_NONBLOCK);
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, 10_000));
    s.say("error", take_error(fd));
    s.say("error", take_error(fd));
    s.say("events", events(fd, 0));
    let fd = fresh(SOCK_NONBLOCK);
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, 10_000));
    s.say("connect", connect(fd, address));
    s.say("connect", connect(fd, address));
}

fn without_blocking(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(SOCK_NONBLOCK);
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, 10_000));
    s.say("error", take_error(fd));
    s.say("again", connect(fd, address));
    s.say("once more", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    s.say("carries", carries(fd, accepted));
}

fn twice(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    s.say("again", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    s.say("carries", carries(fd, accepted) && carries(accepted, fd));
}

fn disconnected(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    s.say(
        "carries",
        (0..60).all(|_| carries(fd, accepted) && carries(accepted, fd)),
    );
    s.say("disconnect", connect(fd, Name::unspecified()));
    s.say("peer", getpeername(fd).map(|_| "named"));
    s.say("read", read(accepted, &mut [0; 10]));
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    s.say(
        "carries",
        (0..60).all(|_| carries(fd, accepted) && carries(accepted, fd)),
    );
}

fn with_itself(s: &mut Stage) {
    let (fd, address) = deserted();
    s.say("connect", connect(fd, address));
    s.say(
        "peer",
        getpeername(fd).is_ok_and(|peer| peer.address() == Some(address)),
    );
    s.say("carries", (0..60).all(|_| carries(fd, fd)));
    s.say("shutdown", shutdown(fd, SHUT_WR));
    s.say("read", read(fd, &mut [0; 10]));
}

fn accepted_flags(s: &mut Stage) {
    let (listener, address) = listener();
    set_nonblocking(listener, true).expect("a flag can be set");
    s.say("accept", accept(listener));
    let clients = [fresh(0), fresh(0), fresh(0)];
    for client in clients {
        s.say("connect", connect(client, address));
    }
    s.say("events", events(listener, 10_000));
    let plain = accept(listener).expect("a connection waits");
    s.say("nonblocking", is_nonblocking(plain));
    s.say("flags", fcntl(plain, F_GETFD, 0));
    let flagged = accept4(listener, SOCK_NONBLOCK | SOCK_CLOEXEC).expect("a connection waits");
    s.say("nonblocking", is_nonblocking(flagged));
    s.say("flags", fcntl(flagged, F_GETFD, 0));
    s.say("accept4", accept4(listener, 0x7fff_0000));
    let last = accept4(listener, 0).expect("a connection waits");
    s.say("nonblocking", is_nonblocking(last));
    s.say("none", accept(listener));
    s.say(
        "carries",
        carries(clients[0], plain) && carries(clients[2], last),
    );
}

fn accepted_name(s: &mut Stage) {
    let (listener, address) = listener();
    for room in [0, 4, 16, 100] {
        connect(fresh(0), address).expect("somebody listens");
        s.say(
            "length",
            accept_with_room(listener, room).map(|(_, length)| length),
        );
    }
}

fn data_before_accept(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    s.say("write", write(fd, b"early"));
    s.say("close", close(fd));
    let accepted = accept(listener).expect("a connection waits");
    let mut buffer = [0; 10];
    let answer = read(accepted, &mut buffer);
    s.say("read", data(&buffer, answer));
    s.say("read", read(accepted, &mut buffer));
}

fn listener_shut_down(s: &mut Stage) {
    let (listener, address) = listener();
    let waiter = std::thread::spawn(move || accept(listener));
    std::thread::sleep(std::time::Duration::from_millis(30));
    s.say("shutdown", shutdown(listener, SHUT_RD));
    s.say("accept", waiter.join().expect("it does not panic"));
    s.say("connect", connect(fresh(0), address));
    s.say("listen", listen(listener, 8));
    let fd = fresh(0);
    // A port that the kernel chose is given up by the shutdown.
    s.say("connect", connect(fd, address_of(listener)));
    let accepted = accept(listener).expect("a connection waits");
    s.say("carries", carries(fd, accepted));
}

fn listener_misused(s: &mut Stage) {
    let (listener, _) = listener();
    s.say("accepting", getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN));
    s.say("read", read(listener, &mut [0; 10]));
    s.say("write", send(listener, b"x", MSG_NOSIGNAL));
    s.say("peer", getpeername(listener).map(|_| "named"));
    s.say("events", events(listener, 0));
    s.say("connect", connect(listener, address_of(listener)));
    let fd = fresh(0);
    s.say("accept", accept(fd));
    s.say("read", read(fd, &mut [0; 10]));
    s.say("recv", recv(fd, &mut [0; 10], MSG_DONTWAIT));
    s.say("write", send(fd, b"x", MSG_NOSIGNAL));
    s.say("shutdown", shutdown(fd, SHUT_RDWR));
    s.say("events", events(fd, 0));
}

fn accept_gives_up(s: &mut Stage) {
    let (listener, address) = listener();
    s.say("set", set_timeout(listener, libc::SO_RCVTIMEO, 40));
    s.say("accept", accept(listener));
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    s.say("carries", carries(accepted, fd));
}

/// A connect that does not wait is asked for its outcome when the connection has long been in use.
fn asked_late(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(SOCK_NONBLOCK);
    s.say("connect", connect(fd, address));
    s.say("events", events(fd, 10_000));
    let accepted = accept(listener).expect("a connection waits");
    let carries_back = || {
        let is_there = send(accepted, b"word", MSG_NOSIGNAL) == Ok(4);
        is_there && poll_one(fd, POLLIN, Some(10_000)) == Ok(POLLIN) && hears(fd, b"word")
    };
    let rounds = (0..100).filter(|_| carries(fd, accepted) && carries_back());
    s.say("carries", rounds.count());
    s.say("unread", send(accepted, b"unread", MSG_NOSIGNAL));
    s.say("again", connect(fd, address));
    s.say("once more", connect(fd, address));
    s.say("in", poll_one(fd, POLLIN, Some(10_000)));
    s.say("hears", hears(fd, b"unread"));
    s.say("carries", carries(fd, accepted) && carries_back());
}

/// A copy, or a child, has the socket from before it was connected, so that its calls are of a number that nobody has connected.
fn by_copies(s: &mut Stage, fd: RawFd, copy: RawFd) {
    let (listener, address) = listener();
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    let is_whole = |_: &i32| {
        carries(fd, accepted)
            && carries(accepted, fd)
            && carries(copy, accepted)
            && carries(accepted, copy)
    };
    s.say("rounds", (0..60).filter(is_whole).count());
    s.say("close", close(fd));
    s.say(
        "carries",
        carries(copy, accepted) && carries(accepted, copy),
    );
    s.say("close", close(copy));
    s.say("end", read(accepted, &mut [0; 10]));
}

fn copied_before(s: &mut Stage) {
    let fd = fresh(0);
    by_copies(s, fd, dup(fd).expect("a descriptor is free"));
    let fd = fresh(0);
    by_copies(s, dup(fd).expect("a descriptor is free"), fd);
}

fn passed_before(s: &mut Stage) {
    let [one, other] = socketpair().expect("a pair can be made");
    let fd = fresh(0);
    s.say("pass", send_fd(one, fd));
    by_copies(s, fd, receive_fd(other).expect("it has been passed"));
}

fn copied_between(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    let rounds = (0..60).filter(|_| carries(fd, accepted) && carries(accepted, fd));
    s.say("rounds", rounds.count());
    let copy = dup(fd).expect("a descriptor is free");
    s.say("disconnect", connect(fd, Name::unspecified()));
    by_copies(s, fd, copy);
}

fn forked_before(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    let [go, tell] = pipe().expect("a pipe can be made");
    let child = in_child(|| {
        hears(go, b"go")
            && (0..60).all(|_| hears(fd, b"word") && send(fd, b"back", MSG_NOSIGNAL) == Ok(4))
    });
    s.say("connect", connect(fd, address));
    let accepted = accept(listener).expect("a connection waits");
    let rounds = (0..60).filter(|_| carries(fd, accepted) && carries(accepted, fd));
    s.say("rounds", rounds.count());
    write(tell, b"go").expect("the child waits for it");
    let answers =
        |_: &i32| send(accepted, b"word", MSG_NOSIGNAL) == Ok(4) && hears(accepted, b"back");
    s.say("answers", (0..60).filter(answers).count());
    s.say("child", wait_for(child));
    s.say("carries", carries(fd, accepted) && carries(accepted, fd));
}

fn begun_by_a_send(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    s.say(
        "send",
        sendto(fd, b"word", MSG_FASTOPEN | MSG_NOSIGNAL, address),
    );
    let copy = dup(fd).expect("a descriptor is free");
    let accepted = accept(listener).expect("a connection waits");
    s.say("hears", hears(accepted, b"word"));
    let is_whole = |_: &i32| carries(fd, accepted) && carries(accepted, copy);
    s.say("rounds", (0..60).filter(is_whole).count());
    s.say(
        "again",
        sendto(fd, b"word", MSG_FASTOPEN | MSG_NOSIGNAL, address),
    );
}

fn address_taken(s: &mut Stage) {
    let (_listener, address) = listener();
    let fd = fresh(0);
    s.say("bind", bind(fd, address));
    s.say("reuse", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, 1));
    s.say("bind", bind(fd, address));
    s.say(
        "elsewhere",
        bind(fd, "192.0.2.1:0".parse().expect("it is an address")),
    );
}

fn reset_before_accept(s: &mut Stage) {
    let (listener, address) = listener();
    let fd = fresh(0);
    s.say("connect", connect(fd, address));
    crosslane_exercise::calls::set_linger(fd, Some(0)).expect("SO_LINGER can be set");
    s.say("close", close(fd));
    let accepted = accept(listener).expect("Linux hands out what was reset");
    s.say("read", read(accepted, &mut [0; 10]));
    s.say("read", read(accepted, &mut [0; 10]));
}

pub const CHECKS: &[Check] = &[
    solo("connect_refused", refused),
    solo("connect_refused_without_blocking", refused_without_blocking),
    solo("connect_without_blocking", without_blocking),
    solo("connect_twice", twice),
    solo("connect_asked_for_late", asked_late),
    solo("connect_to_nowhere_disconnects", disconnected),
    solo("connect_to_itself", with_itself),
    solo("connect_what_has_a_copy", copied_before),
    solo("connect_what_has_been_passed", passed_before),
    solo("connect_anew_what_has_a_copy", copied_between),
    solo("connect_what_a_child_has", forked_before),
    solo("connect_by_a_send", begun_by_a_send),
    solo("accept_never_inherits_flags", accepted_flags),
    solo("accept_cuts_the_name", accepted_name),
    solo("accept_after_the_end", data_before_accept),
    solo("accept_after_a_reset", reset_before_accept),
    solo("accept_gives_up", accept_gives_up),
    solo("listen_shutdown_listen", listener_shut_down),
    solo("sockets_without_a_connection", listener_misused),
    solo("address_in_use", address_taken),
];
