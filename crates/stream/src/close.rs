//! Closing and shutting down. The kernel tells the peer; the library only sees to it that what is
//! in the rings counts as it would on TCP.

use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use std::os::fd::RawFd;
use std::time::Instant;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::{RINGING, receiver_flags};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Mode, end_flags};
use crosslane_ring::{Control, Next, WindowLane};
use crosslane_sys::{Errno, kernel};

use crate::bell::Bells;
use crate::end::KEPT;
use crate::ending::has_peer_ended;
use crate::family::Family;
use crate::{
    End, bell, control, doubt, due, ending, entering, gone, heir, ledger, lost, posted, register,
    replay, reset, rest, stay, step, stir, stranded, switch, watcher, within, young,
};

/// How long a close waits for the monitor to let go of the socket. A monitor that takes longer
/// hangs; then the connection is shut down, so that the peer sees its end all the same.
const MONITOR_PATIENCE: Duration = Duration::from_millis(100);

/// How long a close waits for doorbells that are on their way.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same for one of which it is known that it is being rung: the peer has lost its processor in between.
const RINGING_PATIENCE: Duration = Duration::from_secs(1);
/// How often a close looks for a doorbell at once, and how long it rests between later looks.
const BUSY_ROUNDS: u32 = 32;
const BELL_NAP: Duration = Duration::from_micros(200);

/// The program is closing `fd`, which names `end`. Call this before the kernel's close.
pub fn before_close(end: &End) {
    end.process().name(end.fd, None);
    drop_name(end);
}

