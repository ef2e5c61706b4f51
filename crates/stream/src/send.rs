//! Sending: into the ring, or by the kernel while the direction is on TCP.

use core::sync::atomic::Ordering;
use core::time::Duration;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::receiver_flags::{HEEDED, STOP_WANTED};
use crosslane_ctl::place::Place;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{Ending, Mode, end_flags};
use crosslane_ring::trace::{Point, mark};
use crosslane_ring::{Failed, LaneMemory, Parts, WindowLane, may_go_on, worth_waking};
use crosslane_sys::{Errno, cancel, cpu, kernel};

use crate::end::add;
use crate::family::Family;
use crate::interrupt::{Interrupt, Portions, Waits};
use crate::stay::Stay;
use crate::{
    End, ahead, asleep, bell, config, ending, gone, lost, place, remainder, replay, restart, room,
    stay, step, switch, wait,
};

/// After so many lines the sender looks whether the peer still lives, unless it has just done so.
const LINES_PER_LOOK: u32 = 256;

/// How long a receiver may take nothing before TCP carries the rest.
pub const STANDSTILL: Duration = Duration::from_millis(20);
const STANDSTILL_US: u64 = 20_000;

/// A pause when nothing tells when to look again.
const NAP: Duration = Duration::from_micros(100);

/// How a send may end besides having sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes were taken.
    Bytes(usize),
    /// The direction is on TCP: let the kernel do it, inside [`crate::raw::send`].
    ByKernel,
    /// Nothing, as an AF_UNIX stream has been shut down under a send that waited for room: EPIPE, and no signal.
    Shut,
}

/// Send `parts` as send(2) does, perhaps as one of a call's `portions`.
///
/// # Errors
/// As send(2). EPIPE comes without a signal; that is the caller's part. [`Errno::RESTART`]: the descriptor is to be looked
/// up again.
#[inline]
pub fn send(
    end: &End,
    parts: &mut Parts<'_>,
    dont_wait: bool,
    portions: Option<&mut Portions>,
) -> Result<Sent, Errno> {
    if end.tx_mode() != Mode::Ring {
        match replay::finish_replay(end, true).and_then(|()| enter_behind(end)) {
            Ok(true) => {}
            Ok(false) => return Ok(Sent::ByKernel),
            // What is to be sent again comes first, and finds no room.
            Err(Errno::AGAIN) => {
                return send_slowly(end, parts, dont_wait, (0, end.token()), portions);
            }
            Err(errno) => return Err(errno),
        }
    }
    let (done, token) = write_ring(end, parts)?;
    after_sending(end, done);
    if parts.left() == 0 {
        end.note_room();
        return Ok(Sent::Bytes(done));
    }
    if done == 0 && end.tx_mode() == Mode::Tcp {
        // The receiver has just asked for TCP, where the program's flags count.
        return Ok(Sent::ByKernel);
    }
    send_slowly(end, parts, dont_wait, (done, token), portions)
}

/// What follows each send of `bytes` into the ring; no lock is held.
#[inline]
pub(crate) fn after_sending(end: &End, bytes: usize) {
    if end.ending() == Ending::Eof && end.family() == Family::Tcp && bytes > 0 {
        ending::provoke_reset(end);
    }
    if end.local.chaos.load(Ordering::Relaxed) != 0 {
        switch::chaos(end);
    }
    asleep::take_late_bells(end);
    lost::look(end);
}

/// Try to get the direction into the ring, or finish a replay. Returns whether it is in the ring.
///
/// # Errors
/// As send(2), and as [`replay::finish_replay`].
#[cold]
pub fn enter(end: &End, dont_wait: bool) -> Result<bool, Errno> {
    replay::finish_replay_first(end, dont_wait)?;
    enter_behind(end)
}

/// As [`enter`], behind a replay.
fn enter_behind(end: &End) -> Result<bool, Errno> {
    switch::advance(end);
    // The kernel has told the library already what it would tell the program.
    check_open(end)?;
    Ok(end.tx_mode() == Mode::Ring)
}

/// Wait for room, before anything is taken that is to be sent: also where the program does not want its sends to wait.
///
/// # Errors
/// As send(2); [`Errno::RESTART`]: a signal begins the call again.
pub fn await_room(end: &End) -> Result<(), Errno> {
    let mut waits = Waits::default();
    let waited = match end.tx_mode() {
        Mode::Ring => wait_or_overflow(end, &mut waits),
        _ => replay::wait_for_tcp(end, time_limit(end), None),
    };
    may_begin_again(end, &mut waits, waited)
}

