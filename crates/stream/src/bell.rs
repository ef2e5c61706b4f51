//! The doorbell: one byte on the connection's own, otherwise idle TCP socket (DESIGN 3.4).
//!
//! | who sleeps | asks by | is woken by |
//! |---|---|---|
//! | a receiver, for a record | `ARMED` in its flags | the sender that exchanges `ARMED` to 0 |
//! | a sender, for space | `space_wanted` in its line | the receiver that exchanges it to 0 |
//!
//! A probe is a doorbell that nobody asked for. Which bytes on TCP are doorbells follows from an
//! order, not from counting requests: a direction that is in its lane says in the lane that it
//! leaves (STOP) before it puts data on TCP, and it publishes its [total](crosslane_ctl::lane::SenderLine::tcp_total)
//! of TCP bytes with each doorbell. So if a receiver reads the total, and then finds no STOP in
//! the lane, all bytes up to that total are doorbells.

use core::sync::atomic::{Ordering, fence};

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::RINGING;
use crosslane_ctl::lane::receiver_flags::{ARMED, CLOSED, FROZEN};
use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_ring::{Control, LaneMemory, Next, WindowLane};
use crosslane_sys::{Errno, kernel};

use crate::end::add;
use crate::lock::{self, COUNTING};
use crate::{End, ending, entering, lost, place, posted, wait};

/// What a doorbell looks like; the value does not matter.
static BELL: u8 = 0xA5;

/// Doorbells that may stand on TCP while several sleep for the connection. A stream of AF_UNIX has room for some 170 where its
/// buffer has 64 KiB, and for a few in the smallest.
const MANY: u64 = 1 << 2;

/// Most doorbells taken off TCP at a time.
const MOST_TAKEN: u64 = 1 << 16;

/// Ring the receiver of our lane if it is armed. The caller holds the sending direction.
#[cold]
pub(crate) fn ring_if_armed(end: &End, lane: &WindowLane) {
    ring_if(end, lane, || {
        let flags = &lane.control().receiver.flags;
        flags.fetch_and(!ARMED, Ordering::SeqCst) & ARMED != 0 // SYNC: armed
    });
}

/// Send a doorbell that nobody asked for, so that a dead peer's kernel answers with a reset. Not to
/// a peer whose receiving direction has one of the flags `spared`, and not where an error is there
/// already, which would be told to us instead of the program.
pub(crate) fn probe(end: &End, spared: u32) {
    let _tx = end.lock_tx();
    if end.tx_mode() == Mode::Ring
        && let Some(lane) = end.tx_lane()
        && !ending::is_broken(end)
    {
        // A frozen receiver may have left TCP to others, who know nothing of doorbells.
        probe_unless(end, &lane, FROZEN | spared);
    }
}

/// As [`probe`], sparing nobody; the caller holds the sending direction, which is in the ring.
pub(crate) fn probe_locked(end: &End, lane: &WindowLane) {
    ring_if(end, lane, || true);
}

/// As [`probe_locked`], but not to a peer whose receiving direction has one of the flags `spared`. Returns whether it was rung.
pub(crate) fn probe_unless(end: &End, lane: &WindowLane, spared: u32) -> bool {
    let mut takes_bells = false;
    ring_if(end, lane, || {
        takes_bells = lane.control().receiver.flags.load(Ordering::SeqCst) & spared == 0;
        takes_bells
    });
    takes_bells
}

/// As the receiver: ring the sender if it waits for space. Needs our own direction in the ring,
/// for TCP must carry nothing but doorbells then. The caller holds neither direction, or no credit.
pub(crate) fn answer_space(end: &End) {
    let Some(lane) = end.rx_lane() else { return };
    let wish = &lane.control().sender.space_wanted;
    if wish.load(Ordering::SeqCst) == 0 || end.tx_mode() != Mode::Ring {
        return;
    }
    posted::settle_credit(end);
    let _tx = end.lock_tx();
    if end.tx_mode() == Mode::Ring {
        answer_space_locked(end);
    }
}

/// As [`answer_space`]; the caller holds the sending direction, which is in the ring.
pub(crate) fn answer_space_locked(end: &End) {
    let (Some(lane), Some(own)) = (end.rx_lane(), end.tx_lane()) else {
        return;
    };
    let wish = &lane.control().sender.space_wanted;
    if wish.load(Ordering::SeqCst) != 0 {
        // SYNC: space
        ring_if(end, &own, || wish.swap(0, Ordering::SeqCst) != 0);
    }
}

/// Ring if `is_asked`. The peer sees that a doorbell may come before the request is taken away,
/// so that a peer that takes its request back knows whether one is still on its way. The caller
/// holds the sending direction, which is in the ring.
fn ring_if(end: &End, lane: &WindowLane, is_asked: impl FnOnce() -> bool) {
    publish_total(end, lane, RINGING);
    if is_asked() {
        place::tell(end);
        // One that TCP has no room for yet wakes as well as many.
        end.entry.tx.bells_owed.store(1, Ordering::Relaxed);
    }
    publish_total(end, lane, 0);
    pay(end);
}

