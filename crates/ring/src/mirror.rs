//! A sender's own copy of its records, for lanes in memory that may go away. Records are written
//! into the copy first and from there into the window, so that what the receiver has not read can be
//! sent again from memory that is ours.

use crosslane_ctl::lane::{LANE_CONTROL_BYTES, LINE_BYTES};
use crosslane_ctl::place::Place;
use crosslane_window::bytes::Bytes;

use crate::header::PeerLied;
use crate::memory::{LaneMemory, WindowLane};
use crate::posted::memory::Remote;
use crate::receive::{Next, RxCursor};
use crate::send::TxCursor;

/// Have the records from line `first` up to `end`, which stand in `own`, stand in `window`, too. As with a
/// record that is written there, the header of the first comes last, and what the caller reads
/// afterwards is read after it has become visible.
#[inline]
pub fn post(own: &WindowLane, window: &WindowLane, first: u64, end: u64) {
    if first == end {
        return;
    }
    window.clear(TxCursor::wrapped(window, end));
    let start = TxCursor::wrapped(own, first);
    let header = own.header(start);
    let lines = usize::try_from(end - first).unwrap_or(usize::MAX);
    let ring_bytes = own.lines() as usize * LINE_BYTES;
    let offset = start as usize * LINE_BYTES + size_of::<u64>();
    let bytes = lines.saturating_mul(LINE_BYTES).min(ring_bytes) - size_of::<u64>();
    for piece in own.pieces(offset, bytes) {
        if let Some(view) = own.view(piece) {
            window.put(piece, Bytes::of_view(view));
        }
    }
    window.publish(start, header);
}

/// As [`post`], into a lane of another host's memory, which nobody here can read: its bytes begin at `at` of
/// `remote`. What is written before is seen there before the header, which leaves this processor now.
pub fn post_away(own: &WindowLane, remote: &impl Remote, at: usize, first: u64, end: u64) {
    if first == end {
        return;
    }
    let line = |line| at + LANE_CONTROL_BYTES + TxCursor::offset(own, line);
    remote.store(line(end), 0);
    let start = TxCursor::offset(own, first);
    let lines = usize::try_from(end - first).unwrap_or(usize::MAX);
    let ring_bytes = own.lines() as usize * LINE_BYTES;
    let offset = start + size_of::<u64>();
    let bytes = lines.saturating_mul(LINE_BYTES).min(ring_bytes) - size_of::<u64>();
    for piece in own.pieces(offset, bytes) {
        if let Some(view) = own.view(piece) {
            let words = piece.bytes / size_of::<u64>();
            let (to, from) = (
                at + LANE_CONTROL_BYTES + piece.offset,
                view.start().as_ptr(),
            );
            // SAFETY: the view has so many bytes, which are whole words.
            unsafe { remote.write(to, from, words) };
        }
    }
    remote.fence();
    remote.store(line(first), own.header(TxCursor::wrapped(own, first)));
    remote.fence();
}

/// The lines from `first` on that fill `bytes`, which are whole lines, at most a ring.
pub fn lines_out(lane: &WindowLane, first: u64, bytes: &mut [u8]) {
    let offset = TxCursor::offset(lane, first);
    // SAFETY: the slice is valid for its length; `copy_out` wraps the range.
    let copied = unsafe { lane.copy_out(offset, bytes.as_mut_ptr(), bytes.len()) };
    copied.expect("the slice is there");
}

/// Put whole lines, at most a ring, where the receiver will find them from line `first` on.
pub fn lines_in(lane: &WindowLane, first: u64, bytes: &[u8]) {
    let offset = TxCursor::offset(lane, first);
    // SAFETY: the slice is valid for its length; `copy_in` wraps the range.
    let copied = unsafe { lane.copy_in(offset, bytes.as_ptr(), bytes.len()) };
    copied.expect("the slice is there");
}

