//! Moving a direction between TCP and its lane, at any byte.
//!
//! | step | who | what |
//! |---|---|---|
//! | ready | receiver | no call is inside the kernel's receive; `READY` is set |
//! | start | sender | START(count of TCP bytes) is the lane's next record; then data |
//! | stop | sender | STOP(count) is the last record; then data on TCP |
//! | stop wanted | receiver | `STOP_WANTED` is set; the sender stops at its next call |
//! | freeze | receiver | `FROZEN`: the sender sends what was not consumed again by TCP |
//! | thaw | receiver | `FROZEN` is taken back, unless the sender has said `ANSWERED` |
//! | rest | receiver | `READY` is taken back, unless the sender has said `ENTERED` ([`crate::rest`]) |

use core::sync::atomic::Ordering;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::receiver_flags::{
    ARMED, CLOSED, DROWSY, ENTERED, FROZEN, READY, STOP_WANTED,
};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::{Control, LaneMemory, WindowLane};

use crate::bell::Bells;
use crate::ending::{has_peer_ended, look_for_reset};
use crate::family::Family;
use crate::kernel_view::{self, Count};
use crate::lock::{self, PASSAGE};
use crate::{
    End, bell, config, cut_short, doubt, entering, gone, lost, posted, register, replay, rest,
    send, step, unconsumed, watcher,
};

/// Take what steps towards the rings are possible now. Called on the program's own calls while a
/// granted end is not in the rings in both directions.
#[cold]
pub fn advance(end: &End) {
    let adopted = end.local.adopted.load(Ordering::Acquire) != 0;
    if !adopted || !may_enter_rings(end) {
        return;
    }
    if config::get().chaos.is_some() && end.rx_mode() == Mode::Tcp {
        reenter(end);
    }
    if end.has_flags(end_flags::FAR) {
        // Nobody else would find a START.
        if !watcher::runs() {
            return;
        }
        entering::wake(end);
    }
    kernel_view::show_sent(end);
    become_ready(end);
    start(end);
}

/// Whether nothing keeps the end on TCP. Another thread may pin it until a direction is held.
fn may_enter_rings(end: &End) -> bool {
    end.phase() == EndPhase::Granted && !end.is_pinned() && !end.has_flags(end_flags::LOST)
}

fn become_ready(end: &End) {
    let is_asked = |lane: WindowLane| {
        lane.control().receiver.flags.load(Ordering::Relaxed) & (READY | FROZEN) == 0
    };
    if !end.rx_lane().is_some_and(is_asked) {
        return;
    }
    let Some((lane, _rx)) = end.hold_rx_lane().filter(|(lane, _)| is_asked(*lane)) else {
        return;
    };
    let flags = &lane.control().receiver.flags;
    if end.entry.rx.raw_calls.load(Ordering::SeqCst) != 0 || !may_enter_rings(end) {
        return;
    }
    if end.rx_mode() != Mode::Tcp {
        // Thawed before it has left the lane.
        flags.fetch_or(READY, Ordering::SeqCst); // SYNC: ready
        return posted::tell_flags(end);
    }
    match kernel_view::compare_received(end, &lane) {
        Count::Agrees => {
            doubt::note_invited(end);
            flags.fetch_or(READY, Ordering::SeqCst); // SYNC: ready
            posted::tell_flags(end);
            entering::expect(end);
        }
        Count::Moving => {}
        Count::Differs => give_up(end, Reason::Uncounted),
        Count::Closing => give_up(end, Reason::HalfClosed),
    }
}

