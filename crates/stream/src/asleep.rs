//! Sleeping until something may be read, and the doorbells that end it.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::os::fd::RawFd;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::slab::{Ending, Mode};
use crosslane_sys::{Errno, cancel, errno, interrupted, kernel, real};
use libc::sigset_t;

use crate::ending::{look_for_end, note_eof, note_error};
use crate::family::Family;
use crate::interrupt::Interrupt;
use crate::{
    End, bell, control, lost, patience, place, replay, restart, shares, stir, switch, wait,
};

/// What a receive waits for: something to read, or an end.
const FOR_RECORD: i16 = libc::POLLIN | libc::POLLRDHUP;

/// A pause while others have to take notice of a doorbell.
const NAP: Duration = Duration::from_micros(50);

/// Spin, then sleep in the kernel on the program's own socket, until something may have come. The call may have
/// received something already.
///
/// # Errors
/// EINTR and EAGAIN as the kernel gives them to a receive, by SA_RESTART and SO_RCVTIMEO; [`Errno::RESTART`].
pub(crate) fn wait_readable(
    end: &End,
    has_some: bool,
    interrupt: &mut Interrupt,
) -> Result<(), Errno> {
    if end.rx_mode() == Mode::Ring {
        let rest = |how, ticks| end.rest_for_record(how, ticks);
        let ready = || end.has_record() || interrupt.ends_spin();
        if wait::look_and_rest(place::peer(end), ready, rest) && end.has_record() {
            end.count(Counter::SpinHits, 1);
            return Ok(());
        }
        end.count(Counter::SpinMisses, 1);
    }
    lost::look(end);
    if lost::is_unsettled(end) {
        return rest_unsettled(end, interrupt);
    }
    end.begin_sleep();
    let wake = || {
        end.end_sleep();
        after_sleep(end);
    };
    let outcome = match prepare_sleep(end) {
        true => cancel::undone(wake, || sleep(end, has_some, interrupt)),
        false => Ok(()),
    };
    wake();
    wait::woke();
    outcome
}

/// Rest a moment while it is not known what comes next. The call's time passes as in a sleep.
#[cold]
fn rest_unsettled(end: &End, interrupt: &mut Interrupt) -> Result<(), Errno> {
    interrupt.patience.begin_sleep();
    lost::nap(end);
    interrupt.check()?;
    let is_late = interrupt.patience.left(end) == Some(Duration::ZERO);
    match is_late && lost::is_unsettled(end) {
        true => Err(Errno::AGAIN),
        false => Ok(()),
    }
}

/// Arm, and look once more. Returns whether the caller may sleep until TCP has something to read.
pub fn prepare_sleep(end: &End) -> bool {
    match end.hold_rx_lane() {
        Some((lane, _rx)) => bell::arm(end, &lane),
        None => return true,
    }
    let found = must_look(end);
    // A sender that found its lane full rings us not; this is the last look before the sleep.
    bell::answer_space(end);
    switch::attend(end);
    // To ask for a doorbell in a window that is lost is to sleep for ever.
    !found && !lost::is_unsettled(end)
}

/// Whether a record stands in the lane that a look would act on. While TCP has to deliver
/// something first, the record is no reason to stay awake.
pub(crate) fn must_look(end: &End) -> bool {
    let waits_for_tcp = match end.rx_mode() {
        Mode::Ring => false,
        Mode::Tcp => {
            let limit = end.entry.rx.tcp_limit.load(Ordering::Relaxed);
            limit != u64::MAX && limit != end.entry.rx.tcp_bytes.load(Ordering::Relaxed)
        }
        Mode::Drain | Mode::Replay => true,
    };
    !waits_for_tcp && end.has_record()
}

/// After a sleep: nobody needs to ring any more, unless others still sleep.
pub fn after_sleep(end: &End) {
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane() else { return };
    let wait = &end.entry.wait;
    if wait.sleepers.load(Ordering::SeqCst) == 0 && wait.epolls.load(Ordering::Relaxed) == 0 {
        bell::disarm(end, &lane);
    } else if end.entry.wait.armed.load(Ordering::Relaxed) != 0 {
        // The doorbell that woke us was for the others, too.
        bell::arm(end, &lane);
    }
}

