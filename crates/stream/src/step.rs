//! One step of receiving, wherever the stream is: in the ring, on TCP up to a known count, or on its way between them.

use core::sync::atomic::Ordering;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::NO_REPLAY;
use crosslane_ctl::lane::receiver_flags::{ANSWERED, FROZEN};
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{Control, LaneMemory, Next, Parts, PeerLied, WindowLane};
use crosslane_sys::{Errno, kernel};

use crate::beside::{Beside, ends_a_receive};
use crate::end::add;
use crate::ending::{failed, has_peer_ended, lied, look_behind_bells, look_for_end, note_error};
use crate::family::Family;
use crate::lock::{self, COUNTING, Mark, PASSAGE};
use crate::pieces::Pieces;
use crate::receive::Options;
use crate::{End, bell, cut_short, ending, entering, gone, lost, peek, posted, switch};

/// What one look at the stream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes.
    Bytes(usize),
    /// So many bytes, and something beside them behind which no receive goes on.
    Last(usize),
    /// Nothing now.
    Nothing,
}

/// One attempt to get bytes from wherever the stream is now. `goes_on` says that the call has got
/// some already.
pub(crate) fn step(
    end: &End,
    parts: &mut Parts<'_>,
    options: Options<'_>,
    goes_on: bool,
) -> Result<Step, Errno> {
    lost::look(end);
    let guard = end.lock_rx();
    if lost::is_dry(end) {
        return Ok(Step::Nothing);
    }
    let Some(lane) = end.rx_lane() else {
        return step_plain(end, parts, options, goes_on);
    };
    // A window may be gone when something has been copied from it.
    let before = end.has_flags(end_flags::FAR).then(|| parts.clone());
    let peek = options.peek;
    let is_told = parts.left() > 0;
    let mut closing = false;
    // A lap has room for so many control records; only a liar has more.
    for _ in 0..=lane.lines() {
        let outcome = match end.rx_mode() {
            Mode::Ring => step_ring(end, &lane, parts, peek),
            Mode::Drain | Mode::Tcp if cut_short::take_up(end, &lane, is_told)? => {
                Ok(Passage::Again)
            }
            Mode::Drain => step_drain(end, &lane),
            Mode::Replay => step_replay(end, &lane, parts, peek),
            Mode::Tcp if goes_on && ends_on_tcp(end, &lane)? => Ok(Passage::Out(Step::Last(0))),
            Mode::Tcp => step_tcp(end, &lane, parts, options),
        };
        match outcome? {
            Passage::Again => {}
            Passage::Closing => closing = true,
            Passage::Out(Step::Nothing) if closing => {
                look_behind_bells(end);
                return Ok(Step::Nothing);
            }
            Passage::Out(step) => {
                if let (Step::Nothing, Some(before)) = (step, before) {
                    // What was copied may have been no bytes of the stream.
                    *parts = before;
                }
                drop(guard);
                if end.rx_mode() == Mode::Ring {
                    bell::answer_space(end);
                }
                return Ok(step);
            }
        }
    }
    Err(lied(end, lie_at(end.rx_cursor().head)))
}

enum Passage {
    Out(Step),
    Again,
    Closing,
}

fn step_ring(
    end: &End,
    lane: &WindowLane,
    parts: &mut Parts<'_>,
    peek: bool,
) -> Result<Passage, Errno> {
    let mut cursor = end.rx_cursor();
    let next = cursor.peek(lane);
    if lost::is_found(end) {
        return Ok(Passage::Out(Step::Nothing));
    }
    match next.map_err(|lie| lied(end, lie))? {
        Next::Empty => Ok(Passage::Out(Step::Nothing)),
        Next::Data(_) if peek => {
            let bytes = cursor
                .copy_only(lane, parts)
                .map_err(|why| failed(end, why))?;
            if lost::is_found(end) {
                return Ok(Passage::Out(Step::Nothing));
            }
            Ok(Passage::Out(Step::Bytes(bytes)))
        }
        Next::Data(_) => {
            let taken = cursor
                .read_if(lane, parts, || !lost::is_found(end))
                .map_err(|why| failed(end, why))?;
            let Some(taken) = taken else {
                return Ok(Passage::Out(Step::Nothing));
            };
            end.set_rx_cursor(cursor);
            end.note_taken(taken);
            Ok(Passage::Out(Step::Bytes(taken.bytes)))
        }
        Next::Control(Control::Closing, _) => {
            pass(end, lane);
            Ok(Passage::Closing)
        }
        Next::Control(Control::Stop, count) => {
            if count < end.entry.rx.tcp_bytes.load(Ordering::Relaxed) {
                return Err(lied(end, lie_at(cursor.head)));
            }
            let _passage = mark_passage(end);
            bell::renew(end, lane);
            pass(end, lane);
            end.entry.rx.tcp_limit.store(count, Ordering::Relaxed);
            end.set_rx_mode(Mode::Drain);
            Ok(Passage::Again)
        }
        Next::Control(Control::Start, _) => Err(lied(end, lie_at(cursor.head))),
    }
}

