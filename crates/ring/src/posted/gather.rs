//! Writing scattered buffers as whole words, since nobody can read a word back to change a part of it.

use core::ptr::copy_nonoverlapping;

use super::Slot;
use super::memory::{Local, Remote};
use crate::header::HEADER_BYTES;
use crate::parts::Parts;

const WORD: usize = size_of::<u64>();

/// The payload of one record on its way into the ring.
pub(super) struct Gather<'a, L, R> {
    slot: &'a Slot<L, R>,
    /// The record's line.
    line: u64,
    /// Bytes of the record that are written, header included: whole words.
    written: usize,
    /// The beginning of the next word.
    rest: [u8; WORD],
    rest_bytes: usize,
}

impl<'a, L: Local, R: Remote> Gather<'a, L, R> {
    pub(super) fn into_record(slot: &'a Slot<L, R>, line: u64) -> Self {
        Self {
            slot,
            line,
            written: HEADER_BYTES,
            rest: [0; WORD],
            rest_bytes: 0,
        }
    }

    /// Write the next `bytes` of `parts`. What is left of the last word is filled up with zeroes.
    #[inline]
    pub(super) fn write(mut self, parts: &mut Parts<'_>, bytes: usize) {
        let mut left = bytes;
        while let Some((from, piece)) = parts.take(left) {
            // SAFETY: `take` hands out valid pieces, by the promise of whoever made the cursor.
            unsafe { self.piece(from, piece) };
            left -= piece;
        }
        if self.rest_bytes > 0 {
            self.rest[self.rest_bytes..].fill(0);
            self.flush_rest();
        }
    }

    /// # Safety
    /// `from` must be valid for reads of `bytes`.
    #[inline]
    unsafe fn piece(&mut self, mut from: *const u8, mut bytes: usize) {
        if self.rest_bytes > 0 {
            let more = bytes.min(WORD - self.rest_bytes);
            // SAFETY: the caller's promise, for the first bytes.
            unsafe { self.keep(from, more) };
            (from, bytes) = (from.wrapping_add(more), bytes - more);
            if self.rest_bytes == WORD {
                self.flush_rest();
            }
        }
        // Either the word is full and written, or nothing is left of the piece.
        let words = bytes / WORD;
        // SAFETY: the caller's promise, for what has not been kept.
        unsafe { self.words(from, words) };
        let (from, bytes) = (from.wrapping_add(words * WORD), bytes % WORD);
        if bytes > 0 {
            // SAFETY: the caller's promise, for the last bytes.
            unsafe { self.keep(from, bytes) };
        }
    }

    /// # Safety
    /// `from` must be valid for reads of `bytes`, and the word must have room for them.
    unsafe fn keep(&mut self, from: *const u8, bytes: usize) {
        let room = &mut self.rest[self.rest_bytes..self.rest_bytes + bytes];
        // SAFETY: the source is the caller's promise, the slice has just so many bytes.
        unsafe { copy_nonoverlapping(from, room.as_mut_ptr(), bytes) };
        self.rest_bytes += bytes;
    }

    fn flush_rest(&mut self) {
        let rest = self.rest;
        // SAFETY: one word.
        unsafe { self.words(rest.as_ptr(), 1) };
        self.rest_bytes = 0;
    }

    /// # Safety
    /// `from` must be valid for reads of so many words.
    #[inline]
    unsafe fn words(&mut self, from: *const u8, words: usize) {
        let bytes = words * WORD;
        let (at, first) = self.slot.split(self.line, self.written, bytes);
        if first > 0 {
            // SAFETY: the caller's promise. The ring ends on a word, so `first` is whole words.
            unsafe { self.slot.remote.write(at, from, first / WORD) };
        }
        if first < bytes {
            let (at, rest) = self
                .slot
                .split(self.line, self.written + first, bytes - first);
            // SAFETY: the caller's promise, for the rest.
            unsafe {
                self.slot
                    .remote
                    .write(at, from.wrapping_add(first), rest / WORD)
            };
        }
        self.written += bytes;
    }
}
