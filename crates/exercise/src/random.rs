//! Random numbers that a seed repeats.

/// The odd number nearest to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;

/// SplitMix64: small, and good enough to make choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for each combination of `parts`.
    pub fn of(parts: &[u64]) -> Self {
        Self(
            parts
                .iter()
                .fold(0, |state, part| mix(state ^ mix(part.wrapping_add(GOLDEN)))),
        )
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number from 0 to below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "no number is below 0");
        let end = u64::try_from(end).expect("a usize fits into a u64");
        usize::try_from(self.next_u64() % end).expect("it is below a usize")
    }

    /// A number from `first` to `last`.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Scatter a number; no two numbers give the same.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(FIRST);
    let number = (number ^ (number >> 27)).wrapping_mul(SECOND);
    number ^ (number >> 31)
}

/// The number that [`mix`] made `mixed` of.
fn unmix(mixed: u64) -> u64 {
    let number = undo_shift(mixed, 31).wrapping_mul(inverse(SECOND));
    let number = undo_shift(number, 27).wrapping_mul(inverse(FIRST));
    undo_shift(number, 30)
}

/// The number x for which `x ^ (x >> shift)` is `shifted`, for shifts from 22 on.
fn undo_shift(shifted: u64, shift: u32) -> u64 {
    shifted ^ (shifted >> shift) ^ (shifted >> (2 * shift))
}

/// The number that an odd `number` must be multiplied by to give 1, by Newton's method.
const fn inverse(number: u64) -> u64 {
    let mut inverse = number;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(number.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// The word at a place of the sequence of words that belongs to `key`.
pub fn word_at(key: u64, place: u64) -> u64 {
    mix(key.wrapping_add(place.wrapping_mul(GOLDEN)))
}

/// The place at which [`word_at`] has this word.
pub fn place_of(key: u64, word: u64) -> u64 {
    unmix(word).wrapping_sub(key).wrapping_mul(inverse(GOLDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence() {
        let sequence = |seed| {
            let mut random = Random::new(seed);
            [(); 5].map(|()| random.next_u64())
        };
        assert_eq!(sequence(7), sequence(7));
        assert_ne!(sequence(7), sequence(8));
        assert_ne!(
            Random::of(&[1, 2]).next_u64(),
            Random::of(&[2, 1]).next_u64()
        );
    }

    #[test]
    fn a_word_tells_its_place() {
        let mut random = Random::new(3);
        for _ in 0..1000 {
            let (key, place) = (random.next_u64(), random.next_u64());
            assert_eq!(place_of(key, word_at(key, place)), place);
        }
    }

    #[test]
    fn numbers_keep_to_their_bounds() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| (3..=5).contains(&random.between(3, 5))));
    }
}