/// The receiving direction, which the caller holds, is on its way from one state to another.
fn mark_passage(end: &End) -> Mark<'static> {
    lock::mark(&end.entry.rx.lock, PASSAGE)
}

pub(crate) fn lie_at(line: u64) -> PeerLied {
    PeerLied::Header { header: 0, line }
}

fn pass(end: &End, lane: &WindowLane) {
    let mut cursor = end.rx_cursor();
    cursor.pass_control(lane);
    end.set_rx_cursor(cursor);
}

/// Discard the doorbells that are left on TCP after a STOP.
fn step_drain(end: &End, lane: &WindowLane) -> Result<Passage, Errno> {
    let rx = &end.entry.rx;
    loop {
        let left = left_on_tcp(end)?;
        if left == 0 {
            let _passage = mark_passage(end);
            rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
            bell::renew(end, lane);
            end.set_rx_mode(Mode::Tcp);
            entering::expect(end);
            return Ok(Passage::Again);
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let _counting = lock::mark(&rx.lock, COUNTING);
        match end.family().discard(end.fd(), most) {
            Ok(0) => {
                note_eof(end);
                return Ok(Passage::Out(Step::Nothing));
            }
            Ok(taken) => {
                add(&rx.tcp_bytes, taken as u64);
                end.count(Counter::BellsTaken, taken as u64);
                posted::note_taken(end);
            }
            Err(errno) => return Ok(Passage::Out(kernel_said(end, errno))),
        }
    }
}

/// Frozen: wait for the sender to say where on TCP its replay begins.
fn step_replay(
    end: &End,
    lane: &WindowLane,
    parts: &mut Parts<'_>,
    peek: bool,
) -> Result<Passage, Errno> {
    match end.rx_cursor().peek(lane) {
        // It had stopped already, with nothing left before its STOP.
        Ok(Next::Control(Control::Stop, _)) => {
            end.set_rx_mode(Mode::Ring);
            return Ok(Passage::Again);
        }
        Ok(Next::Control(Control::Closing, _)) => {
            pass(end, lane);
            return Ok(Passage::Closing);
        }
        _ => {}
    }
    let sender = &lane.control().sender;
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    if is_freeze_over(end, lane) {
        thaw(end, lane);
        return Ok(Passage::Again);
    }
    // SYNC: frozen
    if sender.replay_seq.load(Ordering::SeqCst) == seen {
        if lost::is_found(end) {
            return Ok(Passage::Out(Step::Nothing));
        }
        if let Some(bytes) = read_frozen(end, lane, parts, peek)? {
            return Ok(Passage::Out(Step::Bytes(bytes)));
        }
        if !has_peer_ended(end) {
            bell::take(end, lane);
            look_for_end(end);
        }
        // In this order: an answer comes before the word that the stream has ended.
        if !has_peer_ended(end)
            || lost::is_dry(end)
            || sender.replay_seq.load(Ordering::SeqCst) != seen
        {
            return Ok(Passage::Out(Step::Nothing));
        }
        if lost::is_found(end) {
            return Ok(Passage::Out(Step::Nothing));
        }
        // A sender that has shut down can send nothing again.
        thaw(end, lane);
        return Ok(Passage::Again);
    }
    let at = sender.replay_at.load(Ordering::Relaxed);
    if lost::is_found(end) {
        return Ok(Passage::Out(Step::Nothing));
    }
    if at == NO_REPLAY {
        thaw(end, lane);
        return Ok(Passage::Again);
    }
    match cut_short::expect(end, lane, at)? {
        true => Ok(Passage::Again),
        false => Ok(Passage::Out(Step::Nothing)),
    }
}

/// Take the freeze back if the sender has not begun to answer it. Between hosts it may have begun where we do not see
/// that: there an answer always comes, to who is in the lane.
pub(crate) fn take_back_freeze(end: &End, lane: &WindowLane) -> bool {
    if posted::is_posted(end) {
        return false;
    }
    let without = |flags| (flags & ANSWERED == 0).then_some(flags & !FROZEN);
    let flags = &lane.control().receiver.flags;
    flags
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, without) // SYNC: frozen
        .is_ok()
}

