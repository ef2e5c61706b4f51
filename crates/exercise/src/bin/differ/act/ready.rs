//! poll, select and epoll.

use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    Readiness, epoll_create, epoll_ctl, epoll_delete, epoll_pwait, epoll_wait, poll, poll_one,
    ppoll, pselect_one, select_one,
};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD};

use super::{Outcome, fd};
use crate::call::Call;
use crate::word::{EpollEvents, PollEvents, Word};

const EVERYTHING: Readiness = Readiness {
    read: true,
    write: true,
    except: true,
};

pub fn act(call: &Call) -> Option<Outcome> {
    Some(match *call {
        Call::Poll {
            fd: on,
            events,
            timeout_ms,
        } => {
            let seen = poll_one(fd(on), events.0, Some(timeout_ms));
            Outcome::of(seen.map(|seen| PollEvents(seen).word()))
        }
        Call::PollBoth {
            fd: one,
            other,
            events,
            timeout_ms,
        } => {
            let mut entries = [entry(fd(one), events), entry(fd(other), events)];
            let answer = poll(&mut entries, Some(timeout_ms));
            let seen = entries.map(|entry| PollEvents(entry.revents).word());
            Outcome::of(answer.map(|count| format!("{count} {}", seen.join(" "))))
        }
        Call::Ppoll {
            fd: on,
            events,
            timeout_ms,
        } => {
            let mut entries = [entry(fd(on), events)];
            let answer = ppoll(&mut entries, milliseconds(timeout_ms), None);
            let seen = PollEvents(entries[0].revents).word();
            Outcome::of(answer.map(|count| format!("{count} {seen}")))
        }
        Call::Select { fd: on, timeout_ms } => {
            let timeout = u32::try_from(timeout_ms).ok().map(milliseconds);
            let seen = select_one(fd(on), EVERYTHING, timeout);
            Outcome::of(seen.map(|(seen, _)| readiness(seen)))
        }
        Call::Pselect { fd: on, timeout_ms } => {
            let seen = pselect_one(fd(on), EVERYTHING, milliseconds(timeout_ms));
            Outcome::of(seen.map(readiness))
        }
        Call::EpollCreate { .. } => Outcome::made(epoll_create()),
        Call::EpollAdd {
            epoll,
            fd: on,
            events,
            data,
        } => control(fd(epoll), EPOLL_CTL_ADD, fd(on), events, data),
        Call::EpollMod {
            epoll,
            fd: on,
            events,
            data,
        } => control(fd(epoll), EPOLL_CTL_MOD, fd(on), events, data),
        Call::EpollDel { epoll, fd: on } => Outcome::of(epoll_delete(fd(epoll), fd(on))),
        Call::EpollWait {
            epoll,
            most,
            timeout_ms,
        } => waited(epoll_wait(fd(epoll), most, Some(timeout_ms))),
        Call::EpollPwait {
            epoll,
            most,
            timeout_ms,
        } => waited(epoll_pwait(fd(epoll), most, timeout_ms)),
        _ => return None,
    })
}

fn entry(fd: i32, events: PollEvents) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: events.0,
        revents: 0,
    }
}

fn milliseconds(count: u32) -> Duration {
    Duration::from_millis(u64::from(count))
}

fn readiness(seen: Readiness) -> String {
    let names = [(seen.read, "r"), (seen.write, "w"), (seen.except, "x")];
    let set = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name);
    format!("[{}]", set.collect::<String>())
}

fn control(epoll: i32, operation: i32, on: i32, events: EpollEvents, data: u32) -> Outcome {
    Outcome::of(epoll_ctl(epoll, operation, on, events.0, u64::from(data)))
}

/// In which order descriptors are reported is not promised.
fn waited(seen: Result<Vec<(u32, u64)>, Errno>) -> Outcome {
    let one = |&(events, data): &(u32, u64)| format!("{data}:{}", EpollEvents(events).word());
    Outcome::of(seen.map(|mut seen| {
        seen.sort_by_key(|&(events, data)| (data, events));
        format!("[{}]", seen.iter().map(one).collect::<Vec<_>>().join(" "))
    }))
}
