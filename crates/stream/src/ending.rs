//! The end of the stream, and errors: told by the kernel, perhaps behind doorbells, and passed on
//! to the program after all data.

use core::sync::atomic::Ordering;
use core::time::Duration;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::receiver_flags::{CLOSED, DIED, ENDED, FROZEN};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{Failed, PeerLied, WindowLane};
use crosslane_sys::{Errno, cpu, kernel};

use crate::asleep::take_bells;
use crate::family::Family;
use crate::{End, bell, gone, kernel_view, lost, reset, unconsumed};

/// What to say when the stream has ended and nothing is left: the error, once, or its end.
pub(crate) fn at_end(end: &End) -> Result<usize, Errno> {
    // Behind an own end it need not have come.
    look_for_any(end);
    take_last_bells(end);
    gone::look_again(end);
    let error = &end.entry.wait.error;
    // A reset that came after the end of the stream is for senders and SO_ERROR to see.
    if error.load(Ordering::Relaxed) != libc::EPIPE {
        match error.swap(0, Ordering::Relaxed) {
            0 if end.ending() == Ending::Eof => {}
            0 => match end.family().available(end.fd(), 1) {
                // A doorbell that has come before what tells of it hides an error. Behind an end the kernel tells none.
                Ok(1..) if !end.has_flags(end_flags::EOF) => {
                    if let Some(errno) = take_for_receive(end) {
                        return Err(errno);
                    }
                }
                // Not connected is what the library has reset.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => {}
                Err(errno) => {
                    // The kernel has told it now, and refuses what comes behind it.
                    look_for_reset(end);
                    return Err(errno);
                }
            },
            error => return Err(Errno(error)),
        }
    }
    Ok(0)
}

/// A receive of the kernel's has given nothing. Whether that is because the library has reset the connection under
/// it, and has taken the error from the kernel: then it is told now.
#[cold]
pub(crate) fn was_reset(end: &End) -> bool {
    let is_reset = end.ending() == Ending::Reset;
    let error = &end.entry.wait.error;
    if !is_reset || matches!(error.load(Ordering::Relaxed), 0 | libc::EPIPE) {
        return false;
    }
    Errno(error.swap(0, Ordering::Relaxed)).set();
    true
}

/// A receive of the kernel's has given nothing: the program may have been told of the end. An end that is not registered yet, and
/// has no lanes, is asked when it is.
#[inline]
pub(crate) fn note_nothing(end: &End) {
    if end.phase() != EndPhase::Plain || end.rx_lane().is_some() {
        look_whether_read_out(end);
    }
}

/// What stands before the end of a stream that is all read is not missing.
#[cold]
pub(crate) fn look_whether_read_out(end: &End) {
    let is_empty = || kernel::queued(end.fd(), libc::FIONREAD) == Ok(0);
    if kernel::poll_now(end.fd(), libc::POLLRDHUP) & libc::POLLRDHUP != 0 && is_empty() {
        lost::note_read_out(end);
    }
}

/// Doorbells hide an error that the kernel has; nobody sleeps for them after it.
fn take_last_bells(end: &End) {
    if end.ending() == Ending::Reset
        && end.rx_mode() == Mode::Ring
        && let Some((lane, _rx)) = end.hold_rx_lane()
    {
        bell::take(end, &lane);
    }
}

/// The pending error, if there is one, which is told by this: what the kernel has told the library,
/// or has not told yet.
pub fn take_error(end: &End) -> Option<Errno> {
    gone::look_again(end);
    take_kept(end).or_else(|| take_from_kernel(end))
}

