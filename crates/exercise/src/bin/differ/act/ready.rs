//! poll, select and epoll.

use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    Readiness, block, epoll_create, epoll_ctl, epoll_delete, epoll_pwait, epoll_pwait_under,
    epoll_pwait2_under, epoll_wait, poll, poll_one, ppoll_under, pselect_under, raise, select_one,
    signal_set,
};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD};

use super::{Outcome, fd};
use crate::call::Call;
use crate::word::{EpollEvents, Mask, PollEvents, Word};

const EVERYTHING: Readiness = Readiness {
    read: true,
    write: true,
    except: true,
};
const READING: Readiness = Readiness {
    read: true,
    write: false,
    except: false,
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
        } => polled(fd(on), events, timeout_ms, Mask::NONE),
        Call::Select { fd: on, timeout_ms } => {
            let seen = select_one(fd(on), asked(timeout_ms), limit(timeout_ms));
            Outcome::of(seen.map(|(seen, _)| readiness(seen)))
        }
        Call::Pselect { fd: on, timeout_ms } => selected(fd(on), timeout_ms, Mask::NONE),
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
        _ => return act_under(call),
    })
}

/// The calls that take a mask of signals.
fn act_under(call: &Call) -> Option<Outcome> {
    Some(match *call {
        Call::PpollMasked {
            fd: on,
            events,
            timeout_ms,
            mask,
        } => polled(fd(on), events, timeout_ms, mask),
        Call::PselectMasked {
            fd: on,
            timeout_ms,
            mask,
        } => selected(fd(on), timeout_ms, mask),
        Call::EpollPwaitMasked {
            epoll,
            most,
            timeout_ms,
            mask,
        } => waited(under(mask, |mask| {
            epoll_pwait_under(fd(epoll), most, timeout_ms, mask)
        })),
        Call::EpollPwait2 {
            epoll,
            most,
            timeout_ms,
            mask,
        } => waited(under(mask, |mask| {
            epoll_pwait2_under(fd(epoll), most, limit(timeout_ms), mask)
        })),
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

/// None waits for ever.
fn limit(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// There is room mostly, for which nobody would sleep.
fn asked(timeout_ms: i32) -> Readiness {
    if timeout_ms < 0 { READING } else { EVERYTHING }
}

/// Make a call with SIGUSR1 as its mask says.
fn under<R>(mask: Mask, call: impl FnOnce(Option<&libc::sigset_t>) -> R) -> R {
    let masking = mask.value();
    if masking.outside {
        block(libc::SIGUSR1, true);
    }
    if masking.sent {
        raise(libc::SIGUSR1);
    }
    let blocked = [libc::SIGUSR1];
    let set = masking
        .inside
        .map(|has_it| signal_set(if has_it { &blocked } else { &[] }));
    let result = call(set.as_ref());
    if masking.outside {
        block(libc::SIGUSR1, false);
    }
    result
}

fn polled(on: i32, events: PollEvents, timeout_ms: i32, mask: Mask) -> Outcome {
    let mut entries = [entry(on, events)];
    let answer = under(mask, |mask| {
        ppoll_under(&mut entries, limit(timeout_ms), mask)
    });
    let seen = PollEvents(entries[0].revents).word();
    Outcome::of(answer.map(|count| format!("{count} {seen}")))
}

fn selected(on: i32, timeout_ms: i32, mask: Mask) -> Outcome {
    let seen = under(mask, |mask| {
        pselect_under(on, asked(timeout_ms), limit(timeout_ms), mask)
    });
    Outcome::of(seen.map(readiness))
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

#[cfg(test)]
mod tests {
    use crosslane_exercise::calls::{close, epoll_ctl, pipe, write};

    use crate::act::{Matter, Outcome, Place, act, catch};
    use crate::call::Call;

    fn outcome(call: &str) -> Outcome {
        let call = Call::parse(&mut call.split_whitespace()).unwrap();
        act(&call, Matter::default(), Place { passage: [0, 0] })
    }

    #[test]
    fn a_mask_says_whether_a_signal_ends_a_wait() {
        catch(libc::SIGUSR1, 0);
        let [out, into] = pipe().unwrap();
        let said = |mask: &str| outcome(&format!("ppoll-masked h{out} IN 10 {mask}")).text;
        assert_eq!(said("NONE"), "0 -");
        assert_eq!(said("OPENS"), "0 -");
        assert_eq!(said("PENDING"), "EINTR SIGUSR1*1");
        assert_eq!(said("HELD"), "0 - SIGUSR1*1");
        write(into, b"!").unwrap();
        assert_eq!(said("PENDING"), "1 IN SIGUSR1*1");
        for end in [out, into] {
            close(end).unwrap();
        }
    }

    #[test]
    fn each_call_with_a_mask_takes_it() {
        catch(libc::SIGUSR1, 0);
        let set = super::epoll_create().unwrap();
        let [out, into] = pipe().unwrap();
        let read = libc::EPOLLIN.cast_unsigned();
        epoll_ctl(set, libc::EPOLL_CTL_ADD, out, read, 7).unwrap();
        for call in [
            format!("epoll-pwait-masked h{set} 8"),
            format!("epoll-pwait2 h{set} 8"),
            format!("pselect-masked h{out}"),
        ] {
            let ended = outcome(&format!("{call} 10000 PENDING"));
            assert_eq!(ended.text, "EINTR SIGUSR1*1", "{call}");
            let held = outcome(&format!("{call} 10 HELD")).text;
            assert_eq!(held, "[] SIGUSR1*1", "{call}");
        }
        for end in [out, into, set] {
            close(end).unwrap();
        }
    }
}