/// A descriptor no longer names `end`. With the last one, the end is let go.
pub(crate) fn drop_name(end: &End) {
    // Whoever begins a sleep by this name from here on sees that it is gone.
    fence(Ordering::SeqCst);
    // Whoever sleeps by it goes on with a descriptor of our own.
    let is_asleep = stay::is_asleep(end);
    if is_asleep {
        end.local.place.spoil();
    }
    if is_asleep && keep(end) {
        end.local.fds.fetch_or(KEPT, Ordering::SeqCst);
        stir::wake(end);
    }
    // Counted afterwards: who drops the last name sees what others have kept, and its sleeps may have ended before they
    // could see that there is none.
    let names = end.local.fds.fetch_sub(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    match names {
        1 => let_go(end),
        _ if names == KEPT | 1 => finish_kept(end),
        _ => watcher::let_go(end),
    }
}

/// Another descriptor names the same connection.
pub fn add_name(end: &End, fd: RawFd) {
    register::forget(fd);
    end.local.fds.fetch_add(1, Ordering::AcqRel);
    end.process().name(fd, Some(end.index));
}

/// Another thread sleeps in a call on the connection: keep a descriptor of our own until that is
/// over and the connection has no name any more. Returns whether there is one.
fn keep(end: &End) -> bool {
    if end.local.kept.load(Ordering::Acquire) != 0 {
        return true;
    }
    let lowest = [control::LOWEST_FD, control::LOWEST_FD_FALLBACK, 3];
    let twin = lowest
        .iter()
        .find_map(|lowest| kernel::duplicate_above(end.fd, *lowest).ok());
    let Some(twin) = twin else { return false };
    let kept = twin.cast_unsigned() + 1;
    let stored = end
        .local
        .kept
        .compare_exchange(0, kept, Ordering::SeqCst, Ordering::Acquire);
    if stored.is_err() {
        kernel::close(twin);
    }
    true
}

/// A call that has slept is over. If the program has closed the connection meanwhile, and nobody
/// else sleeps on it, it is closed now.
#[cold]
pub(crate) fn finish_kept(end: &End) {
    let kept = end.local.kept.load(Ordering::SeqCst);
    if kept != 0 && end.local.names() == 0 && !stay::is_asleep(end) {
        drop_kept(end, kept);
    }
}

/// Close the connection, which has no other name than our own. Of several callers one does it.
fn drop_kept(end: &End, kept: u32) {
    let own = &end.local.kept;
    if own
        .compare_exchange(kept, 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        let twin = (kept - 1).cast_signed();
        let_go(&End::at(end.process(), end.index, twin));
        kernel::close(twin);
    }
}

fn let_go(end: &End) {
    if leave_to_others(end) {
        return;
    }
    lost::finish(end, Instant::now() + lost::LAST_CALL);
    if end.phase() == EndPhase::Granted {
        let deadline = Instant::now() + replay::PATIENCE;
        finish_replay(end, deadline);
        finish_rings(end, (Instant::now() + PATIENCE, deadline));
    } else {
        say_end(end);
    }
    if !await_registration(end) && !has_copies(end) {
        reset::or_shut_down(end);
    }
    take_leave(end, |_| true);
}

/// Leave the close to others who go on with the connection. False if nobody does. Of several who leave at the same time the
/// last sees, with both directions held, that the others have gone.
fn leave_to_others(end: &End) -> bool {
    let is_kept = |end: &End| end.process().is_kept_by_others(end.index);
    if !is_kept(end) {
        return false;
    }
    // They may make no call for long.
    entering::await_found(end, Instant::now() + PATIENCE);
    if replay::is_owed(end) {
        replay::push_replay(end, Instant::now() + replay::PATIENCE);
    }
    await_registration(end);
    take_leave(end, is_kept)
}

/// Whether the monitor has no copy of the socket any more, with which the peer would not see our end.
fn await_registration(end: &End) -> bool {
    let acknowledged = || !register::is_in_flight(end);
    acknowledged() || control::wait_until(end.process(), MONITOR_PATIENCE, acknowledged)
}

/// Be a holder no more, if `may`, which is asked while both directions are held.
fn take_leave(end: &End, may: impl FnOnce(&End) -> bool) -> bool {
    let token = end.token();
    let is_known = end.has_flags(end_flags::KNOWN) && !end.is_unleased();
    let pair = lost::pair_of(end);
    // The answer to a registration by a relative is on its way to that one.
    let is_ours = end.phase() != EndPhase::Registered || control::awaits(token);
    let is_free = {
        let _rx = end.lock_rx();
        let _tx = end.lock_tx();
        if !may(end) {
            return false;
        }
        if has_copies(end) {
            stranded::note(end);
        }
        count_totals(end);
        end.clear_lanes();
        end.process().cease_to_hold(end.index, is_ours)
    };
    if is_free {
        end.process().give_back(end.index);
    }
    within::let_go(token);
    if is_known {
        control::release(token, pair);
    }
    true
}

/// What cannot be sent again ends the connection as an error does, where that is possible.
fn finish_replay(end: &End, deadline: Instant) {
    if !replay::push_replay(end, deadline) && end.family() == Family::Tcp {
        reset::at_close(end);
    }
}

/// As TCP: unread bytes make a close reset the connection. Unread doorbells must not. Follows [`finish_replay`].
fn finish_rings(end: &End, (bells_until, deadline): (Instant, Instant)) {
    // What has been waited for in vain is not waited for again.
    let deadline = match end.tx_mode() {
        Mode::Replay => Instant::now(),
        _ => deadline,
    };
    if is_away(end) {
        await_last_bells(end, bells_until);
        // What the peer says last may be that the lane is to be read.
        if is_away(end) {
            return say_end(end);
        }
    }
    say_closing(end);
    if end.rx_lane().is_none() {
        return;
    }
    say_closed(end);
    await_last_bells(end, bells_until);
    // A freeze may have come meanwhile.
    finish_replay(end, deadline);
    let Some((lane, _rx)) = end.hold_rx_lane() else {
        return;
    };
    // Also what a sender has been asked to send again by TCP, and has not.
    let unread = matches!(end.rx_mode(), Mode::Ring | Mode::Replay)
        && matches!(end.rx_cursor().peek(&lane), Ok(Next::Data(_)) | Err(_));
    // The peer of an AF_UNIX stream sees in the lane what was not read.
    if unread && end.family() == Family::Tcp {
        reset::at_close(end);
    }
}

/// Whether the close may be left to others who have a copy of the socket, of whom nothing is known. What stands in the lane
/// comes by TCP for them, at the peer's next call.
fn is_away(end: &End) -> bool {
    has_copies(end) && end.rx_mode() != Mode::Ring
}

/// Whether others have copies of the socket, of whom nothing is known.
pub(crate) fn has_copies(end: &End) -> bool {
    end.entry.wait.away.load(Ordering::SeqCst) != 0 // SYNC: away
}

/// A peer that has seen our end must not ring to learn whether we live.
fn say_closed(end: &End) {
    if let Some(lane) = end.rx_lane() {
        let flags = &lane.control().receiver.flags;
        flags.fetch_or(receiver_flags::CLOSED, Ordering::SeqCst);
        posted::tell_flags(end);
    }
}

/// Ask for no more doorbells and take those that have been sent: the kernel resets a connection
/// that is closed before they are read, or before they arrive.
fn await_last_bells(end: &End, deadline: Instant) {
    if let Some((lane, _tx)) = end.hold_tx_lane() {
        bell::want_no_space(end, &lane);
    }
    let at_last = deadline + RINGING_PATIENCE;
    for round in 0.. {
        step::settle(end);
        if are_bells_over(end) {
            return;
        }
        if round > BUSY_ROUNDS {
            let now = Instant::now();
            if now >= deadline && !(now < at_last && is_being_rung(end)) {
                return;
            }
            kernel::nap(BELL_NAP);
        }
    }
}

/// Whether the peer is about to send a doorbell, which the kernel would answer with a reset if the socket were closed before.
fn is_being_rung(end: &End) -> bool {
    let is_ringing = |lane: WindowLane| {
        let told = lane.control().sender.tcp_total.load(Ordering::SeqCst); // SYNC: bells
        told & RINGING != 0
    };
    matches!(end.rx_mode(), Mode::Ring | Mode::Replay) && end.rx_lane().is_some_and(is_ringing)
}

/// Whether no doorbell will come any more, or none that matters.
pub(crate) fn are_bells_over(end: &End) -> bool {
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane() else {
        return true;
    };
    bell::disarm(end, &lane);
    // A peer that was never told that it may enter rings for nothing.
    let is_heard = !doubt::may_have_entered(end) || posted::is_heard(end, &lane);
    let mode = end.rx_mode();
    let is_over = match mode {
        Mode::Ring if matches!(end.rx_cursor().peek(&lane), Ok(Next::Data(_)) | Err(_)) => true,
        Mode::Ring | Mode::Replay => bell::take(end, &lane) == Bells::None,
        Mode::Drain => false,
        // The sender may just have said START; unread data before it is for the kernel to reset.
        Mode::Tcp => {
            end.entry.rx.tcp_limit.load(Ordering::Relaxed) != u64::MAX || !end.has_record()
        }
    };
    // A peer that has ended its stream may say STOP when it sees us close: its doorbells are taken behind that.
    let has_left = || {
        matches!(mode, Mode::Ring | Mode::Replay)
            && !end.rx_cursor().has_data(&lane)
            && bell::has_stop(end, &lane)
    };
    is_over && is_heard || has_peer_ended(end) && !has_left()
}

/// A hint for a peer that reads without asking the kernel: look at TCP for the end. Between hosts, how far the stream
/// goes.
fn say_closing(end: &End) {
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else { return };
    // Not where another thread builds a message: it is a hint only.
    if end.tx_mode() == Mode::Ring && !end.is_reserved() {
        let mut cursor = end.tx_cursor();
        if cursor.write_control(&lane, Control::Closing, 0) == Ok(true) {
            end.set_tx_cursor(cursor);
        }
    }
    doubt::say_end(end, &lane);
}

/// An end that has left its lanes between hosts says, too, how far its stream has gone there.
fn say_end(end: &End) {
    if end.has_flags(end_flags::FAR)
        && let Some((lane, _tx)) = end.hold_tx_lane()
    {
        doubt::say_end(end, &lane);
    }
}

pub(crate) fn count_totals(end: &End) {
    due::judge_unmet(end);
    due::judge_use(end);
    due::judge_age(end);
    ledger::close(end);
    let (tx, rx) = (&end.entry.tx, &end.entry.rx);
    for (counter, total) in [
        (Counter::RingBytesSent, &tx.ring_bytes),
        (Counter::RingBytesReceived, &rx.ring_bytes),
        (Counter::TcpBytesSent, &tx.tcp_data),
        (Counter::TcpBytesReceived, &rx.tcp_data),
    ] {
        end.count(counter, total.load(Ordering::Relaxed));
    }
    let reason = end.reason();
    if !end.is_pinned() && reason != Reason::None && !reason.is_passing() {
        end.process().count_reason(reason);
    }
}

/// The program is about to shut down a direction. Call this before the kernel's shutdown.
pub fn before_shutdown(end: &End, how: libc::c_int) {
    ending::look_for_any(end);
    let writes = how != libc::SHUT_RD && end.phase() == EndPhase::Granted;
    let flags = match how {
        libc::SHUT_RD => end_flags::SHUT_READ,
        libc::SHUT_WR => end_flags::SHUT_WRITE,
        _ => end_flags::SHUT_READ | end_flags::SHUT_WRITE,
    };
    if how != libc::SHUT_RD && !writes {
        say_end(end);
    }
    if writes {
        lost::finish_sending(end);
        switch::attend(end);
    }
    {
        // No freeze is answered from here on.
        let _tx = writes.then(|| end.lock_tx());
        end.add_flags(flags);
    }
    gone::note_shutdown(end);
    if writes
        && !replay::push_replay(end, Instant::now() + replay::PATIENCE)
        && end.family() == Family::Tcp
    {
        ending::note_error(end, Errno::CONNRESET);
        reset::now(end);
    }
    if how != libc::SHUT_RD {
        say_ended(end);
    }
    if writes {
        say_closing(end);
    }
    if how != libc::SHUT_WR && end.family() == Family::Unix {
        // Nothing can be sent again to an end that has shut down: what has come stays where it is.
        rest::unfreeze_shut(end);
        say_shut(end);
    }
    let both = end_flags::SHUT_READ | end_flags::SHUT_WRITE;
    if end.phase() == EndPhase::Granted && end.has_flags(both) {
        // The kernel answers whatever comes now with a reset.
        if end.family() == Family::Tcp {
            say_closed(end);
        }
        await_last_bells(end, Instant::now() + PATIENCE);
    }
}

/// The program has shut down a direction. Over AF_UNIX the kernel wakes the peer for it, whatever there is to tell
/// (unix_shutdown in net/unix/af_unix.c), which its epoll sets take for an edge.
pub fn after_shutdown(end: &End, how: libc::c_int) {
    if how != libc::SHUT_RD || end.family() != Family::Unix {
        return;
    }
    if let Some((lane, _tx)) = end.hold_tx_lane().filter(|_| end.tx_mode() == Mode::Ring) {
        bell::ring_if_armed(end, &lane);
    }
}

/// On AF_UNIX the peer's sends fail once we have shut down reading.
fn say_shut(end: &End) {
    if let Some(lane) = end.rx_lane() {
        let flags = &lane.control().receiver.flags;
        flags.fetch_or(receiver_flags::SHUT, Ordering::SeqCst);
    }
}

/// After our FIN we cannot ring a peer that waits for space, so its direction goes back to TCP, where the kernel does that.
fn say_ended(end: &End) {
    let Some(lane) = end.rx_lane() else { return };
    let flags = &lane.control().receiver.flags;
    let ended = receiver_flags::STOP_WANTED | receiver_flags::ENDED;
    flags.fetch_or(ended, Ordering::SeqCst);
    posted::tell_flags(end);
    bell::answer_space(end);
}

/// Bring `end` back to TCP so that others may read and write the socket without the library,
/// waiting at most for `patience`. Returns whether that has been reached.
pub fn make_plain(end: &End, reason: Reason, patience: Duration) -> bool {
    if end.phase() != EndPhase::Granted {
        switch::pin(end, reason);
        return true;
    }
    let is_read_here = [Reason::Option, Reason::EpollUse, Reason::EpollShared].contains(&reason);
    if !is_read_here {
        end.add_flags(end_flags::OTHERS_READ);
    }
    // Frozen before our own STOP, because freezing rings a sleeping peer.
    switch::freeze(end);
    switch::pin(end, reason);
    await_plain(end, patience)
}

/// Wait at most for `patience` until a frozen and pinned end is all on TCP. Returns whether it is.
pub(crate) fn await_plain(end: &End, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if end.tx_mode() == Mode::Ring {
            // A doorbell may have been owed, or a message been built.
            switch::go_by_tcp(end, end.reason());
        }
        if is_there(end) {
            return true;
        }
        if Instant::now() > deadline {
            return switch::is_plain(end);
        }
        attend_peer_here(end);
        kernel::nap(Duration::from_micros(50));
    }
}

