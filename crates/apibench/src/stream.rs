//! What is sent: a stream of words, each of which tells its place.

/// Odd and without a pattern: a shifted, lost or doubled word is another one.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of a word; messages are whole words.
pub const WORD: usize = 8;

/// Bytes of as many words as are built and checked at a time.
pub const CHUNK: usize = 64;

/// The words from one on.
#[inline]
fn words<const N: usize>(first: u64) -> [u64; N] {
    let base = first.wrapping_mul(STEP);
    std::array::from_fn(|at| base.wrapping_add((at as u64).wrapping_mul(STEP)))
}

/// Words as bytes.
#[inline]
fn bytes_of<const BYTES: usize, const WORDS: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(WORD).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Where one end stands in a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    words: u64,
    is_last: bool,
}

impl Position {
    /// Behind so many words.
    #[must_use]
    pub fn at(words: u64) -> Self {
        Self {
            words,
            is_last: false,
        }
    }

    /// What is built from here on is the last message: the complement of what it would be.
    pub fn begin_last(&mut self) {
        self.is_last = true;
    }

    /// Whether the last message has begun.
    #[inline]
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// The words that are due next.
    #[inline]
    fn due<const N: usize>(&self) -> [u64; N] {
        let mask = if self.is_last { u64::MAX } else { 0 };
        words(self.words).map(|word| word ^ mask)
    }

    /// Whether these bytes are due, or begin the last message.
    #[inline]
    fn accepts<const BYTES: usize, const WORDS: usize>(&mut self, bytes: [u8; BYTES]) -> bool {
        let due: [u64; WORDS] = self.due();
        let found: [u64; WORDS] =
            std::array::from_fn(|at| u64::from_le_bytes(part(&bytes, at * WORD)));
        let pairs = found.iter().zip(due);
        let differences = pairs.fold(0, |all, (word, due)| all | (word ^ due));
        differences == 0 || self.may_begin_last(&found, &due)
    }

    /// The last message may begin at any word of what was read at a time.
    #[cold]
    fn may_begin_last(&mut self, found: &[u64], due: &[u64]) -> bool {
        let was_last = self.is_last;
        found.iter().zip(due).all(|(&word, &due)| {
            self.is_last |= word == !due;
            !was_last && word == if self.is_last { !due } else { due }
        })
    }

    /// Build the next bytes of the stream into `write`, which takes an offset and a piece.
    #[inline]
    pub fn build(&mut self, bytes: usize, mut write: impl FnMut(usize, &[u8])) {
        let mut at = 0;
        while at + CHUNK <= bytes {
            write(at, &bytes_of::<CHUNK, 8>(self.due()));
            self.words += (CHUNK / WORD) as u64;
            at += CHUNK;
        }
        while at + WORD <= bytes {
            write(at, &bytes_of::<WORD, 1>(self.due()));
            self.words += 1;
            at += WORD;
        }
    }

    /// Check the next whole words of the stream, of which `read` gives a chunk or a word at an
    /// offset. Returns whether they are right.
    #[inline]
    #[must_use]
    pub fn check(
        &mut self,
        bytes: usize,
        read_chunk: impl Fn(usize) -> [u8; CHUNK],
        read_word: impl Fn(usize) -> [u8; WORD],
    ) -> bool {
        let (mut at, mut good) = (0, true);
        while at + CHUNK <= bytes {
            good &= self.accepts::<CHUNK, 8>(read_chunk(at));
            self.words += (CHUNK / WORD) as u64;
            at += CHUNK;
        }
        while at + WORD <= bytes {
            good &= self.accepts::<WORD, 1>(read_word(at));
            self.words += 1;
            at += WORD;
        }
        good
    }

    /// Check a slice of whole words.
    #[inline]
    #[must_use]
    pub fn check_slice(&mut self, slice: &[u8]) -> bool {
        self.check(slice.len(), |at| part(slice, at), |at| part(slice, at))
    }

    /// Bytes so far.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.words * WORD as u64
    }
}

/// Bytes of a slice that has them.
#[inline]
fn part<const N: usize>(slice: &[u8], at: usize) -> [u8; N] {
    slice[at..].first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(from: u64, bytes: usize) -> Vec<u8> {
        let mut all = vec![0; bytes];
        Position::at(from).build(bytes, |at, piece| {
            all[at..at + piece.len()].copy_from_slice(piece);
        });
        all
    }

    #[test]
    fn what_is_built_passes_in_other_pieces() {
        let all = built(5, 8184);
        let mut position = Position::at(5);
        for piece in all.chunks(8 * 31) {
            assert!(position.check_slice(piece));
        }
        assert_eq!(position.bytes(), 5 * 8 + 8184);
    }

    #[test]
    fn the_last_message_is_known_when_it_comes() {
        let mut all = built(0, 128);
        let mut position = Position::at(16);
        position.begin_last();
        all.resize(256, 0);
        position.build(128, |at, piece| {
            all[128 + at..128 + at + piece.len()].copy_from_slice(piece);
        });
        for cut in (0..256).step_by(8) {
            let mut position = Position::default();
            let (head, rest) = all.split_at(cut);
            assert!(
                position.check_slice(head) && position.check_slice(rest),
                "{cut}"
            );
            assert!(position.is_last());
        }
        let mut position = Position::default();
        assert!(position.check_slice(&all[..128]) && !position.is_last());
        assert!(position.check_slice(&all[128..]) && position.is_last());
        assert!(!position.check_slice(&built(32, 64)), "nothing follows it");
    }

    #[test]
    fn what_is_shifted_lost_or_torn_does_not() {
        let all = built(0, 256);
        assert!(!Position::at(1).check_slice(&all));
        assert!(!Position::at(0).check_slice(&all[8..]));
        let mut torn = all;
        torn[200] ^= 1;
        assert!(!Position::at(0).check_slice(&torn));
    }
}