/// Switch the sending direction to the lane if the receiver is ready for it.
fn start(end: &End) {
    let Some(lane) = end.tx_lane() else { return };
    if end.tx_mode() != Mode::Tcp || !accepts(&lane) || end.has_flags(end_flags::SHUT_WRITE) {
        return;
    }
    // A lane that was left because nobody could ring us is no use before somebody can.
    let returns = end.entry.wait.replayed.load(Ordering::Relaxed) != 0;
    if returns && !end.has_flags(end_flags::RESUMED) {
        if end.rx_mode() != Mode::Ring && end.has_record() {
            step::take_passages(end);
        }
        // Where both directions have left their lanes, one of the ends has to begin.
        let leads = end.entry.id.role.load(Ordering::Relaxed) == 0 && end.rx_mode() == Mode::Tcp;
        if !leads && !send::can_be_rung(end) {
            return;
        }
    }
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    let may_enter = match returns {
        true => is_empty(end, &lane),
        false => is_half_empty(end, &lane),
    };
    if end.tx_mode() != Mode::Tcp
        || end.is_reserved()
        || end.has_flags(end_flags::SHUT_WRITE)
        || !may_enter
        || !may_enter_rings(end)
    {
        return;
    }
    let tx = &end.entry.tx;
    let _passage = lock::mark(&tx.lock, PASSAGE);
    // A call that enters the kernel's send counts itself, then looks at the mode.
    tx.mode.store(Mode::Ring as u32, Ordering::SeqCst); // SYNC: raw
    let quiet = tx.raw_calls.load(Ordering::SeqCst) == 0; // SYNC: raw
    let sent = tx.tcp_bytes.load(Ordering::Relaxed);
    let count = match quiet {
        true => kernel_view::compare_sent(end),
        false => Count::Moving,
    };
    if count != Count::Agrees {
        end.set_tx_mode(Mode::Tcp);
        match count {
            Count::Differs => give_up(end, Reason::Uncounted),
            Count::Closing => give_up(end, Reason::HalfClosed),
            Count::Agrees | Count::Moving => {}
        }
        return;
    }
    if !claim_entry(&lane) {
        end.set_tx_mode(Mode::Tcp);
        return;
    }
    bell::publish_total(end, &lane, 0);
    let mut cursor = end.tx_cursor();
    if cursor.write_control(&lane, Control::Start, sent) != Ok(true) {
        end.set_tx_mode(Mode::Tcp);
        drop_claim(&lane);
        return;
    }
    entering::publish_start(end, &lane, cursor);
    end.entry.wait.replayed.store(0, Ordering::Relaxed);
    end.clear_flags(end_flags::RESUMED);
    end.set_reason(Reason::None);
    end.count(Counter::Upgrades, 1);
    attend_start(end, &lane);
}

/// As [`attend_published`], after a START. A peer that has closed is not rung: its kernel would answer.
pub(crate) fn attend_start(end: &End, lane: &WindowLane) {
    let flags = lane.control().receiver.flags.load(Ordering::Relaxed); // SYNC: armed
    attend_slowly(end, lane, flags, Published::Start);
}

/// Whether the receiver has passed our STOP, the last line of the lane. No START stands behind a STOP
/// that it has yet to read: a freeze would have all of the lane sent again behind what is on TCP between
/// the two.
fn is_empty(end: &End, lane: &WindowLane) -> bool {
    unconsumed::is_none(end, lane)
}

/// A lane whose records have been sent again is used when the receiver has caught up.
fn is_half_empty(end: &End, lane: &WindowLane) -> bool {
    let mut cursor = end.tx_cursor();
    let wanted = u64::from(lane.lines()) / 2;
    let empty = cursor
        .free_lines(lane, wanted)
        .is_ok_and(|free| free >= wanted);
    end.set_tx_cursor(cursor);
    empty
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Published {
    Nothing,
    Start,
    Data,
}

/// Continue on TCP, as when the lane is full. Returns whether the direction is there.
pub(crate) fn go_by_tcp(end: &End, reason: Reason) -> bool {
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else {
        return false;
    };
    if end.tx_mode() == Mode::Ring {
        stop_locked(end, &lane, reason);
    }
    end.tx_mode() != Mode::Ring
}

fn accepts(lane: &WindowLane) -> bool {
    is_open(lane.control().receiver.flags.load(Ordering::SeqCst)) // SYNC: ready
}

fn is_open(flags: u32) -> bool {
    flags & (READY | STOP_WANTED | FROZEN | CLOSED | DROWSY) == READY
}

/// Say that a START follows. Returns whether the receiver still waits for one.
fn claim_entry(lane: &WindowLane) -> bool {
    let flags = &lane.control().receiver.flags;
    let claim = |flags| is_open(flags).then_some(flags | ENTERED);
    flags
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, claim) // SYNC: ready
        .is_ok()
}

/// The direction has left the lane again.
pub(crate) fn drop_claim(lane: &WindowLane) {
    let flags = &lane.control().receiver.flags;
    flags.fetch_and(!ENTERED, Ordering::SeqCst); // SYNC: ready
}

/// Wait for no START any more. Returns false if one is in the lane or about to be, or, between hosts, may be.
pub(crate) fn take_ready_back(end: &End, lane: &WindowLane) -> bool {
    let flags = &lane.control().receiver.flags;
    if posted::is_posted(end) {
        if flags.fetch_and(!READY, Ordering::SeqCst) & READY != 0 {
            posted::tell_flags(end);
        }
        // In this order: a START came before the sender heard.
        return posted::is_heard(end, lane) && !end.rx_cursor().has_record(lane);
    }
    let without = |flags| (flags & ENTERED == 0).then_some(flags & !READY);
    flags
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, without) // SYNC: ready
        .is_ok()
}