/// Whether records stand without a gap from `position`, as a receiver tells it, up to line `end`.
///
/// # Errors
/// If `position` is not in this lane, or a record is none.
pub fn is_whole(lane: &WindowLane, position: u64, end: u64) -> Result<bool, PeerLied> {
    let mut at = RxCursor::at(Place::near(position, end));
    if at.head > end || end - at.head > u64::from(lane.lines()) {
        return Err(PeerLied::Credit { line: at.head });
    }
    while at.head < end {
        match at.come_to_next(lane)? {
            Next::Empty => return Ok(false),
            Next::Data(left) => at.pass(left, left),
            Next::Control(..) => at.head += 1,
        }
    }
    Ok(at.head == end)
}

#[cfg(test)]
mod tests {
    mod away;

    use core::ptr::NonNull;

    use crosslane_ctl::lane::MIN_RING_LINES;
    use crosslane_window::outbound::Outbound;
    use crosslane_window::policy::Traits;
    use crosslane_window::view::View;

    use super::*;
    use crate::header::{Control, MAX_RECORD_BYTES};

    #[derive(Clone)]
    #[repr(C, align(64))]
    struct Line([u8; LINE_BYTES]);

    fn memory() -> Vec<Line> {
        let lines = LANE_CONTROL_BYTES / LINE_BYTES + MIN_RING_LINES as usize;
        vec![Line([0; LINE_BYTES]); lines]
    }

    fn lane(memory: &mut [Line]) -> WindowLane {
        let bytes = size_of_val(memory);
        // SAFETY: the memory outlives the lane in each test.
        let view = unsafe { View::from_raw(NonNull::from(memory).cast(), bytes) };
        WindowLane::new(view, MIN_RING_LINES).unwrap()
    }

    #[test]
    fn a_receiver_finds_in_the_window_what_stands_in_the_copy() {
        let mut theirs = memory();
        let window = lane(&mut theirs);
        find_what_is_posted(&window, &window, |own, first, end| {
            post(own, &window, first, end);
        });
    }

    #[test]
    fn a_receiver_finds_in_its_memory_what_another_host_has_posted() {
        for traits in [Traits::MEMORY, Traits::UNCACHED_BAR, Traits::COMBINED_BAR] {
            let (mut credit, mut theirs) = (memory(), memory());
            let bytes = size_of_val(theirs.as_slice());
            let start = NonNull::from(theirs.as_mut_slice()).cast();
            // SAFETY: the memory outlives the view.
            let remote = Outbound::new(unsafe { View::from_raw(start, bytes) }, traits).unwrap();
            let (window, controls) = (lane(&mut theirs), lane(&mut credit));
            find_what_is_posted(&controls, &window, |own, first, end| {
                post_away(own, &remote, 0, first, end);
                // What one host credits the other one sees in its own memory.
                controls.set_consumed(window.consumed(), false);
            });
        }
    }

    /// Several laps of messages of all lengths, so that records lie over the ring's end.
    fn find_what_is_posted(
        controls: &WindowLane,
        window: &WindowLane,
        post: impl Fn(&WindowLane, u64, u64),
    ) {
        let mut ours = memory();
        let own = lane(&mut ours);
        let sending = controls.with_ring_of(&own).unwrap();
        let (mut tx, mut rx) = (TxCursor::default(), RxCursor::default());
        for length in (1..9000).step_by(37) {
            let byte = |i: usize| u8::try_from((i * 7 + length) % 251).unwrap();
            let message: Vec<u8> = (0..length).map(byte).collect();
            let first = tx.tail;
            let mut written = 0;
            while written < length {
                let bytes = tx.write_slice(&sending, &message[written..]).unwrap();
                assert!(bytes > 0, "a ring holds the longest of these");
                written += bytes;
            }
            assert!(!rx.has_record(window), "nothing is posted yet");
            assert!(is_whole(&own, rx.position(), tx.tail).unwrap());
            post(&own, first, tx.tail);
            let mut found = vec![0; length];
            let taken = rx.read_slice(window, &mut found).unwrap();
            assert_eq!((taken.bytes, &found), (length, &message));
        }
    }

