//! epoll(7) over connections that a check makes itself.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use crosslane_exercise::calls::{
    accept, bind, close, close_range, connect, epoll_create, epoll_ctl, epoll_wait, exit_now, fork,
    getsockname, getsockopt_unseen, listen, poll, recv, send, send_unseen, setsockopt, shutdown,
    socket, wait_for,
};
use libc::{
    AF_INET, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, MSG_OOB, POLLIN, POLLOUT, POLLPRI, POLLRDHUP,
    SHUT_WR, pollfd,
};

use super::{Check, solo};
use crate::Stage;
use crate::stage::{epoll_text, events_text, limit_to_seconds};
use crate::warm::v4;

const IN: u32 = EPOLLIN.cast_unsigned();
const ROUNDS: u64 = 20;
const FORKS: usize = 400;

/// Two ends of a connection that has seen some traffic. The near one is prepared before it connects.
fn connection(prepare: impl FnOnce(RawFd)) -> [RawFd; 2] {
    let ends = fresh_connection(prepare);
    warm(ends);
    ends
}

fn fresh_connection(prepare: impl FnOnce(RawFd)) -> [RawFd; 2] {
    let fresh = || socket(AF_INET, 0).expect("a socket can be made");
    let listener = fresh();
    bind(listener, v4()).expect("the loopback address is there");
    listen(listener, 1).expect("a bound socket can listen");
    let name = getsockname(listener).expect("it is bound");
    let near = fresh();
    prepare(near);
    connect(near, name.address().expect("it is IPv4")).expect("somebody listens");
    let far = accept(listener).expect("somebody has connected");
    for fd in [near, far] {
        setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).expect("it is a connection");
    }
    [near, far]
}

fn warm([near, far]: [RawFd; 2]) {
    for _ in 0..40 {
        say(near, far);
        say(far, near);
    }
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..4 {
        say(near, far);
        say(far, near);
    }
}

fn say(from: RawFd, to: RawFd) {
    assert_eq!(send(from, b"x", 0), Ok(1), "the connection is open");
    hear(to);
}

fn hear(fd: RawFd) {
    assert_eq!(recv(fd, &mut [0], 0), Ok(1), "something was sent");
}

/// Wait until a thread of this process sleeps.
fn until_asleep(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    while !std::fs::read_to_string(&path).is_ok_and(|stat| stat.contains(") S ")) {
        std::thread::yield_now();
    }
}

/// Send on one and then on the other while somebody sleeps in epoll_wait; whom it hears first.
fn first_heard(epoll: RawFd, senders: [RawFd; 2]) -> u64 {
    let listener = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            listener.store(crosslane_exercise::calls::thread_id(), Ordering::Release);
            epoll_wait(epoll, 8, None).expect("a set can be waited for")[0].1
        });
        while listener.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        until_asleep(listener.load(Ordering::Acquire));
        for fd in senders {
            assert_eq!(send(fd, b"x", 0), Ok(1), "the connection is open");
        }
        heard.join().expect("it does not panic")
    })
}

fn in_order(s: &mut Stage) {
    let connections = [connection(|_| {}), connection(|_| {})];
    let epoll = epoll_create().expect("an epoll set can be made");
    for (data, [_, far]) in (0..).zip(connections) {
        epoll_ctl(epoll, EPOLL_CTL_ADD, far, IN, data).expect("a connection can be added");
    }
    let mut in_order = 0;
    for round in 0..ROUNDS {
        let first = round % 2;
        let order = if first == 0 { [0, 1] } else { [1, 0] };
        let heard = first_heard(epoll, order.map(|at: usize| connections[at][0]));
        in_order += u64::from(heard == first);
        connections.iter().for_each(|[_, far]| hear(*far));
    }
    s.say("in order", in_order == ROUNDS);
}

