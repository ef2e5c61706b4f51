//! Signals: SIGPIPE, and what interrupts what.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crosslane_exercise::calls::{
    Readiness, accept, bind, epoll_create, epoll_ctl, epoll_wait, file_of, kill, listen, poll_one,
    recv, select_one, send, sendfile, sendmsg, shutdown, socket, thread_id, write, writev,
};
use crosslane_exercise::{Answer, Errno};
use libc::{
    MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL, POLLIN, SA_RESTART, SHUT_WR, SIGPIPE, SIGUSR1,
};

use super::asleep::{interrupt, interrupted, interrupted_before_far, once_asleep, until_asleep};
use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{data, pattern};
use crate::warm::v4;

static CAUGHT: AtomicU32 = AtomicU32::new(0);
/// When the call began that signals are to end, as [`nanos_now`] tells. 0: it has not begun.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// How long that call had been running when the first signal came, in nanoseconds. 0: it had not begun, or none has come.
static AGE: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: i32) {
    if CAUGHT.fetch_add(1, Ordering::Relaxed) == 0 {
        let age = match BEGAN.load(Ordering::Relaxed) {
            0 => 0,
            began => nanos_now() - began,
        };
        AGE.store(age, Ordering::Relaxed);
    }
}

/// The monotonic clock, which a handler may ask, too.
fn nanos_now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Count `signal` from now on instead of dying from it.
pub(super) fn catch(signal: i32, flags: i32) {
    catch_by(signal, flags, count);
}

/// Have a handler that may run anywhere handle `signal`.
pub(super) fn catch_by(signal: i32, flags: i32, handler: extern "C" fn(i32)) {
    // SAFETY: an action of zeros is an empty one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = flags;
    // SAFETY: the caller's handlers make no calls but of the kernel.
    let installed = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(installed, 0, "a handler can be installed");
}

/// As [`catch`] without flags, by sigset(3).
fn catch_by_sigset(signal: i32) {
    unsafe extern "C" {
        fn sigset(signal: i32, handler: libc::sighandler_t) -> libc::sighandler_t;
    }
    // SAFETY: the handler only touches an atomic.
    let before = unsafe { sigset(signal, count as extern "C" fn(i32) as usize) };
    assert_ne!(before, libc::SIG_ERR, "a handler can be installed");
}

/// How often a signal was caught since the last time this was asked.
pub(super) fn caught(s: &mut Stage) {
    s.say("caught", CAUGHT.swap(0, Ordering::Relaxed));
}

/// Whether a signal was caught since the last time this was asked.
pub(super) fn has_caught() -> bool {
    CAUGHT.swap(0, Ordering::Relaxed) > 0
}

/// How often a signal has been caught, as [`caught`] would say.
pub(super) fn times_caught() -> u32 {
    CAUGHT.load(Ordering::Relaxed)
}

/// Send SIGUSR1 to this thread after a pause that is shorter than any sleep to be seen, by another that does nothing else.
fn interrupt_after(pause: Duration) -> impl FnOnce() {
    let thread = thread_id();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(pause);
        interrupt(thread);
    });
    || sender.join().expect("it does not panic")
}

/// Far: send a word behind the signal.
fn late(s: &mut Stage) {
    s.wait();
    s.send(b"word");
}

fn receive(fd: i32, most: usize, flags: i32) -> Result<String, Errno> {
    let mut buffer = vec![0; most];
    let answer = recv(fd, &mut buffer, flags);
    data(&buffer, answer)
}

/// Near: a signal handled with `flags` comes while it reads.
fn read_interrupted(s: &mut Stage, flags: i32) {
    let fd = s.fd;
    let answer = interrupted_before_far(s, flags, || receive(fd, 10, 0));
    s.say("read", answer);
}

const SENDS: usize = 8;

/// Near: a signal with SA_RESTART comes while it sends and there is no room at all, for a moment.
fn send_restarted(s: &mut Stage) {
    let bytes = vec![0; 1 << 20];
    catch(SIGUSR1, SA_RESTART);
    let mut sent = Vec::new();
    for _ in 0..SENDS {
        while send(s.fd, &bytes, MSG_DONTWAIT | MSG_NOSIGNAL).is_ok() {}
        let join = interrupt_after(Duration::from_millis(4));
        s.go();
        sent.push(send(s.fd, &[1], MSG_NOSIGNAL));
        join();
        receive(s.fd, 1, 0).expect("an answer comes");
    }
    s.say("sent", sent.iter().all(|sent| *sent == Ok(1)));
    caught(s);
}

