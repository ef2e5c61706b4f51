//! A lane whose every access the model checker sees.

use std::sync::{Arc, Mutex};

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ring::LaneMemory;
use crosslane_ring::together::ByLine;
use crosslane_sys::program::Fault as NoBuffer;
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};

const WORD_BYTES: usize = 8;
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;

/// What a lane does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The header becomes visible before the payload.
    HeaderFirst,
    /// The header is published without release order.
    HeaderRelaxed,
    /// The line after a record is not cleared.
    NotCleared,
    /// What the sender reads after a publication may be older than it.
    PublishUnfenced,
    /// What the receiver reads after it has given credit may be older than that.
    CreditUnfenced,
    /// Credit does not order the receiver's reads before the sender's writes.
    CreditRelaxed,
}

/// A small lane.
#[derive(Clone)]
pub struct LoomLane(Arc<Shared>);

struct Shared {
    words: Vec<Word>,
    consumed: AtomicU64,
    fault: Fault,
    /// Payload that `Fault::HeaderFirst` holds back.
    held_back: Mutex<Vec<(usize, u8)>>,
}

/// Eight bytes of the ring.
enum Word {
    /// The first of a line, at which a header or payload may be while the receiver polls it.
    First(AtomicU64),
    /// Another, of which each access must be ordered by the protocol: a race is an error.
    Other(UnsafeCell<[u8; WORD_BYTES]>),
}

// SAFETY: every access to the words goes through the checker, which ends the test at a race.
unsafe impl Sync for Word {}

impl LoomLane {
    /// An empty ring of `lines` in which `line` comes next.
    pub fn new(lines: u32, line: u64, fault: Fault) -> Self {
        let word = |index: usize| match index % LINE_WORDS {
            0 => Word::First(AtomicU64::new(0)),
            _ => Word::Other(UnsafeCell::new([0; WORD_BYTES])),
        };
        Self(Arc::new(Shared {
            words: (0..lines as usize * LINE_WORDS).map(word).collect(),
            consumed: AtomicU64::new(line << 16),
            fault,
            held_back: Mutex::new(Vec::new()),
        }))
    }

    fn has(&self, fault: Fault) -> bool {
        self.0.fault == fault
    }

    fn first_word(&self, line: u32) -> &AtomicU64 {
        match &self.0.words[line as usize * LINE_WORDS] {
            Word::First(word) => word,
            Word::Other(_) => unreachable!("a line begins with its first word"),
        }
    }

    /// The word at a byte of the ring, which may lie beyond its end, and the byte in the word.
    fn at(&self, offset: usize) -> (&Word, usize) {
        let word = offset / WORD_BYTES % self.0.words.len();
        (&self.0.words[word], offset % WORD_BYTES)
    }

    /// Write a piece of one word.
    fn put(&self, offset: usize, piece: &[u8]) {
        match self.at(offset) {
            (Word::First(word), at) => {
                let mut bytes = word.load(Relaxed).to_ne_bytes();
                bytes[at..at + piece.len()].copy_from_slice(piece);
                word.store(u64::from_ne_bytes(bytes), Relaxed);
            }
            (Word::Other(word), at) => word.with_mut(|word| {
                // SAFETY: the cell is valid, and the checker ends the test if it is shared now.
                let bytes = unsafe { &mut *word };
                bytes[at..at + piece.len()].copy_from_slice(piece);
            }),
        }
    }

    /// Read a piece of one word.
    fn get(&self, offset: usize, piece: &mut [u8]) {
        match self.at(offset) {
            (Word::First(word), at) => {
                let bytes = word.load(Relaxed).to_ne_bytes();
                piece.copy_from_slice(&bytes[at..at + piece.len()]);
            }
            (Word::Other(word), at) => word.with(|word| {
                // SAFETY: the cell is valid, and the checker ends the test if it is written now.
                let bytes = unsafe { &*word };
                piece.copy_from_slice(&bytes[at..at + piece.len()]);
            }),
        }
    }
}

/// The pieces of single words that `bytes` from `offset` on consist of: (offset, start, end).
fn pieces(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let piece = (WORD_BYTES - (offset + start) % WORD_BYTES).min(bytes - start);
        start += piece;
        (piece > 0).then_some((offset + start - piece, start - piece, start))
    })
}

impl LaneMemory for LoomLane {
    type Lines<'a> = ByLine<'a, Self>;

    fn together(&self, line: u32, _lines: u64) -> Option<ByLine<'_, Self>> {
        Some(ByLine(self, line))
    }

    fn lines(&self) -> u32 {
        u32::try_from(self.0.words.len() / LINE_WORDS).expect("a small ring")
    }

    fn header(&self, line: u32) -> u64 {
        self.first_word(line).load(Acquire)
    }

    fn clear(&self, line: u32) {
        if !self.has(Fault::NotCleared) {
            self.first_word(line).store(0, Relaxed);
        }
    }

    fn set_header(&self, line: u32, header: u64) {
        self.first_word(line).store(header, Relaxed);
    }

    fn publish(&self, line: u32, header: u64) {
        let order = if self.has(Fault::HeaderRelaxed) {
            Relaxed
        } else {
            Release
        };
        self.first_word(line).store(header, order);
        for (offset, byte) in self.0.held_back.lock().unwrap().drain(..) {
            self.put(offset, &[byte]);
        }
        if !self.has(Fault::PublishUnfenced) {
            fence(SeqCst);
        }
    }

    unsafe fn copy_in(&self, offset: usize, from: *const u8, bytes: usize) -> Result<(), NoBuffer> {
        // SAFETY: the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(from, bytes) };
        if self.has(Fault::HeaderFirst) {
            let bytes = (offset..).zip(from.iter().copied());
            self.0.held_back.lock().unwrap().extend(bytes);
            return Ok(());
        }
        for (offset, start, end) in pieces(offset, bytes) {
            self.put(offset, &from[start..end]);
        }
        Ok(())
    }

    unsafe fn copy_out(&self, offset: usize, to: *mut u8, bytes: usize) -> Result<(), NoBuffer> {
        // SAFETY: the caller's promise; a test's buffers are initialised.
        let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        for (offset, start, end) in pieces(offset, bytes) {
            self.get(offset, &mut to[start..end]);
        }
        Ok(())
    }

    fn consumed(&self) -> u64 {
        let order = if self.has(Fault::CreditRelaxed) {
            Relaxed
        } else {
            Acquire
        };
        self.0.consumed.load(order)
    }

    fn set_consumed(&self, consumed: u64, fenced: bool) {
        self.0.consumed.store(consumed, Release);
        if fenced && !self.has(Fault::CreditUnfenced) {
            fence(SeqCst);
        }
    }
}