/// Have the direction with the kernel, for a message that only the kernel can send. It goes to the ring
/// again afterwards.
///
/// # Errors
/// As send(2).
pub fn leave_ring(end: &End, dont_wait: bool) -> Result<(), Errno> {
    let dont_wait = dont_wait || end.is_nonblocking();
    replay::finish_replay_first(end, dont_wait)?;
    let mut waits = Waits::default();
    while end.tx_mode() == Mode::Ring {
        check_ring(end)?;
        stay::check_lane(end)?;
        if switch::go_by_tcp(end, Reason::Ancillary) {
            break;
        }
        if dont_wait {
            end.note_blocked();
            return Err(Errno::AGAIN);
        }
        let waited = wait_or_overflow(end, &mut waits).and_then(|()| match end.tx_mode() {
            // There is room, and a doorbell or the answer to a START is what the STOP waits for.
            Mode::Ring => waits.interrupt.nap(NAP),
            _ => Ok(()),
        });
        may_begin_again(end, &mut waits, waited)?;
    }
    Ok(())
}

/// The last records of a call for which a sleeper is rung when all are there: it would take the processor from their sender, and
/// wait for them.
const RUNG_TOGETHER: usize = 64 << 10;

/// Write as many records as fit. Returns how many bytes these have, and where some are left, which connection they are of.
#[inline]
fn write_ring(end: &End, parts: &mut Parts<'_>) -> Result<(usize, u64), Errno> {
    if parts.left() == 0 {
        ending::look_for_reset(end);
        ending::look_for_any(end);
    }
    check_ring(end)?;
    let _tx = end.lock_tx();
    mark(Point::Locked);
    // Another thread that shuts down has the direction meanwhile: nothing comes behind its end.
    check_open(end)?;
    let Some(lane) = end.tx_lane() else {
        return stay::check_lane(end).map(|()| (0, end.token()));
    };
    let (mut total, mut is_unattended) = (0, false);
    while parts.left() > 0 && end.tx_mode() == Mode::Ring {
        let mut cursor = end.tx_cursor();
        let before = cursor.tail;
        let bytes = match cursor.write_record(&lane, parts) {
            Ok(bytes) => bytes,
            Err(Failed::Fault) if total > 0 => {
                // What cannot be read ends the call behind what has been sent.
                parts.truncate(0);
                break;
            }
            Err(Failed::Lied(_)) if lost::is_found(end) => 0,
            Err(failed) => return Err(ending::failed_to_send(end, failed)),
        };
        if bytes == 0 {
            break;
        }
        end.set_tx_cursor(cursor);
        add(&end.entry.tx.ring_bytes, bytes as u64);
        total += bytes;
        let lines = [before, end.tx_cursor().tail];
        note_lines(end, lines[1] - lines[0]);
        is_unattended = (1..=RUNG_TOGETHER).contains(&parts.left());
        if !is_unattended {
            switch::attend_published(end, &lane);
        }
        ahead::prepare_next(&lane, lines);
    }
    if is_unattended {
        switch::attend_published(end, &lane);
    }
    // Under the lock: an entry that has lanes is the connection's that was written to.
    let token = if parts.left() > 0 { end.token() } else { 0 };
    Ok((total, token))
}

/// What must be true before anything is put into the ring.
#[inline]
pub(crate) fn check_ring(end: &End) -> Result<(), Errno> {
    if let Some(lane) = end.tx_lane()
        && lane.control().receiver.flags.load(Ordering::Relaxed) & HEEDED != 0
    {
        ending::heed_death(end, &lane);
        // What is sent to an end that has shut down is for the kernel to answer.
        switch::attend(end);
    }
    lost::look(end);
    if end.family() == Family::Unix {
        gone::look_before_send(end);
    }
    check_open(end)
}

/// Records have been published from one line to another. The caller holds the sending direction.
#[inline(always)]
pub(crate) fn note_published(end: &End, lane: &WindowLane, [before, tail]: [u64; 2]) {
    note_lines(end, tail - before);
    switch::attend_published(end, lane);
}