/// Stay on TCP before our direction has been switched. The peer may have switched its own already.
fn give_up(end: &End, reason: Reason) {
    end.add_flags(end_flags::PINNED);
    end.set_reason(reason);
    end.process().count_reason(reason);
    rest::object(end);
}

/// Do what the receiver of our lane asks for by its flags.
pub fn attend(end: &End) {
    lost::look(end);
    attend_lane(end);
}

/// As [`attend`], where the lane is known to be there.
pub(crate) fn attend_lane(end: &End) {
    let Some(lane) = end.tx_lane() else { return };
    let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
    // A receiver that goes on to rest asks for nothing more, whatever it has yet to be sent again.
    if flags & (STOP_WANTED | FROZEN | CLOSED) == 0 && !replay::is_under_way(end) {
        return;
    }
    let Some((lane, _tx)) = end.hold_tx_lane() else {
        return;
    };
    let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
    match end.tx_mode() {
        Mode::Replay => {
            let _ = replay::continue_replay(end, &lane);
        }
        Mode::Ring => attend_slowly(end, &lane, flags, Published::Nothing),
        _ if flags & FROZEN != 0 => replay::answer_late_freeze(end, &lane),
        _ => {}
    }
}

/// Answer a receiver that wants to have again what it has not read, before more is sent by TCP.
pub(crate) fn answer_freeze(end: &End) {
    let flags = |lane: WindowLane| lane.control().receiver.flags.load(Ordering::Relaxed);
    if end.tx_lane().is_some_and(|lane| flags(lane) & FROZEN != 0) {
        attend_lane(end);
    }
}

/// After a record has been published: ring the receiver if it is armed, and do what it asks for.
/// The caller holds the sending direction.
#[inline]
pub(crate) fn attend_published(end: &End, lane: &WindowLane) {
    let flags = lane.control().receiver.flags.load(Ordering::Relaxed); // SYNC: armed
    if flags & (ARMED | STOP_WANTED | FROZEN | CLOSED) != 0 {
        attend_slowly(&{ *end }, &{ *lane }, flags, Published::Data);
    }
}

/// Do what the receiver asks for. Rung is only who has a record to find: a doorbell for nothing
/// would reset a peer that has shut down its receiving direction. The caller holds the sending
/// direction.
#[cold]
fn attend_slowly(end: &End, lane: &WindowLane, flags: u32, published: Published) {
    if end.tx_mode() != Mode::Ring {
        return;
    }
    if flags & FROZEN != 0 && end.has_flags(end_flags::SHUT_WRITE) {
        // The receiver goes on in the lane when it sees our end; a STOP would hide doorbells from it.
        return;
    }
    if flags & FROZEN != 0 {
        let _passage = lock::mark(&end.entry.tx.lock, PASSAGE);
        if replay::claim_freeze(end, lane) {
            replay::begin_replay(end, lane);
            return;
        }
    }
    if published != Published::Nothing {
        bell::ring_if_armed(end, lane);
    }
    if flags & CLOSED != 0 {
        if published == Published::Data && end.family() == Family::Tcp {
            // Nobody may have seen the record, which the kernel would have answered with a reset.
            bell::probe_locked(end, lane);
        }
        look_for_reset(end);
    }
    // On AF_UNIX the kernel is asked before each send.
    let closed = flags & CLOSED != 0 && end.family() == Family::Tcp;
    if flags & STOP_WANTED != 0 {
        stop_locked(end, lane, Reason::PeerAsked);
    } else if closed {
        stop_locked(end, lane, Reason::None);
    }
}

/// Bring the sending direction back to TCP. The caller holds it. Put off when a doorbell is owed:
/// none may follow the STOP; while the program builds a message where the STOP would stand; and while the
/// receiver may not know that the window is lost. A sleeping receiver is not rung, the next data on TCP wakes
/// it.
pub(crate) fn stop_locked(end: &End, lane: &WindowLane, reason: Reason) {
    // A peer that waits for space must not count on us any more.
    bell::answer_space_locked(end);
    if end.is_reserved() || lost::is_unheard(end) {
        bell::pay(end);
        return;
    }
    posted::ring_before_stop(end, lane);
    if !bell::pay(end) {
        return;
    }
    let _passage = lock::mark(&end.entry.tx.lock, PASSAGE);
    let mut cursor = end.tx_cursor();
    let count = end.entry.tx.tcp_bytes.load(Ordering::Relaxed);
    if cursor.write_control(lane, Control::Stop, count) != Ok(true) {
        return;
    }
    end.set_tx_cursor(cursor);
    end.entry.wait.replayed.store(count + 1, Ordering::Relaxed);
    kernel_view::count_anew(end, lane);
    end.set_tx_mode(Mode::Tcp);
    if end.has_flags(end_flags::FROZEN) {
        // Another thread may have asked for space since the freeze: the answer would be data for whoever gets the socket.
        bell::want_no_space(end, lane);
    }
    drop_claim(lane);
    if reason != Reason::None {
        note_downgrade(end, reason);
    }
}

