//! What the peer has not consumed.

use core::sync::atomic::Ordering;

use crosslane_ctl::place::Place;
use crosslane_ctl::slab::Mode;
use crosslane_ring::{LaneMemory, Next, RxCursor, WindowLane};
use crosslane_sys::kernel;

use crate::End;
use crate::family::Family;

/// Bytes that have not arrived, for SIOCOUTQ. By AF_UNIX they arrive when the peer consumes them, by TCP when its
/// kernel has them, as all have that are in a lane.
pub fn bytes(end: &End) -> usize {
    match end.family() {
        Family::Tcp => not_acknowledged(end),
        Family::Unix => in_ring(end),
    }
}

/// Bytes in a direction that is in the ring, which the peer has not consumed.
pub(crate) fn in_ring(end: &End) -> usize {
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else { return 0 };
    match end.tx_mode() {
        Mode::Ring => in_lane(end, &lane),
        _ => 0,
    }
}

/// Bytes in a lane, wherever its direction goes on, that the peer has not consumed and that are not on TCP.
pub(crate) fn on_its_way(end: &End) -> usize {
    let _tx = end.lock_tx();
    end.tx_lane().map_or(0, |lane| in_lane(end, &lane))
}

/// Bytes of the program's on TCP that the peer's kernel has not acknowledged: as many as cannot be doorbells.
fn not_acknowledged(end: &End) -> usize {
    let tx = &end.entry.tx;
    let all = tx.tcp_bytes.load(Ordering::Relaxed);
    let others = all.saturating_sub(tx.tcp_data.load(Ordering::Relaxed));
    let queued = u64::from(kernel::queued(end.fd(), libc::TIOCOUTQ).unwrap_or(0));
    usize::try_from(queued.saturating_sub(others)).unwrap_or(usize::MAX)
}

/// Whether the peer has consumed all records that were sent. Of one that lies nothing is known.
pub(crate) fn is_none(end: &End, lane: &WindowLane) -> bool {
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    Place::near(lane.consumed(), tail).line == tail
}

/// Whether the lane holds what a peer over AF_UNIX leaves unread if it closes now: only who looks there knows that of
/// the error which it leaves behind.
pub(crate) fn is_missed_at_close(end: &End) -> bool {
    end.family() == Family::Unix && end.tx_lane().is_some_and(|lane| in_lane(end, &lane) > 0)
}

/// Bytes in the lane that the peer has not consumed and that have not been sent again by TCP. Exact if the caller
/// holds the sending direction, or nobody sends.
pub(crate) fn in_lane(end: &End, lane: &WindowLane) -> usize {
    let tx = &end.entry.tx;
    let (tail, replayed_to) = (
        tx.tail.load(Ordering::Relaxed),
        tx.credit.load(Ordering::Relaxed),
    );
    let consumed = Place::near(lane.consumed(), tail);
    let replayed = match end.tx_mode() {
        Mode::Replay => end.entry.wait.replayed.load(Ordering::Relaxed),
        _ => 0,
    };
    let mut at = match replayed_to > consumed.line {
        true => RxCursor {
            head: replayed_to,
            taken: usize::try_from(replayed).unwrap_or(0),
        },
        false => RxCursor::at(consumed),
    };
    let lines = u64::from(lane.lines());
    if at.head > tail || tail - at.head > lines {
        return 0;
    }
    let mut total = 0;
    while at.head < tail {
        match at.come_to_next(lane) {
            Ok(Next::Data(left)) => {
                total += left;
                at.pass(left, left);
            }
            Ok(Next::Control(..)) => at.head += 1,
            _ => break,
        }
    }
    total
}