fn added_early(s: &mut Stage) {
    const WISH: u32 = IN | libc::EPOLLOUT.cast_unsigned() | libc::EPOLLET.cast_unsigned();
    let epoll = epoll_create().expect("an epoll set can be made");
    let [near, far] = connection(|near| {
        s.say("add", epoll_ctl(epoll, EPOLL_CTL_ADD, near, IN, 1));
        s.say("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, near, WISH, 2));
    });
    let wait = |ms| epoll_wait(epoll, 8, Some(ms)).map(|events| epoll_text(&events));
    wait(0).expect("a set can be waited for");
    for _ in 0..3 {
        assert_eq!(send(far, b"x", 0), Ok(1), "the connection is open");
        s.say("event", wait(10_000));
        s.say("now", wait(0));
        hear(near);
    }
}

/// One end has sent something past the C library, as io_uring does. The other may not know.
fn sent_unseen(s: &mut Stage) {
    for is_near in [true, false] {
        let [near, far] = fresh_connection(|_| {});
        let (from, to) = if is_near { (near, far) } else { (far, near) };
        s.say("unseen", send_unseen(from, b"x"));
        hear(to);
        warm([near, far]);
        s.say("later", send(to, b"said", 0));
        let mut room = [0; 8];
        s.say(
            "heard",
            recv(from, &mut room, 0)
                .map(|bytes| String::from_utf8_lossy(&room[..bytes]).into_owned()),
        );
        s.say("answered", send(from, b"answer", 0));
        s.say(
            "heard",
            recv(to, &mut room, 0)
                .map(|bytes| String::from_utf8_lossy(&room[..bytes]).into_owned()),
        );
    }
}

/// A socket that is corked while it comes to have rings, and uncorked later, holds nothing back.
fn corked(s: &mut Stage) {
    let ends @ [near, far] = fresh_connection(|_| {});
    let cork = |on| setsockopt(near, libc::IPPROTO_TCP, libc::TCP_CORK, on);
    s.say("cork", cork(1));
    for _ in 0..40 {
        say(far, near);
    }
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..4 {
        say(far, near);
    }
    s.say("uncork", cork(0));
    warm(ends);
    for fd in ends {
        s.say(
            "holds back",
            getsockopt_unseen(fd, libc::IPPROTO_TCP, libc::TCP_CORK),
        );
    }
}

/// What the kernel knows of connections in their rings it is asked for all of them at once.
fn polled(s: &mut Stage) {
    let connections = [(); 6].map(|()| connection(|_| {}));
    let [word, quiet, over, reset, urgent, gone] = connections.map(|[near, _]| near);
    let far = connections.map(|[_, far]| far);
    let asked = [
        (word, POLLIN),
        (quiet, POLLIN),
        (over, POLLIN | POLLRDHUP),
        (-1, POLLIN),
        (reset, POLLOUT),
        (urgent, POLLPRI),
        (over, 0),
        (word, POLLOUT | POLLPRI),
        (gone, POLLIN),
        (over, POLLOUT),
    ];
    let poll = |s: &mut Stage| {
        let entry = |(fd, events)| pollfd {
            fd,
            events,
            revents: 0x55,
        };
        let mut entries = asked.map(entry);
        s.say("poll", poll(&mut entries, Some(0)));
        entries
            .iter()
            .for_each(|entry| s.say("entry", events_text(entry.revents)));
    };
    poll(s);
    s.say("word", send(far[0], b"word", 0));
    s.say("over", shutdown(far[2], SHUT_WR));
    s.say("unread", send(reset, b"unread", 0));
    s.say("reset", close(far[3]));
    s.say("urgent", send(far[4], b"!", MSG_OOB));
    s.say("gone", close(gone));
    std::thread::sleep(Duration::from_millis(50));
    poll(s);
    s.say("taken", recv(word, &mut [0; 8], 0));
    s.say("shut", shutdown(over, SHUT_WR));
    std::thread::sleep(Duration::from_millis(50));
    poll(s);
}

/// Children close everything while another thread of their parent makes sets and drops them.
fn forks_beside_sets(s: &mut Stage) {
    let [near, _far] = connection(|_| {});
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let sets = [(); 4].map(|()| epoll_create().expect("an epoll set can be made"));
                for epoll in sets {
                    epoll_ctl(epoll, EPOLL_CTL_ADD, near, IN, 1)
                        .expect("a connection can be added");
                    epoll_wait(epoll, 8, Some(0)).expect("a set can be waited for");
                }
                for epoll in sets {
                    close(epoll).expect("it is open");
                }
            }
        });
        let ended = (0..FORKS).map(|_| match fork().expect("a process can be made") {
            Some(child) => wait_for(child) == Ok(0),
            None => {
                // A child that hangs is to end, as its parent waits for it.
                limit_to_seconds(10);
                close_range(3, u32::MAX, 0).expect("descriptors can be closed");
                let epoll = epoll_create().expect("an epoll set can be made");
                exit_now(i32::from(close(epoll).is_err()))
            }
        });
        s.say("children", ended.filter(|ended| *ended).count());
        is_over.store(true, Ordering::Relaxed);
    });
}

pub const CHECKS: &[Check] = &[
    solo("forks_beside_a_thread_with_sets", forks_beside_sets),
    solo("poll_of_many_in_many_states", polled),
    solo("corked_before_the_rings", corked),
    solo("sent_past_the_library", sent_unseen),
    solo("epoll_reports_in_the_order_of_arrival", in_order),
    solo("epoll_added_before_connecting", added_early),
];
