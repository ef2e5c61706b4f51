//! The two sides of a lane under test, each of which checks what it can see by itself.
//!
//! They run in one thread beside the reference, in two threads, and under the model checker.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ring::receive::Taken;
use crosslane_ring::{
    Control, Failed, Found, LaneMemory, MAX_RECORD_BYTES, PeerLied, RxCursor, TxCursor,
};

use super::scatter::Scatter;

/// The byte at a position of the stream that the sides agree on when they run in two threads.
pub fn stream_byte(position: u64) -> u8 {
    // The top byte of a multiplicative hash: neighbours differ, and no period divides a line.
    (position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// `bytes` of that stream.
pub fn stream_bytes(from: u64, bytes: usize) -> Vec<u8> {
    (from..from + bytes as u64).map(stream_byte).collect()
}

/// The sending side.
pub struct SendSide<L> {
    /// The lane.
    pub lane: L,
    /// Where it stands.
    pub cursor: TxCursor,
}

impl<L: LaneMemory> SendSide<L> {
    /// A sender that begins at `line` of an empty ring.
    pub fn new(lane: L, line: u64) -> Self {
        let cursor = TxCursor {
            tail: line,
            credit: line,
        };
        Self { lane, cursor }
    }

    /// Write `payload` from buffers of `sizes`, as one short record if that is possible, until all is written or the ring is full, and
    /// return the lengths of the records.
    pub fn write(&mut self, sizes: &[usize], payload: &[u8]) -> Result<Vec<usize>, PeerLied> {
        // SAFETY: a slice is valid for its length.
        let is_short = sizes.len() == 1
            && unsafe {
                self.cursor
                    .write_short(&self.lane, payload.as_ptr(), payload.len())
            };
        if is_short {
            self.check_cursor();
            return Ok(vec![payload.len()]);
        }
        let mut scatter = Scatter::filled(sizes, payload);
        let records = scatter.with_parts(|parts| {
            let mut records = Vec::new();
            loop {
                let left = parts.left();
                let bytes = self.cursor.write_record(&self.lane, parts).map_err(lie)?;
                assert_eq!(
                    parts.left(),
                    left - bytes,
                    "the parts follow what was written"
                );
                if bytes == 0 {
                    return Ok(records);
                }
                assert!(bytes <= MAX_RECORD_BYTES, "a record of {bytes} bytes");
                self.check_cursor();
                records.push(bytes);
            }
        });
        scatter.check_gaps();
        assert_eq!(
            scatter.gathered(),
            payload,
            "a write changes nothing of the caller's"
        );
        records
    }

    /// Write a control record.
    pub fn control(&mut self, kind: Control, value: u64) -> Result<bool, PeerLied> {
        let written = self.cursor.write_control(&self.lane, kind, value);
        self.check_cursor();
        written
    }

    /// Reserve `wanted` bytes, build what fits of `payload` in them and commit it. Returns how much
    /// was reserved.
    pub fn build(&mut self, wanted: usize, payload: &[u8]) -> Result<usize, PeerLied> {
        let before = self.cursor.tail;
        let reservation = self.cursor.reserve(&self.lane, wanted)?;
        assert_eq!(self.cursor.tail, before, "a reservation is not sent");
        assert!(reservation.bytes() <= wanted);
        let payload = &payload[..payload.len().min(reservation.bytes())];
        let (lines, mut at, mut pieces) = (self.lane.lines(), 0, Vec::new());
        while let Some(piece) = reservation.piece(lines, at) {
            assert!(piece.offset + piece.bytes <= lines as usize * LINE_BYTES);
            pieces.push((at, piece));
            at += piece.bytes;
        }
        assert_eq!(at, reservation.bytes());
        // From the last piece to the first: a program may fill them in any order.
        for (at, piece) in pieces
            .into_iter()
            .rev()
            .filter(|(at, _)| *at < payload.len())
        {
            let part = &payload[at..payload.len().min(at + piece.bytes)];
            // SAFETY: a slice is valid for its length.
            let copied = unsafe { self.lane.copy_in(piece.offset, part.as_ptr(), part.len()) };
            assert_eq!(copied, Ok(()));
        }
        self.cursor.commit(&self.lane, &reservation, payload.len());
        self.check_cursor();
        Ok(reservation.bytes())
    }

    /// Ask whether a good share of the ring is free.
    pub fn writable(&mut self) -> Result<bool, PeerLied> {
        let writable = self.cursor.writable(&self.lane);
        self.check_cursor();
        writable
    }

    /// Ask whether some of the ring is free.
    pub fn has_room(&mut self) -> Result<bool, PeerLied> {
        let has_room = self.cursor.has_room(&self.lane);
        self.check_cursor();
        has_room
    }

    /// Whatever the receiver says, the sender never writes over more than the ring but its
    /// cleared line.
    fn check_cursor(&self) {
        let TxCursor { tail, credit } = self.cursor;
        assert!(
            credit <= tail,
            "credit for line {credit}, line {tail} is not written"
        );
        assert!(
            tail - credit < u64::from(self.lane.lines()),
            "lines {credit} to {tail}"
        );
    }
}

/// The receiving side.
pub struct ReceiveSide<L> {
    /// The lane.
    pub lane: L,
    /// Where it stands.
    pub cursor: RxCursor,
}

impl<L: LaneMemory> ReceiveSide<L> {
    /// A receiver that begins at `line` of an empty ring.
    pub fn new(lane: L, line: u64) -> Self {
        let cursor = RxCursor {
            head: line,
            taken: 0,
        };
        Self { lane, cursor }
    }

    /// Read into buffers of `sizes`: what was read, and what else the read tells.
    pub fn read(&mut self, sizes: &[usize]) -> Result<(Vec<u8>, Taken), PeerLied> {
        let before = self.cursor;
        if let [most] = sizes {
            let mut bytes = vec![0xee; most + 1];
            // SAFETY: the vector is longer than `most`.
            let taken = unsafe {
                self.cursor
                    .read_short(&self.lane, bytes.as_mut_ptr(), *most)
            };
            if let Some(whole) = taken {
                assert!(bytes[whole.bytes..].iter().all(|byte| *byte == 0xee));
                bytes.truncate(whole.bytes);
                let taken = Taken {
                    bytes: whole.bytes,
                    passed_quarter: whole.passed_quarter,
                    goes_on: false,
                };
                return Ok((bytes, taken));
            }
            assert_eq!(self.cursor, before, "nothing was read");
        }
        let mut scatter = Scatter::empty(sizes);
        let taken = scatter.with_parts(|parts| self.cursor.read(&self.lane, parts));
        scatter.check_gaps();
        let taken = taken
            .inspect_err(|_| assert_eq!(self.cursor, before, "nothing was read"))
            .map_err(lie)?;
        Ok((Self::first(&scatter, taken.bytes), taken))
    }

    /// Copy into buffers of `sizes` without reading.
    pub fn copy_only(&self, sizes: &[usize]) -> Result<Vec<u8>, PeerLied> {
        let mut scatter = Scatter::empty(sizes);
        let copied = scatter.with_parts(|parts| self.cursor.copy_only(&self.lane, parts));
        scatter.check_gaps();
        Ok(Self::first(&scatter, copied.map_err(lie)?))
    }

    /// Find at most `places` records, read them in place, and consume as many of `most` bytes as
    /// there are: all that was found, and what else the consumption tells.
    pub fn consume(&mut self, places: usize, most: usize) -> Result<(Vec<u8>, Taken), PeerLied> {
        let mut found = vec![Found::default(); places];
        let count = self.cursor.find(&self.lane, &mut found)?;
        let found = &found[..count];
        let mut bytes = Vec::new();
        for record in found {
            let mut skipped = 0;
            while let Some(piece) = record.piece(self.lane.lines(), skipped) {
                let mut part = vec![0; piece.bytes];
                // SAFETY: the vector has so many bytes.
                let copied = unsafe {
                    self.lane
                        .copy_out(piece.offset, part.as_mut_ptr(), part.len())
                };
                assert_eq!(copied, Ok(()));
                bytes.extend(part);
                skipped += piece.bytes;
            }
            assert_eq!(skipped, record.bytes());
        }
        let taken = self
            .cursor
            .consume(&self.lane, found, most.min(bytes.len()));
        Ok((bytes, taken))
    }

    fn first(scatter: &Scatter, bytes: usize) -> Vec<u8> {
        scatter.check_beyond(bytes);
        let mut gathered = scatter.gathered();
        assert!(bytes <= gathered.len(), "{bytes} bytes do not fit");
        gathered.truncate(bytes);
        gathered
    }
}

/// The buffers are there.
fn lie(failed: Failed) -> PeerLied {
    match failed {
        Failed::Lied(lie) => lie,
        Failed::Fault => panic!("a buffer is not there"),
    }
}
