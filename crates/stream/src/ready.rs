//! Readiness of a granted end, as poll(2) tells it, for the layers that know poll sets.
//!
//! The ring answers for the modes that are in the ring; the kernel answers for the rest. Bits are
//! those of poll(2), which epoll shares.

use core::sync::atomic::Ordering;

use crosslane_ctl::slab::{EndPhase, Ending, Mode, end_flags};
use crosslane_ring::{LaneMemory, Moment, Next, RxCursor, WindowLane};
use crosslane_sys::kernel;
use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};

use crate::family::Family;
use crate::{
    End, asleep, bell, doubt, ending, gone, kernel_view, lost, posted, replay, send, stay, step,
    switch,
};

const READ: i16 = POLLIN | POLLRDNORM;
const WRITE: i16 = POLLOUT | POLLWRNORM;
const BROKEN: i16 = POLLERR | POLLHUP;

/// So often a look begins anew for a peer that comes and goes meanwhile.
const MOST_LOOKS: u32 = 8;

/// Whether the kernel alone answers for this end.
#[inline]
pub fn is_kernels(end: &End) -> bool {
    end.phase() != EndPhase::Granted
}

/// Whether an end is in its rings both ways, so that the kernel knows of errors and ends only.
#[inline]
pub fn is_in_rings(end: &End) -> bool {
    !is_kernels(end) && end.rx_mode() == Mode::Ring && end.tx_mode() == Mode::Ring
}

/// What the kernel says of an end that is its own, which has told the library an error that the program is yet to be told.
pub fn with_kept_error(end: &End, found: i16) -> i16 {
    match found & POLLHUP != 0 && is_kernels(end) && ending::keeps_error(end) {
        true => found | POLLERR,
        false => found,
    }
}

/// Whether a look at the rings alone finds something of `wanted`: one cache line for reading, and
/// the sender's own line for writing. May find too much, never too little of what the rings hold.
#[inline]
pub fn glance(end: &End, wanted: i16) -> bool {
    if wanted & READ != 0 && end.has_record() {
        return true;
    }
    if end.ending() != Ending::Open || end.has_flags(end_flags::SHUT_READ) {
        return true;
    }
    wanted & WRITE != 0 && end.tx_mode() == Mode::Ring && send::is_writable(end)
}

/// What the rings alone say is ready of `wanted`, for an end that is in the rings both ways, when
/// the next record is data. 0 means that [`look`] must be asked.
#[inline]
pub fn at_once(end: &End, wanted: i16) -> i16 {
    let mut found = 0;
    if wanted & READ != 0 {
        let Some(lane) = end.rx_lane() else { return 0 };
        if !end.rx_cursor().has_data(&lane) {
            return 0;
        }
        found = wanted & READ;
    }
    if wanted & WRITE != 0 && send::is_writable(end) {
        found |= wanted & WRITE;
    }
    found
}

/// What is ready of `wanted`, besides POLLERR and POLLHUP, without waiting. With `ask_kernel`,
/// ends and errors that only the kernel knows are included; directions on TCP always are.
pub fn look(end: &End, wanted: i16, ask_kernel: bool) -> i16 {
    let mut found = 0;
    for _ in 0..MOST_LOOKS {
        step::settle(end);
        let stood = passages(end);
        found = look_settled(end, wanted, ask_kernel);
        // What TCP has may be a doorbell, of a sender that has come into the lane since, as another thread may have found.
        if found & READ == 0 || stood == passages(end) && !is_before_start(end) {
            break;
        }
    }
    found
}

/// What changes when the receiving direction passes from TCP to the lane, or back.
fn passages(end: &End) -> (Mode, u64) {
    let limit = end.entry.rx.tcp_limit.load(Ordering::Relaxed);
    (end.rx_mode(), limit)
}

/// Whether a START stands in the lane that has yet to be found.
fn is_before_start(end: &End) -> bool {
    end.rx_mode() == Mode::Tcp && step::may_start(end) && end.has_record()
}