fn note_downgrade(end: &End, reason: Reason) {
    end.count(Counter::Downgrades, 1);
    if end.reason() == Reason::None {
        end.set_reason(reason);
        end.process().count_reason(reason);
    }
}

/// Bring both directions back to TCP, or keep them there, for `reason`. The sending direction is
/// on TCP when this returns; the receiving one follows at the peer's next call.
pub fn pin(end: &End, reason: Reason) {
    let for_good = end.is_pinned() && !end.has_flags(end_flags::RESTING);
    if !for_good {
        end.set_reason(reason);
        end.process().count_reason(reason);
        end.add_flags(end_flags::PINNED);
        end.clear_flags(end_flags::RESTING);
    }
    rest::object(end);
    leave(end, reason);
}

/// For tests: bring the connection back to TCP after a number of looks that CROSSLANE_CHAOS
/// names; [`advance`] takes it into the rings again.
#[cold]
pub(crate) fn chaos(end: &End) {
    if let Some(looks) = config::get().chaos
        && end.local.chaos.load(Ordering::Relaxed) >= looks
    {
        end.local.chaos.store(0, Ordering::Relaxed);
        end.clear_flags(end_flags::CHAOS);
        leave(end, Reason::Chaos);
    }
}

/// Bring both directions back to TCP without keeping them there, which counts as `reason` unless the
/// end has one already.
pub fn leave(end: &End, reason: Reason) {
    if end.phase() != EndPhase::Granted {
        return;
    }
    if let Some(lane) = end.rx_lane() {
        lane.control()
            .receiver
            .flags
            .fetch_or(STOP_WANTED, Ordering::SeqCst);
        posted::tell_flags(end);
        bell::answer_space(end);
    }
    let _tx = end.lock_tx();
    if let Some(lane) = end.tx_lane()
        && end.tx_mode() == Mode::Ring
    {
        stop_locked(end, &lane, reason);
    }
}

/// Allow the peer to switch to the ring again after [`leave`].
pub fn reenter(end: &End) {
    let stays_out = end.is_pinned() || end.has_flags(end_flags::SHUT_WRITE);
    if let Some(lane) = end.rx_lane().filter(|_| !stays_out) {
        lane.control()
            .receiver
            .flags
            .fetch_and(!STOP_WANTED, Ordering::SeqCst);
        posted::tell_flags(end);
    }
}

/// Read no more records: whoever reads this socket from now on reads TCP only, as soon as
/// [`is_plain`] says so. The caller has pinned the end.
pub fn freeze(end: &End) {
    {
        let Some((lane, _rx)) = end.hold_rx_lane() else {
            return;
        };
        // Who has left a window gets what stood there from the peer's memory, and all else by TCP.
        if end.has_flags(end_flags::FROZEN) || end.has_flags(end_flags::LOST) {
            return;
        }
        let _passage = lock::mark(&end.entry.rx.lock, PASSAGE);
        bell::disarm(end, &lane);
        if let Some(own) = end.tx_lane() {
            let _tx = end.lock_tx();
            bell::want_no_space(end, &own);
        }
        let replays = lane.control().sender.replay_seq.load(Ordering::SeqCst);
        end.entry.wait.replay_seen.store(replays, Ordering::Relaxed);
        lane.set_consumed(end.rx_cursor().position(), true);
        posted::tell_credit(end);
        end.add_flags(end_flags::FROZEN);
        // Who may read the socket now does not wait for a START.
        let frozen = |flags| Some(flags & !READY | FROZEN);
        let flags = &lane.control().receiver.flags;
        let _ = flags.fetch_update(Ordering::SeqCst, Ordering::SeqCst, frozen); // SYNC: frozen
        posted::tell_flags(end);
        if end.rx_mode() == Mode::Tcp {
            // A START from now on is stopped by its sender at once; one from before is honoured.
            let _ = step::find_start(end, &lane);
        }
        if end.rx_mode() == Mode::Ring {
            end.set_rx_mode(Mode::Replay);
        }
    }
    bell::probe(end, CLOSED);
}

/// A pinned end that is back on TCP both ways needs no rings any more. Returns whether it has been
/// given up to the kernel. Not while its lane may be needed, should the stream end too early.
pub fn retire(end: &End) -> bool {
    retire_if(end, |end| !cut_short::needs_lane(end))
}

