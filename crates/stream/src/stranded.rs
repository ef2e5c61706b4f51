//! Bytes that are lost where a socket leaves the library: they stand unread in the ring, the last process that could read
//! them there lets go of the connection, and their sender, whose stream has ended, does not send them again by TCP.
//!
//! Only what is certain is counted, once the peer's stream has ended. Who has the socket may yet turn out to be under
//! Crosslane and adopt the end: it counts them as rescued.

use core::sync::atomic::Ordering;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::{LaneMemory, Next, WindowLane};
use crosslane_sys::kernel;

use crate::{End, ledger};

/// This process reads the ring no more, though it goes on: see [`note`].
pub fn leave(end: &End) {
    if let Some((_lane, _rx)) = end.hold_rx_lane() {
        note(end);
    }
}

/// This process is about to read the ring no more: count what nobody reads then. The caller holds the receiving direction.
pub(crate) fn note(end: &End) {
    let is_known = end.has_flags(end_flags::STRANDED);
    // What stood in a lost window is counted as such; who has shut down for reading wants nothing.
    let is_other = end.has_flags(end_flags::LOST) || end.has_flags(end_flags::SHUT_READ);
    if end.phase() != EndPhase::Granted || is_known || is_other {
        return;
    }
    let bytes = unread(end);
    if bytes != 0 && has_ended(end) && !end.process().is_read_by_others(end.index) {
        end.add_flags(end_flags::STRANDED);
        end.count(Counter::StrandedBytes, bytes);
        ledger::note_stranded(end, bytes);
    }
}

/// This process has adopted the end, and reads what stands in its ring.
pub(crate) fn rescue(end: &End) {
    if !end.has_flags(end_flags::STRANDED) {
        return;
    }
    let _rx = end.lock_rx();
    if end.has_flags(end_flags::STRANDED) {
        end.clear_flags(end_flags::STRANDED);
        end.count(Counter::RescuedBytes, unread(end));
        ledger::note_stranded(end, 0);
    }
}

/// Whether the peer sends nothing more. The kernel is asked: nobody may have received as far as the end.
fn has_ended(end: &End) -> bool {
    let over = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    kernel::poll_now(end.fd(), libc::POLLRDHUP) & over != 0
}

/// Bytes in the lane that do not come by TCP.
fn unread(end: &End) -> u64 {
    let Some(lane) = end.rx_lane() else { return 0 };
    match end.rx_mode() {
        Mode::Ring => in_lane(end, &lane),
        // A sender that has answered sends again.
        Mode::Replay if !is_answered(end, &lane) => in_lane(end, &lane),
        _ => 0,
    }
}

fn is_answered(end: &End, lane: &WindowLane) -> bool {
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    lane.control().sender.replay_seq.load(Ordering::SeqCst) != seen // SYNC: frozen
}

fn in_lane(end: &End, lane: &WindowLane) -> u64 {
    let mut at = end.rx_cursor();
    // Only a liar has more than a lap.
    let lap_end = at.head.saturating_add(lane.lines().into());
    let mut total = 0;
    while at.head < lap_end {
        match at.come_to_next(lane) {
            Ok(Next::Data(left)) => {
                total += left as u64;
                at.pass(left, left);
            }
            Ok(Next::Control(..)) => at.head += 1,
            Ok(Next::Empty) | Err(_) => break,
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use crosslane_ctl::reason::Reason;

    use super::*;
    use crate::both::ends;
    use crate::replay::tests::WATCHDOG;
    use crate::{close, rest, slices};

    fn shut_down(end: &End) {
        close::before_shutdown(end, libc::SHUT_WR);
        kernel::shutdown(end.fd(), libc::SHUT_WR).unwrap();
    }

    fn is_noted(end: &End) -> bool {
        leave(end);
        end.has_flags(end_flags::STRANDED)
    }

    #[test]
    fn what_an_ended_peer_has_left_in_the_ring_is_counted_until_somebody_adopts_it() {
        let ([near, far], _sockets) = ends();
        assert_eq!(slices::send(&far, &[2; 300], false), Ok(300));
        assert_eq!(slices::receive(&near, &mut [0; 200], false), Ok(200));
        shut_down(&far);
        assert!(!rest::give_away(&near, Reason::Passed, Duration::ZERO));
        assert_eq!(unread(&near), 100);
        assert!(is_noted(&near));
        rescue(&near);
        assert!(!near.has_flags(end_flags::STRANDED));
        assert_eq!(slices::receive(&near, &mut [0; 200], false), Ok(100));
        assert!(!is_noted(&near), "nothing is left");
    }

    #[test]
    fn what_the_peer_may_yet_send_again_is_not_counted() {
        let ([near, far], _sockets) = ends();
        assert_eq!(slices::send(&far, &[2; 100], false), Ok(100));
        assert!(!is_noted(&near), "it is alive");
        assert!(rest::give_away(&near, Reason::Passed, WATCHDOG));
        shut_down(&far);
        assert!(!is_noted(&near), "it has sent it again");
        assert_eq!(slices::receive(&near, &mut [0; 200], false), Ok(100));
    }

    #[test]
    fn who_reads_no_more_loses_nothing() {
        let ([near, far], _sockets) = ends();
        assert_eq!(slices::send(&far, &[2; 100], false), Ok(100));
        shut_down(&far);
        near.add_flags(end_flags::SHUT_READ);
        assert!(!is_noted(&near));
    }
}