fn look_settled(end: &End, wanted: i16, ask_kernel: bool) -> i16 {
    if is_kernels(end) {
        // Its modes tell nothing: a freeze may never have been answered.
        return with_kept_error(end, kernel::poll_now(end.fd(), wanted) & (wanted | BROKEN));
    }
    let (rx, tx) = (end.rx_mode(), end.tx_mode());
    if lost::is_dry(end) {
        // What there is to read, and whether the stream has ended, is not known yet.
        let asked = wanted & WRITE;
        return match tx {
            Mode::Tcp => kernel::poll_now(end.fd(), asked) & asked,
            // A send behind the end finds room, or fails.
            Mode::Ring if asked != 0 && doubt::is_open(end) && send::is_writable(end) => asked,
            _ => 0,
        };
    }
    let mut found = 0;
    // Not a STOP that has come since.
    let has_data = || end.has_record() && has_arrived_since(end, 0);
    if rx == Mode::Ring && has_data() || rx == Mode::Replay && step::may_read_frozen(end) {
        found |= wanted & READ;
    }
    if tx == Mode::Ring && wanted & WRITE != 0 && send::is_writable(end) {
        found |= wanted & WRITE;
    }
    let on_tcp = rx != Mode::Ring || tx != Mode::Ring;
    if on_tcp || ask_kernel {
        found |= by_kernel(end, wanted);
    }
    found | by_ending(end, wanted)
}

/// What the kernel adds: everything for a direction on TCP, ends and errors for one in the ring.
fn by_kernel(end: &End, wanted: i16) -> i16 {
    let (rx, tx) = (end.rx_mode(), end.tx_mode());
    let mut asked = POLLRDHUP | wanted;
    if rx != Mode::Tcp {
        asked &= !READ;
    }
    if tx != Mode::Tcp {
        asked &= !WRITE;
    }
    let mut found = kernel::poll_now(end.fd(), asked);
    if rx == Mode::Ring && found & (POLLRDHUP | BROKEN) != 0 {
        // What has been sent before the end may have arrived since the lane was looked at.
        ending::look_at_kernel(end);
        if found & POLLRDHUP != 0 && end.ending() == Ending::Open {
            ending::note_eof(end);
        }
        if wanted & READ != 0 {
            found |= wanted & READ;
        }
    } else if found & POLLRDHUP != 0 {
        ending::look_for_any(end);
    }
    if found & BROKEN != 0 && end.family() == Family::Unix {
        // The error may stand there for doorbells, or for nothing although a ring was left unread.
        gone::note(end, None);
        found &= !POLLERR;
    }
    if tx == Mode::Ring && found & BROKEN != 0 {
        found |= wanted & WRITE;
    }
    found & (wanted | BROKEN)
}

/// What of `wanted`, besides errors, only the kernel knows of an end that is in its rings both ways.
pub fn kernels_share(wanted: i16) -> i16 {
    (POLLRDHUP | wanted) & !(READ | WRITE)
}

/// What an end that the library has already taken from the kernel means.
fn by_ending(end: &End, wanted: i16) -> i16 {
    let is_over = end.ending() != Ending::Open || end.has_flags(end_flags::SHUT_READ);
    let over = if is_over {
        wanted & (READ | POLLRDHUP)
    } else {
        0
    };
    let closed = is_over && end.has_flags(end_flags::SHUT_WRITE);
    let closed = if closed { POLLHUP } else { 0 };
    over | closed
        | match end.ending() {
            Ending::Open | Ending::Eof => 0,
            Ending::Reset => {
                let error = if ending::has_error(end) { POLLERR } else { 0 };
                wanted & (READ | WRITE | POLLRDHUP) | POLLHUP | error
            }
        }
}

/// What to ask the kernel for while sleeping for `wanted`: doorbells come as POLLIN.
pub fn kernel_wish(end: &End, wanted: i16) -> i16 {
    let mut wish = wanted | POLLIN;
    if end.tx_mode() == Mode::Ring {
        wish &= !WRITE;
    }
    if wanted & READ == 0 && (end.rx_mode() != Mode::Ring || end.tx_mode() != Mode::Ring) {
        // On TCP, unread data would wake a program that does not want it; so would the doorbells of unread records, where
        // none is expected for room.
        wish &= !READ;
    }
    if replay::is_under_way(end) {
        wish |= POLLOUT;
    }
    wish
}