/// Whether a doorbell, and nothing else, is still there. A thread may be cancelled here as in a sleep.
fn is_bell_there(end: &End, has_some: bool, interrupt: &mut Interrupt) -> Result<bool, Errno> {
    let look = || poll_one((end.fd(), FOR_RECORD), -1, Some(Duration::ZERO), None);
    match cancel::guarded(interrupt, look) {
        Ok([shown, _]) => Ok(shown == libc::POLLIN),
        Err(errno) => Err(ended(errno, has_some, || {
            interrupt.patience.left(end).is_some()
        })),
    }
}

/// What a sleep that has ended by an error makes of the call.
fn ended(errno: Errno, has_some: bool, has_time_limit: impl FnOnce() -> bool) -> Errno {
    match errno {
        Errno::RESTART if has_some => Errno::INTR,
        errno => restart::interrupted(errno, errno == Errno::RESTART && has_time_limit()),
    }
}

fn sleep(end: &End, has_some: bool, interrupt: &mut Interrupt) -> Result<(), Errno> {
    end.count(Counter::Sleeps, 1);
    control::tend();
    replay::push();
    if interrupt.has_rested() && is_bell_there(end, has_some, interrupt)? {
        // A sleep would be none, and miss the signals that come on the way.
        let left = interrupt.patience.left(end);
        answer_bell(end, interrupt)?;
        return check_time(end, left);
    }
    if interrupt.must_let_in(has_some) {
        interrupt.let_in()?;
    }
    interrupt.hold(has_some);
    let is_limited = || interrupt.patience.left(end).is_some();
    interrupt
        .check()
        .map_err(|errno| ended(errno, has_some, is_limited))?;
    let mask = interrupt.mask();
    let is_first = interrupt.patience.begin_sleep();
    // The kernel begins no receive again that has something. At O_NONBLOCK it looks when a call begins, and it would
    // wait for all of SO_RCVTIMEO once more.
    let may_restart = mask.is_none()
        && !has_some
        && !end.is_nonblocking()
        && !replay::is_under_way(end)
        && !interrupt.patience.is_outdated(end)
        && (is_first || patience::time_limit(end).is_none());
    match may_restart && restart::prepare(end) {
        true => {
            let peeked = restart::peek(end);
            interrupt.pass_restarts();
            conclude(end, peeked, interrupt)
        }
        false => {
            let left = interrupt.patience.left(end);
            sleep_by_poll(end, (has_some, interrupt), left, mask.as_ref())?;
            check_time(end, left)
        }
    }
}

/// What has woken a call that had so much time `left` may be for others; its time is over all the same.
fn check_time(end: &End, left: Option<Duration>) -> Result<(), Errno> {
    let is_late = left.is_some_and(|left| left.is_zero()) && !has_come(end);
    if is_late { Err(Errno::AGAIN) } else { Ok(()) }
}

/// Whether a receive finds something, or an end.
fn has_come(end: &End) -> bool {
    end.rx_mode() != Mode::Ring || end.has_record() || end.ending() != Ending::Open
}