/// Have the other end answer, if this process has it: nobody else may call for it.
pub fn attend_peer_here(end: &End) {
    if let Some(peer) = peer_here(end) {
        switch::attend(&peer);
    }
}

/// Whether an end that goes to TCP is there, with what stood in its lane, or has nothing that is to go there.
pub fn is_there(end: &End) -> bool {
    let is_all_there = switch::is_plain(end) && !replay::is_on_its_way(end);
    is_all_there || switch::is_quiet(end)
}

/// The other end of the connection, if this process has it, by one name only: whoever closes that waits for a call.
fn peer_here(end: &End) -> Option<End> {
    let id = |end: &End| {
        let id = &end.entry.id;
        let lanes = (
            id.arena.load(Ordering::Relaxed),
            id.slot.load(Ordering::Relaxed),
        );
        (lanes, id.role.load(Ordering::Relaxed))
    };
    let (lanes, role) = id(end);
    end.process().ends().find(|other| {
        let (its, side) = id(other);
        other.phase() == EndPhase::Granted
            && its == lanes
            && side != role
            && other.local.names() == 1
    })
}

/// Wait until the monitor has closed its copies of sockets that are about to be closed without a call:
/// while it has one, the kernel does not tell the peer. May be called from a signal handler.
pub fn await_registrations() {
    let Some(process) = crate::process::get().filter(|process| process.is_current()) else {
        return;
    };
    let deadline = Instant::now() + MONITOR_PATIENCE;
    while process.ends().any(|end| register::is_in_flight(&end)) && Instant::now() < deadline {
        control::poll(process);
        kernel::nap(BELL_NAP);
    }
}