/// Before sleeping for `wanted` in the kernel: arm what is in the rings. Returns whether the
/// caller may sleep. Every call must be followed by [`after_sleep`].
pub fn prepare_sleep(end: &End, wanted: i16) -> bool {
    stay::enter(end);
    end.begin_sleep();
    arm(end, wanted)
}

/// As [`prepare_sleep`], for an epoll set, which stays a waiter all the time.
pub fn arm(end: &End, wanted: i16) -> bool {
    // Before anything is asked for: the answer must stay on TCP until we sleep.
    take_bells(end);
    let mut quiet = true;
    if replay::is_under_way(end) {
        switch::attend(end);
    }
    if wanted & WRITE != 0 && end.tx_mode() == Mode::Ring {
        quiet &= send::prepare_sleep(end);
    }
    // Last, because looking for space may move the receiving direction.
    if wanted & READ != 0 || end.rx_mode() != Mode::Ring {
        quiet &= asleep::prepare_sleep(end) || wanted & READ == 0;
    }
    quiet
}

/// Whether what has woken the caller is yet to be found, and nothing more will tell of it: it should look again after a
/// moment.
#[inline]
pub fn is_early(end: &End) -> bool {
    posted::is_early(end)
}

/// Ask to be rung on behalf of others, who sleep while the caller goes on with what woke it.
pub fn arm_for_others(end: &End) {
    let _rx = end.lock_rx();
    if let Some(lane) = end.rx_lane() {
        bell::arm(end, &lane);
    }
}

/// After a sleep that [`prepare_sleep`] announced.
pub fn after_sleep(end: &End) {
    end.end_sleep();
    asleep::after_sleep(end);
    stay::leave(end);
}

/// Whether the caller, who wants `wanted`, waits for room in a lane, for what stood in a lost window, or, whatever it wants, has
/// something to send again. It should look again from time to time: a receiver may stand still, see [`send::STANDSTILL`].
pub fn waits_for_room(end: &End, wanted: i16) -> bool {
    lost::is_unsettled(end)
        || replay::is_under_way(end)
        || wanted & WRITE != 0 && end.tx_mode() == Mode::Ring
}

/// The only epoll set that holds the end is awake: nobody needs to ring for it.
pub fn disarm(end: &End) {
    if end.entry.wait.armed.load(Ordering::Relaxed) == 0 {
        return;
    }
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane() else { return };
    let wait = &end.entry.wait;
    if wait.sleepers.load(Ordering::SeqCst) == 0 && wait.epolls.load(Ordering::Relaxed) <= 1 {
        bell::disarm(end, &lane);
    }
}

/// Take the doorbells off TCP, when TCP is said to be readable but the lane is empty.
pub fn take_bells(end: &End) {
    let _rx = end.lock_rx();
    asleep::take_bells(end, 0);
}

/// As [`take_bells`], also those of records that have yet to be read: for who sleeps for something else. Nobody else must
/// sleep for them without looking into the lane first.
pub fn take_all_bells(end: &End) {
    let Some((lane, _rx)) = end.hold_rx_lane() else {
        return;
    };
    if end.rx_mode() == Mode::Ring && bell::is_for_us_alone(end, 0) {
        bell::take(end, &lane);
    }
}

/// The kernel has said that TCP is readable.
pub fn note_bell(end: &End) {
    asleep::note_bell(end);
}

/// The first line of the lane that holds no record, at or after `from`: what has arrived up to
/// now. Records that break the rules end the walk; the next receive reports them.
pub fn arrived_up_to(end: &End, from: u64) -> u64 {
    let Some(lane) = end.rx_lane() else {
        return from;
    };
    let mut at = at_or_after(end, from);
    // Only a liar writes more than a lap while it is walked over.
    let lap_end = at.head + u64::from(lane.lines());
    while at.head < lap_end {
        match at.come_to_next(&lane) {
            Ok(Next::Data(left)) => at.pass(left, left),
            Ok(Next::Control(..)) => at.head += 1,
            Ok(Next::Empty) | Err(_) => break,
        }
    }
    at.head
}