fn take_from_kernel(end: &End) -> Option<Errno> {
    let error: i32 = kernel::getsockopt(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
    if error != 0 && end.family() == Family::Tcp {
        // It tells that once only.
        look_for_reset(end);
    }
    (error != 0).then_some(Errno(error))
}

/// As [`take_error`], of what a receive is told: a reset behind the end of the stream is for others.
pub fn take_for_receive(end: &End) -> Option<Errno> {
    let error = take_error(end)?;
    if error == Errno::PIPE {
        note_error(end, error);
        return None;
    }
    Some(error)
}

/// As [`take_error`], of what the kernel has told the library only.
fn take_kept(end: &End) -> Option<Errno> {
    let error = end.entry.wait.error.swap(0, Ordering::Relaxed);
    (error != 0).then_some(Errno(error))
}

/// The error that a send by the kernel is told, which has told the library already. That nothing more can be sent the
/// kernel says itself, and over AF_UNIX the error is for a receive.
pub(crate) fn take_from_send(end: &End) -> Option<Errno> {
    let is_kept = !matches!(
        end.entry.wait.error.load(Ordering::Relaxed),
        0 | libc::EPIPE
    );
    match is_kept && end.family() == Family::Tcp {
        true => take_kept(end),
        false => None,
    }
}

/// Whether the kernel has told the library an error that the program is yet to be told.
pub(crate) fn keeps_error(end: &End) -> bool {
    end.entry.wait.error.load(Ordering::Relaxed) != 0
}

/// Whether an error is pending.
pub(crate) fn has_error(end: &End) -> bool {
    gone::look_again(end);
    keeps_error(end) || kernel::poll_now(end.fd(), 0) & libc::POLLERR != 0
}

/// Whether urgent data comes next, or over TCP an error, which stays with the kernel behind a receive that has got something.
pub(crate) fn ends_receive(end: &End) -> bool {
    let has_failed = || kernel::poll_now(end.fd(), 0) & libc::POLLERR != 0;
    let is_empty = || kernel::queued(end.fd(), libc::FIONREAD) == Ok(0);
    kernel::is_at_mark(end.fd()) || end.family() == Family::Tcp && has_failed() && is_empty()
}

/// Whether nothing sent arrives any more, and an error says so that the program is yet to be told.
/// An error alone may be a time stamp or a message of the network on a connection that lives.
pub(crate) fn is_broken(end: &End) -> bool {
    const BROKEN: i16 = libc::POLLERR | libc::POLLHUP;
    end.ending() == Ending::Reset && keeps_error(end)
        || kernel::poll_now(end.fd(), 0) & BROKEN == BROKEN
}

/// The peer broke the ring's rules: the connection is reset, nothing else is touched. Who has found that may not be a call of
/// the program's, so the error is kept for one that is.
#[cold]
pub(crate) fn lied(end: &End, _lie: PeerLied) -> Errno {
    if lost::is_found(end) {
        return Errno::AGAIN;
    }
    if end.ending() == Ending::Reset && end.reason() == Reason::PeerLied {
        return Errno::CONNRESET;
    }
    end.count(Counter::PeerLies, 1);
    // Whatever the kernel and the lanes say of the end.
    end.add_flags(end_flags::PINNED | end_flags::JUDGED);
    end.set_reason(Reason::PeerLied);
    end.process().count_reason(Reason::PeerLied);
    let error = &end.entry.wait.error;
    error.store(Errno::CONNRESET.0, Ordering::Relaxed);
    end.note_ending(Ending::Reset);
    reset::now(end);
    Errno::CONNRESET
}

/// Ask the kernel whether the peer has gone. An error stays there for who is told of it.
pub(crate) fn look_for_reset(end: &End) {
    if end.family() == Family::Unix {
        return gone::look(end);
    }
    end.local.life_seen.store(cpu::ticks(), Ordering::Relaxed);
    let found = kernel::poll_now(end.fd(), libc::POLLRDHUP);
    if found & (libc::POLLERR | libc::POLLHUP) != 0 {
        end.note_ending(Ending::Reset);
    } else if found & libc::POLLRDHUP != 0 {
        end.note_ending(Ending::Eof);
    }
}

/// What is told of a receive that has got nothing out of its lane.
#[cold]
pub(crate) fn failed(end: &End, failed: Failed) -> Errno {
    match failed {
        Failed::Lied(lie) => lied(end, lie),
        Failed::Fault => Errno::FAULT,
    }
}

/// As [`failed`], of a send.
#[cold]
pub(crate) fn failed_to_send(end: &End, failed: Failed) -> Errno {
    match failed {
        Failed::Lied(lie) => lied_to_sender(end, lie),
        Failed::Fault => Errno::FAULT,
    }
}

/// As [`lied`], for a send, which is told once; over AF_UNIX the error is for a receive.
#[cold]
pub(crate) fn lied_to_sender(end: &End, lie: PeerLied) -> Errno {
    match lied(end, lie) {
        Errno::CONNRESET if end.family() == Family::Unix => Errno::PIPE,
        Errno::CONNRESET => take_kept(end).unwrap_or(Errno::PIPE),
        errno => errno,
    }
}

pub(crate) fn note_error(end: &End, errno: Errno) {
    if end.family() == Family::Unix {
        return match errno {
            Errno::PIPE => gone::look(end),
            errno => gone::note(end, Some(errno)),
        };
    }
    let error = &end.entry.wait.error;
    match errno {
        // Why it has ended is known already. A receive that sleeps is told this by the kernel, too, when the library resets the
        // connection under it.
        Errno::PIPE => {
            let _ = error.compare_exchange(0, errno.0, Ordering::Relaxed, Ordering::Relaxed);
        }
        _ => error.store(errno.0, Ordering::Relaxed),
    }
    end.note_ending(Ending::Reset);
}

/// The kernel has refused to send what the library sends by itself. It says so once only, and has
/// said it to us. After our own end it says nothing new, nor after what is known.
pub(crate) fn note_refused(end: &End, errno: Errno) {
    if errno == Errno::BADF {
        // Closed in this process; another may have it.
        return;
    }
    let is_new = || !end.has_flags(end_flags::SHUT_WRITE) && end.ending() != Ending::Reset;
    if errno != Errno::PIPE || is_new() {
        note_error(end, errno);
    }
}

/// Ask the kernel whether the stream has ended, behind the doorbells on TCP.
pub(crate) fn look_at_kernel(end: &End) {
    let _rx = end.lock_rx();
    look_behind_bells(end);
}

/// Before a call that an end makes another one, of which nothing in the lanes tells: whether it has come over TCP, and what it
/// means.
pub fn look_for_any(end: &End) {
    let is_open_question = match end.ending() {
        Ending::Open => true,
        Ending::Eof => !end.has_flags(end_flags::JUDGED),
        Ending::Reset => false,
    };
    if is_open_question && end.phase() == EndPhase::Granted && end.family() == Family::Tcp {
        look_at_kernel(end);
    }
}

/// A process that ends gives up its descriptors one after the other, and the monitor hears of its own in between.
const DYING: Duration = Duration::from_millis(100);

/// Before a send: the monitor may have seen the receiver's process end. The kernel is asked until it has, too, unless others have
/// the connection.
pub(crate) fn heed_death(end: &End, lane: &WindowLane) {
    let flags = &lane.control().receiver.flags;
    if flags.load(Ordering::Relaxed) & DIED == 0 {
        return;
    }
    look_for_any(end);
    let now = cpu::ticks();
    let heard = &end.local.death_heard;
    let _ = heard.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    let since = now.wrapping_sub(heard.load(Ordering::Relaxed)) / cpu::ticks_per_us();
    if end.ending() != Ending::Open || u128::from(since) > DYING.as_micros() {
        flags.fetch_and(!DIED, Ordering::Relaxed);
        heard.store(0, Ordering::Relaxed);
    }
}

/// As [`look_at_kernel`]; the caller holds the receiving direction.
pub(crate) fn look_behind_bells(end: &End) {
    take_bells(end, 0);
    look_for_end(end);
}

/// As [`look_at_kernel`]. Returns whether TCP holds bytes before any end. The caller holds the
/// receiving direction. An error stays in the kernel, for the call that is told of it.
pub(crate) fn look_for_end(end: &End) -> bool {
    let found = kernel::poll_now(end.fd(), libc::POLLIN | libc::POLLRDHUP);
    if found == 0 {
        return false;
    }
    let holds_bytes = kernel::queued(end.fd(), libc::FIONREAD).is_ok_and(|bytes| bytes > 0);
    // Before the end there is data, unless doorbells that others wait for hide it.
    if !holds_bytes || end.rx_mode() == Mode::Ring {
        if found & libc::POLLERR != 0 && end.family() == Family::Tcp {
            end.note_ending(Ending::Reset);
        } else if found & libc::POLLRDHUP != 0 {
            note_eof(end);
        }
    }
    holds_bytes
}

/// The kernel has reported the end of the stream. If the peer has not consumed all of ours, it
/// may have been killed: TCP would have reset the connection, and a probe finds out. A peer that
/// closes in order resets it itself then, so that what it has not consumed came later.
pub(crate) fn note_eof(end: &End) {
    if end.family() == Family::Unix {
        return gone::note(end, None);
    }
    if end.ending() == Ending::Reset {
        // The error is told once.
        return;
    }
    if has_been_told(end) {
        return end.note_ending(Ending::Reset);
    }
    end.note_ending(Ending::Eof);
    let Some(lane) = end.tx_lane().filter(|_| has_peer_ended(end)) else {
        return;
    };
    if !end.has_flags(end_flags::FAR) {
        // There it is told by what the other host says (crate::doubt).
        end.add_flags(end_flags::JUDGED);
    }
    let said = lane.control().receiver.flags.load(Ordering::SeqCst);
    if said & CLOSED != 0 || unconsumed::on_its_way(end) == 0 {
        return;
    }
    // A peer that has read all of it meanwhile, and then closed, has closed in good order.
    if is_reset(end, said) && unconsumed::on_its_way(end) > 0 {
        let _ = kernel::getsockopt::<i32>(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        let told = match said & ENDED {
            0 => Errno::CONNRESET,
            _ => Errno::PIPE,
        };
        note_error(end, told);
    }
}

/// Whether a send of the kernel's has told the program of a reset: nothing more can be sent, and no error is left.
fn has_been_told(end: &End) -> bool {
    let found = kernel::poll_now(end.fd(), 0) & (libc::POLLERR | libc::POLLHUP);
    found == libc::POLLHUP && !end.has_flags(end_flags::SHUT_WRITE)
}

/// Whether the peer, which has not read all and has said so much of itself, is gone, and not only done with sending.
fn is_reset(end: &End, said: u32) -> bool {
    let sends = || !end.has_flags(end_flags::SHUT_WRITE);
    if sends() && end.tx_mode() == Mode::Ring {
        bell::probe(end, CLOSED);
        let is_over = kernel::poll_now(end.fd(), 0) & (libc::POLLERR | libc::POLLHUP) != 0;
        // Another thread may have shut down meanwhile, which looks the same.
        return is_over && sends();
    }
    // Nobody is asked by what is behind an own end, nor by the program's own bytes on TCP. Between hosts a peer that ends its
    // stream in order may say so later than its kernel ends the stream; our kernel itself ends one that is sent to and shut both
    // ways; and one that is to be sent again may be another program's by now.
    let may_be_other = end_flags::FAR | end_flags::SHUT_READ;
    said & (ENDED | FROZEN) == 0 && end.entry.id.flags.load(Ordering::Relaxed) & may_be_other == 0
}

/// Something has been sent to a peer that may send no more, and may have gone altogether. As on TCP, the first send to it
/// succeeds and its kernel answers with a reset, but not to what it has read before it closed.
#[cold]
pub(crate) fn provoke_reset(end: &End) {
    if has_peer_ended(end) && unconsumed::on_its_way(end) > 0 {
        look_for_any(end);
        bell::probe(end, 0);
        look_for_reset(end);
    }
}

/// Whether the peer sends nothing any more, neither data nor doorbells. The end that an own shutdown for reading makes
/// looks like the peer's.
pub(crate) fn has_peer_ended(end: &End) -> bool {
    match end.ending() {
        Ending::Open => false,
        Ending::Eof => !end.has_flags(end_flags::SHUT_READ) || kernel_view::has_ended(end),
        Ending::Reset => true,
    }
}

#[cfg(test)]
mod tests {
    use crosslane_ring::LaneMemory;

    use super::*;
    use crate::both::ends;
    use crate::{close, slices, step, switch};

    #[test]
    fn a_reset_under_a_sleeping_receive_is_told_as_one() {
        let ([near, _], _sockets) = ends();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| slices::receive(&near, &mut [0; 10], false));
            while near.entry.wait.sleepers.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Until it sleeps in the kernel.
            std::thread::sleep(Duration::from_millis(100));
            note_error(&near, Errno::CONNRESET);
            reset::now(&near);
            assert_eq!(receiver.join().unwrap(), Err(Errno::CONNRESET));
        });
    }

    /// What a peer that has ended its stream has not read yet does not make its end a death, wherever it reads from.
    #[test]
    fn an_end_behind_an_own_end_is_no_death() {
        let ([near, far], _sockets) = ends();
        assert_eq!(slices::send(&near, &[7; 10], true), Ok(10));
        for end in [&near, &far] {
            close::before_shutdown(end, libc::SHUT_WR);
            kernel::shutdown(end.fd(), libc::SHUT_WR).unwrap();
        }
        switch::reenter(&far);
        look_at_kernel(&near);
        assert_eq!(near.ending(), Ending::Eof);
        assert_eq!(slices::receive(&near, &mut [0; 8], true), Ok(0));
        assert_eq!(slices::receive(&far, &mut [0; 16], true), Ok(10));
    }

    #[test]
    fn a_peer_that_has_not_ended_is_not_provoked() {
        let ([near, far], _sockets) = ends();
        close::before_shutdown(&near, libc::SHUT_RD);
        kernel::shutdown(near.fd(), libc::SHUT_RD).unwrap();
        look_at_kernel(&near);
        assert_eq!(near.ending(), Ending::Eof);
        assert_eq!(slices::send(&near, &[7; 10], true), Ok(10));
        assert_eq!(kernel::queued(far.fd(), libc::FIONREAD), Ok(0));
    }

    #[test]
    fn a_lie_that_no_receive_has_found_is_told_once() {
        let ([near, _], _sockets) = ends();
        let (lane, next) = (near.rx_lane().unwrap(), near.rx_cursor().head);
        lane.publish(u32::try_from(next).unwrap() % lane.lines(), u64::MAX);
        step::settle(&near);
        let receive = || slices::receive(&near, &mut [0; 10], false);
        assert_eq!(receive(), Err(Errno::CONNRESET));
        assert_eq!(receive(), Ok(0));
        assert_eq!(near.reason(), Reason::PeerLied);
    }
}
