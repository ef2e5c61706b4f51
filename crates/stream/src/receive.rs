//! Receiving, as recv(2) does: read what is there, or wait for it.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{Ending, Mode, end_flags};
use crosslane_ring::trace::{Point, mark};
use crosslane_ring::{Part, Parts};
use crosslane_sys::interrupted::Mark;
use crosslane_sys::{Errno, cancel, kernel, program};

use crate::asleep::{must_look, take_late_bells, wait_readable};
use crate::beside::Beside;
use crate::ending::{at_end, failed, look_at_kernel};
use crate::family::Family;
use crate::interrupt::Interrupt;
use crate::stay::Stay;
use crate::step::{Step, settle, step};
use crate::wait::WaitedForRest;
use crate::{End, bell, cut_short, doubt, lost, patience, peek, place, switch, wait};

/// After so many empty non-blocking reads in a row the kernel is asked for the end of the stream,
/// for programs that poll by reading.
const EMPTY_READS_PER_LOOK: u32 = 16;

/// How to receive; the flags of recv(2) that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Where control messages of an AF_UNIX stream go.
    pub beside: Option<&'a Beside>,
    /// MSG_PEEK.
    pub peek: bool,
    /// MSG_DONTWAIT.
    pub dont_wait: bool,
    /// MSG_WAITALL.
    pub wait_all: bool,
    /// The call has received something before: a signal ends it, whatever SA_RESTART says.
    pub has_some: bool,
    /// Nothing has come in the moment that an answer takes.
    pub is_late: bool,
    /// When the call began, if it has looked before: a signal since then ends it. Set where it is begun again.
    pub since: Option<&'a Cell<Option<Mark>>>,
}

/// Receive into `parts` as recv(2) does.
///
/// # Errors
/// As recv(2); after a reset, once. [`Errno::RESTART`]: the descriptor is to be looked up again.
#[inline]
pub fn receive(end: &End, parts: &mut Parts<'_>, options: Options<'_>) -> Result<usize, Errno> {
    let (mut taken, mut waited) = (0, WaitedForRest::default());
    if end.rx_mode() == Mode::Ring && !options.peek {
        taken = match read_ring(end, parts) {
            Ok(taken) => taken,
            Err(errno) => return at_error(end, errno, 0),
        };
        if taken == 0
            && end.is_blocking()
            && !options.dont_wait
            && !options.is_late
            && place::is_worth_spinning(end)
            && wait::spin_briefly(|| end.watches_record())
        {
            taken = match read_ring(end, parts) {
                Ok(taken) => taken,
                Err(errno) => return at_error(end, errno, 0),
            };
        }
        loop {
            if is_enough(end, parts, options, (taken, &mut waited)) {
                take_late_bells(end);
                return Ok(taken);
            }
            if taken == 0 {
                break;
            }
            // More of the message has come.
            match read_ring(end, parts) {
                Ok(0) => break,
                Ok(more) => taken += more,
                Err(errno) => return at_error(end, errno, taken),
            }
        }
    }
    receive_slowly(end, parts, options, (taken, waited))
}

/// Whether a receive that has `taken` so much is over. A short one means that there was no more,
/// and a program that waits for edges takes it so: it must not end where the stream passes
/// between ring and TCP.
#[inline]
fn is_enough(
    end: &End,
    parts: &Parts<'_>,
    options: Options<'_>,
    (taken, waited): (usize, &mut WaitedForRest),
) -> bool {
    let is_at_end = || !options.wait_all && !end.has_record() && !is_at_passage(end);
    taken > 0 && (parts.left() == 0 || is_at_end() && !comes_rest(end, waited))
}

/// Whether the rest of a message comes of which some has been taken. Its sender is in the middle of the call: programs
/// expect to receive at once what was sent at once, as over TCP, where a message of some records becomes readable whole.
fn comes_rest(end: &End, waited: &mut WaitedForRest) -> bool {
    let goes_on = &end.local.goes_on;
    if end.rx_mode() != Mode::Ring || goes_on.load(Ordering::Relaxed) == 0 {
        return false;
    }
    // Waited for once; the next record says whether more follows.
    goes_on.store(0, Ordering::Relaxed);
    wait::wait_for_rest(place::peer(end), waited, || end.has_record())
}