/// When the first record at or after line `since` was written, by the clock of this host.
#[inline]
pub fn moment(end: &End, since: u64) -> Moment {
    let lane = end.rx_lane().filter(|_| !end.has_flags(end_flags::FAR));
    lane.map_or(Moment::default(), |lane| {
        at_or_after(end, since).moment(&lane)
    })
}

/// The receiver's cursor, moved up to a line that it has yet to reach.
#[inline]
fn at_or_after(end: &End, line: u64) -> RxCursor {
    let at = end.rx_cursor();
    if at.head >= line {
        return at;
    }
    RxCursor {
        head: line,
        taken: 0,
    }
}

/// Whether the sender has left the lane behind what stands in it, so that what comes now comes by TCP.
pub fn goes_on_by_tcp(end: &End) -> bool {
    let _rx = end.lock_rx();
    let Some(lane) = end.rx_lane() else {
        return true;
    };
    bell::has_stop(end, &lane)
}

/// What TCP has brought up to now, for telling an edge from none.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenByTcp {
    /// Bytes in all, doorbells among them.
    pub arrived: u64,
    /// Which of POLLRDHUP, POLLERR and POLLHUP stand.
    pub ends: i16,
}

/// Ask the kernel what TCP has brought up to now.
pub fn seen_by_tcp(end: &End) -> SeenByTcp {
    SeenByTcp {
        arrived: kernel_view::arrived(end),
        ends: kernel::poll_now(end.fd(), POLLRDHUP) & (POLLRDHUP | BROKEN),
    }
}

/// Whether the peer sends nothing any more, as far as the kernel knows.
pub fn has_ended(end: &End) -> bool {
    kernel_view::has_ended(end)
}

/// Whether data have arrived at or after line `from`, which [`arrived_up_to`] gave.
#[inline]
pub fn has_arrived_since(end: &End, from: u64) -> bool {
    let Some(lane) = end.rx_lane() else {
        return false;
    };
    let at = at_or_after(end, from);
    at.has_record(&lane) && (at.has_data(&lane) || leads_to_data(at, &lane))
}

/// Whether data, or what only a receive can judge, stand behind the control records at a cursor.
#[cold]
fn leads_to_data(mut at: RxCursor, lane: &WindowLane) -> bool {
    let lap_end = at.head + u64::from(lane.lines());
    while at.head < lap_end {
        match at.come_to_next(lane) {
            Ok(Next::Control(..)) => at.head += 1,
            Ok(Next::Empty) => return false,
            Ok(Next::Data(_)) | Err(_) => return true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;

    use crosslane_ctl::reason::Reason;

    use super::*;
    use crate::both::{ends, ends_before_a_start, queued};

    /// A receiver that has just seen no START looks at TCP.
    #[test]
    fn a_doorbell_behind_a_start_is_nothing_to_read() {
        let ([near, far], _sockets) = ends_before_a_start();
        bell::probe(&near, 0);
        while queued(&far) == 0 {}
        assert_eq!(look_settled(&far, POLLIN, false), POLLIN);
        assert!(is_before_start(&far));
        assert_eq!(look(&far, POLLIN, false), 0);
    }

    /// Of a sender that enters its lane, rings and leaves again and again, while the receiver looks.
    #[test]
    fn passages_are_nothing_to_read() {
        let ([near, far], _sockets) = ends();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    bell::probe(&near, 0);
                    switch::leave(&near, Reason::Chaos);
                    while near.tx_mode() != Mode::Ring {
                        switch::reenter(&near);
                        step::settle(&near);
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            let mut found = 0;
            while !is_over.load(Ordering::SeqCst) {
                found |= look(&far, POLLIN, false);
            }
            assert_eq!(found, 0);
        });
    }
}