/// As the kernel: a send on a broken or shut connection fails, first with the pending error.
#[inline]
pub(crate) fn check_open(end: &End) -> Result<(), Errno> {
    if end.ending() == Ending::Open && !end.has_flags(end_flags::SHUT_WRITE) {
        return Ok(());
    }
    check_broken(end)
}

#[cold]
fn check_broken(end: &End) -> Result<(), Errno> {
    if end.ending() != Ending::Reset && !end.has_flags(end_flags::SHUT_WRITE) {
        return Ok(());
    }
    if end.family() == Family::Unix {
        // The error is for a receive.
        return Err(Errno::PIPE);
    }
    Err(ending::take_error(end).unwrap_or(Errno::PIPE))
}

#[inline(always)]
fn note_lines(end: &End, lines: u64) {
    let unchecked = &end.entry.tx.unchecked_lines;
    // Neither is more than a ring has.
    let lines = u64::from(unchecked.load(Ordering::Relaxed)) + lines;
    match u32::try_from(lines) {
        Ok(few) if few < LINES_PER_LOOK => unchecked.store(few, Ordering::Relaxed),
        // A copy, so that the end itself stays in registers.
        _ => look_for_peer(&{ *end }),
    }
}

#[cold]
fn look_for_peer(end: &End) {
    end.entry.tx.unchecked_lines.store(0, Ordering::Relaxed);
    if gone::is_look_due(end) && !gone::has_moved(end) {
        ending::look_for_reset(end);
    }
    if config::get().chaos.is_some() {
        end.local.chaos.fetch_add(1, Ordering::Relaxed);
        end.add_flags(end_flags::CHAOS);
    }
}

#[cold]
fn send_slowly(
    end: &End,
    parts: &mut Parts<'_>,
    dont_wait: bool,
    (mut done, token): (usize, u64),
    portions: Option<&mut Portions>,
) -> Result<Sent, Errno> {
    let mut own = Portions::default();
    let waits = portions.unwrap_or(&mut own).begin();
    waits.interrupt.begin();
    // As the kernel, which looks when a call begins.
    let dont_wait = dont_wait || end.is_nonblocking();
    loop {
        waits.note(done);
        match send_more(end, parts, dont_wait, (waits, token)) {
            Ok(bytes) => done += bytes,
            Err(errno) => return refuse(end, errno, done),
        }
        if parts.left() == 0 {
            return Ok(Sent::Bytes(done));
        }
    }
}

/// Wait for room, and use it.
fn send_more(
    end: &End,
    parts: &mut Parts<'_>,
    dont_wait: bool,
    (waits, token): (&mut Waits, u64),
) -> Result<usize, Errno> {
    Stay::begin_with(&mut waits.stay, end, token)?;
    if end.tx_mode() == Mode::Ring {
        wait_or_begin_again(end, dont_wait, waits)?;
    } else {
        let sent = remainder::send(end, parts, dont_wait || waits.is_over, waits)?;
        if sent > 0 || end.tx_mode() != Mode::Ring {
            return Ok(sent);
        }
    }
    write_ring(end, parts).map(|(bytes, _)| bytes)
}

/// What a send is told that is refused while it waits for room, and has sent `done` bytes before.
pub(crate) fn refuse(end: &End, errno: Errno, done: usize) -> Result<Sent, Errno> {
    note_missed(end, errno);
    let told = match gone::is_refusal(end, errno) {
        true => gone::take_by_send(end, errno).or((errno == Errno::CONNRESET).then_some(errno)),
        false => {
            if done > 0 {
                keep_error(end, errno);
            }
            Some(errno)
        }
    };
    match told {
        _ if done > 0 => Ok(Sent::Bytes(done)),
        Some(errno) => Err(errno),
        None => Ok(Sent::Shut),
    }
}

/// Whoever gives up waiting for room wants to be told of what it has missed.
pub(crate) fn note_missed(end: &End, errno: Errno) {
    if matches!(errno, Errno::AGAIN | Errno::INTR | Errno::RESTART) {
        end.note_blocked();
    }
}

/// As [`wait_for_room`], for a call that a signal may begin again.
pub(crate) fn wait_or_begin_again(
    end: &End,
    dont_wait: bool,
    waits: &mut Waits,
) -> Result<(), Errno> {
    let waited = wait_for_room(end, dont_wait, waits);
    may_begin_again(end, waits, waited)
}

