//! What a process does to itself with live connections, and the connections that it makes then.

use std::ffi::CString;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use crosslane_exercise::calls::{
    accept, bind, chdir, chroot, close, close_range, closefrom, connect, daemon, descriptor_limit,
    dup2, getsockname, leave_groups, limit_descriptors, listen, open, raise_loopback, read, recv,
    send, setgid, setuid, shutdown, socket, socketpair, unshare_network, wait_for,
};
use libc::{AF_INET, MSG_NOSIGNAL, POLLRDHUP, SHUT_WR};

use super::processes::{echo, in_child};
use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{digest, drain, hears, limit_to_seconds, says};
use crate::warm::v4;

/// The user and the group that own nothing.
const NOBODY: u32 = 65534;
/// Of a long talk, on both sides of a pause in which something may be got ready.
const WORDS: u32 = 60;
/// Where libraries keep descriptors out of the way.
const NUMBERS: std::ops::Range<RawFd> = 505..525;
/// More numbers than this are not tried one by one.
const MOST_NUMBERS: u64 = 1 << 20;

/// A listener and where it listens.
pub(super) fn listener() -> (RawFd, SocketAddr) {
    let fd = socket(AF_INET, 0).expect("a socket can be made");
    bind(fd, v4()).expect("the loopback address is there");
    listen(fd, 5).expect("a bound socket can listen");
    let name = getsockname(fd).expect("it is bound");
    (fd, name.address().expect("it is IPv4"))
}

pub(super) fn connected(address: SocketAddr) -> RawFd {
    let fd = socket(AF_INET, 0).expect("a socket can be made");
    connect(fd, address).expect("somebody listens");
    fd
}

/// Talk to who repeats in capitals, for as long as a connection needs to leave TCP, and on.
pub(super) fn talks(fd: RawFd) -> bool {
    let talk = || (0..WORDS).all(|_| says(fd, b"word") && hears(fd, b"WORD"));
    talk() && {
        std::thread::sleep(Duration::from_millis(20));
        talk()
    }
}

/// Repeat every word in capitals until the end.
pub(super) fn repeat(fd: RawFd) {
    let mut buffer = [0; 100];
    while let Ok(count @ 1..) = read(fd, &mut buffer) {
        let loud = buffer[..count].to_ascii_uppercase();
        send(fd, &loud, MSG_NOSIGNAL).expect("somebody listens");
    }
}

/// Far: repeat what comes on the connection, and on one that is made anew.
fn echo_twice(s: &mut Stage) {
    let (listener, address) = listener();
    s.tell(address);
    let second = std::thread::spawn(move || {
        let fd = accept(listener).expect("the other side connects");
        repeat(fd);
        close(fd).is_ok()
    });
    echo(s);
    s.say("second", second.join().is_ok_and(|closed| closed));
}

/// Near: use the connection and a new one, here and in a child, after `change`.
fn go_on_after(s: &mut Stage, change: fn(&mut Stage)) {
    let address = s.told();
    let fd = s.fd;
    s.say("talk", talks(fd));
    change(s);
    s.say("talk", talks(fd));
    let second = connected(address);
    s.say("second", talks(second));
    let child = in_child(|| {
        limit_to_seconds(10);
        talks(fd) && talks(second)
    });
    s.say("child", wait_for(child));
    s.say("talk", talks(fd) && talks(second));
    s.say("close", close(second));
    s.say("close", close(fd));
}

/// A process that had no connection before it changed makes one to itself.
fn begin_after(s: &mut Stage, change: fn(&mut Stage)) {
    change(s);
    let (listener, address) = listener();
    let far = std::thread::spawn(move || {
        let fd = accept(listener).expect("the other side connects");
        repeat(fd);
        close(fd).is_ok()
    });
    let fd = connected(address);
    s.say("talk", talks(fd));
    s.say("close", close(fd));
    s.say("far", far.join().is_ok_and(|closed| closed));
}

