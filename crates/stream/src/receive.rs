//! Receiving: ring, TCP up to a known count, or the passage between them.

use core::sync::atomic::Ordering;

use crosslane_ctl::counter::Counter;
use crosslane_ctl::lane::NO_REPLAY;
use crosslane_ctl::lane::receiver_flags::{CLOSED, FROZEN};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{Control, LaneMemory, Next, Part, Parts, PeerLied, WindowLane};
use crosslane_sys::{Errno, kernel, real};

use crate::end::add;
use crate::{End, bell, close, control, place, send, switch, wait};

/// After so many empty non-blocking reads in a row the kernel is asked for the end of the stream,
/// for programs that poll by reading.
const EMPTY_READS_PER_LOOK: u32 = 16;

/// Pieces of a program's buffer that one receive from TCP fills.
const MOST_PIECES: usize = 64;

/// A pause while others have to take notice of a doorbell.
const NAP: core::time::Duration = core::time::Duration::from_micros(50);

/// How to receive; the flags of recv(2) that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// MSG_PEEK.
    pub peek: bool,
    /// MSG_DONTWAIT.
    pub dont_wait: bool,
    /// MSG_WAITALL.
    pub wait_all: bool,
}

/// What one look at the stream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
}

/// Receive into `parts` as recv(2) does.
///
/// # Errors
/// As recv(2); after a reset, once.
#[inline]
pub fn receive(end: &End, parts: &mut Parts<'_>, options: Options) -> Result<usize, Errno> {
    let mut taken = 0;
    if end.rx_mode() == Mode::Ring && !options.peek {
        taken = read_ring(end, parts)?;
        if taken == 0
            && end.is_blocking()
            && !options.dont_wait
            && place::is_worth_spinning(end)
            && wait::spin_briefly(|| end.has_record())
        {
            taken = read_ring(end, parts)?;
        }
        if is_enough(end, parts, options, taken) {
            take_late_bells(end);
            return Ok(taken);
        }
    }
    let outcome = receive_slowly(end, parts, options, taken);
    if end.local.kept.load(Ordering::Relaxed) != 0 {
        close::finish_kept(end);
    }
    outcome
}

/// Whether a receive that has `taken` so much is over. A short one means that there was no more,
/// and a program that waits for edges takes it so: it must not end where the stream passes
/// between ring and TCP.
#[inline]
fn is_enough(end: &End, parts: &Parts<'_>, options: Options, taken: usize) -> bool {
    taken > 0 && (parts.left() == 0 || !options.wait_all && !end.has_record())
}

/// Data of the ring only; 0 when a control record or nothing comes next.
#[inline]
fn read_ring(end: &End, parts: &mut Parts<'_>) -> Result<usize, Errno> {
    let Some(lane) = end.rx_lane() else {
        return Ok(0);
    };
    let taken = {
        let _rx = end.lock_rx();
        if end.rx_mode() != Mode::Ring {
            return Ok(0);
        }
        let mut cursor = end.rx_cursor();
        let taken = cursor.read(&lane, parts).map_err(|lie| lied(end, lie))?;
        end.set_rx_cursor(cursor);
        add(&end.entry.rx.ring_bytes, taken.bytes as u64);
        taken
    };
    if taken.passed_quarter {
        bell::answer_space(end);
    }
    Ok(taken.bytes)
}