/// Whether [`read_frozen`] would give something now.
pub(crate) fn may_read_frozen(end: &End) -> bool {
    end.rx_lane().is_some_and(|lane| {
        let flags = lane.control().receiver.flags.load(Ordering::Relaxed);
        flags & ANSWERED == 0 && end.rx_cursor().has_data(&lane) && !posted::is_posted(end)
    })
}

/// A program that has given its socket away goes on reading: it gets what stands in the ring, which
/// stays frozen for the others.
fn read_frozen(
    end: &End,
    lane: &WindowLane,
    parts: &mut Parts<'_>,
    peek: bool,
) -> Result<Option<usize>, Errno> {
    let mut cursor = end.rx_cursor();
    if parts.left() == 0 || !cursor.has_data(lane) {
        return Ok(None);
    }
    let _passage = mark_passage(end);
    if !take_back_freeze(end, lane) {
        return Ok(None);
    }
    let bytes = match peek {
        true => cursor.copy_only(lane, parts),
        false => match cursor.read_if(lane, parts, || !lost::is_found(end)) {
            Ok(None) => return Ok(None),
            Ok(Some(taken)) => Ok(taken.bytes),
            Err(why) => Err(why),
        },
    };
    if lost::is_found(end) {
        return Ok(None);
    }
    end.set_rx_cursor(cursor);
    let flags = &lane.control().receiver.flags;
    flags.fetch_or(FROZEN, Ordering::SeqCst); // SYNC: frozen
    posted::tell_flags(end);
    let bytes = bytes.map_err(|why| failed(end, why))?;
    if !peek {
        add(&end.entry.rx.ring_bytes, bytes as u64);
    }
    Ok(Some(bytes))
}

/// Between hosts: whether the sender's stream has ended without an answer to our freeze. Who has said that it ends answers
/// nothing after that.
fn is_freeze_over(end: &End, lane: &WindowLane) -> bool {
    if !posted::is_posted(end) || !end.has_flags(end_flags::FROZEN) {
        return false;
    }
    let has_ended = || has_peer_ended(end) && !lost::is_dry(end);
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    let answers = &lane.control().sender.replay_seq;
    // In this order: an answer came before the end.
    (posted::is_over(end, lane) || has_ended()) && answers.load(Ordering::SeqCst) == seen
}

/// Read the ring after all.
pub(crate) fn thaw(end: &End, lane: &WindowLane) {
    let _passage = mark_passage(end);
    thaw_on_tcp(end, lane);
    end.set_rx_mode(Mode::Ring);
}

/// Take a freeze back before the stream has come into the ring.
pub(crate) fn thaw_on_tcp(end: &End, lane: &WindowLane) {
    let flags = &end.entry.id.flags;
    flags.fetch_and(!end_flags::FROZEN, Ordering::Relaxed);
    let told = &lane.control().receiver.flags;
    told.fetch_and(!(FROZEN | ANSWERED), Ordering::SeqCst);
    posted::tell_flags(end);
}

/// Whether something comes next before which a receive ends, also one that wants all. What stands in the lane may
/// come before it.
fn ends_on_tcp(end: &End, lane: &WindowLane) -> Result<bool, Errno> {
    if !ending::ends_receive(end) {
        return Ok(false);
    }
    if may_start(end) {
        find_start(end, lane)?;
    }
    Ok(left_on_tcp(end)? > 0)
}

/// Whether a START is looked for.
pub(crate) fn may_start(end: &End) -> bool {
    end.phase() == EndPhase::Granted
        && !end.has_flags(end_flags::FROZEN)
        && end.entry.rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX
}

