//! What a lane should do, in the simplest words: a queue of records in lines.

use std::collections::VecDeque;

use crosslane_ring::receive::{Next, Taken};
use crosslane_ring::{Control, MAX_RECORD_BYTES};

/// Bytes of a line, and of the header at its start, written out here so that a change of the
/// format is noticed.
const LINE: usize = 64;
const HEADER: usize = 8;

/// Lines that data may not take: the cleared one, and one for a control record.
const RESERVED: u64 = 2;

/// Lines of a long ring beyond which a sender does not go while its receiver keeps up, which it does if a
/// quarter as many are unread; it asks in the first few lines of each such part.
const SMALL: u64 = 1024;

/// Lines that a sleeping writer waits for at most.
const WAKING: u64 = 1024;
const ASKS: u64 = 128;

/// Who has so much to send uses the whole ring.
const BULK: usize = 2 * MAX_RECORD_BYTES;

/// A lane with unbounded laps and no memory.
pub struct Reference {
    lines: u64,
    /// Line of the next record to be written.
    tail: u64,
    /// Line of the next record to be read.
    head: u64,
    /// Bytes already read of the record at `head`.
    taken: usize,
    records: VecDeque<Record>,
}

enum Record {
    /// The line at which it starts, and the rest of it.
    Data(u64, VecDeque<u8>),
    Control(Control, u64),
}

impl Reference {
    /// An empty ring of `lines` in which `line` comes next.
    pub fn new(lines: u32, line: u64) -> Self {
        Self {
            lines: u64::from(lines),
            tail: line,
            head: line,
            taken: 0,
            records: VecDeque::new(),
        }
    }

    /// Free lines from `start` on.
    fn free_from(&self, start: u64) -> u64 {
        (self.lines - RESERVED).saturating_sub(start - self.head)
    }

    fn free(&self) -> u64 {
        self.free_from(self.tail)
    }

    /// Where the next record of data starts, of so many bytes that are left to send.
    fn start(&self, bytes: usize) -> u64 {
        let at = self.tail % self.lines;
        let asks = at >= SMALL && at % SMALL < ASKS;
        match asks && bytes < BULK && self.tail - self.head <= SMALL / 4 {
            true => self.tail - at + self.lines,
            false => self.tail,
        }
    }

    /// The lengths of the records that writing `payload` makes.
    pub fn write(&mut self, mut payload: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while self.free() > 0 && !payload.is_empty() {
            let written = self.append(self.start(payload.len()), payload);
            lengths.push(written);
            payload = &payload[written..];
        }
        lengths
    }

    /// The same in a reservation of `wanted` bytes, behind each other.
    pub fn build(&mut self, wanted: usize, mut payload: &[u8]) {
        let mut line = self.start(wanted);
        while !payload.is_empty() {
            let written = self.append(line, payload);
            payload = &payload[written..];
            line = self.tail;
        }
    }

    /// A record at `start` with as much of `payload` as fits.
    fn append(&mut self, start: u64, payload: &[u8]) -> usize {
        let free = usize::try_from(self.free_from(start)).expect("at most the ring");
        let bytes = payload
            .len()
            .min(free * LINE - HEADER)
            .min(MAX_RECORD_BYTES);
        let record = payload[..bytes].to_vec().into();
        self.records.push_back(Record::Data(start, record));
        self.tail = start + (HEADER + bytes).div_ceil(LINE) as u64;
        bytes
    }

    /// How many of `wanted` bytes fit now.
    pub fn room(&self, wanted: usize) -> usize {
        let (mut free, mut bytes) = (self.free_from(self.start(wanted)), 0);
        while free > 0 && bytes < wanted {
            let lines = usize::try_from(free).expect("at most the ring");
            let record = (wanted - bytes)
                .min(lines * LINE - HEADER)
                .min(MAX_RECORD_BYTES);
            free -= (HEADER + record).div_ceil(LINE) as u64;
            bytes += record;
        }
        bytes
    }

    /// All bytes of the next `most` records of data.
    pub fn records(&self, most: usize) -> Vec<u8> {
        let data = self.records.iter().map_while(|record| match record {
            Record::Data(_, bytes) => Some(bytes),
            Record::Control(..) => None,
        });
        data.take(most).flatten().copied().collect()
    }

    /// Whether a control record fits.
    pub fn control(&mut self, kind: Control, value: u64) -> bool {
        let fits = self.tail - self.head < self.lines - 1;
        if fits {
            self.records.push_back(Record::Control(kind, value));
            self.tail += 1;
        }
        fits
    }

    /// A quarter of the ring, or less.
    fn worth_waking(&self) -> u64 {
        WAKING.min(self.lines / 4)
    }

    /// Whether so much is free that a sleeping writer is told.
    pub fn writable(&self) -> bool {
        self.free() >= self.worth_waking()
    }

    pub fn has_room(&self) -> bool {
        self.free() >= self.worth_waking() / 4
    }

    /// The bytes that a read of `most` takes, and whether it passes a quarter.
    pub fn read(&mut self, most: usize) -> (Vec<u8>, Taken) {
        let (mut bytes, start) = (Vec::new(), self.head);
        while bytes.len() < most {
            let Some(Record::Data(line, record)) = self.records.front_mut() else {
                break;
            };
            self.head = *line;
            bytes.extend(record.pop_front());
            self.taken += 1;
            if record.is_empty() {
                self.head += (HEADER + self.taken).div_ceil(LINE) as u64;
                self.taken = 0;
                self.records.pop_front();
            }
        }
        let quarter = self.worth_waking();
        let taken = Taken {
            bytes: bytes.len(),
            passed_quarter: start / quarter != self.head / quarter,
            // All of a message is there, or what its sender had room for.
            goes_on: false,
        };
        (bytes, taken)
    }

    /// All bytes before the next control record.
    pub fn data(&self) -> Vec<u8> {
        let data = self.records.iter().map_while(|record| match record {
            Record::Data(_, bytes) => Some(bytes),
            Record::Control(..) => None,
        });
        data.flatten().copied().collect()
    }

    /// What comes next.
    pub fn next(&self) -> Next {
        match self.records.front() {
            None => Next::Empty,
            Some(Record::Data(_, bytes)) => Next::Data(bytes.len()),
            Some(Record::Control(kind, value)) => Next::Control(*kind, *value),
        }
    }

    /// Move over a control record.
    pub fn pass_control(&mut self) {
        assert!(matches!(self.next(), Next::Control(..)));
        self.records.pop_front();
        self.head += 1;
    }

    /// What the sender is told.
    pub fn position(&self) -> u64 {
        self.head << 16 | self.taken as u64
    }

    /// The line of the next record to be written.
    pub fn tail(&self) -> u64 {
        self.tail
    }
}
