//! The bytes of a stream, known at every offset.

use std::fmt;

use crate::random::{place_of, word_at};

const WORD: usize = 8;
/// No stream is longer, so a word that would lie beyond is no word of the stream.
const LONGEST: u64 = 1 << 40;

/// The bytes of one direction of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    key: u64,
}

/// A byte that should have been another.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the stream.
    pub offset: u64,
    /// The byte that belongs there.
    pub expected: u8,
    /// The byte that was there.
    pub found: u8,
    /// Where in the stream the bytes that were found belong, if they do anywhere.
    pub belongs_at: Option<u64>,
}

impl Content {
    /// The stream of a key.
    pub fn new(key: u64) -> Self {
        Self { key }
    }

    /// The bytes from `offset` on.
    pub fn fill(self, offset: u64, buffer: &mut [u8]) {
        let mut offset = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (place, skip) = split(offset);
            let word = word_at(self.key, place).to_le_bytes();
            let count = rest.len().min(WORD - skip);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&word[skip..skip + count]);
            offset += count as u64;
            rest = later;
        }
    }

    /// See whether `bytes` are those from `offset` on.
    ///
    /// # Errors
    /// The first byte that is not.
    pub fn check(self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (place, skip) = split(at);
            let word = word_at(self.key, place).to_le_bytes();
            let count = rest.len().min(WORD - skip);
            if rest[..count] != word[skip..skip + count] {
                return Err(self.mismatch(at, rest));
            }
            at += count as u64;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn mismatch(self, offset: u64, bytes: &[u8]) -> Mismatch {
        let mut expected = vec![0; bytes.len().min(WORD)];
        self.fill(offset, &mut expected);
        let index = expected
            .iter()
            .zip(bytes)
            .position(|(a, b)| a != b)
            .unwrap_or(0);
        Mismatch {
            offset: offset + index as u64,
            expected: expected[index],
            found: bytes[index],
            belongs_at: self.locate(&bytes[index..]),
        }
    }

    /// Where in the stream `bytes` stand.
    fn locate(self, bytes: &[u8]) -> Option<u64> {
        (0..WORD.min(bytes.len())).find_map(|skip| {
            let word = bytes.get(skip..skip + WORD)?.try_into().ok()?;
            let place = place_of(self.key, u64::from_le_bytes(word));
            let at = place.checked_mul(WORD as u64).filter(|&at| at < LONGEST)?;
            at.checked_sub(skip as u64)
        })
    }
}

/// The word in which an offset lies, and how far in.
fn split(offset: u64) -> (u64, usize) {
    let skip = usize::try_from(offset % WORD as u64).expect("it is below eight");
    (offset / WORD as u64, skip)
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            expected,
            found,
            ..
        } = self;
        write!(
            f,
            "byte {offset} is {found:#04x}, not {expected:#04x}: what was found "
        )?;
        match self.belongs_at {
            Some(at) => write!(f, "belongs at {at}"),
            None => f.write_str("belongs nowhere in this stream"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: Content = Content { key: 12345 };

    fn bytes(offset: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        CONTENT.fill(offset, &mut bytes);
        bytes
    }

    #[test]
    fn any_part_is_the_same_as_in_the_whole() {
        let whole = bytes(0, 100);
        for start in 0..20 {
            for end in start..100 {
                let part = bytes(start as u64, end - start);
                assert_eq!(part, whole[start..end]);
                assert_eq!(CONTENT.check(start as u64, &part), Ok(()));
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let mut wrong = bytes(3, 50);
        wrong[29] ^= 1;
        let mismatch = CONTENT.check(3, &wrong).unwrap_err();
        assert_eq!((mismatch.offset, mismatch.found), (32, wrong[29]));
    }

    #[test]
    fn bytes_that_came_twice_are_recognised() {
        let mut twice = bytes(0, 40);
        twice.extend(bytes(21, 40));
        let mismatch = CONTENT.check(0, &twice).unwrap_err();
        assert_eq!((mismatch.offset, mismatch.belongs_at), (40, Some(21)));
        assert!(mismatch.to_string().ends_with("belongs at 21"));
    }

    #[test]
    fn bytes_of_another_stream_belong_nowhere() {
        let mut other = [0; 40];
        Content::new(99).fill(0, &mut other);
        assert_eq!(CONTENT.check(0, &other).unwrap_err().belongs_at, None);
    }
}