/// On TCP, perhaps up to the count that a START has told.
fn step_tcp(
    end: &End,
    lane: &WindowLane,
    parts: &mut Parts<'_>,
    options: Options<'_>,
) -> Result<Passage, Errno> {
    let rx = &end.entry.rx;
    let mut most = usize::MAX;
    if is_freeze_over(end, lane) {
        // A START may have come since.
        thaw_on_tcp(end, lane);
    }
    if parts.left() == 0 {
        // Only passages are wanted; a look at TCP would take its error.
        if may_start(end) {
            find_start(end, lane)?;
        }
        if lost::is_found(end) {
            return Ok(Passage::Out(Step::Nothing));
        }
        if left_on_tcp(end)? > 0 {
            return Ok(Passage::Out(Step::Nothing));
        }
    }
    if may_start(end) {
        // The sender says START before it sends doorbells. So what TCP holds now is data, if no
        // START is seen after this look.
        let held = end.family().available(end.fd(), parts.left().max(1));
        find_start(end, lane)?;
        if lost::is_found(end) {
            return Ok(Passage::Out(Step::Nothing));
        }
        if rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX {
            let is_urgent = || is_at_urgent_byte(end, options);
            most = match held {
                // An own one, behind which the peer may say START and ring.
                Ok(0) if end.has_flags(end_flags::SHUT_READ) && !is_urgent() => {
                    note_eof(end);
                    return Ok(Passage::Out(Step::Nothing));
                }
                // The end of the stream, which the receive below finds again.
                Ok(0) => usize::MAX,
                Ok(held) => held,
                // An urgent byte that stands alone, which the kernel takes away. Who has sent one rings no
                // more.
                Err(Errno::AGAIN) if is_urgent() => usize::MAX,
                Err(errno) => return Ok(Passage::Out(kernel_said(end, errno))),
            };
        } else if let Err(errno) = held {
            kernel_said(end, errno);
        }
    }
    let left = left_on_tcp(end)?;
    if left == 0 {
        enter_ring(end, lane);
        return Ok(Passage::Again);
    }
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(most);
    let step = take_from_kernel(end, parts, most, options)?;
    if step != Step::Nothing && !options.peek {
        tell_taken(end, lane);
    }
    Ok(Passage::Out(step))
}

/// Another thread has let the lanes go while this call was under way: the kernel alone has the stream.
fn step_plain(
    end: &End,
    parts: &mut Parts<'_>,
    options: Options<'_>,
    goes_on: bool,
) -> Result<Step, Errno> {
    // What a receive that goes on found at the kernel might be an error, for the next call to be told.
    let is_over = goes_on && (!options.wait_all || ending::ends_receive(end));
    if parts.left() == 0 || is_over || !end.is_kernels() {
        return Ok(Step::Nothing);
    }
    take_from_kernel(end, parts, usize::MAX, options)
}