/// As [`restart::peek`], where the descriptor is no longer the program's, the call must not be begun again, O_NONBLOCK
/// has been set since it began, at which the kernel does not look, signals are held back, which come in by the mask, or
/// something is still to be sent again, for which room is waited for, too.
#[cold]
fn sleep_by_poll(
    end: &End,
    (has_some, interrupt): (bool, &mut Interrupt),
    limit: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<(), Errno> {
    let by_name = stir::Sleep::begin(end);
    // The kernel passes over a negative number.
    let event = by_name.as_ref().map_or(-1, |sleep| sleep.event);
    let (fd, mut events) = for_record(end);
    if replay::is_under_way(end) {
        events |= libc::POLLOUT;
    }
    let sleep = || poll_one((fd, events), event, limit, mask);
    let found = cancel::guarded(interrupt, || cancel::guarded(&by_name, sleep));
    drop(by_name);
    match found {
        Err(errno) => Err(ended(errno, has_some, || limit.is_some())),
        Ok([0, 0]) => Err(Errno::AGAIN),
        // For what is to be sent again. The call's own time may be over.
        Ok([libc::POLLOUT, 0]) => match limit {
            Some(Duration::ZERO) => Err(Errno::AGAIN),
            _ => Ok(()),
        },
        // For another end perhaps, whose sleeps are to go on first.
        Ok([0, _]) => {
            kernel::nap(NAP);
            Ok(())
        }
        Ok([found, _]) if found & !libc::POLLOUT == libc::POLLIN => conclude(end, Ok(1), interrupt),
        // An error stays for the next call, as with the kernel.
        Ok([found, _]) if has_some && found & libc::POLLERR != 0 && end.family() == Family::Tcp => {
            answer_bell(end, interrupt)
        }
        Ok(_) => match end.family().available(end.fd(), 1) {
            // Another thread may have been faster, or have closed the descriptor that we have looked by.
            Err(Errno::AGAIN | Errno::BADF) => Ok(()),
            found => conclude(end, found, interrupt),
        },
    }
}

/// Where a receive waits, and for what.
pub(crate) fn for_record(end: &End) -> (RawFd, i16) {
    (end.fd(), FOR_RECORD)
}

/// Wait for what a descriptor is asked for, or the event. Returns what poll(2) does of the two, zeros when the time is over.
///
/// # Errors
/// As [`interrupted::sleep`].
pub(crate) fn poll_one(
    asked: (RawFd, i16),
    event: RawFd,
    limit: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<[i16; 2], Errno> {
    // An entry that asks for nothing counts, too, where a sandbox lets a program poll but one descriptor (RLIMIT_NOFILE).
    match event < 0 {
        true => poll_each([asked], limit, mask).map(|[found]| [found, 0]),
        false => poll_each([asked, (event, libc::POLLIN)], limit, mask),
    }
}

fn poll_each<const N: usize>(
    asked: [(RawFd, i16); N],
    limit: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<[i16; N], Errno> {
    let mut each = asked.map(|(fd, events)| libc::pollfd {
        fd,
        events,
        revents: 0,
    });
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let time = limit
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    let mask_at = mask.map_or(core::ptr::null(), core::ptr::from_ref);
    interrupted::sleep(mask, || {
        // SAFETY: the entries, the time and the mask outlive the call.
        let found = unsafe { real::ppoll(each.as_mut_ptr(), each.len() as _, time, mask_at) };
        errno::check(found as isize)
    })?;
    Ok(each.map(|one| one.revents))
}

/// What a sleep has been ended by.
fn conclude(
    end: &End,
    found: Result<usize, Errno>,
    interrupt: &mut Interrupt,
) -> Result<(), Errno> {
    match found {
        Err(errno @ (Errno::AGAIN | Errno::INTR | Errno::RESTART)) => return Err(errno),
        Ok(0) => note_eof(end),
        Ok(_) => return answer_bell(end, interrupt),
        Err(errno) => note_error(end, errno),
    }
    Ok(())
}

/// TCP has something to read. A doorbell that cannot be taken now, because others sleep for it or
/// because it is not announced yet, would end the next sleep at once.
fn answer_bell(end: &End, interrupt: &mut Interrupt) -> Result<(), Errno> {
    note_bell(end);
    if end.rx_mode() == Mode::Tcp || end.has_record() {
        return Ok(());
    }
    let is_left = {
        let _rx = end.lock_rx();
        take_bells(end, 1);
        look_for_end(end)
    };
    if is_left && !end.has_record() {
        end.count(Counter::Backoffs, 1);
        shares::correct(end);
        return interrupt.rest(end, NAP);
    }
    Ok(())
}

/// A doorbell has woken the caller.
pub(crate) fn note_bell(end: &End) {
    end.local.rung.store(1, Ordering::Relaxed);
}

/// Take the doorbell that has woken us, now that what it announced has been read. One that is left
/// when the process ends would make the kernel reset the connection.
#[inline]
pub(crate) fn take_late_bells(end: &End) {
    if end.local.rung.load(Ordering::Relaxed) != 0 && !end.has_record() {
        // A copy, so that the end itself stays in registers.
        take_bells_now(&{ *end });
    }
}

#[cold]
fn take_bells_now(end: &End) {
    let _rx = end.lock_rx();
    take_bells(end, 0);
}

/// Take the doorbells off TCP unless there is something to read, or others than the caller, who
/// counts as `own`, sleep for them. The caller holds the receiving direction.
pub(crate) fn take_bells(end: &End, own: u32) {
    if end.rx_mode() != Mode::Ring {
        return;
    }
    let Some(lane) = end.rx_lane() else { return };
    if !bell::may_be_taken(end, &lane, own) {
        return;
    }
    bell::renew(end, &lane);
    bell::take_if_empty(end, &lane);
}

#[cfg(test)]
mod tests;