#[cold]
fn receive_slowly(
    end: &End,
    parts: &mut Parts<'_>,
    options: Options,
    mut total: usize,
) -> Result<usize, Errno> {
    let whole = parts.clone();
    loop {
        switch::advance(end);
        switch::attend(end);
        // Known before the look, the end comes after all data; another thread may learn of it
        // meanwhile.
        let ended = end.ending() != Ending::Open;
        match step(end, parts, options.peek, total > 0) {
            Ok(Step::Bytes(bytes)) if options.peek => {
                if parts.left() == 0 || !options.wait_all || !waits_for_more(end, options) {
                    return Ok(bytes);
                }
                *parts = whole.clone();
                continue;
            }
            Ok(Step::Bytes(bytes)) => {
                total += bytes;
                if is_enough(end, parts, options, total) {
                    take_late_bells(end);
                    return Ok(total);
                }
                continue;
            }
            Ok(Step::Nothing) => {}
            Err(_) if total > 0 => return Ok(total),
            Err(errno) => return Err(errno),
        }
        if total > 0 && !options.wait_all {
            return Ok(total);
        }
        if ended {
            return if total > 0 { Ok(total) } else { at_end(end) };
        }
        if end.ending() != Ending::Open {
            continue;
        }
        if options.dont_wait || end.is_nonblocking() {
            if is_look_due(end) {
                look_at_kernel(end);
                if end.ending() != Ending::Open || end.has_record() {
                    continue;
                }
            }
            return if total > 0 {
                Ok(total)
            } else {
                Err(Errno::AGAIN)
            };
        }
        match wait_readable(end) {
            Ok(()) => {}
            Err(_) if total > 0 => return Ok(total),
            Err(errno) => return Err(errno),
        }
    }
}

/// A peek that wants all it asked for must look again, because what it has seen stays there.
/// Returns whether more may come.
fn waits_for_more(end: &End, options: Options) -> bool {
    look_at_kernel(end);
    if options.dont_wait || end.is_nonblocking() || end.ending() != Ending::Open {
        return false;
    }
    kernel::nap(core::time::Duration::from_micros(100));
    true
}

fn is_look_due(end: &End) -> bool {
    let reads = end.entry.wait.empty_reads.fetch_add(1, Ordering::Relaxed);
    // A direction that is not in the ring has looked at TCP already.
    reads.is_multiple_of(EMPTY_READS_PER_LOOK) || end.rx_mode() != Mode::Ring
}

/// What to say when the stream has ended and nothing is left: the error, once, or its end.
fn at_end(end: &End) -> Result<usize, Errno> {
    match end.entry.wait.error.swap(0, Ordering::Relaxed) {
        0 => Ok(0),
        error => Err(Errno(error)),
    }
}

/// The peer broke the ring's rules: the connection is reset, nothing else is touched.
#[cold]
pub(crate) fn lied(end: &End, _lie: PeerLied) -> Errno {
    end.count(Counter::PeerLies, 1);
    end.add_flags(end_flags::PINNED);
    end.set_reason(Reason::PeerLied);
    end.process().count_reason(Reason::PeerLied);
    end.note_ending(Ending::Reset);
    close::reset_on_close(end);
    let _ = kernel::shutdown(end.fd(), libc::SHUT_RDWR);
    Errno::CONNRESET
}

