//! Latency: loads that each need the result of the one before.

use std::time::Instant;

use crate::kernel::{LINE, fence, flush, load, load_words, store, store_words};
use crate::map::Mapping;

/// The order in which lines follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Neighbour after neighbour, as prefetchers like it.
    Sequential,
    /// One random cycle through all of them.
    Random,
}

/// Which places of the window take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the window used, from its start.
    pub window_bytes: usize,
    /// Distance of the places: 64 for every line, 4096 for one line of every page.
    pub stride_bytes: usize,
    /// Offset of the word in its line; beyond 56 it lies in two lines.
    pub offset_bytes: usize,
    /// Order.
    pub order: Order,
}

/// Loads in one run of a distribution: reading the clock, some 25 ns, is spread over them.
pub const RUN: usize = 64;

/// Loads in one timing: 0.4 ms at 100 ns each, well below a scheduler's slice, so that where other
/// programs take turns on the processor the median is of timings that nobody has interrupted.
const TIMED: usize = 4096;

/// A chain laid out in a window.
#[derive(Debug)]
pub struct Chain<'a> {
    window: &'a Mapping,
    layout: Layout,
    /// What each step loads or stores: a word that says where the next one is, and zeros.
    transfer_bytes: usize,
    first: usize,
    places: usize,
}

impl<'a> Chain<'a> {
    /// Writes the chain; what was in the window is lost. Each place is a word.
    ///
    /// # Panics
    /// If the layout does not fit into the window.
    #[must_use]
    pub fn lay(window: &'a Mapping, layout: Layout) -> Self {
        Self::of_transfers(window, layout, 8)
    }

    /// Writes a chain of longer places, each of which is loaded or stored as a whole, in words: the next step needs all of
    /// them. They are further apart than the layout says where they would overlap.
    ///
    /// # Panics
    /// If the layout does not fit into the window, or a place is no whole words.
    #[must_use]
    pub fn of_transfers(window: &'a Mapping, layout: Layout, transfer_bytes: usize) -> Self {
        assert!(
            layout.window_bytes <= window.bytes(),
            "the layout fits into the window"
        );
        assert!(
            layout.offset_bytes < LINE && layout.stride_bytes >= LINE,
            "a word in a line"
        );
        assert!(
            transfer_bytes >= 8 && transfer_bytes.is_multiple_of(8),
            "whole words"
        );
        let touched = (layout.offset_bytes + transfer_bytes).next_multiple_of(LINE);
        let stride = layout.stride_bytes.max(touched);
        let places = (layout.window_bytes / stride).max(1);
        let order = order(places, layout.order);
        // One line per page is spread over the page, so that the lines do not fall into the same cache sets.
        let colours = (stride - touched) / LINE + 1;
        let at = |place: usize| place * stride + place % colours * LINE + layout.offset_bytes;
        let lay = |from: usize, to: usize| {
            store_words(
                window,
                at(order[from]),
                transfer_bytes,
                at(order[to]) as u64,
            );
        };
        (1..places).for_each(|place| lay(place - 1, place));
        lay(places - 1, 0);
        Self {
            window,
            layout,
            transfer_bytes,
            first: at(order[0]),
            places,
        }
    }

