//! A stream that has ended before TCP has brought again all that stood in the lane when we froze: its sender was killed, or could
//! wait no longer. The rest is read in the lane.
//!
//! A sender sends record after record again, and nothing else meanwhile, and does not write to a frozen lane. So where the rest
//! begins follows from how much TCP has brought behind `replay_at`, and the lane is kept until all has come. Who reads the
//! socket without the library gets none of the rest. Where such a reader may have taken bytes that nobody counts, the stream ends as
//! by a reset.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::NO_REPLAY;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{Ending, Mode, end_flags};
use crosslane_ring::{LaneMemory, Next, PeerLied, RxCursor, WindowLane};
use crosslane_sys::{Errno, kernel};

use crate::ending::{lied, look_for_end};
use crate::family::Family;
use crate::lock::{self, PASSAGE};
use crate::step::{self, lie_at};
use crate::{End, close, kernel_view, lost};

/// The sender has said where on TCP its replay begins: doorbells are discarded up to there. Returns false if the window is
/// gone. The caller holds the receiving direction, as for what follows.
pub(crate) fn expect(end: &End, lane: &WindowLane, begins: u64) -> Result<bool, Errno> {
    let rx = &end.entry.rx;
    let counted = match end.has_flags(end_flags::LOST) {
        false => count(end, lane, u64::MAX, answered_up_to(lane)),
        true => Ok((0, None)),
    };
    if lost::is_found(end) {
        return Ok(false);
    }
    let (bytes, _) = counted.map_err(|lie| lied(end, lie))?;
    if begins < rx.tcp_bytes.load(Ordering::Relaxed) {
        return Err(lied(end, lie_at(begins)));
    }
    let until = &lane.control().credit.replay_until;
    until.store(begins.saturating_add(bytes), Ordering::Relaxed);
    rx.tcp_limit.store(begins, Ordering::Relaxed);
    end.set_rx_mode(Mode::Drain);
    Ok(true)
}

/// Whether some of what is sent again has not come, and would be read in the lane if the stream ended now.
pub(crate) fn needs_lane(end: &End) -> bool {
    let lacks_some = |lane: WindowLane| !has_all_come(end, &lane);
    end.has_flags(end_flags::FROZEN) && end.rx_lane().is_some_and(lacks_some)
}

/// Whoever uses the end next goes around the library: what nobody can know is lost now.
pub(crate) fn conclude(end: &End) {
    if !needs_lane(end) {
        return;
    }
    if let Some((lane, _rx)) = end.hold_rx_lane()
        && matches!(end.rx_mode(), Mode::Drain | Mode::Tcp)
    {
        let _ = take_up(end, &lane, true);
    }
}

/// Whether the stream, of which TCP has just brought the last bytes, goes on in the lane.
pub(crate) fn goes_on(end: &End) -> bool {
    needs_lane(end) && has_ended(end)
}

/// Go on in the lane if the stream has ended too early. Returns whether it goes on there. The direction is on TCP. What nobody
/// can know is lost when the end `is_told`: who adopts the socket may know.
#[inline]
pub(crate) fn take_up(end: &End, lane: &WindowLane, is_told: bool) -> Result<bool, Errno> {
    match end.has_flags(end_flags::FROZEN) && !has_all_come(end, lane) {
        true => take_up_at_end(end, lane, is_told),
        false => Ok(false),
    }
}

#[cold]
fn take_up_at_end(end: &End, lane: &WindowLane, is_told: bool) -> Result<bool, Errno> {
    // In this order: who has ended says nothing more.
    if !has_ended(end) || has_all_come(end, lane) || is_given_up(end) {
        return Ok(false);
    }
    let begins = lane.control().sender.replay_at.load(Ordering::Relaxed);
    let behind = answered_up_to(lane);
    let counted = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    let brought = brought(end);
    let come = brought.unwrap_or(counted).saturating_sub(begins);
    let found = count(end, lane, come, behind);
    if lost::is_found(end) || !is_due(end, begins) {
        return Ok(false);
    }
    match (brought, found.map_err(|lie| lied(end, lie))?.1) {
        (_, None) => Ok(false),
        (Some(brought), Some(rest)) => {
            read_on(end, lane, begins.min(brought), rest);
            Ok(true)
        }
        (None, Some(_)) => {
            if is_told {
                lose(end, lane, behind);
            }
            Ok(false)
        }
    }
}