/// Into a folder that is gone by then, so that nothing is left behind.
fn lock_in(s: &mut Stage) {
    let path = std::env::temp_dir().join(format!("crosslane-posix-{}", std::process::id()));
    std::fs::create_dir(&path).expect("the folder for temporary files is writable");
    let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("it has no null");
    s.say("chdir", chdir(&name));
    std::fs::remove_dir(&path).expect("it is empty");
    s.say_as_root("chroot", chroot(c"."));
    s.say("proc", open(c"/proc", libc::O_RDONLY).map(drop).is_ok());
}

fn give_up_rights(s: &mut Stage) {
    s.say_as_root("groups", leave_groups());
    s.say_as_root("group", setgid(NOBODY));
    s.say_as_root("user", setuid(NOBODY));
}

/// Near: go to a network of its own, and make a connection there that has the names of one of here. All go on.
fn leave_the_network(s: &mut Stage) {
    let address = s.told();
    let (fd, old) = (s.fd, connected(address));
    s.say("talk", talks(fd) && talks(old));
    let unshared = unshare_network();
    s.say_as_root("unshare", unshared);
    if unshared.is_ok() {
        s.say("loopback", raise_loopback());
        have_a_twin(s, old, address);
    }
    s.say("close", close(old));
    s.say("talk", talks(fd));
    s.say("close", close(fd));
}

fn have_a_twin(s: &mut Stage, old: RawFd, address: SocketAddr) {
    let listener = socket(AF_INET, 0).expect("a socket can be made");
    s.say("bind", bind(listener, address));
    s.say("listen", listen(listener, 5));
    let far = std::thread::spawn(move || repeat(accept(listener).expect("the twin connects")));
    let twin = socket(AF_INET, 0).expect("a socket can be made");
    let name = getsockname(old).ok().and_then(|name| name.address());
    s.say("bind", bind(twin, name.expect("it is IPv4")));
    s.say("connect", connect(twin, address));
    s.say("twin", talks(twin));
    s.say("talk", talks(s.fd) && talks(old) && talks(twin));
    s.say("close", close(twin));
    s.say("far", far.join().is_ok());
}

fn close_one_by_one() {
    let limit = descriptor_limit().expect("a process has limits");
    let most = i32::try_from(limit.min(MOST_NUMBERS)).expect("it is small");
    for fd in 3..most {
        let _ = close(fd);
    }
}

fn close_in_a_range() {
    close_range(3, u32::MAX, 0).expect("descriptors can be closed");
}

/// Far: close everything, the connection with it, and go on with a new one.
fn close_all(s: &mut Stage, by: fn()) {
    let fd = s.fd;
    s.wait();
    by();
    s.say("read", read(fd, &mut [0]));
    s.go();
    for _ in 0..2 {
        let fresh = connected(s.told());
        s.say("fresh", talks(fresh));
        by();
        s.say("close", close(fresh));
    }
}

/// Near: see the end of the connection, having sent `last`, and let the other side make others.
fn see_all_closed(s: &mut Stage, last: &[u8]) {
    if !last.is_empty() {
        s.send(last);
    }
    s.go();
    s.wait();
    s.until(POLLRDHUP);
    s.poll();
    s.read(10);
    s.send(b"x");
    for _ in 0..2 {
        let (listener, address) = listener();
        s.tell(address);
        s.fd = accept(listener).expect("the other side connects");
        s.say("close", close(listener));
        echo(s);
    }
}

/// Have a child connect and talk.
fn serve_a_child(s: &mut Stage) {
    let (listener, address) = listener();
    let child = in_child(|| {
        limit_to_seconds(10);
        talks(connected(address))
    });
    let fd = accept(listener).expect("the child connects");
    repeat(fd);
    s.say("child", wait_for(child));
}

