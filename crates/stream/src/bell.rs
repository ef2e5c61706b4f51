//! The doorbell: one byte on the connection's own, otherwise idle TCP socket (DESIGN 3.4).
//!
//! | who sleeps | asks by | is woken by |
//! |---|---|---|
//! | a receiver, for a record | `ARMED` in its flags | the sender that exchanges `ARMED` to 0 |
//! | a sender, for space | `space_wanted` in its line | the receiver that exchanges it to 0 |
//!
//! Every doorbell answers exactly one request, so the sleeper knows how many bytes on TCP are
//! doorbells: `bells_due` counts the requests that were taken away by the other side. A probe is
//! the one unasked doorbell; it is announced in the sender's line.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::receiver_flags::{ARMED, FROZEN};
use crosslane_ctl::slab::Mode;
use crosslane_ring::WindowLane;
use crosslane_sys::{Errno, kernel};

use crate::End;
use crate::end::add;

/// What a doorbell looks like; the value does not matter.
static BELL: u8 = 0xA5;

/// More unasked doorbells than this at a time are not believed.
const MOST_PROBES: u32 = 16;

/// Ring the receiver of our lane if it is armed. The caller holds the sending direction.
#[cold]
pub(crate) fn ring_if_armed(end: &End, lane: &WindowLane) {
    let flags = &lane.control().receiver.flags;
    // SYNC: armed
    if flags.fetch_and(!ARMED, Ordering::SeqCst) & ARMED != 0 {
        ring(end);
    }
}

/// Send one doorbell. The caller holds the sending direction.
fn ring(end: &End) {
    end.entry.tx.bells_owed.fetch_add(1, Ordering::Relaxed);
    pay(end);
}

/// Send the doorbells that are owed; returns whether none is left. TCP can only be full of data
/// from before the switch, which keeps the receiver awake, so nobody waits for the rest. The
/// caller holds the sending direction.
pub(crate) fn pay(end: &End) -> bool {
    let owed = &end.entry.tx.bells_owed;
    while owed.load(Ordering::Relaxed) > 0 {
        // SAFETY: the byte is valid for one read.
        match unsafe { kernel::send(end.fd, &raw const BELL, 1, 0) } {
            Ok(_) => {
                owed.fetch_sub(1, Ordering::Relaxed);
                add(&end.entry.tx.tcp_bytes, 1);
                end.count(Counter::BellsSent, 1);
            }
            Err(Errno::AGAIN) => return false,
            // The connection is broken; its receiver learns that from the kernel.
            Err(_) => owed.store(0, Ordering::Relaxed),
        }
    }
    true
}