    /// Follows the chain for this many steps and returns where it is then.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn follow(&self, from: usize, steps: usize) -> usize {
        let mut at = from;
        for _ in 0..steps {
            // A peer that changed the window can only make the bounds check fail.
            at = self.read(at) as usize;
        }
        at
    }

    #[inline]
    fn read(&self, at: usize) -> u64 {
        match self.transfer_bytes {
            8 => load(self.window, at),
            bytes => load_words(self.window, at, bytes),
        }
    }

    #[inline]
    fn write(&self, at: usize, next: u64) {
        match self.transfer_bytes {
            8 => store(self.window, at, next),
            bytes => store_words(self.window, at, bytes, next),
        }
    }

    /// Mean ns per load, warm: the median of five timings or more, of at least `steps` loads in all.
    #[must_use]
    pub fn warm_ns(&self, steps: usize) -> f64 {
        let rounds = (steps / TIMED).max(5);
        let mut at = self.follow(self.first, self.places.min(steps));
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            at = self.follow(at, steps.div_ceil(rounds));
            times.push(nanoseconds(start) / as_f64(steps.div_ceil(rounds)));
        }
        std::hint::black_box(at);
        median(&mut times)
    }

    /// Mean ns per load of `count` short runs of [`RUN`] loads each, sorted: how latency is distributed.
    #[must_use]
    pub fn distribution_ns(&self, count: usize) -> Vec<f64> {
        let mut at = self.follow(self.first, self.places.min(count * RUN));
        let mut times: Vec<f64> = (0..count)
            .map(|_| {
                let start = Instant::now();
                at = self.follow(at, RUN);
                nanoseconds(start) / as_f64(RUN)
            })
            .collect();
        std::hint::black_box(at);
        times.sort_by(f64::total_cmp);
        times
    }

    /// Mean ns per load when every line was flushed before; thrice around or more often, at most `steps` loads each.
    #[must_use]
    pub fn flushed_ns(&self, steps: usize) -> f64 {
        let steps = self.places.min(steps);
        let mut times = Vec::new();
        // Few places are told little of by three times around.
        for _ in 0..(TIMED / steps.max(1)).clamp(3, 64) {
            flush(self.window, 0, self.layout.window_bytes);
            let (mut at, mut left) = (self.first, steps);
            while left > 0 {
                let timed = left.min(TIMED);
                let start = Instant::now();
                at = self.follow(at, timed);
                times.push(nanoseconds(start) / as_f64(timed));
                left -= timed;
            }
            std::hint::black_box(at);
        }
        median(&mut times)
    }

    /// Mean ns per step of a walk that stores what each place holds into it, and fences. On a BAR this is
    /// how long a posted write keeps its processor; nothing waits for its arrival.
    #[must_use]
    pub fn write_ns(&self, steps: usize) -> f64 {
        let around = self.places.min(steps).max(1);
        let walk = self.walk(around);
        let laps = (TIMED.min(steps) / around).max(1);
        let mut times: Vec<f64> = (0..5)
            .map(|_| {
                let start = Instant::now();
                for (at, next) in (0..laps).flat_map(|_| &walk) {
                    self.write(*at, *next);
                    fence();
                }
                nanoseconds(start) / as_f64(laps * around)
            })
            .collect();
        median(&mut times)
    }

    /// Mean ns per step of a walk that stores into each place, loads that back once, and goes on to where
    /// it says. On a BAR this is a posted write and the read that pushes it; in cached memory the processor
    /// answers the load out of its store buffer, so that neither goes anywhere.
    #[must_use]
    pub fn write_read_ns(&self, steps: usize) -> f64 {
        let walk = self.walk(self.places.min(steps).max(1));
        let rounds = (steps / TIMED).max(5);
        // A piece of the walk is timed at once, so that an interruption spoils one of many.
        let pieces = walk.chunks(TIMED).cycle().take(rounds);
        let mut times: Vec<f64> = pieces
            .map(|piece| {
                let laps = (TIMED.min(steps) / piece.len()).max(1);
                let start = Instant::now();
                for _ in 0..laps {
                    let write = |at, next| self.write(at, next);
                    write_and_read(piece, write, |at| self.read(at));
                }
                nanoseconds(start) / as_f64(laps * piece.len())
            })
            .collect();
        median(&mut times)
    }

    /// So many places of the chain, each with what it holds, so that a walk need not load that first.
    #[allow(clippy::cast_possible_truncation)]
    fn walk(&self, steps: usize) -> Vec<(usize, u64)> {
        let mut at = self.first;
        let mut step = || {
            let next = self.read(at);
            (std::mem::replace(&mut at, next as usize), next)
        };
        (0..steps).map(|_| step()).collect()
    }
}

/// Each load says where the next store goes, so that none of them begins before the last one has ended.
#[inline]
#[allow(clippy::cast_possible_truncation)]
fn write_and_read(
    walk: &[(usize, u64)],
    mut write: impl FnMut(usize, u64),
    mut read: impl FnMut(usize) -> u64,
) {
    let mut at = walk.first().map_or(0, |(first, _)| *first);
    for (_, next) in walk {
        write(at, *next);
        at = read(at) as usize;
    }
    std::hint::black_box(at);
}

/// One cycle through all places (Sattolo's algorithm), the same every time.
#[allow(clippy::cast_possible_truncation)]
fn order(places: usize, order: Order) -> Vec<usize> {
    let mut all: Vec<usize> = (0..places).collect();
    if order == Order::Random {
        // xorshift64* (Marsaglia, Vigna): quality hardly matters, repeatability does.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for i in (1..places).rev() {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
            all.swap(i, (random as usize * i) >> 32);
        }
    }
    all
}

