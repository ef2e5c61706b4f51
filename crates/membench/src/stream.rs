//! Bandwidth: whole lines, one after another or anywhere.

use std::time::Instant;

use crate::chain::{Order, as_f64, median, nanoseconds};
use crate::kernel::{LINE, Store, fence, load_line, store_line};
use crate::map::Mapping;

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// Into the core.
    Load,
    /// Out of it.
    Store(Store),
}

/// Gb/s of a stream over the first `window_bytes` of a window, `total_bytes` in all.
#[must_use]
pub fn gbps(
    window: &Mapping,
    window_bytes: usize,
    what: Move,
    order: Order,
    total_bytes: usize,
) -> f64 {
    let lines = (window_bytes / LINE).max(1);
    let per_round = (total_bytes / LINE / 3).max(1);
    // An odd step visits every line of a power-of-two window in an order that prefetchers do not follow.
    let step = if order == Order::Random {
        ((lines / 2 + 1) * 7) | 1
    } else {
        1
    };
    run(window, lines, lines.min(per_round), step, what);
    let mut rates: Vec<f64> = (0..3)
        .map(|_| {
            let start = Instant::now();
            run(window, lines, per_round, step, what);
            as_f64(per_round * LINE) * 8.0 / nanoseconds(start)
        })
        .collect();
    median(&mut rates)
}

fn run(window: &Mapping, lines: usize, count: usize, step: usize, what: Move) {
    let mut line = 0;
    for _ in 0..count {
        match what {
            Move::Load => load_line(window, line * LINE),
            Move::Store(how) => store_line(window, line * LINE, how),
        }
        line += step;
        while line >= lines {
            line -= lines;
        }
    }
    fence();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Pages;

    #[test]
    fn every_kind_moves() {
        let window = Mapping::anonymous(1 << 16, Pages::Small).unwrap();
        for what in [
            Move::Load,
            Move::Store(Store::Cached),
            Move::Store(Store::NonTemporal),
        ] {
            for order in [Order::Sequential, Order::Random] {
                assert!(gbps(&window, 1 << 16, what, order, 1 << 18) > 0.0);
            }
        }
    }
}
