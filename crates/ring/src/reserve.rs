//! Records that the sender's program builds in the lane itself.
//!
//! A reservation is the room after the last record, cut into records of the greatest length. The
//! program fills as much of it as it likes; a commit writes the headers, that of the first record
//! last, so that the receiver sees all of it at once. Until then it is nothing: the lane is as it
//! was, because its next header stays cleared.

use crosslane_ctl::lane::{LINE_BYTES, SMALL_RING_LINES};
use crosslane_ctl::layout::{part_ends, part_of};

use crate::header::{self, HEADER_BYTES, MAX_RECORD_BYTES, PeerLied, lines_for};
use crate::memory::LaneMemory;
use crate::send::TxCursor;

/// Room for bytes that are not published yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The sender's tail when it was made.
    tail: u64,
    /// The line at which it begins.
    line: u64,
    bytes: usize,
}

/// Bytes of the ring that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of the first, in the ring.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
}

impl Piece {
    /// The bytes of a record from its line on, after `skipped` of its payload, at most `bytes` and
    /// as far as they lie together.
    pub(crate) fn in_record(lines: u32, line: u64, skipped: usize, bytes: usize) -> Self {
        let ring_bytes = lines as usize * LINE_BYTES;
        // Masked to the ring, which has at most 2^18 lines.
        let line = usize::try_from(line & u64::from(lines - 1)).unwrap_or(0);
        let offset = (line * LINE_BYTES + HEADER_BYTES + skipped) & (ring_bytes - 1);
        let part = part_of(u32::try_from(offset / LINE_BYTES).unwrap_or(0));
        let end = part_ends(lines)[part] as usize * LINE_BYTES;
        Self {
            offset,
            bytes: bytes.min(end - offset),
        }
    }
}

impl Reservation {
    /// Bytes that may be filled.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keep room for at most so many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Where the bytes from `at` on lie in a ring of `lines`, as many as lie together; `None` at
    /// the end of the reservation.
    #[inline]
    pub fn piece(&self, lines: u32, at: usize) -> Option<Piece> {
        let left = self.bytes.checked_sub(at).filter(|left| *left > 0)?;
        let (record, skipped) = (at / MAX_RECORD_BYTES, at % MAX_RECORD_BYTES);
        let line = self.line + record as u64 * lines_for(MAX_RECORD_BYTES);
        let bytes = left.min(MAX_RECORD_BYTES - skipped);
        Some(Piece::in_record(lines, line, skipped, bytes))
    }
}

/// Payload that fits into so many lines.
fn room(lines: u64) -> usize {
    let whole = lines / lines_for(MAX_RECORD_BYTES);
    let rest = lines % lines_for(MAX_RECORD_BYTES);
    let bytes = |lines: u64| usize::try_from(lines).unwrap_or(usize::MAX / LINE_BYTES) * LINE_BYTES;
    let last = bytes(rest).saturating_sub(HEADER_BYTES);
    usize::try_from(whole).unwrap_or(0) * MAX_RECORD_BYTES + last
}

/// Lines from `line` to the end of the small ring of a bounded sender, and those of a record that goes over it.
fn confined(lane: &impl LaneMemory, line: u64) -> u64 {
    let at = line & u64::from(lane.lines() - 1);
    (u64::from(SMALL_RING_LINES) + lines_for(MAX_RECORD_BYTES)).saturating_sub(at)
}

/// Lines that so much payload takes, in records of the greatest length but for the last.
fn lines_of(bytes: usize) -> u64 {
    let (whole, rest) = (bytes / MAX_RECORD_BYTES, bytes % MAX_RECORD_BYTES);
    let last = if rest > 0 { lines_for(rest) } else { 0 };
    whole as u64 * lines_for(MAX_RECORD_BYTES) + last
}

impl TxCursor {
    /// Room for as many of `wanted` bytes as fit now, perhaps none. Nothing is changed in the
    /// lane, and the room is lost when the tail moves.
    ///
    /// # Errors
    /// As [`TxCursor::refresh`].
    #[inline]
    pub fn reserve(
        &mut self,
        lane: &impl LaneMemory,
        wanted: usize,
    ) -> Result<Reservation, PeerLied> {
        // A ring has less than 2^24 bytes.
        let wanted = wanted.min(lane.lines() as usize * LINE_BYTES);
        let Some(line) = self.start(lane, wanted)? else {
            return Ok(Reservation {
                tail: self.tail,
                line: self.tail,
                bytes: 0,
            });
        };
        let skipped = line - self.tail;
        let free = self
            .free_lines(lane, skipped + lines_of(wanted))?
            .saturating_sub(skipped);
        let bytes = wanted.min(room(free));
        Ok(Reservation {
            tail: self.tail,
            line,
            bytes: match lane.is_bounded() {
                true => bytes.min(room(confined(lane, line))),
                false => bytes,
            },
        })
    }

    /// Whether the room is still there: nothing has been sent since.
    #[inline]
    pub fn still_has(&self, reservation: &Reservation) -> bool {
        reservation.tail == self.tail
    }

    /// Publish the first `bytes` of the reservation, which the program has filled.
    ///
    /// # Panics
    /// If the reservation has not so many, or is an old one.
    #[inline]
    pub fn commit(&mut self, lane: &impl LaneMemory, reservation: &Reservation, bytes: usize) {
        assert!(self.still_has(reservation) && bytes <= reservation.bytes);
        if bytes == 0 {
            return;
        }
        let start = reservation.line;
        let next = start + lines_of(bytes);
        // It may be too long to start where a single record would ask.
        if header::is_spare(next, lane.lines()) {
            lane.note_growth();
        }
        lane.clear(Self::wrapped(lane, next));
        // A receiver comes to the other headers only after it has seen the first.
        let mut left = bytes;
        let mut line = start;
        while left > MAX_RECORD_BYTES {
            left -= MAX_RECORD_BYTES;
            line += lines_for(MAX_RECORD_BYTES);
            let record = left.min(MAX_RECORD_BYTES);
            let header = header::data(record, line, lane.lines());
            lane.set_header(Self::wrapped(lane, line), header);
        }
        let first = bytes.min(MAX_RECORD_BYTES);
        let header = header::data(first, start, lane.lines());
        self.publish(lane, start, header);
        self.tail = next;
    }
}

#[cfg(test)]
mod tests {
    use crosslane_ctl::layout::HEAD_LINES;

    use super::*;

    #[test]
    fn room_and_lines_agree() {
        for lines in 0..1000 {
            let bytes = room(lines);
            assert!(lines_of(bytes) <= lines, "{lines} lines");
            assert!(lines_of(bytes + 1) > lines, "{lines} lines");
        }
    }

    #[test]
    fn pieces_leave_out_headers_and_end_with_the_parts_of_the_ring() {
        let reservation = Reservation {
            tail: 511,
            line: 511,
            bytes: MAX_RECORD_BYTES + 10,
        };
        let mut at = 0;
        let pieces: Vec<_> = std::iter::from_fn(|| {
            let piece = reservation.piece(512, at)?;
            at += piece.bytes;
            Some((piece.offset, piece.bytes))
        })
        .collect();
        let head = HEAD_LINES as usize * LINE_BYTES;
        let first = (511 * 64 + 8, 56);
        let second = (0, head);
        let third = (head, MAX_RECORD_BYTES - 56 - head);
        let fourth = (127 * 64 + 8, 10);
        assert_eq!(pieces, [first, second, third, fourth]);
    }
}