    #[test]
    fn a_short_record_stands_in_both_and_is_taken_only_if_it_is_valid() {
        let (mut ours, mut theirs) = (memory(), memory());
        let (own, window) = (lane(&mut ours), lane(&mut theirs));
        let sending = window.with_ring_of(&own).unwrap();
        let (mut tx, mut rx) = (TxCursor::default(), RxCursor::default());
        let mut short = 0;
        for length in (1..MAX_RECORD_BYTES).step_by(37).chain(1..300) {
            let byte = |i: usize| u8::try_from((i * 7 + length) % 251).unwrap();
            let message: Vec<u8> = (0..length).map(byte).collect();
            let first = tx.tail;
            // SAFETY: the message is valid for its length.
            if unsafe { tx.write_short_twice([&sending, &window], message.as_ptr(), length) } {
                short += 1;
            } else {
                // Over the ring's end, or no room is known.
                assert_eq!(tx.write_slice(&sending, &message), Ok(length));
                assert!(!rx.has_record(&window), "nothing is posted yet");
                post(&own, &window, first, tx.tail);
            }
            assert!(is_whole(&own, rx.position(), tx.tail).unwrap());
            let (mut found, before, told) = (vec![0; length], rx, window.consumed());
            let mut take = |is_valid| {
                // SAFETY: the vector is valid for its length.
                unsafe { rx.read_short_if(&window, found.as_mut_ptr(), length, || is_valid) }
            };
            assert_eq!(take(false), None);
            if take(true).is_some() {
                assert_eq!(found, message);
                continue;
            }
            assert_eq!((rx, window.consumed()), (before, told));
            assert_eq!(rx.read_slice(&window, &mut found).unwrap().bytes, length);
            assert_eq!(found, message);
        }
        assert!(short > 300, "{short} went the short way");
    }

    #[test]
    fn what_was_not_read_goes_on_elsewhere() {
        let (mut ours, mut theirs, mut others) = (memory(), memory(), memory());
        let (own, window, spare) = (lane(&mut ours), lane(&mut theirs), lane(&mut others));
        let sending = window.with_ring_of(&own).unwrap();
        let (mut tx, mut rx) = (TxCursor::default(), RxCursor::default());
        for round in 0..200u8 {
            assert_eq!(tx.write_slice(&sending, &[round; 300]), Ok(300));
            post(&own, &window, tx.tail - 5, tx.tail);
            assert_eq!(rx.read_slice(&window, &mut [0; 300]).unwrap().bytes, 300);
        }
        let first = tx.tail;
        assert_eq!(tx.write_slice(&sending, &[1; 5000]), Ok(5000));
        assert_eq!(tx.write_control(&sending, Control::Stop, 42), Ok(true));
        post(&own, &window, first, tx.tail);
        assert_eq!(rx.read_slice(&window, &mut [0; 7]).unwrap().bytes, 7);
        assert!(is_whole(&own, rx.position(), tx.tail).unwrap());
        assert!(is_whole(&own, rx.position(), tx.tail + 1).is_ok_and(|whole| !whole));
        assert!(is_whole(&own, Place::word(tx.tail + 1, 0), tx.tail).is_err());
        let lines = usize::try_from(tx.tail - rx.head).unwrap();
        let mut bytes = vec![0; lines * LINE_BYTES];
        lines_out(&own, rx.head, &mut bytes);
        lines_in(&spare, rx.head, &bytes);
        let mut rest = vec![0; 6000];
        assert_eq!(rx.read_slice(&spare, &mut rest).unwrap().bytes, 4993);
        assert_eq!(rx.peek(&spare), Ok(Next::Control(Control::Stop, 42)));
    }
}
