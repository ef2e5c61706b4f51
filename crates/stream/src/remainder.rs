//! What is left of a send whose direction is brought back to TCP in the middle, or has to send again first what a frozen
//! receiver has not taken.
//!
//! The kernel looks at O_NONBLOCK and SO_SNDTIMEO when a call begins, and this is none that begins. So it is asked for what
//! can be sent at once, and waited for in between, as long as the call has been told to.

use core::time::Duration;

use crosslane_ctl::slab::Mode;
use crosslane_ring::Parts;
use crosslane_sys::{Errno, cancel, errno, kernel};

use crate::family::Family;
use crate::interrupt::{Portions, Waits};
use crate::pieces::Pieces;
use crate::{End, ending, raw, replay, send};

/// Between two looks at a kernel that shows room and takes nothing.
const NAP: Duration = Duration::from_millis(1);

/// Let the kernel send more of `parts`, or wait until it has room. Returns how many bytes it took.
///
/// # Errors
/// As send(2), where nothing has been taken; [`Errno::RESTART`]: a signal begins the call again.
pub(crate) fn send(
    end: &End,
    parts: &mut Parts<'_>,
    dont_wait: bool,
    waits: &mut Waits,
) -> Result<usize, Errno> {
    send::check_open(end)?;
    let before = replay::position(end);
    let replayed = replay::finish_replay(end, true);
    waits.in_vain &= replay::position(end) == before;
    match replayed.and_then(|()| by_kernel(end, parts, dont_wait)) {
        Err(Errno::AGAIN) if !dont_wait => wait(end, waits).map(|()| 0),
        Err(Errno::PIPE) if waits.has_some_of_this && end.family() == Family::Tcp => {
            // Why is for the next call: this one tells what it has sent.
            ending::note_refused(end, Errno::PIPE);
            Err(Errno::PIPE)
        }
        sent => {
            waits.in_vain = false;
            sent
        }
    }
}

/// Have the kernel send another of the `portions` of a call that has sent something before: a signal ends it, whatever its handler was set
/// with. Returns how many bytes it took, and whether that is all for now: else the direction is in the ring.
///
/// # Errors
/// As send(2), where nothing has been taken.
pub fn go_on(
    end: &End,
    parts: &mut Parts<'_>,
    dont_wait: bool,
    portions: &mut Portions,
) -> Result<(usize, bool), Errno> {
    let waits = portions.begin();
    let (dont_wait, all) = (dont_wait || end.is_nonblocking(), parts.left());
    while parts.left() > 0 && end.tx_mode() != Mode::Ring {
        let outcome = send(end, parts, dont_wait, waits);
        let sent = all - parts.left();
        waits.note(sent);
        match outcome {
            Ok(_) => {}
            // A send that is refused at once takes no error of the socket's.
            Err(Errno::PIPE) if sent == 0 && !waits.has_waited => return Err(Errno::PIPE),
            Err(errno) => return send::refuse(end, errno, sent).map(|_| (sent, true)),
        }
    }
    Ok((all - parts.left(), false))
}

fn by_kernel(end: &End, parts: &mut Parts<'_>, dont_wait: bool) -> Result<usize, Errno> {
    let mut pieces = Pieces::of(parts.clone());
    let message = pieces.message();
    // SAFETY: the message and its pieces live, and the pieces are valid.
    let sent = || errno::answer(unsafe { kernel::sendmsg(end.fd(), &raw const message, 0) });
    let sent = match dont_wait {
        true => raw::send(end, pieces.bytes(), sent),
        // Who waits for room asks nobody to be told of some.
        false => raw::send_waiting(end, sent),
    };
    let Some(sent) = sent else {
        // In the ring by now, or something is to be sent again before.
        return Ok(0);
    };
    let sent = errno::check(sent)?;
    parts.skip(sent);
    Ok(sent)
}

fn wait(end: &End, waits: &mut Waits) -> Result<(), Errno> {
    waits.has_waited = true;
    let waited = sleep(end, waits);
    send::may_begin_again(end, waits, waited)
}

fn sleep(end: &End, waits: &mut Waits) -> Result<(), Errno> {
    waits.interrupt.begin();
    waits.interrupt.hold(waits.has_some);
    waits.interrupt.check()?;
    let left = waits.deadline.remaining(end)?;
    let mask = waits.interrupt.mask();
    let sleep = || replay::wait_for_tcp(end, left, mask.as_ref());
    cancel::guarded(&waits.stay, || cancel::guarded(&waits.interrupt, sleep))?;
    if core::mem::replace(&mut waits.in_vain, true) {
        // The kernel shows room, and lacks memory.
        waits.interrupt.nap(NAP)?;
    }
    // What the kernel takes when the lane is left is no sign of the receiver's.
    waits.deadline.begin_wait(end);
    Ok(())
}