/// Whether the stream goes on elsewhere than where the last bytes came from.
fn is_at_passage(end: &End) -> bool {
    match end.rx_mode() {
        Mode::Ring => false,
        // Without the direction, which another thread may be moving.
        Mode::Tcp => {
            let rx = &end.entry.rx;
            rx.tcp_limit.load(Ordering::Relaxed) == rx.tcp_bytes.load(Ordering::Relaxed)
                || cut_short::goes_on(end)
        }
        Mode::Drain | Mode::Replay => true,
    }
}

/// Data of the ring only; 0 when a control record or nothing comes next.
#[inline]
fn read_ring(end: &End, parts: &mut Parts<'_>) -> Result<usize, Errno> {
    mark(Point::Seen);
    let taken = {
        let _rx = end.lock_rx();
        let Some(lane) = end.rx_lane().filter(|_| end.rx_mode() == Mode::Ring) else {
            return Ok(0);
        };
        let mut cursor = end.rx_cursor();
        let before = end.has_flags(end_flags::FAR).then(|| parts.clone());
        let taken = cursor
            .read_if(&lane, parts, || !lost::is_found(end))
            .map_err(|why| failed(end, why))?;
        let Some(taken) = taken else {
            *parts = before.unwrap_or_else(|| parts.clone());
            return Ok(0);
        };
        end.set_rx_cursor(cursor);
        end.note_taken(taken);
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
    options: Options<'_>,
    (mut total, mut waited): (usize, WaitedForRest),
) -> Result<usize, Errno> {
    let whole = parts.clone();
    let mut interrupt = Interrupt::of_receive(end, options);
    let (mut watch, mut stay, mut waits) = (None, None, None);
    loop {
        switch::advance(end);
        switch::attend(end);
        // Known before the look, the end comes after all data; another thread may learn of it
        // meanwhile.
        let (stood, ended) = (lost::standing(end), is_over(end));
        match step(end, parts, options, total > 0) {
            Ok(Step::Last(bytes)) => return Ok(total + bytes),
            Ok(Step::Bytes(bytes)) if options.peek => {
                stay_for_all(end, options, &mut stay)?;
                let waiting = (&mut watch, &mut interrupt, &mut waits);
                if let Some(bytes) = peeked(end, parts, &whole, (bytes, options), waiting)? {
                    return Ok(bytes);
                }
                *parts = whole.clone();
                continue;
            }
            Ok(Step::Bytes(bytes)) => {
                total += bytes;
                if is_enough(end, parts, options, (total, &mut waited)) {
                    take_late_bells(end);
                    return Ok(total);
                }
                continue;
            }
            Ok(Step::Nothing) => {}
            Err(errno) => return at_error(end, errno, total),
        }
        if total > 0 && !options.wait_all {
            return Ok(total);
        }
        if ended && is_void(end, stood) {
            continue;
        }
        if ended && let Some(told) = at_end_behind(end, total) {
            return told;
        }
        if end.ending() != Ending::Open && !lost::is_dry(end) {
            continue;
        }
        if !may_wait(end, options, &mut waits) {
            if finds_more(end) {
                continue;
            }
            // The end may just have been seen, and be in doubt.
            lost::look(end);
            return (total > 0).then_some(total).ok_or(Errno::AGAIN);
        }
        watch = None;
        let has_some = options.has_some || total > 0;
        let stayed = Stay::begin_once(&mut stay, end);
        let wait = || wait_readable(end, has_some, &mut interrupt);
        match stayed.and_then(|()| cancel::guarded(&stay, wait)) {
            Ok(()) => {}
            Err(_) if total > 0 => return Ok(total),
            Err(errno) => return Err(interrupt.ends_by(options, errno)),
        }
    }
}

/// Sleep once as a receive does, until there is something, an end, or no time left. Nothing is taken, and no error of the
/// connection is told.
///
/// # Errors
/// EBADF if the descriptor is being closed.
pub fn wait_for_some(end: &End) -> Result<(), Errno> {
    let stay = Stay::begin(end)?;
    let options = Options {
        peek: true,
        ..Options::default()
    };
    let mut interrupt = Interrupt::of_receive(end, options);
    while is_void_of_all(end, options) {
        // As one that has got something, it is not begun again after a signal.
        let wait = || wait_readable(end, true, &mut interrupt);
        if cancel::guarded(&stay, wait).is_err() {
            break;
        }
    }
    Ok(())
}

/// Whether a look finds neither a byte nor an end.
fn is_void_of_all(end: &End, options: Options<'_>) -> bool {
    switch::advance(end);
    switch::attend(end);
    let mut byte = [0];
    let part = [Part::of_mut(&mut byte)];
    // SAFETY: the part is the byte above.
    let Some(mut parts) = (unsafe { Parts::new(&part) }) else {
        return false;
    };
    let found = step(end, &mut parts, options, false);
    let has_ended = end.ending() != Ending::Open && !lost::is_dry(end);
    found == Ok(Step::Nothing) && !has_ended
}

/// What a receive is told at the end that has got so much before. Over AF_UNIX one that wants all takes the error and tells of
/// what it has got, so that nobody is told of it (unix_stream_read_generic in net/unix/af_unix.c). None where it is not known
/// that nothing is missing before the end.
fn at_end_behind(end: &End, total: usize) -> Option<Result<usize, Errno>> {
    if total > 0 && end.family() == Family::Tcp {
        return Some(Ok(total));
    }
    let told = at_end(end);
    match told {
        Ok(_) if doubt::opens_behind_reset(end) => return None,
        Ok(_) => lost::note_read_out(end),
        Err(_) => doubt::note_told(end),
    }
    Some(if total > 0 { Ok(total) } else { told })
}

/// What a receive is told by an error that has got so much before. That the peer has lied is told once, as any reset, whoever
/// has found it.
#[cold]
fn at_error(end: &End, errno: Errno, total: usize) -> Result<usize, Errno> {
    match errno {
        _ if total > 0 => Ok(total),
        Errno::CONNRESET if end.reason() == Reason::PeerLied => {
            at_end(end).inspect(|_| lost::note_read_out(end))
        }
        errno => Err(errno),
    }
}

/// Whether the call may wait, which is decided once: what a program makes of O_NONBLOCK meanwhile is for later calls.
fn may_wait(end: &End, options: Options<'_>, waits: &mut Option<bool>) -> bool {
    *waits.get_or_insert_with(|| !options.dont_wait && !end.is_nonblocking())
}

/// Whether a receive that must not wait finds something when it looks at the kernel.
fn finds_more(end: &End) -> bool {
    if !is_look_due(end) || lost::is_dry(end) {
        return false;
    }
    look_at_kernel(end);
    end.ending() != Ending::Open || must_look(end)
}

/// Whether nothing comes behind what is there.
fn is_over(end: &End) -> bool {
    end.has_flags(end_flags::SHUT_READ) || !lost::is_dry(end) && end.ending() != Ending::Open
}

/// Whether a look was at lanes that had gone meanwhile, have just been filled again, or may miss something: nothing
/// there is no end.
fn is_void(end: &End, stood: u32) -> bool {
    let is_unknown = lost::is_unknown(end) || lost::standing(end) != stood;
    is_unknown && !end.has_flags(end_flags::SHUT_READ) && !doubt::is_cut_off(end)
}

/// A peek for all waits by naps, and keeps the connection meanwhile.
fn stay_for_all(end: &End, options: Options<'_>, stay: &mut Option<Stay>) -> Result<(), Errno> {
    match options.wait_all {
        true => Stay::begin_once(stay, end),
        false => Ok(()),
    }
}

/// What a peek answers that has seen `bytes` on one side of a passage; `None` if it must look again.
fn peeked<'a>(
    end: &End,
    parts: &mut Parts<'a>,
    whole: &Parts<'a>,
    (mut bytes, options): (usize, Options<'_>),
    waiting: (&mut Option<Watch>, &mut Interrupt, &mut Option<bool>),
) -> Result<Option<usize>, Errno> {
    // Known before the look: what stands before an end, or before an urgent byte, is all there is, on TCP too,
    // where the end is taken notice of behind the data only.
    let is_over = options.wait_all && (has_kernel_end(end) || has_mark_ahead(end));
    if parts.left() > 0 {
        *parts = whole.clone();
        bytes = peek::peek_on(end, parts, options.beside)?;
        if bytes == 0 {
            // Another thread has just taken it.
            return Ok(None);
        }
    }
    let is_all = || parts.left() == 0 || !options.wait_all || is_over || !is_room(whole);
    let is_enough = is_all() || !waits_for_more(end, options, waiting);
    Ok(is_enough.then_some(bytes))
}

/// Whether more can be stored than is there by now.
fn is_room(whole: &Parts<'_>) -> bool {
    let mut rest = whole.clone();
    let mut pieces = std::iter::from_fn(|| rest.take(usize::MAX));
    pieces.all(|(start, bytes)| program::writable(start, bytes) == bytes)
}

/// Whether the kernel has seen the end of the stream.
fn has_kernel_end(end: &End) -> bool {
    let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    kernel::poll_now(end.fd(), libc::POLLRDHUP) & ends != 0
}

/// Whether an urgent byte has arrived behind others, before which a receive ends.
fn has_mark_ahead(end: &End) -> bool {
    end.family() == Family::Tcp
        && kernel::poll_now(end.fd(), libc::POLLPRI) & libc::POLLPRI != 0
        && !kernel::is_at_mark(end.fd())
}

/// A peek that wants all it asked for must look again, because what it has seen stays there.
/// Returns whether more may come; a signal ends the wait, and SO_RCVTIMEO does.
fn waits_for_more(
    end: &End,
    options: Options<'_>,
    (watch, interrupt, waits): (&mut Option<Watch>, &mut Interrupt, &mut Option<bool>),
) -> bool {
    look_at_kernel(end);
    if end.ending() != Ending::Open || !may_wait(end, options, waits) {
        return false;
    }
    let watch = watch.get_or_insert_with(|| Watch::new(end));
    interrupt.hold_all();
    watch.goes_on(interrupt)
}

/// The wait of a peek for all that it wants.
struct Watch {
    deadline: Option<Instant>,
}

impl Watch {
    fn new(end: &End) -> Self {
        Self {
            deadline: patience::time_limit(end).and_then(|limit| Instant::now().checked_add(limit)),
        }
    }

    /// Nap. Returns whether to look again.
    fn goes_on(&self, interrupt: &Interrupt) -> bool {
        let is_late = || {
            self.deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
        };
        !is_late() && interrupt.nap(Duration::from_micros(500)).is_ok()
    }
}

/// Whether an urgent byte comes next, before which a splice ends.
pub fn is_before_urgent_byte(end: &End) -> bool {
    settle(end);
    end.family() == Family::Tcp && end.rx_mode() == Mode::Tcp && kernel::is_at_mark(end.fd())
}

fn is_look_due(end: &End) -> bool {
    let reads = end.entry.wait.empty_reads.fetch_add(1, Ordering::Relaxed);
    // A direction that is not in the ring has looked at TCP already.
    reads.is_multiple_of(EMPTY_READS_PER_LOOK)
        || end.rx_mode() != Mode::Ring
        || end.family() == Family::Unix
}

/// Bytes that a receive would give now, for FIONREAD.
pub fn readable_bytes(end: &End) -> Result<usize, Errno> {
    settle(end);
    peek::count(end)
}