/// Receive `most` bytes at most from the kernel. The caller holds the receiving direction.
fn take_from_kernel(
    end: &End,
    parts: &mut Parts<'_>,
    most: usize,
    options: Options<'_>,
) -> Result<Step, Errno> {
    let _counting = (!options.peek).then(|| lock::mark(&end.entry.rx.lock, COUNTING));
    let mut cut = parts.clone();
    cut.truncate(most);
    let (bytes, is_last) = match receive_parts(end, &cut, options.peek, options.beside) {
        Ok((0, _)) => {
            note_eof(end);
            return Ok(Step::Nothing);
        }
        Ok(received) => received,
        // Of the buffer, not of the connection.
        Err(Errno::FAULT) => return Err(Errno::FAULT),
        Err(errno) => return Ok(kernel_said(end, errno)),
    };
    let is_cut = options.peek && bytes == most;
    let is_last = is_last && !(is_cut && peek::stands_behind(end, bytes));
    if !options.peek {
        // A call from before the grant may still be in the kernel and count at the same time.
        let rx = &end.entry.rx;
        rx.tcp_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        rx.tcp_data.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    parts.skip(bytes);
    Ok(match is_last {
        true => Step::Last(bytes),
        false => Step::Bytes(bytes),
    })
}

fn is_at_urgent_byte(end: &End, options: Options<'_>) -> bool {
    !options.peek
        && match end.family() {
            Family::Tcp => kernel::is_at_mark(end.fd()),
            Family::Unix => kernel::queued(end.fd(), libc::FIONREAD).is_ok_and(|bytes| bytes > 0),
        }
}

/// The kernel has reported the end of the stream to a receive.
fn note_eof(end: &End) {
    match end.family() {
        Family::Tcp => end.note_ending(Ending::Eof),
        Family::Unix => gone::note(end, None),
    }
}

/// Bytes between what has been taken from TCP and where the sender says that it leaves TCP. A
/// liar may have said so while a receive was inside the kernel.
pub(crate) fn left_on_tcp(end: &End) -> Result<u64, Errno> {
    let rx = &end.entry.rx;
    let (limit, taken) = (
        rx.tcp_limit.load(Ordering::Relaxed),
        rx.tcp_bytes.load(Ordering::Relaxed),
    );
    let left = limit.checked_sub(taken);
    left.ok_or_else(|| lied(end, lie_at(limit)))
}

/// Tell the sender how far TCP has been read: a full lane behind much data on TCP is no reason to
/// leave the lane.
fn tell_taken(end: &End, lane: &WindowLane) {
    let taken = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    let told = &lane.control().credit.tcp_taken;
    told.store(taken, Ordering::Relaxed);
    posted::tell_taken(end, lane);
}

/// One non-blocking receive into all pieces, up to a number that programs rarely pass. Returns the
/// bytes, and whether something came beside them.
pub(crate) fn receive_parts(
    end: &End,
    parts: &Parts<'_>,
    peek: bool,
    beside: Option<&Beside>,
) -> Result<(usize, bool), Errno> {
    let mut pieces = Pieces::of(parts.clone());
    if pieces.bytes() == 0 {
        return Err(Errno::AGAIN);
    }
    let mut message = pieces.message();
    let mut flags = if peek { libc::MSG_PEEK } else { 0 };
    if let Some(beside) = beside {
        flags |= beside.lend(&mut message);
    }
    // SAFETY: the pieces are valid, and laid out as the kernel wants them; whoever made `beside` has
    // promised the room for control messages.
    let bytes = unsafe { kernel::recvmsg(end.fd(), &raw mut message, flags) }?;
    if let Some(beside) = beside {
        beside.note(&message);
    }
    let is_last = end.family() == Family::Unix && ends_a_receive(&message);
    Ok((bytes, is_last))
}

/// Learn where the stream enters the lane, if a START stands there. The caller holds the receiving
/// direction.
pub(crate) fn find_start(end: &End, lane: &WindowLane) -> Result<(), Errno> {
    let cursor = end.rx_cursor();
    let received = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    let next = cursor.peek(lane);
    if lost::is_found(end) {
        return Ok(());
    }
    match next.map_err(|lie| lied(end, lie))? {
        Next::Empty => Ok(()),
        Next::Control(Control::Start, count) if count >= received => {
            end.entry.rx.tcp_limit.store(count, Ordering::Relaxed);
            entering::tell_found(end, lane, cursor.head + 1);
            Ok(())
        }
        _ => Err(lied(end, lie_at(cursor.head))),
    }
}

fn enter_ring(end: &End, lane: &WindowLane) {
    {
        let _passage = mark_passage(end);
        pass(end, lane);
        end.entry.rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
        let frozen = end.has_flags(end_flags::FROZEN);
        end.set_rx_mode(if frozen { Mode::Replay } else { Mode::Ring });
    }
    end.count(Counter::Upgrades, 1);
    // Whoever waits for edges has had that of an end that stands on TCP already.
    look_behind_bells(end);
}

/// The step that has come to this.
fn kernel_said(end: &End, errno: Errno) -> Step {
    if errno != Errno::AGAIN && errno != Errno::INTR {
        note_error(end, errno);
    }
    Step::Nothing
}

/// Take passages that need no bytes: START, STOP, drained doorbells.
pub fn settle(end: &End) {
    if end.phase() != EndPhase::Granted {
        return;
    }
    switch::advance(end);
    switch::attend(end);
    take_passages(end);
}

/// As [`settle`], for the receiving direction only.
pub(crate) fn take_passages(end: &End) {
    // SAFETY: no parts, hence no bytes are copied.
    if let Some(mut none) = unsafe { Parts::new(&[]) } {
        let _ = step(end, &mut none, Options::default(), false);
    }
}
