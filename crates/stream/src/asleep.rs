//! Sleeping until something may be read, and the doorbells that end it.

use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::slab::Mode;
use crosslane_sys::{Errno, kernel, real};

use crate::ending::{look_for_end, note_eof, note_error};
use crate::{End, bell, control, lost, place, receive, stay, switch, wait};

/// A pause while others have to take notice of a doorbell.
const NAP: core::time::Duration = core::time::Duration::from_micros(50);

/// Spin, then sleep in the kernel on the program's own socket, until something may have come.
///
/// # Errors
/// EINTR and EAGAIN as the kernel gives them to a receive: by SA_RESTART and SO_RCVTIMEO.
pub(crate) fn wait_readable(end: &End) -> Result<(), Errno> {
    if end.rx_mode() == Mode::Ring {
        let rest = |how, ticks| end.rest_for_record(how, ticks);
        if wait::look_and_rest(place::peer(end), || end.has_record(), rest) {
            end.count(Counter::SpinHits, 1);
            return Ok(());
        }
        end.count(Counter::SpinMisses, 1);
    }
    lost::look(end);
    if lost::is_unsettled(end) {
        lost::nap(end);
        return Ok(());
    }
    end.entry.wait.sleepers.fetch_add(1, Ordering::SeqCst);
    let outcome = if prepare_sleep(end) {
        sleep(end)
    } else {
        Ok(())
    };
    end.entry.wait.sleepers.fetch_sub(1, Ordering::SeqCst);
    after_sleep(end);
    wait::woke();
    outcome
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
fn must_look(end: &End) -> bool {
    let waits_for_tcp = match end.rx_mode() {
        Mode::Ring => false,
        Mode::Tcp => end.entry.rx.tcp_limit.load(Ordering::Relaxed) != u64::MAX,
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

fn sleep(end: &End) -> Result<(), Errno> {
    end.count(Counter::Sleeps, 1);
    control::tend();
    let fd = end.fd();
    let found = match peek_one(fd) {
        Err(Errno::AGAIN) if end.is_nonblocking() => sleep_by_poll(end, fd)?,
        found => found,
    };
    match found {
        Err(Errno::AGAIN) if end.is_nonblocking() => Ok(()),
        Err(errno @ (Errno::AGAIN | Errno::INTR)) => Err(errno),
        // Closed under us: begun again after a signal, the kernel's call was about whatever the number is now.
        _ if fd == end.fd && !stay::has_name(end) => match end.fd() == fd {
            true => Err(Errno::BADF),
            false => {
                answer_bell(end);
                Ok(())
            }
        },
        Ok(0) => {
            note_eof(end);
            Ok(())
        }
        Ok(_) => {
            answer_bell(end);
            Ok(())
        }
        Err(errno) => {
            note_error(end, errno);
            Ok(())
        }
    }
}

/// Peeking leaves the doorbell to all who sleep here, and a receive restarts after signals and obeys
/// SO_RCVTIMEO exactly as the program's own.
fn peek_one(fd: RawFd) -> Result<usize, Errno> {
    let mut byte = 0u8;
    // SAFETY: the byte is valid for one write.
    let result = unsafe { real::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
    crosslane_sys::errno::check(result)
}

/// As [`peek_one`], where O_NONBLOCK has been set since the call began, at which the kernel does not look.
#[cold]
fn sleep_by_poll(end: &End, fd: RawFd) -> Result<Result<usize, Errno>, Errno> {
    let mut one = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    let limit = receive::time_limit(end).map(|limit| libc::timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    match kernel::poll(&mut one, limit)? {
        0 => Err(Errno::AGAIN),
        // Another thread may have been faster.
        _ => Ok(peek_one(fd)),
    }
}

/// TCP has something to read. A doorbell that cannot be taken now, because others sleep for it or
/// because it is not announced yet, would end the next sleep at once.
fn answer_bell(end: &End) {
    note_bell(end);
    if end.rx_mode() == Mode::Tcp || end.has_record() {
        return;
    }
    let is_left = {
        let _rx = end.lock_rx();
        take_bells(end, 1);
        look_for_end(end)
    };
    if is_left && !end.has_record() {
        end.count(Counter::Backoffs, 1);
        kernel::nap(NAP);
    }
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
        take_bells_now(end);
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
    if !bell::is_for_us_alone(end, &lane, own) {
        return;
    }
    if end.entry.wait.armed.load(Ordering::Relaxed) != 0 {
        // Somebody sleeps, and may never see the doorbell. What comes from now on rings again.
        bell::arm(end, &lane);
    }
    bell::take_if_empty(end, &lane);
}