/// Who was ringing has ended, perhaps after the request was taken away. A peer that closes is told that none comes any more: its
/// kernel would answer one with a reset. So is one that is frozen: others may read its socket. The caller has inherited the sending direction, which is in the ring.
pub(crate) fn ring_again(end: &End, lane: &WindowLane) {
    ring_if(end, lane, || {
        let flags = lane.control().receiver.flags.load(Ordering::SeqCst);
        end.entry.tx.bells_owed.store(0, Ordering::Relaxed);
        flags & (CLOSED | FROZEN) == 0
    });
}

/// Tell the peer how many bytes it will find on TCP before those that may follow a STOP. A doorbell that waits until the peer
/// has found our START may never be sent, as a freeze may come before: it is not decided. The caller holds the sending
/// direction.
pub(crate) fn publish_total(end: &End, lane: &WindowLane, ringing: u64) {
    let sent = end.entry.tx.tcp_bytes.load(Ordering::Relaxed);
    let (total, waits) = match total(end) {
        total if total == sent || entering::is_start_settled(end) => (total, 0),
        _ => (sent, RINGING),
    };
    let published = &lane.control().sender.tcp_total;
    published.store(total << 1 | ringing | waits, Ordering::SeqCst); // SYNC: bells
    if ringing == 0 && end.has_flags(end_flags::FAR) {
        posted::tell_total(end, lane);
    }
}

/// What is on TCP, and is about to be.
fn total(end: &End) -> u64 {
    let tx = &end.entry.tx;
    tx.tcp_bytes.load(Ordering::Relaxed) + u64::from(tx.bells_owed.load(Ordering::Relaxed))
}

/// The total has been published without a doorbell that waited for the START to be found.
fn catch_up_total(end: &End) {
    if end.has_flags(end_flags::FAR)
        && let Some(lane) = end.tx_lane()
        && lane.control().sender.tcp_total.load(Ordering::Relaxed) >> 1 < total(end)
    {
        publish_total(end, &lane, 0);
    }
}

/// Send the doorbells that are owed; returns whether none is left. TCP can only be full of data
/// from before the switch, which keeps the receiver awake, so nobody waits for the rest. Between hosts one may also
/// have to wait until the receiver has found our START. The caller holds the sending direction.
pub(crate) fn pay(end: &End) -> bool {
    if !entering::is_start_settled(end) {
        return false;
    }
    let owed = &end.entry.tx.bells_owed;
    if owed.load(Ordering::Relaxed) == 0 {
        return true;
    }
    catch_up_total(end);
    let _counting = lock::mark(&end.entry.tx.lock, COUNTING);
    while owed.load(Ordering::Relaxed) > 0 {
        // SAFETY: the byte is valid for one read.
        match unsafe { kernel::send(end.fd(), &raw const BELL, 1, 0) } {
            Ok(_) => {
                wait::note_rung();
                // In this order, in which an heir at worst sends another one.
                add(&end.entry.tx.tcp_bytes, 1);
                owed.fetch_sub(1, Ordering::Relaxed);
                end.count(Counter::BellsSent, 1);
            }
            Err(Errno::AGAIN) => return false,
            Err(errno) => {
                owed.store(0, Ordering::Relaxed);
                ending::note_refused(end, errno);
            }
        }
    }
    true
}

/// Forget doorbells that TCP has no room for. Nobody misses them: the peer has yet to read what TCP is full of. The caller holds
/// the sending direction.
pub(crate) fn forget_owed(end: &End, lane: &WindowLane) {
    end.entry.tx.bells_owed.store(0, Ordering::Relaxed);
    publish_total(end, lane, 0);
}

