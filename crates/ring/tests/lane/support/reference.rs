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
    Data(VecDeque<u8>),
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

    fn free(&self) -> u64 {
        (self.lines - RESERVED).saturating_sub(self.tail - self.head)
    }

    /// The lengths of the records that writing `payload` makes.
    pub fn write(&mut self, mut payload: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while self.free() > 0 && !payload.is_empty() {
            let free = usize::try_from(self.free()).expect("at most the ring");
            let room = free * LINE - HEADER;
            let (record, rest) = payload.split_at(payload.len().min(room).min(MAX_RECORD_BYTES));
            self.records.push_back(Record::Data(record.to_vec().into()));
            self.tail += (HEADER + record.len()).div_ceil(LINE) as u64;
            lengths.push(record.len());
            payload = rest;
        }
        lengths
    }

    /// How many of `wanted` bytes fit now.
    pub fn room(&self, wanted: usize) -> usize {
        let (mut free, mut bytes) = (self.free(), 0);
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
            Record::Data(bytes) => Some(bytes),
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

    /// Whether a quarter of the ring is free.
    pub fn writable(&self) -> bool {
        self.free() >= self.lines / 4
    }

    /// The bytes that a read of `most` takes, and whether it passes a quarter.
    pub fn read(&mut self, most: usize) -> (Vec<u8>, Taken) {
        let (mut bytes, start) = (Vec::new(), self.head);
        while bytes.len() < most {
            let Some(Record::Data(record)) = self.records.front_mut() else {
                break;
            };
            bytes.extend(record.pop_front());
            self.taken += 1;
            if record.is_empty() {
                self.head += (HEADER + self.taken).div_ceil(LINE) as u64;
                self.taken = 0;
                self.records.pop_front();
            }
        }
        let quarter = self.lines / 4;
        let taken = Taken {
            bytes: bytes.len(),
            passed_quarter: start / quarter != self.head / quarter,
        };
        (bytes, taken)
    }

    /// All bytes before the next control record.
    pub fn data(&self) -> Vec<u8> {
        let data = self.records.iter().map_while(|record| match record {
            Record::Data(bytes) => Some(bytes),
            Record::Control(..) => None,
        });
        data.flatten().copied().collect()
    }

    /// What comes next.
    pub fn next(&self) -> Next {
        match self.records.front() {
            None => Next::Empty,
            Some(Record::Data(bytes)) => Next::Data(bytes.len()),
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