/// The process exits, perhaps from within a signal handler: what a close of every connection would
/// have told the peers. A direction that somebody holds is left as it is.
pub fn at_exit() {
    let Some(process) = crate::process::get().filter(|process| process.is_current()) else {
        return;
    };
    young::leave_all(process);
    await_registrations();
    // What it holds for a moment would look like somebody's call.
    watcher::stop_before_exit(Instant::now() + PATIENCE);
    // Before the looks at others, who look at us: of two that end at the same time one closes, or both do.
    process.note_leaving();
    let all = || process.ends().chain(process.kept_ends());
    let ends = || {
        let deadline = Instant::now() + PATIENCE;
        all().filter(move |end| is_to_be_closed(end, deadline))
    };
    let last_call = Instant::now() + lost::LAST_CALL;
    ends().for_each(|end| lost::finish(&end, last_call));
    let granted = || ends().filter(|end| end.phase() == EndPhase::Granted);
    let deadline = Instant::now() + replay::PATIENCE;
    granted().for_each(|end| finish_replay(&end, deadline));
    // Those who go on may make no call for long.
    let left = |end: &End| is_kept(end, Instant::now() + PATIENCE) == Some(true);
    let entered = all().filter(entering::is_awaited).filter(left);
    let found_until = Instant::now() + PATIENCE;
    entered.for_each(|end| _ = entering::await_found(&end, found_until));
    let owed = all().filter(replay::is_owed).filter(left);
    owed.for_each(|end| _ = replay::push_replay(&end, deadline));
    let bells_until = Instant::now() + PATIENCE;
    granted().for_each(|end| finish_rings(&end, (bells_until, deadline)));
    // Of those that only a loan keeps, too.
    for end in all().filter(has_copies) {
        if let Some(_rx) = end.try_lock_rx() {
            stranded::note(&end);
        }
    }
}