/// Whether nothing has to be read in the lane any more: what was to be sent again has come, or there was nothing. Of a lost
/// window, where nothing can be read, this is not asked.
fn has_all_come(end: &End, lane: &WindowLane) -> bool {
    let (sender, seen) = (&lane.control().sender, &end.entry.wait.replay_seen);
    let answer = sender.replay_seq.load(Ordering::SeqCst); // SYNC: frozen
    if answer == seen.load(Ordering::Relaxed)
        || sender.replay_at.load(Ordering::Relaxed) == NO_REPLAY
        || end.has_flags(end_flags::LOST)
    {
        return true;
    }
    let until = lane.control().credit.replay_until.load(Ordering::Relaxed);
    sender.replayed.load(Ordering::Acquire) == answer // SYNC: replayed
        // What has been sent over AF_UNIX has come. A reset takes away what TCP has not brought yet.
        && (end.family() == Family::Unix || kernel_view::arrived(end) >= until)
}

/// Whether all that TCP was to bring before what is sent again has come, or was doorbells.
fn is_due(end: &End, begins: u64) -> bool {
    let due = match end.rx_mode() {
        Mode::Tcp => u64::MAX,
        _ => begins,
    };
    end.entry.rx.tcp_limit.load(Ordering::Relaxed) == due
}

/// Whether TCP brings nothing more: the peer has ended its stream, and all has been taken.
fn has_ended(end: &End) -> bool {
    kernel::poll_now(end.fd(), libc::POLLRDHUP) & libc::POLLRDHUP != 0
        && kernel_view::has_ended(end)
        && kernel::queued(end.fd(), libc::FIONREAD) == Ok(0)
}

/// Whether the connection has been reset on this side because nothing is known of the lane.
fn is_given_up(end: &End) -> bool {
    end.ending() == Ending::Reset && matches!(end.reason(), Reason::PeerLied | Reason::Torn)
}

/// Bytes that TCP has brought in all, doorbells included. `None` where somebody may have taken some whom nobody counts.
fn brought(end: &End) -> Option<u64> {
    let counted = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    let is_others = matches!(end.reason(), Reason::Call | Reason::Stdio | Reason::Sandbox);
    let is_counted =
        !close::has_copies(end) && !is_others && !end.has_flags(end_flags::OTHERS_READ);
    match end.family() {
        Family::Tcp => kernel_view::brought_before_end(end, counted, is_counted),
        Family::Unix => is_counted.then_some(counted),
    }
}

fn answered_up_to(lane: &WindowLane) -> u64 {
    lane.control().sender.replay_end.load(Ordering::Relaxed)
}

/// How many bytes of data stand before the line `behind`, and where the lane goes on behind so many that have `come`. `None` if
/// these were all.
fn count(
    end: &End,
    lane: &WindowLane,
    come: u64,
    behind: u64,
) -> Result<(u64, Option<RxCursor>), PeerLied> {
    let (mut at, mut rest, mut bytes) = (end.rx_cursor(), None, 0);
    let lines = behind.checked_sub(at.head);
    if lines.is_none_or(|lines| lines > u64::from(lane.lines())) {
        return Err(lie_at(behind));
    }
    while at.head < behind {
        match at.come_to_next(lane)? {
            Next::Data(left) => {
                let before = usize::try_from(come.saturating_sub(bytes)).unwrap_or(usize::MAX);
                if rest.is_none() && before < left {
                    rest = Some(at);
                    rest.iter_mut().for_each(|rest| rest.pass(before, left));
                }
                bytes += left as u64;
                at.pass(left, left);
            }
            Next::Control(..) => at.head += 1,
            Next::Empty => return Err(lie_at(at.head)),
        }
    }
    Ok((bytes, rest))
}

/// As if what has come by TCP had been read in the lane, and nothing been sent again: a STOP that stands there names the
/// count of before.
fn read_on(end: &End, lane: &WindowLane, tcp_bytes: u64, rest: RxCursor) {
    let rx = &end.entry.rx;
    {
        let _passage = lock::mark(&rx.lock, PASSAGE);
        pass_to(end, lane, rest);
        rx.tcp_bytes.store(tcp_bytes, Ordering::Relaxed);
        rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
        step::thaw(end, lane);
    }
    look_for_end(end);
}

/// Something is missing, and nobody knows what: not an end in good order. Told once, as any reset; not to who has shut down.
/// Who adopts a copy of the socket that is on its way may know.
fn lose(end: &End, lane: &WindowLane, behind: u64) {
    let has_copies = close::has_copies(end);
    if end.has_flags(end_flags::SHUT_READ) || has_copies && end.ending() == Ending::Reset {
        return;
    }
    if !has_copies {
        let behind = RxCursor {
            head: behind,
            taken: 0,
        };
        pass_to(end, lane, behind);
        step::thaw_on_tcp(end, lane);
    }
    let error = &end.entry.wait.error;
    error.store(Errno::CONNRESET.0, Ordering::Relaxed);
    end.note_ending(Ending::Reset);
}

fn pass_to(end: &End, lane: &WindowLane, cursor: RxCursor) {
    lane.set_consumed(cursor.position(), true);
    end.set_rx_cursor(cursor);
}

#[cfg(test)]
mod tests;