/// One attempt to get bytes from wherever the stream is now. `goes_on` says that the call has got
/// some already.
pub(crate) fn step(
    end: &End,
    parts: &mut Parts<'_>,
    peek: bool,
    goes_on: bool,
) -> Result<Step, Errno> {
    let Some(lane) = end.rx_lane() else {
        return Ok(Step::Nothing);
    };
    let guard = end.lock_rx();
    let mut closing = false;
    // A lap has room for so many control records; only a liar has more.
    for _ in 0..=lane.lines() {
        let outcome = match end.rx_mode() {
            Mode::Ring => step_ring(end, &lane, parts, peek),
            Mode::Drain => step_drain(end),
            Mode::Replay => step_replay(end, &lane),
            // A receive ends before urgent data.
            Mode::Tcp if goes_on && kernel::is_at_mark(end.fd()) => Ok(Passage::Out(Step::Nothing)),
            Mode::Tcp => step_tcp(end, &lane, parts, peek),
        }?;
        match outcome {
            Passage::Again => {}
            Passage::Closing => closing = true,
            Passage::Out(Step::Nothing) if closing => {
                look_behind_bells(end);
                return Ok(Step::Nothing);
            }
            Passage::Out(step) => {
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
    match cursor.peek(lane).map_err(|lie| lied(end, lie))? {
        Next::Empty => Ok(Passage::Out(Step::Nothing)),
        Next::Data(_) if peek => {
            let bytes = cursor
                .copy_only(lane, parts)
                .map_err(|lie| lied(end, lie))?;
            Ok(Passage::Out(Step::Bytes(bytes)))
        }
        Next::Data(_) => {
            let taken = cursor.read(lane, parts).map_err(|lie| lied(end, lie))?;
            end.set_rx_cursor(cursor);
            add(&end.entry.rx.ring_bytes, taken.bytes as u64);
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
            pass(end, lane);
            end.entry.rx.tcp_limit.store(count, Ordering::Relaxed);
            end.set_rx_mode(Mode::Drain);
            Ok(Passage::Again)
        }
        Next::Control(Control::Start, _) => Err(lied(end, lie_at(cursor.head))),
    }
}

fn lie_at(line: u64) -> PeerLied {
    PeerLied::Header { header: 0, line }
}

fn pass(end: &End, lane: &WindowLane) {
    let mut cursor = end.rx_cursor();
    cursor.pass_control(lane);
    end.set_rx_cursor(cursor);
}

/// Discard the doorbells that are left on TCP after a STOP.
fn step_drain(end: &End) -> Result<Passage, Errno> {
    let rx = &end.entry.rx;
    loop {
        let left = left_on_tcp(end)?;
        if left == 0 {
            rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
            end.set_rx_mode(Mode::Tcp);
            return Ok(Passage::Again);
        }
        match kernel::discard(end.fd(), usize::try_from(left).unwrap_or(usize::MAX)) {
            Ok(0) => {
                end.note_ending(Ending::Eof);
                return Ok(Passage::Out(Step::Nothing));
            }
            Ok(taken) => {
                add(&rx.tcp_bytes, taken as u64);
                end.count(Counter::BellsTaken, taken as u64);
            }
            Err(errno) => return kernel_said(end, errno),
        }
    }
}

/// Frozen: wait for the sender to say where on TCP its replay begins.
fn step_replay(end: &End, lane: &WindowLane) -> Result<Passage, Errno> {
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
    // SYNC: frozen
    if sender.replay_seq.load(Ordering::SeqCst) == seen {
        if end.ending() == Ending::Open {
            bell::take(end, lane);
            look_for_end(end);
        }
        if end.ending() == Ending::Open || sender.replay_seq.load(Ordering::SeqCst) != seen {
            return Ok(Passage::Out(Step::Nothing));
        }
        // A sender that has shut down can send nothing again.
        thaw(end, lane);
        return Ok(Passage::Again);
    }
    let at = sender.replay_at.load(Ordering::Relaxed);
    if at == NO_REPLAY {
        thaw(end, lane);
        return Ok(Passage::Again);
    }
    if at < end.entry.rx.tcp_bytes.load(Ordering::Relaxed) {
        return Err(lied(end, lie_at(at)));
    }
    end.entry.rx.tcp_limit.store(at, Ordering::Relaxed);
    end.set_rx_mode(Mode::Drain);
    Ok(Passage::Again)
}

/// Read the ring after all.
fn thaw(end: &End, lane: &WindowLane) {
    let flags = &end.entry.id.flags;
    flags.fetch_and(!end_flags::FROZEN, Ordering::Relaxed);
    let told = &lane.control().receiver.flags;
    told.fetch_and(!FROZEN, Ordering::SeqCst);
    end.set_rx_mode(Mode::Ring);
}

/// On TCP, perhaps up to the count that a START has told.
fn step_tcp(
    end: &End,
    lane: &WindowLane,
    parts: &mut Parts<'_>,
    peek: bool,
) -> Result<Passage, Errno> {
    let rx = &end.entry.rx;
    let mut most = usize::MAX;
    let may_start = end.phase() == EndPhase::Granted && !end.has_flags(end_flags::FROZEN);
    if may_start && rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX {
        // The sender says START before it sends doorbells. So what TCP holds now is data, if no
        // START is seen after this look.
        let held = kernel::available(end.fd(), parts.left().max(1));
        find_start(end, lane)?;
        if rx.tcp_limit.load(Ordering::Relaxed) == u64::MAX {
            most = match held {
                // The end of the stream, which the receive below finds again.
                Ok(0) => usize::MAX,
                Ok(held) => held,
                Err(errno) => return kernel_said(end, errno),
            };
        } else if let Err(errno) = held {
            let _ = kernel_said(end, errno);
        }
    }
    let left = left_on_tcp(end)?;
    if left == 0 {
        enter_ring(end, lane);
        return Ok(Passage::Again);
    }
    let mut cut = parts.clone();
    cut.truncate(usize::try_from(left).unwrap_or(usize::MAX).min(most));
    let bytes = match receive_parts(end, &mut cut, peek) {
        Ok(0) => {
            end.note_ending(Ending::Eof);
            return Ok(Passage::Out(Step::Nothing));
        }
        Ok(bytes) => bytes,
        Err(errno) => return kernel_said(end, errno),
    };
    if !peek {
        // A call from before the grant may still be in the kernel and count at the same time.
        rx.tcp_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        rx.tcp_data.fetch_add(bytes as u64, Ordering::Relaxed);
        tell_taken(end, lane);
    }
    parts.skip(bytes);
    Ok(Passage::Out(Step::Bytes(bytes)))
}

/// Bytes between what has been taken from TCP and where the sender says that it leaves TCP. A
/// liar may have said so while a receive was inside the kernel.
fn left_on_tcp(end: &End) -> Result<u64, Errno> {
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
}

/// One non-blocking receive into all pieces, up to a number that programs rarely pass.
fn receive_parts(end: &End, parts: &mut Parts<'_>, peek: bool) -> Result<usize, Errno> {
    let mut pieces = [const { Part::EMPTY }; MOST_PIECES];
    let mut count = 0;
    while count < MOST_PIECES
        && let Some((start, bytes)) = parts.take(usize::MAX)
    {
        pieces[count] = Part { start, bytes };
        count += 1;
    }
    if count == 0 {
        return Err(Errno::AGAIN);
    }
    // SAFETY: msghdr is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr().cast();
    message.msg_iovlen = count;
    let flags = if peek { libc::MSG_PEEK } else { 0 };
    // SAFETY: `take` hands out valid pieces, which are laid out as the kernel wants them.
    unsafe { kernel::recvmsg(end.fd(), &raw mut message, flags) }
}

/// Learn where the stream enters the lane, if a START stands there. The caller holds the receiving
/// direction.
pub(crate) fn find_start(end: &End, lane: &WindowLane) -> Result<(), Errno> {
    let cursor = end.rx_cursor();
    let received = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    match cursor.peek(lane).map_err(|lie| lied(end, lie))? {
        Next::Empty => Ok(()),
        Next::Control(Control::Start, count) if count >= received => {
            end.entry.rx.tcp_limit.store(count, Ordering::Relaxed);
            Ok(())
        }
        _ => Err(lied(end, lie_at(cursor.head))),
    }
}

fn enter_ring(end: &End, lane: &WindowLane) {
    pass(end, lane);
    end.entry.rx.tcp_limit.store(u64::MAX, Ordering::Relaxed);
    let frozen = end.has_flags(end_flags::FROZEN);
    end.set_rx_mode(if frozen { Mode::Replay } else { Mode::Ring });
    end.count(Counter::Upgrades, 1);
    // Whoever waits for edges has had that of an end that stands on TCP already.
    look_behind_bells(end);
}

fn kernel_said(end: &End, errno: Errno) -> Result<Passage, Errno> {
    if errno != Errno::AGAIN && errno != Errno::INTR {
        note_error(end, errno);
    }
    Ok(Passage::Out(Step::Nothing))
}

pub(crate) fn note_error(end: &End, errno: Errno) {
    end.entry.wait.error.store(errno.0, Ordering::Relaxed);
    end.note_ending(Ending::Reset);
}

/// Ask the kernel whether the stream has ended, behind the doorbells on TCP.
pub(crate) fn look_at_kernel(end: &End) {
    let _rx = end.lock_rx();
    look_behind_bells(end);
}

/// As [`look_at_kernel`]; the caller holds the receiving direction.
fn look_behind_bells(end: &End) {
    take_bells(end, 0);
    look_for_end(end);
}

/// A doorbell has woken the caller.
pub(crate) fn note_bell(end: &End) {
    end.local.rung.store(1, Ordering::Relaxed);
}

/// Take the doorbell that has woken us, now that what it announced has been read. One that is left
/// when the process ends would make the kernel reset the connection.
#[inline]
pub(crate) fn take_late_bells(end: &End) {
    if end.local.rung.load(Ordering::Relaxed) != 0 && !end.has_record() {
        take_bells_now(end);
    }
}

#[cold]
fn take_bells_now(end: &End) {
    let _rx = end.lock_rx();
    take_bells(end, 0);
}

/// Take the doorbells off TCP unless there is something to read, or others than the caller, who
/// counts as `own`, sleep for them. The caller holds the receiving direction.
pub(crate) fn take_bells(end: &End, own: u32) {
    if end.rx_mode() != Mode::Ring {
        return;
    }
    let Some(lane) = end.rx_lane() else { return };
    if !bell::is_for_us_alone(end, &lane, own) {
        return;
    }
    if end.entry.wait.armed.load(Ordering::Relaxed) != 0 {
        // Somebody sleeps, and may never see the doorbell. What comes from now on rings again.
        bell::arm(end, &lane);
    }
    bell::take_if_empty(end, &lane);
}

/// As [`look_at_kernel`]. Returns whether TCP holds bytes before any end. The caller holds the
/// receiving direction.
fn look_for_end(end: &End) -> bool {
    match kernel::available(end.fd(), 1) {
        Ok(0) => note_eof(end),
        Ok(_) => {
            // Doorbells that others wait for may hide it.
            if end.rx_mode() == Mode::Ring
                && kernel::poll_now(end.fd(), libc::POLLRDHUP) & libc::POLLRDHUP != 0
            {
                match kernel::getsockopt(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR) {
                    Ok(0) | Err(_) => note_eof(end),
                    Ok(error) => note_error(end, Errno(error)),
                }
            }
            return true;
        }
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => note_error(end, errno),
    }
    false
}

/// The kernel has reported the end of the stream. If the peer has not consumed all of ours, it
/// may have been killed: TCP would have reset the connection, and a probe finds out.
pub(crate) fn note_eof(end: &End) {
    end.note_ending(Ending::Eof);
    let by_us = end.entry.id.flags.load(Ordering::Relaxed)
        & (end_flags::SHUT_READ | end_flags::SHUT_WRITE)
        != 0;
    if by_us || send::unconsumed_bytes(end) == 0 {
        return;
    }
    bell::probe(end, CLOSED);
    let is_reset = kernel::poll_now(end.fd(), 0) & (libc::POLLERR | libc::POLLHUP) != 0;
    // A peer that has read all of it meanwhile, and then closed, has closed in good order.
    if is_reset && send::unconsumed_bytes(end) > 0 {
        let _ = kernel::getsockopt::<i32>(end.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        note_error(end, Errno::CONNRESET);
    }
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
        let _ = step(end, &mut none, false, false);
    }
}

/// Spin, then sleep in the kernel on the program's own socket, until something may have come.
///
/// # Errors
/// EINTR and EAGAIN as the kernel gives them to a receive: by SA_RESTART and SO_RCVTIMEO.
fn wait_readable(end: &End) -> Result<(), Errno> {
    if end.rx_mode() == Mode::Ring {
        if place::is_worth_spinning(end) && wait::spin(|| end.has_record()) {
            end.count(Counter::SpinHits, 1);
            return Ok(());
        }
        end.count(Counter::SpinMisses, 1);
    }
    end.entry.wait.sleepers.fetch_add(1, Ordering::SeqCst);
    let outcome = if prepare_sleep(end) {
        sleep(end)
    } else {
        Ok(())
    };
    end.entry.wait.sleepers.fetch_sub(1, Ordering::SeqCst);
    after_sleep(end);
    outcome
}

/// Arm, and look once more. Returns whether the caller may sleep until TCP has something to read.
pub fn prepare_sleep(end: &End) -> bool {
    let Some(lane) = end.rx_lane() else {
        return true;
    };
    {
        let _rx = end.lock_rx();
        bell::arm(end, &lane);
    }
    let found = must_look(end);
    // A sender that found its lane full rings us not; this is the last look before the sleep.
    bell::answer_space(end);
    switch::attend(end);
    !found
}

/// Whether a record stands in the lane that a look would act on. While TCP has to deliver
/// something first, the record is no reason to stay awake.
fn must_look(end: &End) -> bool {
    let waits_for_tcp = match end.rx_mode() {
        Mode::Ring => false,
        Mode::Tcp => end.entry.rx.tcp_limit.load(Ordering::Relaxed) != u64::MAX,
        Mode::Drain | Mode::Replay => true,
    };
    !waits_for_tcp && end.has_record()
}

/// After a sleep: nobody needs to ring any more, unless others still sleep.
pub fn after_sleep(end: &End) {
    let Some(lane) = end.rx_lane() else { return };
    let _rx = end.lock_rx();
    let wait = &end.entry.wait;
    if wait.sleepers.load(Ordering::SeqCst) == 0 && wait.epolls.load(Ordering::Relaxed) == 0 {
        bell::disarm(end, &lane);
    } else if end.entry.wait.armed.load(Ordering::Relaxed) != 0 {
        // The doorbell that woke us was for the others, too.
        bell::arm(end, &lane);
    }
}

fn sleep(end: &End) -> Result<(), Errno> {
    end.count(Counter::Sleeps, 1);
    control::tend();
    let mut byte = 0u8;
    // SAFETY: the byte is valid for one write. Peeking leaves the doorbell to all who sleep here,
    // and a receive restarts after signals and obeys SO_RCVTIMEO exactly as the program's own.
    let result = unsafe { real::recv(end.fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
    match crosslane_sys::errno::check(result) {
        Ok(0) => {
            note_eof(end);
            Ok(())
        }
        Ok(_) => {
            answer_bell(end);
            Ok(())
        }
        Err(errno @ (Errno::AGAIN | Errno::INTR)) => Err(errno),
        Err(errno) => {
            note_error(end, errno);
            Ok(())
        }
    }
}

/// TCP has something to read. A doorbell that cannot be taken now, because others sleep for it or
/// because it is not announced yet, would end the next sleep at once.
fn answer_bell(end: &End) {
    note_bell(end);
    if end.rx_mode() == Mode::Tcp || end.has_record() {
        return;
    }
    let is_left = {
        let _rx = end.lock_rx();
        take_bells(end, 1);
        look_for_end(end)
    };
    if is_left && !end.has_record() {
        end.count(Counter::Backoffs, 1);
        kernel::nap(NAP);
    }
}

/// Bytes that a receive would give now, for FIONREAD.
pub fn readable_bytes(end: &End) -> Result<usize, Errno> {
    settle(end);
    let Some(lane) = end.rx_lane() else {
        return Ok(0);
    };
    let _rx = end.lock_rx();
    if end.rx_mode() == Mode::Ring {
        return end
            .rx_cursor()
            .readable(&lane, usize::MAX)
            .map_err(|lie| lied(end, lie));
    }
    let queued = kernel::queued(end.fd(), libc::FIONREAD)?;
    let left = left_on_tcp(end)?;
    Ok((queued as usize).min(usize::try_from(left).unwrap_or(usize::MAX)))
}