/// The process is about to become another program, in which the connections that do not survive that are closed: what is to be sent
/// again is sent before.
pub fn before_exec(survives: impl Fn(&End) -> bool) {
    let Some(process) = crate::process::get().filter(|process| process.is_current()) else {
        return;
    };
    let found_until = Instant::now() + PATIENCE;
    let entered = process.ends().filter(entering::is_awaited);
    entered
        .filter(|end| is_kept(end, found_until).is_some())
        .for_each(|end| _ = entering::await_found(&end, found_until));
    let deadline = Instant::now() + replay::PATIENCE;
    process
        .ends()
        .filter(|end| end.tx_mode() == Mode::Replay && !survives(end))
        .filter(|end| is_kept(end, Instant::now() + PATIENCE).is_some())
        .for_each(|end| _ = replay::push_replay(&end, deadline));
}

/// Wait until no call of this process holds a direction. Returns whether that is so.
pub fn is_let_go(end: &End, deadline: Instant) -> bool {
    while heir::is_held_here(end) {
        if Instant::now() >= deadline {
            return false;
        }
        kernel::nap(BELL_NAP);
    }
    true
}

/// Whether an end is this process's to close, which exits. Who has been stopped by a debugger in the middle of a direction keeps
/// the end.
fn is_to_be_closed(end: &End, deadline: Instant) -> bool {
    is_kept(end, deadline) == Some(false)
}

/// Whether others go on with an end. None: somebody has a direction, and keeps it.
fn is_kept(end: &End, deadline: Instant) -> Option<bool> {
    if !is_let_go(end, deadline) {
        return None;
    }
    // Who closes it elsewhere decides with the direction held.
    let _tx = heir::lock_tx_before(end, deadline)?;
    Some(end.process().is_kept_by_others(end.index))
}

#[cfg(test)]
mod tests;
