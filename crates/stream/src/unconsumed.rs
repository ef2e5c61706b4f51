//! What the peer has not consumed.

use core::sync::atomic::Ordering;

use crosslane_ctl::slab::Mode;
use crosslane_ring::{LaneMemory, Next, RxCursor, WindowLane};

use crate::End;

/// Bytes that the peer has not consumed, for SIOCOUTQ.
pub fn bytes(end: &End) -> usize {
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else { return 0 };
    match end.tx_mode() {
        Mode::Ring => in_lane(end, &lane),
        _ => 0,
    }
}

/// Bytes in the lane that the peer has not consumed and that have not been sent again by TCP. Exact if the caller
/// holds the sending direction, or nobody sends.
pub(crate) fn in_lane(end: &End, lane: &WindowLane) -> usize {
    let consumed = lane.consumed();
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    let mut at = RxCursor {
        head: consumed >> 16,
        taken: usize::try_from(consumed & 0xffff).unwrap_or(0),
    };
    let lines = u64::from(lane.lines());
    let is_replayed = end.entry.tx.credit.load(Ordering::Relaxed) > at.head;
    if is_replayed || at.head > tail || tail - at.head > lines {
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