/// Ask to be rung for the next record. What the caller reads afterwards is read after the request
/// has become visible. The caller holds the receiving direction.
pub(crate) fn arm(end: &End, lane: &WindowLane) {
    end.entry.wait.armed.store(1, Ordering::Relaxed);
    let flags = &lane.control().receiver.flags;
    flags.fetch_or(ARMED, Ordering::SeqCst); // SYNC: armed
    if end.has_flags(end_flags::FAR) {
        posted::tell_request(end, lane);
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// Before a freeze is taken back, with which the requests of those who sleep were: a sender that finds it gone looks for
/// them. The caller holds the receiving direction.
pub(crate) fn arm_again(end: &End, lane: &WindowLane) {
    let wait = &end.entry.wait;
    if wait.sleepers.load(Ordering::SeqCst) > 0 || wait.epolls.load(Ordering::Relaxed) > 0 {
        arm(end, lane);
    }
}

/// A doorbell is about to be taken. Who sleeps may never see it: what comes from now on rings again. The caller holds the
/// receiving direction.
pub(crate) fn renew(end: &End, lane: &WindowLane) {
    if end.entry.wait.armed.load(Ordering::Relaxed) != 0 {
        arm(end, lane);
    }
}

/// Take the request back. The caller holds the receiving direction.
pub(crate) fn disarm(end: &End, lane: &WindowLane) {
    posted::tell_held_credit(end);
    if end.entry.wait.armed.load(Ordering::Relaxed) != 0 {
        end.entry.wait.armed.store(0, Ordering::Relaxed);
        let flags = &lane.control().receiver.flags;
        // SYNC: armed
        let is_taken = flags.fetch_and(!ARMED, Ordering::SeqCst) & ARMED == 0;
        // The sender of another host may take it where we do not see that; for one doorbell too many it is not told.
        if is_taken || end.has_flags(end_flags::FAR) {
            end.local.rung.store(1, Ordering::Relaxed);
        }
    }
}

/// Ask to be rung when a good share of our lane is free. What the caller reads afterwards is read
/// after the request has become visible. The caller holds the sending direction.
pub(crate) fn want_space(end: &End, lane: &WindowLane) {
    let wish = &lane.control().sender.space_wanted;
    if !end.has_flags(end_flags::FAR) {
        wish.store(1, Ordering::Release); // SYNC: space
    } else if wish.swap(1, Ordering::SeqCst) == 0 {
        posted::tell_wish(end, lane);
    }
    fence(Ordering::SeqCst);
}

/// Take the wish for space back. The caller holds the sending direction.
pub(crate) fn want_no_space(end: &End, lane: &WindowLane) {
    lane.control().sender.space_wanted.swap(0, Ordering::SeqCst); // SYNC: space
    if end.has_flags(end_flags::FAR) {
        posted::tell_wish(end, lane);
    }
}

/// Whether a STOP stands in the receiving lane, so that data may follow the doorbells on TCP. The
/// caller holds the receiving direction.
pub(crate) fn has_stop(end: &End, lane: &WindowLane) -> bool {
    let mut at = end.rx_cursor();
    let lap_end = at.head + u64::from(lane.lines());
    while at.head < lap_end {
        match at.come_to_next(lane) {
            Ok(Next::Empty) => return false,
            Ok(Next::Data(left)) => at.pass(left, left),
            Ok(Next::Control(Control::Closing, _)) => at.head += 1,
            Ok(Next::Control(..)) | Err(_) => return true,
        }
    }
    true
}

/// What [`take`] has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bells {
    /// Nothing: TCP is empty, and no doorbell is on its way.
    None,
    /// A doorbell that is on its way, or that a STOP in the lane does not let us tell from data.
    Some,
}

/// Take doorbells off TCP, while the receiving direction is in the ring or frozen. The caller
/// holds it.
pub(crate) fn take(end: &End, lane: &WindowLane) -> Bells {
    take_unless(end, lane, || has_stop(end, lane))
}

/// As [`take`], if the lane is empty: the doorbell of a record stays until that has been read.
pub(crate) fn take_if_empty(end: &End, lane: &WindowLane) {
    if take_unless(end, lane, || end.has_record()) == Bells::None {
        end.local.rung.store(0, Ordering::Relaxed);
    }
}

/// Take doorbells off TCP unless `speaks_against`, which is asked after it is known how many there
/// may be.
fn take_unless(end: &End, lane: &WindowLane, speaks_against: impl FnOnce() -> bool) -> Bells {
    let rx = &end.entry.rx;
    let published = lane.control().sender.tcp_total.load(Ordering::SeqCst); // SYNC: bells
    let missing = |total: u64| total.saturating_sub(rx.tcp_bytes.load(Ordering::Relaxed));
    let total = published >> 1;
    if missing(total) > 0 && !speaks_against() && !lost::is_found(end) {
        let _counting = lock::mark(&rx.lock, COUNTING);
        while missing(total) > 0 {
            let most = usize::try_from(missing(total).min(MOST_TAKEN)).unwrap_or(usize::MAX);
            let taken = match end.family().discard(end.fd(), most) {
                Ok(taken @ 1..) => taken,
                Ok(0) | Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => {
                    ending::note_error(end, errno);
                    break;
                }
            };
            add(&rx.tcp_bytes, taken as u64);
            end.count(Counter::BellsTaken, taken as u64);
            posted::note_taken(end);
        }
    }
    if missing(total) == 0 && published & RINGING == 0 {
        Bells::None
    } else {
        Bells::Some
    }
}

/// Whether the doorbells of an empty lane may be taken by a caller that counts as `own` of the sleepers: one that
/// several sleep for must stay until all have seen it. Several epoll sets see each arrive, and
/// never all of them at once empty, and one of the sleepers may have been killed; so doorbells are taken when many have gathered.
pub(crate) fn may_be_taken(end: &End, lane: &WindowLane, own: u32) -> bool {
    let total = lane.control().sender.tcp_total.load(Ordering::Relaxed) >> 1;
    let taken = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    is_for_us_alone(end, own) || total.saturating_sub(taken) > MANY
}

/// Whether nobody sleeps but the caller, who counts as `own` of the sleepers, and one epoll set.
pub(crate) fn is_for_us_alone(end: &End, own: u32) -> bool {
    let wait = &end.entry.wait;
    wait.epolls.load(Ordering::Relaxed) <= 1 && wait.sleepers.load(Ordering::SeqCst) <= own
}
