//! A place in a lane as a word of shared memory tells it.

/// Bits of a word that are not the line's.
const LOW_BITS: u32 = 16;

/// Where a receiver stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// A line, never wrapped.
    pub line: u64,
    /// Bytes already taken from the record that starts there.
    pub taken: u16,
}

impl Place {
    /// As a word of shared memory: the line's low 48 bits, and then the bytes.
    pub const fn word(line: u64, taken: u16) -> u64 {
        line << LOW_BITS | taken as u64
    }

    /// What a word says, of a line that is less than 2^47 lines from `near`. A ring is much shorter; what is further
    /// away is a lie, and is taken for one that is not.
    pub const fn near(word: u64, near: u64) -> Self {
        let [low, high, ..] = word.to_le_bytes();
        let ahead = word.wrapping_sub(near << LOW_BITS).cast_signed() >> LOW_BITS;
        Self {
            line: near.wrapping_add_signed(ahead),
            taken: u16::from_le_bytes([low, high]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A busy connection passes this within days, as a turn skips most of a ring.
    const WRAP: u64 = 1 << 48;

    #[test]
    fn a_place_comes_back_from_its_word() {
        for line in [0, 1, WRAP - 1, WRAP, WRAP + 1, 5 * WRAP + 7] {
            for taken in [0, 1, 8183, u16::MAX] {
                let word = Place::word(line, taken);
                for near in [line, line + (1 << 18), line.saturating_sub(1 << 18)] {
                    assert_eq!(Place::near(word, near), Place { line, taken });
                }
            }
        }
    }

    #[test]
    fn what_was_never_sent_is_not_taken_for_what_was() {
        for tail in [10, WRAP - 3, WRAP + 10] {
            let ahead = Place::near(Place::word(tail + 1, 0), tail);
            assert_eq!(ahead.line, tail + 1);
            let back = Place::near(Place::word(tail - 10, 0), tail);
            assert_eq!(back.line, tail - 10);
        }
    }
}