/// A server with a limit so low that all numbers are small has a connection, closes everything one by
/// one, and fills the numbers with other sockets, which stay as they are while it has another connection.
fn close_few(s: &mut Stage) {
    s.say("limit", limit_descriptors(64));
    for _ in 0..2 {
        serve_a_child(s);
        close_one_by_one();
        let pairs = [(); 8].map(|()| socketpair().expect("a pair can be made"));
        let said = pairs.iter().filter(|[near, _]| says(*near, b"word"));
        s.say("said", said.count());
        serve_a_child(s);
        let heard = pairs.iter().filter(|[_, far]| hears(*far, b"word"));
        s.say("heard", heard.count());
        close_one_by_one();
    }
}

/// Near: have the connection by numbers where a library might keep something of its own, make another
/// one, and use all.
fn take_numbers(s: &mut Stage) {
    let address = s.told();
    let fd = s.fd;
    let taken = NUMBERS.filter(|to| dup2(fd, *to).is_ok());
    s.say("taken", taken.count());
    let second = connected(address);
    s.say("second", talks(second));
    s.say("twins", NUMBERS.filter(|twin| talks(*twin)).count());
    s.say("close", NUMBERS.filter(|twin| close(*twin).is_ok()).count());
    s.say("talk", talks(fd) && talks(second));
    s.say("close", close(second));
    s.say("close", close(fd));
}

/// Near: leave the connection to a daemon, which goes on with it and makes another.
fn become_daemon(s: &mut Stage) {
    let address = s.told();
    let fd = s.fd;
    let child = in_child(|| {
        daemon().expect("a process can be made");
        limit_to_seconds(10);
        let is_well = hears(fd, b"before") && talks_to_the_end(fd);
        let second = connected(address);
        is_well && talks(second) && says(fd, b"all is well")
    });
    s.say("close", close(fd));
    s.say("child", wait_for(child));
    s.go();
}

fn talks_to_the_end(fd: RawFd) -> bool {
    repeat(fd);
    recv(fd, &mut [0], 0) == Ok(0)
}

/// Far: have a daemon go on, and hear what it says at last.
fn ask_daemon(s: &mut Stage) {
    let (listener, address) = listener();
    s.send(b"before");
    s.tell(address);
    s.wait();
    s.say("talk", talks(s.fd));
    s.say("shutdown", shutdown(s.fd, SHUT_WR));
    let second = accept(listener).expect("the daemon connects");
    repeat(second);
    s.say("close", close(second));
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

pub const CHECKS: &[Check] = &[
    pair("a_daemon_goes_on", become_daemon, ask_daemon),
    pair(
        "everything_is_closed_one_by_one",
        |s| see_all_closed(s, b""),
        |s| close_all(s, close_one_by_one),
    ),
    pair(
        "everything_is_closed_in_a_range",
        |s| see_all_closed(s, b""),
        |s| close_all(s, close_in_a_range),
    ),
    pair(
        "everything_is_closed_from_a_number",
        |s| see_all_closed(s, b""),
        |s| close_all(s, || closefrom(3)),
    ),
    pair(
        "everything_is_closed_with_something_unread",
        |s| see_all_closed(s, b"unread"),
        |s| close_all(s, close_in_a_range),
    ),
    solo("everything_is_closed_under_a_low_limit", close_few),
    pair("high_numbers_are_taken", take_numbers, echo_twice),
    pair(
        "locked_into_a_folder",
        |s| go_on_after(s, lock_in),
        echo_twice,
    ),
    solo("locked_in_before_it_connects", |s| begin_after(s, lock_in)),
    pair(
        "rights_are_given_up",
        |s| go_on_after(s, give_up_rights),
        echo_twice,
    ),
    pair("in_a_network_of_its_own", leave_the_network, echo_twice),
    solo("rights_are_given_up_before_it_connects", |s| {
        begin_after(s, give_up_rights);
    }),
    pair(
        "locked_in_without_rights",
        |s| {
            go_on_after(s, |s| {
                lock_in(s);
                give_up_rights(s);
            });
        },
        echo_twice,
    ),
];
