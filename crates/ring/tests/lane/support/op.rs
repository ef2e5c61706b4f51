//! The operations on a lane, and how a fuzzer's bytes become a sequence of them.

use crosslane_ring::Control;

/// One operation of the sender or of the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Write buffers of these sizes, record by record, until all is written or the ring is full.
    Write(Vec<usize>),
    /// Write a control record.
    WriteControl(Control, u64),
    /// Ask whether a good share of the ring is free.
    Writable,
    /// Read into buffers of these sizes.
    Read(Vec<usize>),
    /// Copy into buffers of these sizes and leave the bytes in the ring.
    CopyOnly(Vec<usize>),
    /// Count what can be read, up to this many bytes.
    Readable(usize),
    /// Move over a control record, if one is next.
    PassControl,
    /// Reserve so many bytes, build as many of so many in place, and commit them.
    Build(usize, usize),
    /// Find at most so many records, and consume as many of so many bytes in place.
    Consume(usize, usize),
}

/// The kinds from here to 127, and those that differ by 128 only, work in place.
const IN_PLACE: u8 = 104;

/// Reads operations from bytes; at the end of the bytes there are no more.
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Operations from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next eight bytes.
    pub fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// The operation that `kind`, a byte that was just read, begins.
    pub fn op(&mut self, kind: u8) -> Option<Op> {
        if kind & 0x7f >= IN_PLACE {
            return Some(match kind % 2 {
                0 => Op::Build(self.size()?, self.size()?),
                _ => Op::Consume(usize::from(self.byte()? % 5), self.size()?),
            });
        }
        Some(match kind % 8 {
            0 | 1 => Op::Write(self.sizes()?),
            2 => Op::WriteControl(self.control()?, self.word()?),
            3 => Op::Writable,
            4 => Op::Read(self.sizes()?),
            5 => Op::CopyOnly(self.sizes()?),
            6 => Op::Readable(self.size()?),
            _ => Op::PassControl,
        })
    }

    fn control(&mut self) -> Option<Control> {
        Some(match self.byte()? % 3 {
            0 => Control::Start,
            1 => Control::Stop,
            _ => Control::Closing,
        })
    }

    fn sizes(&mut self) -> Option<Vec<usize>> {
        let count = 1 + self.byte()? % 4;
        (0..count).map(|_| self.size()).collect()
    }

    /// Two bytes: the top two bits choose a scale, the rest a size on it.
    fn size(&mut self) -> Option<usize> {
        let number = usize::from(self.byte()?) | usize::from(self.byte()?) << 8;
        let rest = number & 0x3fff;
        Some(match number >> 14 {
            0 => rest % 64,
            1 => rest % 1024,
            2 => rest,
            // Around the sizes that just fill some lines.
            _ => (rest >> 2) % 300 * 64 + 55 + rest % 4,
        })
    }
}

impl Iterator for Decoder<'_> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let kind = self.byte()?;
        self.op(kind)
    }
}