/// What a wait has given. A signal that has ended it may have the call begun again.
pub(crate) fn may_begin_again(
    end: &End,
    waits: &mut Waits,
    waited: Result<(), Errno>,
) -> Result<(), Errno> {
    waited.map_err(|errno| match errno {
        Errno::INTR | Errno::RESTART => {
            waits.interrupt.end();
            restart::interrupted(errno, errno == Errno::RESTART && waits.deadline.is_set(end))
        }
        errno => errno,
    })
}

/// How long a send waits (SO_SNDTIMEO).
pub(crate) fn time_limit(end: &End) -> Option<Duration> {
    let [seconds, micros] =
        kernel::getsockopt::<[u64; 2]>(end.fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO).ok()?;
    let limit = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    Some(limit).filter(|limit| !limit.is_zero())
}

/// An error that a send meets after it has sent something is the next call's.
pub fn keep_error(end: &End, errno: Errno) {
    match errno {
        // A descriptor that is closed may name another connection by now, and buffers are the call's own.
        Errno::AGAIN | Errno::INTR | Errno::RESTART | Errno::PIPE | Errno::BADF | Errno::FAULT => {}
        Errno::CONNRESET if end.family() == Family::Tcp => ending::note_error(end, errno),
        errno => end.entry.wait.error.store(errno.0, Ordering::Relaxed),
    }
}

/// Wait for room, as a send does that may wait unless it is `dont_wait`.
pub(crate) fn wait_for_room(end: &End, dont_wait: bool, waits: &mut Waits) -> Result<(), Errno> {
    if end.is_pinned() {
        switch::leave(end, end.reason());
    }
    if !dont_wait {
        return wait_or_overflow(end, waits);
    }
    if stands_still(end) && switch::go_by_tcp(end, Reason::Overflow) {
        return Ok(());
    }
    end.note_blocked();
    match asks_for_others(end) && has_room(end) {
        true => Ok(()),
        false => Err(Errno::AGAIN),
    }
}

/// Ask for room on behalf of relatives that sleep in sets of epoll: the kernel wakes them when there is some, whoever has
/// missed it. Returns whether there may be some by now, of which nobody would be told.
fn asks_for_others(end: &End) -> bool {
    let has_others = end.has_flags(end_flags::FORKED);
    has_others && end.entry.wait.epolls.load(Ordering::Relaxed) > 0 && !prepare_sleep(end)
}

/// Whether an end can send no more, of which TCP tells as of room.
fn is_shut(end: &End) -> bool {
    end.has_flags(end_flags::SHUT_WRITE) && end.family() == Family::Tcp
}

/// Whether the lane has room worth telling a program about.
pub fn is_writable(end: &End) -> bool {
    if is_shut(end) {
        return true;
    }
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else {
        return true;
    };
    let mut cursor = end.tx_cursor();
    let found = match end.is_blocked() {
        true => cursor.writable(&lane),
        false => cursor.has_room(&lane),
    };
    // After a lie the next send reports it, so the program must not wait.
    let writable = found.unwrap_or(true);
    end.set_tx_cursor(cursor);
    writable || end.tx_mode() != Mode::Ring
}

/// Ask for space, and look once more. Returns whether the caller may sleep until TCP has
/// something to read. Where no doorbell can reach us, the direction goes to TCP instead, for which
/// the kernel answers.
pub fn prepare_sleep(end: &End) -> bool {
    if end.tx_lane().is_none() {
        return true;
    }
    step::settle(end);
    if !can_be_rung(end) || !is_writable(end) && stands_still(end) {
        switch::go_by_tcp(end, Reason::Overflow);
        return false;
    }
    // The answer to an end that has shut down both ways would reset the connection.
    let may_send = || end.tx_mode() == Mode::Ring && !is_shut(end);
    match end.hold_tx_lane().filter(|_| may_send()) {
        Some((lane, _tx)) => bell::want_space(end, &lane),
        None => return false,
    }
    switch::attend(end);
    !is_writable(end)
}

/// Whether the peer can send us doorbells: its direction is in the ring and stays there.
pub(crate) fn can_be_rung(end: &End) -> bool {
    let Some((lane, _rx)) = end.hold_rx_lane() else {
        return false;
    };
    lane.control().receiver.flags.load(Ordering::Relaxed) & STOP_WANTED == 0
        && end.rx_mode() == Mode::Ring
        && end.ending() == Ending::Open
        && !bell::has_stop(end, &lane)
}

