//! Signals that come all the time, or again and again while a call waits for a limited time.

use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    poll_one, recv, send, set_nonblocking, set_timeout, setsockopt, shutdown,
};
use libc::{
    EINTR, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL, POLLIN, POLLOUT, SA_RESTART, SHUT_WR,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET,
};

use super::signals::{Alarm, catch};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{data, digest, pattern};

/// How far signals are apart.
const STORM: Duration = Duration::from_micros(200);
const BYTES: usize = 4 << 20;
/// What is sent and received at a time, in turn.
const SENT: [usize; 4] = [1 << 20, 100, 70_000, 8_185];
const RECEIVED: [usize; 6] = [1, 70_000, 7, 4096, 300_000, 3];
/// Signals come this far apart to calls that wait for so long at most.
const APART: Duration = Duration::from_millis(10);
const LIMIT_MS: i64 = 400;

/// Run `play` while signals come whose handler has these flags.
pub(super) fn in_storm<T>(flags: i32, apart: Duration, play: impl FnOnce() -> T) -> T {
    catch(libc::SIGUSR1, flags);
    let alarm = Alarm::new();
    alarm.set(apart, apart);
    let played = play();
    alarm.set(Duration::ZERO, Duration::ZERO);
    played
}

/// What calls returned that have failed otherwise than by a signal, and how often a signal ended one.
#[derive(Default)]
pub(super) struct Failures {
    interrupted: u32,
    other: Option<Errno>,
}

impl Failures {
    /// Note one; whether to go on.
    pub(super) fn note(&mut self, errno: Errno) -> bool {
        match errno.0 {
            EINTR => self.interrupted += 1,
            _ => self.other = Some(errno),
        }
        self.other.is_none()
    }

    /// Whether no call failed that should not have.
    pub(super) fn are_none(&self, flags: i32) -> bool {
        self.other.is_none() && (flags & SA_RESTART == 0 || self.interrupted == 0)
    }

    /// With SA_RESTART no call fails by a signal.
    pub(super) fn say(&self, s: &mut Stage, flags: i32) {
        s.say(
            "failed",
            self.other
                .map_or("never".to_owned(), |errno| errno.to_string()),
        );
        if flags & SA_RESTART != 0 {
            s.say("interrupted", self.interrupted);
        }
    }
}

fn send_in_storm(s: &mut Stage, flags: i32) {
    let (fd, bytes) = (s.fd, pattern(BYTES));
    let mut failures = Failures::default();
    let mut sent = 0;
    in_storm(flags, STORM, || {
        for most in SENT.into_iter().cycle() {
            let rest = &bytes[sent..];
            match send(fd, &rest[..most.min(rest.len())], MSG_NOSIGNAL) {
                Ok(more) => sent += more,
                Err(errno) if failures.note(errno) => {}
                Err(_) => break,
            }
            if sent == BYTES {
                break;
            }
        }
    });
    s.say("sent", sent);
    failures.say(s, flags);
    s.say("shutdown", shutdown(fd, SHUT_WR));
}

/// Receive to the end, every third time as much as there is room for; `wait` waits for more.
fn receive_in_storm(s: &mut Stage, flags: i32, mut wait: impl FnMut(&mut Failures)) {
    let fd = s.fd;
    let mut failures = Failures::default();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 300_000]);
    in_storm(flags, STORM, || {
        for (turn, most) in RECEIVED.into_iter().cycle().enumerate() {
            wait(&mut failures);
            let all = if turn % 3 == 2 { MSG_WAITALL } else { 0 };
            match recv(fd, &mut buffer[..most], all) {
                Ok(0) => break,
                Ok(more) => bytes.extend_from_slice(&buffer[..more]),
                Err(errno) if failures.note(errno) => {}
                Err(_) => break,
            }
        }
    });
    s.say("took", digest(&bytes));
    failures.say(s, flags);
}

/// Wait by poll(2), which every signal ends.
fn wait_by_poll(fd: i32, failures: &mut Failures) {
    while poll_one(fd, POLLIN, None).is_err_and(|errno| {
        failures.other = (errno.0 != EINTR).then_some(errno);
        errno.0 == EINTR
    }) {}
}

/// How often of some times a call that waits for a limited time is ended by a signal: it is never restarted.
fn ended(s: &mut Stage, what: &str, call: impl Fn() -> Result<usize, Errno>) {
    let ended = in_storm(SA_RESTART, APART, || {
        (0..10).filter(|_| call() == Err(Errno(EINTR))).count()
    });
    s.say(what, ended);
}

fn receive(s: &mut Stage, most: usize, flags: i32) {
    let mut buffer = vec![0; most];
    let answer = recv(s.fd, &mut buffer, flags);
    s.say("recv", data(&buffer, answer));
}

pub const CHECKS: &[Check] = &[
    pair(
        "storm_of_signals_that_end_calls",
        |s| receive_in_storm(s, 0, |_| {}),
        |s| send_in_storm(s, 0),
    ),
    pair(
        "storm_of_signals_that_restart_calls",
        |s| receive_in_storm(s, SA_RESTART, |_| {}),
        |s| send_in_storm(s, SA_RESTART),
    ),
    pair(
        "storm_of_signals_while_it_polls",
        |s| {
            let fd = s.fd;
            receive_in_storm(s, SA_RESTART, |failures| wait_by_poll(fd, failures));
        },
        |s| send_in_storm(s, SA_RESTART),
    ),
    pair(
        "signals_end_what_has_a_limit",
        |s| {
            let fd = s.fd;
            s.say("set", set_timeout(fd, SO_RCVTIMEO, LIMIT_MS));
            s.say("set", set_timeout(fd, SO_SNDTIMEO, LIMIT_MS));
            ended(s, "recv", || recv(fd, &mut [0; 10], 0));
            ended(s, "all", || recv(fd, &mut [0; 10], MSG_WAITALL));
            let much = vec![0; 1 << 20];
            set_nonblocking(fd, true).expect("a flag can be set");
            while send(fd, &much, MSG_NOSIGNAL).is_ok() {}
            set_nonblocking(fd, false).expect("a flag can be set");
            // What has found room for a part says so instead.
            let failed = in_storm(SA_RESTART, APART, || {
                let tries = (0..10).map(|_| send(fd, &much, MSG_NOSIGNAL));
                tries.filter_map(Result::err).find(|errno| errno.0 != EINTR)
            });
            s.say("send", failed.map_or(Ok("no limit"), Err));
        },
        |_| {},
    ),
    pair(
        "low_water_mark_of_receives",
        |s| {
            s.say("set", setsockopt(s.fd, SOL_SOCKET, SO_RCVLOWAT, 8));
            s.go();
            s.wait();
            receive(s, 2, 0);
            s.say("few", recv(s.fd, &mut [0; 100], MSG_DONTWAIT));
            s.say("none", recv(s.fd, &mut [0; 100], MSG_DONTWAIT));
            s.say(
                "poll",
                poll_one(s.fd, POLLIN | POLLOUT, Some(0)).map(i32::from),
            );
            s.say("limit", set_timeout(s.fd, SO_RCVTIMEO, 30));
            s.go();
            s.wait();
            receive(s, 100, 0);
            receive(s, 100, 0);
        },
        |s| {
            s.wait();
            s.send(b"abcd");
            s.go();
            s.wait();
            s.send(b"last");
            s.go();
        },
    ),
];
