//! Listeners that lose their number while another thread accepts by it.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    accept, close, connect, dup, dup2, getsockname, shutdown, socket, thread_id,
};
use libc::{AF_INET, SHUT_RDWR, SYS_accept, SYS_accept4};

use super::connecting::listener;
use super::{Check, solo};
use crate::Stage;
use crate::stage::{hears, says};

/// Longer than a thread needs to wake.
const SHORT: Duration = Duration::from_millis(40);
/// As many words as bring a connection into memory.
const WORDS: usize = 60;
const TURNS: usize = 12;

fn connected_to(address: SocketAddr) -> Result<RawFd, Errno> {
    let fd = socket(AF_INET, 0).expect("a socket can be made");
    connect(fd, address).map(|_| fd)
}

/// The number of the thread that [`accepting`] has made.
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// A thread that sleeps in the accept(2) that `call` makes.
fn accepting<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    NUMBER.store(0, Ordering::Release);
    let sleeper = std::thread::spawn(move || {
        NUMBER.store(thread_id(), Ordering::Release);
        call()
    });
    until_accepting();
    sleeper
}

/// Wait until that thread sleeps in accept(2), and in no other call.
fn until_accepting() {
    let mut is_there = false;
    while !is_there {
        sleep(Duration::from_micros(200));
        let path = format!("/proc/self/task/{}/syscall", NUMBER.load(Ordering::Acquire));
        let call = std::fs::read_to_string(path).unwrap_or_default();
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        is_there = [SYS_accept, SYS_accept4].map(Some).contains(&number);
    }
}

/// Whether words go there and back on a connection within this process.
fn carries([near, far]: [RawFd; 2]) -> bool {
    let goes = |from, to| says(from, b"word") && hears(to, b"word");
    (0..WORDS).all(|_| goes(near, far) && goes(far, near))
}

/// The thread that accepts sleeps on, and gets who connects; then nobody listens there.
fn closed(s: &mut Stage) {
    let (listener, address) = listener();
    let sleeper = accepting(move || accept(listener));
    s.say("close", close(listener));
    sleep(SHORT);
    s.say("sleeps on", !sleeper.is_finished());
    let near = connected_to(address).expect("somebody listens");
    let far = sleeper.join().expect("it does not panic");
    s.say("accepted", far.is_ok());
    s.say("carries", carries([near, far.unwrap_or(-1)]));
    s.say("again", connected_to(address).map(|_| "connected"));
}

/// The number that the listener had is another one's when the thread wakes.
fn closed_and_taken(s: &mut Stage) {
    let (old, address) = listener();
    let sleeper = accepting(move || accept(old));
    s.say("close", close(old));
    let (new, elsewhere) = listener();
    s.say("same number", new == old);
    let [first, second] =
        [elsewhere, address].map(|at| connected_to(at).expect("somebody listens"));
    let far = sleeper.join().expect("it does not panic");
    s.say("carries", carries([second, far.unwrap_or(-1)]));
    let far = accept(new);
    s.say("carries", carries([first, far.unwrap_or(-1)]));
}

/// A listener that is shut down, and closed at once, wakes who accepts.
fn shut_down_and_closed(s: &mut Stage) {
    let (listener, address) = listener();
    let sleeper = accepting(move || accept(listener));
    s.say("shutdown", shutdown(listener, SHUT_RDWR));
    s.say("close", close(listener));
    s.say("accept", sleeper.join().expect("it does not panic"));
    s.say("again", connected_to(address).map(|_| "connected"));
}

/// Accept by a number again and again, and answer one word on each connection: how many listeners of each of the two
/// addresses did.
fn serve(number: RawFd, addresses: [SocketAddr; 2]) -> [usize; 2] {
    let mut served = [0; 2];
    for _ in 0..TURNS {
        let fd = accept(number).expect("somebody connects");
        let own = getsockname(fd).ok().and_then(|name| name.address());
        let place = addresses.iter().position(|address| Some(*address) == own);
        while hears(fd, b"word") && says(fd, b"WORD") {}
        served[place.expect("it is one of the two")] += 1;
        close(fd).expect("it is open");
    }
    served
}

/// The thread that accepts goes on with the listener that it has begun with, whatever its number becomes.
fn replaced(s: &mut Stage) {
    let ((one, at_one), (other, at_other)) = (listener(), listener());
    let addresses = [at_one, at_other];
    let number = dup(one).expect("a descriptor is free");
    let sleeper = accepting(move || serve(number, addresses));
    let mut well = 0;
    for turn in 0..TURNS {
        until_accepting();
        let next = [other, one][turn % 2];
        let replaced = dup2(next, number) == Ok(number);
        let near = connected_to(addresses[turn % 2]).expect("somebody listens");
        let talks = (0..WORDS).all(|_| says(near, b"word") && hears(near, b"WORD"));
        well += usize::from(replaced && talks);
        close(near).expect("it is open");
    }
    s.say("well", well);
    let served = sleeper.join().expect("it does not panic");
    s.say("served", format!("{served:?}"));
    for fd in [one, other, number] {
        close(fd).expect("it is open");
    }
    s.say("again", connected_to(at_one).map(|_| "connected"));
}

/// A connection is put in the place of the listener that a thread accepts by: the next time it is no listener.
fn replaced_by_a_connection(s: &mut Stage) {
    let ((one, at_one), (other, at_other)) = (listener(), listener());
    let near = connected_to(at_other).expect("somebody listens");
    let far = accept(other).expect("somebody has connected");
    s.say("carries", carries([near, far]));
    let sleeper = accepting(move || [(); 2].map(|()| accept(one)));
    s.say("dup2", dup2(far, one) == Ok(one));
    s.say("close", close(far));
    s.say("carries", carries([near, one]));
    let first = connected_to(at_one).expect("somebody listens");
    let [accepted, refused] = sleeper.join().expect("it does not panic");
    s.say("carries", carries([first, accepted.unwrap_or(-1)]));
    s.say("accept", refused.map(|_| "accepted"));
    s.say("carries", carries([near, one]));
}

pub const CHECKS: &[Check] = &[
    solo("listener_closed_under_an_accept", closed),
    solo(
        "listener_closed_under_an_accept_and_its_number_taken",
        closed_and_taken,
    ),
    solo(
        "listener_shut_down_and_closed_under_an_accept",
        shut_down_and_closed,
    ),
    solo("listeners_replaced_under_an_accept", replaced),
    solo(
        "listener_replaced_by_a_connection_under_an_accept",
        replaced_by_a_connection,
    ),
];