/// As [`retire`], where the kernel must have the end at once.
pub fn retire_now(end: &End) -> bool {
    cut_short::conclude(end);
    retire_if(end, |_| true)
}

fn retire_if(end: &End, is_free: impl FnOnce(&End) -> bool) -> bool {
    let may = end.is_pinned() && end.phase() == EndPhase::Granted;
    let rests = end.has_flags(end_flags::RESTING);
    let pair = lost::pair_of(end);
    if lost::is_unsettled(end) || !may || !(is_out_for_good(end) || !rests && is_quiet(end)) {
        return false;
    }
    // What the kernel has told the library it tells nobody else, nor what a peer has left in its lane.
    gone::look_again(end);
    if end.entry.wait.error.load(Ordering::Relaxed) != 0 {
        return false;
    }
    // Another thread may have done so, and the end may be in other lanes by now, or ready for a START again.
    let is_ready = |end: &End| {
        let takes_back = |lane| take_ready_back(end, &lane);
        end.rx_mode() == Mode::Tcp && !end.rx_lane().is_some_and(takes_back)
    };
    dissolve_if(end, |end| {
        let is_same = end.is_pinned() && lost::pair_of(end) == pair;
        is_same && is_out(end) && is_free(end) && !is_ready(end)
    })
}

/// Whether nothing is left in the lanes. The caller holds both directions.
fn is_out(end: &End) -> bool {
    let is_empty = || {
        end.rx_lane()
            .is_some_and(|lane| !end.rx_cursor().has_record(&lane))
    };
    let is_received = match end.rx_mode() {
        Mode::Tcp => {
            // What stood in a lost window has come meanwhile, perhaps with a START.
            let is_over = !end.has_flags(end_flags::LOST) || end.has_flags(end_flags::FROZEN);
            let is_on_tcp = end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX;
            is_on_tcp && (is_over || is_empty())
        }
        Mode::Drain => false,
        Mode::Replay => is_empty(),
        Mode::Ring => has_peer_ended(end) && is_empty(),
    };
    end.tx_mode() == Mode::Tcp
        && is_received
        && !lost::is_unknown(end)
        && !unconsumed::is_missed_at_close(end)
}

/// Leave an end to the kernel, whatever stands in its rings, in every process that has it. Returns
/// whether we did it.
pub fn dissolve(end: &End) -> bool {
    dissolve_if(end, |_| true)
}

/// As [`dissolve`], unless `is_meant`, which is asked while both directions are held, says no.
fn dissolve_if(end: &End, is_meant: impl FnOnce(&End) -> bool) -> bool {
    let is_ours = {
        let _rx = end.lock_rx();
        let _tx = end.lock_tx();
        let is_ours =
            is_meant(end) && register::change_phase(end, EndPhase::Granted, EndPhase::Plain);
        if is_ours {
            register::restore_settings(end);
            // Whoever waits in the kernel learns of later lanes before they are used.
            end.local.adopted.store(0, Ordering::Release);
        }
        is_ours
    };
    if is_ours {
        lost::cast_off(end);
    }
    is_ours
}

/// Whether both directions are on TCP, and nothing can come by the lane until [`become_ready`] asks for
/// it again.
fn is_out_for_good(end: &End) -> bool {
    // A START that came before has been answered by a STOP, which is looked for afterwards.
    let takes_back = || {
        end.hold_rx_lane()
            .is_some_and(|(lane, _rx)| take_ready_back(end, &lane))
    };
    is_plain(end) && takes_back() && is_plain(end)
}

/// Whether an end has nothing left to wait for although the peer has not answered a freeze yet, or
/// never will because its stream has ended: the lane is empty and no doorbell is on its way, so that
/// whatever comes by TCP is data.
pub fn is_quiet(end: &End) -> bool {
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane() else {
        return false;
    };
    end.tx_mode() == Mode::Tcp
        && (end.rx_mode() == Mode::Replay || end.rx_mode() == Mode::Ring && has_peer_ended(end))
        && !end.rx_cursor().has_record(&lane)
        && posted::is_heard(end, &lane)
        && bell::take(end, &lane) == Bells::None
        && !lost::is_unknown(end)
}

/// Whether TCP carries nothing but data in both directions from here on. What stood in a lost window may have gone on in the
/// lane.
pub fn is_plain(end: &End) -> bool {
    step::settle(end);
    end.tx_mode() == Mode::Tcp
        && end.rx_mode() == Mode::Tcp
        && !lost::is_dry(end)
        && end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX
}