/// Far: take what comes, up to a byte that says that it is all. Whether it came, and not the end of the stream.
fn take_all(fd: i32) -> bool {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(taken @ 1..) = recv(fd, &mut buffer, 0) {
        if buffer[taken - 1] == 1 {
            return true;
        }
    }
    false
}

/// Rounds that count of a check that sends a signal at any moment of a call.
const ROUNDS: u32 = 60;
/// Rounds that are tried until so many have counted, and how long: a check may take 20 s.
const MOST_ROUNDS: u32 = 20 * ROUNDS;
const LONGEST: Duration = Duration::from_secs(12);

/// A timer that sends SIGUSR1 to this process, which has one thread.
pub(super) struct Alarm(libc::timer_t);

impl Alarm {
    pub(super) fn new() -> Self {
        // SAFETY: an event is plain integers, for which zero is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = SIGUSR1;
        let mut timer = std::ptr::null_mut();
        // SAFETY: the event and the timer outlive the call.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        assert_eq!(made, 0, "a timer can be made");
        Self(timer)
    }

    /// How many signals `call` needs until it returns. They come 50 ms apart, the first after a while.
    fn signals_of(&self, first: Duration, call: impl FnOnce()) -> u32 {
        CAUGHT.store(0, Ordering::Relaxed);
        AGE.store(0, Ordering::Relaxed);
        self.set(first, Duration::from_millis(50));
        call();
        self.set(Duration::ZERO, Duration::ZERO);
        CAUGHT.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, first: Duration, between: Duration) {
        let nanos = |time: Duration| libc::timespec {
            tv_sec: 0,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let times = libc::itimerspec {
            it_interval: nanos(between),
            it_value: nanos(first),
        };
        // SAFETY: the timer is there, and the times outlive the call.
        let set = unsafe { libc::timer_settime(self.0, 0, &raw const times, std::ptr::null_mut()) };
        assert_eq!(set, 0, "a timer can be set");
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer is there.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Ages of a receive, in nanoseconds, at which its signal is handled, if it counts. A younger one may not have begun to listen for
/// signals, and an older one was asleep for long.
const AGES: Range<u64> = 4_000..250_000;
/// Signals that count.
const SIGNALS: u64 = 100;
/// Those of them that may have come too early to be seen, as their handlers were late. A receive that sees none while it spins
/// misses 35 to 40 after answers.
const MOST_LATE: u64 = SIGNALS / 4;
/// Receives that are tried until so many have come.
const TRIES: u64 = 100 * SIGNALS;
/// When a timer is set to, in nanoseconds: while a call spins, and while a receive prepares to sleep or sleeps.
const SPINNING: Range<u64> = 5_000..55_000;
const SLEEPING: Range<u64> = 5_000..105_000;
/// How much later, in nanoseconds, if the timer before was too early. Four that were not take it back.
const STEP: u64 = 2_000;

/// Signals at moments of calls. A timer tells no exact moment, least of all in a virtual machine, so the handler tells how old the call
/// is: what came before it, or long after, says nothing.
struct Moments {
    alarm: Alarm,
    range: Range<u64>,
    tried: u64,
    ahead: u64,
}

impl Moments {
    fn new(range: Range<u64>) -> Self {
        catch(SIGUSR1, 0);
        Self::of_caught(range)
    }

    /// The signal has a handler already.
    fn of_caught(range: Range<u64>) -> Self {
        Self {
            alarm: Alarm::new(),
            range,
            tried: 0,
            ahead: 0,
        }
    }

    /// How many signals `call` needed until it returned. None: the first says nothing.
    fn signals_of(&mut self, call: impl FnOnce()) -> Option<u32> {
        let place = self.tried * 7 * STEP % (self.range.end - self.range.start);
        let moment = Duration::from_nanos(self.range.start + place + self.ahead);
        let signals = self.alarm.signals_of(moment, || {
            BEGAN.store(nanos_now(), Ordering::Relaxed);
            call();
            BEGAN.store(0, Ordering::Relaxed);
        });
        let age = AGE.load(Ordering::Relaxed);
        self.ahead = match age {
            0 => self.ahead + STEP,
            _ => self.ahead.saturating_sub(STEP / 4),
        };
        self.tried += 1;
        AGES.contains(&age).then_some(signals)
    }
}

/// Near: one signal ends a call, whenever it comes while that waits.
fn one_signal_each(
    s: &mut Stage,
    moments: Range<u64>,
    before: impl Fn(&mut Stage),
    call: impl Fn() -> Result<usize, Errno>,
) {
    one_signal_at_each(s, Moments::new(moments), before, call);
}

fn one_signal_at_each(
    s: &mut Stage,
    mut moments: Moments,
    before: impl Fn(&mut Stage),
    call: impl Fn() -> Result<usize, Errno>,
) {
    let (mut counted, mut late) = (0, 0);
    while counted < SIGNALS && moments.tried < TRIES {
        before(s);
        let mut answer = Ok(0);
        if let Some(signals) = moments.signals_of(|| answer = call()) {
            counted += 1;
            late += u64::from(signals > 1);
        }
        assert!(answer.is_err(), "nobody sends anything");
    }
    assert_eq!(counted, SIGNALS, "signals come while a call waits");
    s.say("by one signal", late <= MOST_LATE);
}

/// As many round trips as make it worth to look for an answer rather than to sleep.
const TRIPS: usize = 30;

/// Near: ask for answers, and wait for each of them by `wait` first.
fn talk(s: &mut Stage, wait: impl Fn() -> Result<usize, Errno>) {
    for _ in 0..TRIPS {
        send(s.fd, b"?", MSG_NOSIGNAL).expect("there is room for a byte");
        while wait().is_err() {}
        while recv(s.fd, &mut [0], 0).is_err() {}
    }
}

/// Near: one signal ends `call`, which has waited for answers before.
fn one_signal_after_answers(s: &mut Stage, call: impl Fn() -> Result<usize, Errno>) {
    one_signal_each(s, SPINNING, |s| talk(s, &call), &call);
    shutdown(s.fd, SHUT_WR).expect("it is connected");
}

/// Far: answer each byte until the end.
fn answer_all(s: &mut Stage) {
    while let Ok(1) = recv(s.fd, &mut [0], 0) {
        let _ = send(s.fd, b"!", MSG_NOSIGNAL);
    }
}

/// Near: a signal comes while it sends and there is no room at all, for a moment.
fn one_signal_ends_a_send(s: &mut Stage) {
    let bytes = vec![0; 1 << 20];
    let mut moments = Moments::new(SPINNING);
    let (mut counted, mut interrupted, mut tried) = (0, 0, 0);
    let began = Instant::now();
    while counted < ROUNDS && tried < MOST_ROUNDS && began.elapsed() < LONGEST {
        tried += 1;
        while send(s.fd, &bytes, MSG_DONTWAIT | MSG_NOSIGNAL).is_ok() {}
        let fd = s.fd;
        let mut answer = Ok(0);
        let signals = moments.signals_of(|| answer = send(fd, &[1], MSG_NOSIGNAL));
        if signals.is_some() {
            counted += 1;
            interrupted += u32::from(answer.is_err());
        }
        s.go();
        // One is enough: what came behind it would be taken in the next round.
        while answer.is_err() {
            answer = send(fd, &[1], MSG_NOSIGNAL);
        }
        while receive(s.fd, 1, 0).is_err() {}
    }
    shutdown(s.fd, SHUT_WR).expect("it is connected");
    s.go();
    assert!(counted >= ROUNDS / 4, "signals come while a call waits");
    s.say("interrupted", interrupted >= counted * 3 / 4);
}

/// More than any buffer holds.
const FILE_BYTES: usize = 32 << 20;

/// Near: a signal comes while a file is sent, and there is a little room which nobody rings for.
fn signal_ends_a_sendfile(s: &mut Stage) {
    let file = file_of(&vec![0; FILE_BYTES]).expect("a file can be made");
    catch(SIGUSR1, SA_RESTART);
    let fd = s.fd;
    let sent = once_asleep(
        || sendfile(fd, file, None, FILE_BYTES),
        |thread| {
            s.go();
            s.wait();
            until_asleep(thread);
            interrupt(thread);
        },
    );
    caught(s);
    s.say("short", sent.is_ok_and(|sent| sent < FILE_BYTES));
    s.go();
}

fn broken_pipe(s: &mut Stage, what: &str, call: impl FnOnce() -> Answer) {
    s.say(what, call());
    caught(s);
}

pub const CHECKS: &[Check] = &[
    pair(
        "one_signal_of_sigset_ends_a_receive_after_answers",
        |s| {
            let fd = s.fd;
            catch_by_sigset(SIGUSR1);
            one_signal_at_each(
                s,
                Moments::of_caught(SPINNING),
                |s| talk(s, || Ok(0)),
                || recv(fd, &mut [0; 10], 0),
            );
            shutdown(fd, SHUT_WR).expect("it is connected");
        },
        answer_all,
    ),
    pair(
        "broken_pipe_signals",
        |s| {
            catch(SIGPIPE, 0);
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            let fd = s.fd;
            let file = file_of(b"bytes").expect("a file can be made");
            broken_pipe(s, "write", || write(fd, b"x"));
            broken_pipe(s, "send", || send(fd, b"x", 0));
            broken_pipe(s, "send quietly", || send(fd, b"x", MSG_NOSIGNAL));
            broken_pipe(s, "writev", || writev(fd, &[IoSlice::new(b"x")]));
            broken_pipe(s, "sendmsg", || sendmsg(fd, &[IoSlice::new(b"x")], 0));
            broken_pipe(s, "sendmsg quietly", || {
                sendmsg(fd, &[IoSlice::new(b"x")], MSG_NOSIGNAL)
            });
            broken_pipe(s, "sendfile", || sendfile(fd, file, None, 3));
        },
        |s| s.read(10),
    ),
    pair(
        "broken_pipe_kills",
        |s| {
            let fd = s.fd;
            shutdown(fd, SHUT_WR).expect("it is connected");
            let child = crosslane_exercise::calls::fork().expect("a process can be made");
            let Some(child) = child else {
                // SAFETY: the default action needs no memory.
                unsafe { libc::signal(SIGPIPE, libc::SIG_DFL) };
                let _ = write(fd, b"x");
                crosslane_exercise::calls::exit_now(0)
            };
            s.say("child", crosslane_exercise::calls::wait_for(child));
        },
        |s| s.read(10),
    ),
    pair("signal_interrupts_read", |s| read_interrupted(s, 0), late),
    pair(
        "signal_restarts_read",
        |s| read_interrupted(s, SA_RESTART),
        late,
    ),
    pair(
        "signal_interrupts_waitall",
        |s| {
            s.until(POLLIN);
            let fd = s.fd;
            let answer = interrupted(s, 0, || receive(fd, 100, MSG_WAITALL));
            s.say("recv", answer);
        },
        |s| s.send(b"part"),
    ),
    pair(
        "signal_cuts_a_blocked_write",
        |s| {
            let bytes = pattern(64 << 20);
            let fd = s.fd;
            let answer = interrupted(s, 0, || send(fd, &bytes, MSG_NOSIGNAL));
            s.say(
                "part",
                answer.is_ok_and(|sent| sent > 0 && sent < bytes.len()),
            );
        },
        |_| {},
    ),
    pair(
        "signal_cuts_a_waitall",
        |s| {
            s.until(POLLIN);
            let fd = s.fd;
            let answer = interrupted(s, SA_RESTART, || receive(fd, 100, MSG_WAITALL));
            s.say("recv", answer);
        },
        |s| s.send(b"part"),
    ),
    pair("signal_restarts_a_blocked_send", send_restarted, |s| {
        for _ in 0..SENDS {
            s.wait();
            std::thread::sleep(Duration::from_millis(12));
            take_all(s.fd);
            send(s.fd, b"!", MSG_NOSIGNAL).expect("there is room for an answer");
        }
    }),
    pair(
        "one_signal_ends_a_receive",
        |s| {
            let fd = s.fd;
            one_signal_each(s, SLEEPING, |_| {}, || recv(fd, &mut [0; 10], 0));
        },
        |_| {},
    ),
    pair(
        "one_signal_ends_a_receive_after_answers",
        |s| {
            let fd = s.fd;
            one_signal_each(
                s,
                SPINNING,
                |s| talk(s, || Ok(0)),
                || recv(fd, &mut [0; 10], 0),
            );
            shutdown(fd, SHUT_WR).expect("it is connected");
        },
        answer_all,
    ),
    pair(
        "one_signal_ends_a_poll_after_answers",
        |s| {
            let fd = s.fd;
            one_signal_after_answers(s, || poll_one(fd, POLLIN, None).map(|_| 1));
        },
        answer_all,
    ),
    pair(
        "one_signal_ends_an_epoll_wait_after_answers",
        |s| {
            let set = epoll_create().expect("a set can be made");
            let events = libc::EPOLLIN as u32;
            epoll_ctl(set, libc::EPOLL_CTL_ADD, s.fd, events, 1).expect("it can be added");
            one_signal_after_answers(s, || epoll_wait(set, 1, None).map(|events| events.len()));
        },
        answer_all,
    ),
    pair("one_signal_ends_a_send", one_signal_ends_a_send, |s| {
        let next = |s: &mut Stage| {
            s.wait();
            take_all(s.fd)
        };
        while next(s) {
            send(s.fd, b"!", MSG_NOSIGNAL).expect("there is room for an answer");
        }
    }),
    pair("signal_ends_a_sendfile", signal_ends_a_sendfile, |s| {
        s.wait();
        let part = recv(s.fd, &mut [0; 8 << 10], MSG_WAITALL);
        s.say("part", part);
        s.go();
        s.wait();
    }),
    pair(
        "signal_interrupts_poll",
        |s| {
            let fd = s.fd;
            let answer = interrupted(s, SA_RESTART, || poll_one(fd, POLLIN, None));
            s.say("poll", answer.map(i32::from));
        },
        |_| {},
    ),
    pair(
        "signal_interrupts_select",
        |s| {
            let fd = s.fd;
            let read = Readiness {
                read: true,
                ..Readiness::default()
            };
            let answer = interrupted(s, SA_RESTART, || select_one(fd, read, None));
            s.say("select", answer.map(|(ready, _)| ready.read));
        },
        |_| {},
    ),
    pair(
        "signal_interrupts_select_beside_a_hang_up",
        |s| {
            shutdown(s.fd, libc::SHUT_RDWR).expect("it is connected");
            let fd = s.fd;
            let urgent = Readiness {
                except: true,
                ..Readiness::default()
            };
            let answer = interrupted(s, SA_RESTART, || select_one(fd, urgent, None));
            s.say("select", answer.map(|(ready, _)| ready.except));
        },
        |_| {},
    ),
    pair(
        "signal_interrupts_epoll",
        |s| {
            let epoll = epoll_create().expect("an epoll set can be made");
            let events = libc::EPOLLIN.cast_unsigned();
            epoll_ctl(epoll, libc::EPOLL_CTL_ADD, s.fd, events, 0).expect("it can be added");
            let answer = interrupted(s, SA_RESTART, || epoll_wait(epoll, 1, None));
            s.say("epoll_wait", answer.map(|events| events.len()));
        },
        |_| {},
    ),
    solo("signal_interrupts_accept", |s| {
        let listener = socket(libc::AF_INET, 0).expect("a socket can be made");
        bind(listener, v4()).expect("the loopback address is there");
        listen(listener, 1).expect("a bound socket can listen");
        let answer = interrupted(s, 0, || accept(listener));
        s.say("accept", answer);
    }),
    pair(
        "ctrl_c_ends_a_reader",
        |s| {
            let child = crosslane_exercise::calls::fork().expect("a process can be made");
            let Some(child) = child else {
                let _ = receive(s.fd, 10, 0);
                crosslane_exercise::calls::exit_now(0)
            };
            std::thread::sleep(Duration::from_millis(40));
            let start = Instant::now();
            s.say("kill", kill(child, libc::SIGINT));
            s.say("child", crosslane_exercise::calls::wait_for(child));
            s.say("at once", start.elapsed() < Duration::from_secs(10));
        },
        |_| {},
    ),
];