/// Send a doorbell that nobody asked for, so that a dead peer's kernel answers with a reset.
pub(crate) fn probe(end: &End) {
    let _tx = end.lock_tx();
    if end.tx_mode() == Mode::Ring
        && let Some(lane) = end.tx_lane()
    {
        let probes = &lane.control().sender.probes;
        probes.fetch_add(1, Ordering::SeqCst); // SYNC: probe
        if lane.control().receiver.flags.load(Ordering::SeqCst) & FROZEN != 0 {
            // It may have left TCP to others, who know nothing of doorbells.
            probes.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        ring(end);
    }
}

/// As the receiver: ring the sender if it waits for space. Needs our own direction in the ring,
/// for TCP must carry nothing but doorbells then.
pub(crate) fn answer_space(end: &End) {
    let Some(lane) = end.rx_lane() else { return };
    let wish = &lane.control().sender.space_wanted;
    if wish.load(Ordering::Relaxed) == 0 || end.tx_mode() != Mode::Ring {
        return;
    }
    let _tx = end.lock_tx();
    // SYNC: space
    if end.tx_mode() == Mode::Ring && wish.swap(0, Ordering::SeqCst) == 1 {
        ring(end);
    }
}

/// Ask to be rung for the next record. What the caller reads afterwards is read after the request
/// has become visible. The caller holds the receiving direction.
pub(crate) fn arm(end: &End, lane: &WindowLane) {
    resolve(end, lane);
    if end.entry.wait.armed.load(Ordering::Relaxed) == 0 {
        end.entry.wait.armed.store(1, Ordering::Relaxed);
    }
    lane.control()
        .receiver
        .flags
        .fetch_or(ARMED, Ordering::SeqCst); // SYNC: armed
}

/// Take the request back; afterwards no doorbell can come that is not counted as due. Returns
/// whether the end was armed. The caller holds the receiving direction.
pub(crate) fn disarm(end: &End, lane: &WindowLane) -> bool {
    if end.entry.wait.armed.load(Ordering::Relaxed) == 0 {
        return false;
    }
    end.entry.wait.armed.store(0, Ordering::Relaxed);
    // SYNC: armed
    if lane
        .control()
        .receiver
        .flags
        .fetch_and(!ARMED, Ordering::SeqCst)
        & ARMED
        == 0
    {
        end.entry.wait.bells_due.fetch_add(1, Ordering::Relaxed);
    }
    true
}

/// Learn whether the sender has taken the request. The caller holds the receiving direction.
pub(crate) fn resolve(end: &End, lane: &WindowLane) {
    let wait = &end.entry.wait;
    let flags = lane.control().receiver.flags.load(Ordering::SeqCst); // SYNC: armed
    if wait.armed.load(Ordering::Relaxed) == 1 && flags & ARMED == 0 {
        wait.armed.store(0, Ordering::Relaxed);
        wait.bells_due.fetch_add(1, Ordering::Relaxed);
    }
    let probes = lane.control().sender.probes.load(Ordering::SeqCst); // SYNC: probe
    let unseen = probes.wrapping_sub(wait.probes_seen.load(Ordering::Relaxed));
    if unseen != 0 {
        wait.probes_seen.store(probes, Ordering::Relaxed);
        wait.bells_due
            .fetch_add(unseen.min(MOST_PROBES), Ordering::Relaxed);
    }
}

/// At a STOP: every request that was answered before it is settled now, for the doorbells up to
/// the STOP are discarded by count and must not be waited for later. The caller holds the
/// receiving direction.
pub(crate) fn settle_accounts(end: &End, lane: &WindowLane) {
    let was_armed = disarm(end, lane);
    resolve(end, lane);
    if let Some(own) = end.tx_lane() {
        let _tx = end.lock_tx();
        resolve_space(end, &own);
    }
    end.entry.wait.bells_due.store(0, Ordering::Relaxed);
    if was_armed {
        arm(end, lane);
    }
}

/// Ask to be rung when a good share of our lane is free. What the caller reads afterwards is read
/// after the request has become visible. The caller holds the sending direction.
pub(crate) fn want_space(end: &End, lane: &WindowLane) {
    resolve_space(end, lane);
    if end.entry.wait.space_armed.swap(1, Ordering::Relaxed) == 0 {
        space_wish(lane).store(1, Ordering::SeqCst); // SYNC: space
    }
    fence(Ordering::SeqCst);
}

/// Take the wish for space back. The caller holds the sending direction.
pub(crate) fn want_no_space(end: &End, lane: &WindowLane) {
    if end.entry.wait.space_armed.swap(0, Ordering::Relaxed) == 1
        && space_wish(lane).swap(0, Ordering::SeqCst) == 0
    {
        end.entry.wait.bells_due.fetch_add(1, Ordering::Relaxed);
    }
}

/// Learn whether the receiver has answered the wish for space. The caller holds the sending
/// direction.
pub(crate) fn resolve_space(end: &End, lane: &WindowLane) {
    let wait = &end.entry.wait;
    if wait.space_armed.load(Ordering::Relaxed) == 1 && space_wish(lane).load(Ordering::SeqCst) == 0
    {
        wait.space_armed.store(0, Ordering::Relaxed);
        wait.bells_due.fetch_add(1, Ordering::Relaxed);
    }
}

fn space_wish(lane: &WindowLane) -> &AtomicU32 {
    &lane.control().sender.space_wanted
}

/// Take due doorbells off TCP, while the direction is in the ring: there, all that are due were
/// sent before any data that may follow a STOP. The caller holds the receiving direction.
pub(crate) fn swallow(end: &End) {
    let wait = &end.entry.wait;
    if end.rx_mode() != Mode::Ring {
        return;
    }
    loop {
        let due = wait.bells_due.load(Ordering::Relaxed);
        if due == 0 {
            return;
        }
        let mut bytes = [0u8; 64];
        let most = (due as usize).min(bytes.len());
        // SAFETY: the array is valid for writes of its length.
        let taken = match unsafe { kernel::recv(end.fd, bytes.as_mut_ptr(), most, 0) } {
            Ok(taken) if taken > 0 => taken as u64,
            _ => return,
        };
        add(&end.entry.rx.tcp_bytes, taken);
        end.count(Counter::BellsTaken, taken);
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        wait.bells_due.fetch_sub(taken.min(due), Ordering::Relaxed);
    }
}

/// Whether nobody else may need the doorbell that is on TCP now.
pub(crate) fn is_sole_waiter(end: &End) -> bool {
    let wait = &end.entry.wait;
    wait.sleepers.load(Ordering::Relaxed) <= 1 && wait.epolls.load(Ordering::Relaxed) == 0
}