/// Whether the receiver has taken nothing for long, neither from the lane nor from TCP, while we
/// ask again and again. It then gets the rest by TCP: the kernel has room for much more than a
/// lane, and programs count on that.
fn stands_still(end: &End) -> bool {
    let Some(lane) = end.tx_lane() else {
        return false;
    };
    let local = end.local;
    let taken = lane.control().credit.tcp_taken.load(Ordering::Relaxed);
    let position = lane.consumed().wrapping_add(taken);
    let now = cpu::ticks();
    #[cfg(test)]
    let now = crate::posted::tests::schedules::now(now);
    if local.stalled_at.swap(position, Ordering::Relaxed) != position {
        local.stalled_since.store(now, Ordering::Relaxed);
        return false;
    }
    let since = local.stalled_since.load(Ordering::Relaxed);
    now.saturating_sub(since) / cpu::ticks_per_us() >= STANDSTILL_US
}

/// Wait until the lane has room, or the receiver stands still and the direction is on TCP.
fn wait_or_overflow(end: &End, waits: &mut Waits) -> Result<(), Errno> {
    step::settle(end);
    waits.has_waited = true;
    let Waits {
        stay,
        interrupt,
        deadline,
        is_over,
        has_some,
        ..
    } = waits;
    // Before the spin: a connection that is closed under it has room for ever.
    Stay::begin_once(stay, end)?;
    interrupt.begin();
    let ready = || has_room(end) || interrupt.ends_spin();
    let look = || wait::look(place::peer(end), ready);
    if cancel::guarded(stay, look) && has_room(end) {
        end.count(Counter::SpinHits, 1);
        return check_open(end);
    }
    end.count(Counter::SpinMisses, 1);
    deadline.begin_wait(end);
    while !has_room(end) {
        interrupt.hold(*has_some);
        interrupt.check()?;
        ending::look_for_reset(end);
        check_open(end)?;
        if stands_still(end) {
            if !switch::go_by_tcp(end, Reason::Overflow) {
                // Doorbells are owed on a socket that is full from before the switch, or the START has yet to be found.
                deadline.left(end, NAP)?;
                interrupt.nap(NAP)?;
            }
            break;
        }
        let limit = match deadline.left(end, STANDSTILL) {
            Ok(limit) => limit,
            // TCP may have room where the lane has none.
            Err(_) if switch::go_by_tcp(end, Reason::Overflow) => {
                *is_over = true;
                break;
            }
            Err(errno) => return Err(errno),
        };
        let slept = cancel::guarded(stay, || sleep(end, limit, interrupt));
        room::tell(end);
        slept?;
    }
    wait::woke();
    check_open(end)
}

/// Sleep until the peer rings because there is room, or for a moment if it cannot.
fn sleep(end: &End, limit: Duration, interrupt: &Interrupt) -> Result<(), Errno> {
    end.begin_sleep();
    let wake = || end.end_sleep();
    let mask = interrupt.mask();
    let poll = || asleep::poll_one(asleep::for_record(end), -1, Some(limit), mask.as_ref());
    let slept = match prepare_sleep(end) {
        true => {
            end.count(Counter::Sleeps, 1);
            replay::push();
            let found = cancel::guarded(interrupt, || cancel::undone(wake, poll));
            found.map(|[found, _]| found != 0)
        }
        false => Ok(false),
    };
    if slept == Ok(true) {
        let _rx = end.lock_rx();
        asleep::note_bell(end);
        asleep::take_bells(end, 1);
    }
    wake();
    if slept == Ok(true) && !is_writable(end) {
        // A doorbell for a reader of ours, or the end of the stream.
        end.count(Counter::Backoffs, 1);
        interrupt.nap(NAP)?;
    }
    slept.map(|_| ())
}

/// Whether a writer that found the lane full should go on: a good part of it is free, for which the
/// receiver rings, or the direction has left it.
#[inline]
fn has_room(end: &End) -> bool {
    let Some(lane) = end.tx_lane() else {
        return true;
    };
    let lines = u64::from(lane.lines());
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    let used = tail.wrapping_sub(Place::near(lane.consumed(), tail).line);
    // A receiver that claims more than was sent is found out by the next write.
    used + worth_waking(&lane) + 2 <= lines && may_go_on(&lane, tail, used)
        || used > lines
        || end.tx_mode() != Mode::Ring
}
