//! Randomness from a seed, or from a fuzzer's bytes.

use std::collections::VecDeque;

/// SplitMix64 (Steele, Lea, Flood 2014): every seed is a good one.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
    fed: VecDeque<u64>,
}

impl Dice {
    /// Dice that always roll the same after this seed.
    pub fn new(seed: u64) -> Self {
        let fed = VecDeque::new();
        Self { state: seed, fed }
    }

    /// Dice that roll what these bytes say, eight at a time, and go on by themselves.
    pub fn fed(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let fed = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Self { state: 0, fed }
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        if let Some(word) = self.fed.pop_front() {
            return word;
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        let scaled = (u128::from(self.roll()) * end as u128) >> 64;
        usize::try_from(scaled).expect("less than a usize")
    }

    /// A number from 1 to `2^bits`, small ones as often as large ones.
    pub fn size(&mut self, bits: usize) -> usize {
        let scale = self.below(bits + 1);
        1 + self.below(1 << scale)
    }

    /// One of some.
    pub fn pick<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }

    /// Whether it happens that happens so often in 256.
    pub fn happens(&mut self, in_256: u8) -> bool {
        self.roll() >> 56 < u64::from(in_256)
    }
}