pub(crate) fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn as_f64(number: usize) -> f64 {
    number as f64
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Pages;

    fn layout(order: Order, stride_bytes: usize, offset_bytes: usize) -> Layout {
        Layout {
            window_bytes: 1 << 18,
            stride_bytes,
            offset_bytes,
            order,
        }
    }

    #[test]
    fn a_chain_visits_every_place_once() {
        let window = Mapping::anonymous(1 << 18, Pages::Small).unwrap();
        for order in [Order::Sequential, Order::Random] {
            for (stride, offset) in [(64, 0), (64, 24), (4096, 0)] {
                let chain = Chain::lay(&window, layout(order, stride, offset));
                let mut at = chain.first;
                let mut seen = std::collections::HashSet::new();
                while seen.insert(at) {
                    at = chain.follow(at, 1);
                }
                assert_eq!(
                    seen.len(),
                    (1 << 18) / stride,
                    "{order:?} {stride} {offset}"
                );
                assert_eq!(at, chain.first);
            }
        }
    }

    /// As pcie-bench's LAT_WRRD is: one write, one read of the same.
    #[test]
    fn a_write_and_read_is_one_store_and_one_load_of_each_place() {
        let window = Mapping::anonymous(1 << 18, Pages::Small).unwrap();
        let chain = Chain::lay(&window, layout(Order::Random, 64, 0));
        let walk = chain.walk(chain.places);
        let done = std::cell::RefCell::new(Vec::new());
        let write = |at, next| {
            done.borrow_mut().push(("store", at));
            store(&window, at, next);
        };
        write_and_read(&walk, write, |at| {
            done.borrow_mut().push(("load", at));
            load(&window, at)
        });
        let mut at = chain.first;
        for pair in done.borrow().chunks(2) {
            assert_eq!(pair, [("store", at), ("load", at)]);
            at = chain.follow(at, 1);
        }
        assert_eq!((done.borrow().len(), at), (2 * chain.places, chain.first));
    }

    /// What was in the window before is not taken for a part of the chain.
    #[test]
    fn longer_places_are_loaded_whole_and_do_not_overlap() {
        let window = Mapping::anonymous(1 << 18, Pages::Small).unwrap();
        for (bytes, offset, stride) in [(16, 0, 64), (64, 8, 64), (256, 0, 64), (2048, 0, 4096)] {
            (0..1 << 18)
                .step_by(8)
                .for_each(|at| store(&window, at, u64::MAX));
            let chain = Chain::of_transfers(&window, layout(Order::Random, stride, offset), bytes);
            assert!(chain.write_ns(1000) > 0.0 && chain.write_read_ns(1000) > 0.0);
            let (mut at, mut seen) = (chain.first, std::collections::BTreeSet::new());
            while seen.insert(at) {
                let words = (0..bytes).step_by(8).map(|word| load(&window, at + word));
                assert_eq!(words.fold(0, std::ops::BitOr::bitor), chain.read(at));
                at = chain.follow(at, 1);
            }
            let apart = (offset + bytes).next_multiple_of(LINE).max(stride);
            assert_eq!((seen.len(), at), ((1 << 18) / apart, chain.first));
            let seen: Vec<_> = seen.into_iter().collect();
            assert!(seen.windows(2).all(|pair| pair[1] - pair[0] >= bytes));
            // Any of the words is waited for.
            store(&window, at + bytes - 8, 1 << 40);
            assert_ne!(chain.read(at) & 1 << 40, 0);
        }
    }

    #[test]
    fn times_are_positive() {
        let window = Mapping::anonymous(1 << 18, Pages::Small).unwrap();
        let chain = Chain::lay(&window, layout(Order::Random, 64, 0));
        assert!(chain.warm_ns(10_000) > 0.0);
        assert!(chain.write_read_ns(10_000) > 0.0);
        assert!(chain.write_ns(10_000) > 0.0);
        // What a walk of writes leaves behind is the chain.
        assert!(chain.warm_ns(10_000) > 0.0);
        assert!(chain.flushed_ns(1000) > 0.0);
        let distribution = chain.distribution_ns(100);
        assert!(distribution.len() == 100 && distribution.is_sorted() && distribution[0] > 0.0);
    }
}
