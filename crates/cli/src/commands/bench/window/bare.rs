//! One processor and the window: pcie-bench's kinds of measurement, with loads and stores for DMA.

use std::collections::BTreeSet;
use std::time::Instant;

use crosslane_membench::chain::{Chain, Layout, Order};
use crosslane_membench::kernel::{CAN_FLUSH, LINE, Store};
use crosslane_membench::map::Mapping;
use crosslane_membench::stream::{Move, gbps};
use crosslane_window::backend::{Window, lasting_halves};

use super::Row;
use crate::commands::bench::output::number;

/// Sizes of the parts of a window that are gone through.
const PARTS: [usize; 5] = [8 << 10, 256 << 10, 4 << 20, 64 << 20, 1 << 30];

/// Sizes of transfers beyond one word, in words; no device cuts them into packets, so that none lies just beside another.
const TRANSFERS: [usize; 8] = [16, 32, 64, 128, 256, 512, 1024, 2048];
const QUICK_TRANSFERS: [usize; 3] = [64, 512, 2048];

/// Offsets of a word in its line; the last two lie in two lines.
const OFFSETS: [usize; 5] = [0, 8, 56, 60, 63];

const ORDERS: [(Order, &str); 2] = [(Order::Random, "random"), (Order::Sequential, "sequential")];

/// Latencies and bandwidths by loads and stores.
pub fn measure(window: &Mapping, quick: bool) -> Vec<Row> {
    let steps = if quick { 20_000 } else { 400_000 };
    let mut rows = Vec::new();
    let parts = || PARTS.into_iter().filter(|bytes| *bytes <= window.bytes());
    for window_bytes in parts() {
        for (order, name) in ORDERS {
            let layout = Layout {
                window_bytes,
                stride_bytes: LINE,
                offset_bytes: 0,
                order,
            };
            let chain = Chain::lay(window, layout);
            rows.push(distribution(&chain, name, window_bytes, steps));
            let row = |kind, variant: &str| Row::new(kind, variant, 8, window_bytes);
            rows.push(row("write_read", name).ns(chain.write_read_ns(steps)));
            rows.push(row("write", name).ns(chain.write_ns(steps)));
            if CAN_FLUSH {
                rows.push(row("read", &format!("{name}, cold")).ns(chain.flushed_ns(steps / 10)));
            }
        }
        rows.extend(streams(window, window_bytes, quick));
    }
    let sized: BTreeSet<_> = parts()
        .next()
        .into_iter()
        .chain(parts().next_back())
        .collect();
    for window_bytes in sized {
        rows.extend(transfers(window, window_bytes, quick, steps));
    }
    rows.extend(offsets(window, steps));
    rows
}

/// Latency of longer transfers, as many bytes of each size.
fn transfers(window: &Mapping, window_bytes: usize, quick: bool, steps: usize) -> Vec<Row> {
    let sizes: &[usize] = if quick { &QUICK_TRANSFERS } else { &TRANSFERS };
    let mut rows = Vec::new();
    for &bytes in sizes {
        let layout = Layout {
            window_bytes,
            stride_bytes: LINE,
            offset_bytes: 0,
            order: Order::Random,
        };
        let chain = Chain::of_transfers(window, layout, bytes);
        let steps = steps / (bytes / 8);
        let row = |kind, variant: &str| Row::new(kind, variant, bytes, window_bytes);
        rows.push(row("read", "random").ns(chain.warm_ns(steps)));
        rows.push(row("write_read", "random").ns(chain.write_read_ns(steps)));
        rows.push(row("write", "random").ns(chain.write_ns(steps)));
        if CAN_FLUSH {
            rows.push(row("read", "random, cold").ns(chain.flushed_ns(steps)));
        }
    }
    rows
}

fn distribution(chain: &Chain<'_>, name: &str, window_bytes: usize, steps: usize) -> Row {
    let sorted = chain.distribution_ns(steps / 64 + 1000);
    let at = |permille: usize| sorted[(sorted.len() * permille / 1000).min(sorted.len() - 1)];
    Row {
        p99_ns: Some(at(990)),
        p999_ns: Some(at(999)),
        ..Row::new("read", name, 8, window_bytes).ns(at(500))
    }
}

fn offsets(window: &Mapping, steps: usize) -> Vec<Row> {
    let window_bytes = (16 << 10).min(window.bytes());
    let of_offset = |offset_bytes| {
        let layout = Layout {
            window_bytes,
            // Words that lie in two lines would overlap their neighbours' first bytes.
            stride_bytes: 2 * LINE,
            offset_bytes,
            order: Order::Random,
        };
        let chain = Chain::lay(window, layout);
        let row = |kind, ns| Row {
            offset: offset_bytes,
            ..Row::new(kind, "offset", 8, window_bytes).ns(ns)
        };
        [
            row("read", chain.warm_ns(steps)),
            row("write_read", chain.write_read_ns(steps)),
            row("write", chain.write_ns(steps)),
        ]
    };
    OFFSETS.into_iter().flat_map(of_offset).collect()
}

fn streams(window: &Mapping, window_bytes: usize, quick: bool) -> Vec<Row> {
    let total = if quick { 4 << 20 } else { 96 << 20 };
    let kinds = [
        ("read_bandwidth", "", Move::Load),
        ("write_bandwidth", "", Move::Store(Store::Cached)),
        (
            "write_bandwidth",
            ", around caches",
            Move::Store(Store::NonTemporal),
        ),
    ];
    let mut rows = Vec::new();
    for (kind, how, what) in kinds {
        for (order, name) in ORDERS {
            let rate = gbps(window, window_bytes, what, order, total);
            rows.push(Row::new(kind, &format!("{name}{how}"), LINE, window_bytes).gbps(rate));
        }
    }
    rows
}

/// Bandwidth of writes of each size, a fence after each, in the way that the window's lanes write, by one side, behind so
/// many bytes of what it writes.
pub fn writes(window: &'static dyn Window, side: usize, from: usize, quick: bool) -> Vec<Row> {
    let (_, remote) = lasting_halves(window, side);
    let room = remote.bytes().saturating_sub(from);
    let Some(remote) = remote.part(from, room) else {
        return Vec::new();
    };
    let total: usize = if quick { 4 << 20 } else { 64 << 20 };
    let mut rows = Vec::new();
    let sizes = [8, 64, 256, 1024, 4096, 16 << 10];
    for bytes in sizes.into_iter().filter(|bytes| *bytes <= remote.bytes()) {
        let words = vec![7; bytes / 8];
        let places = remote.bytes() / bytes;
        let count = total / bytes.max(64);
        let start = Instant::now();
        for index in 0..count {
            remote.put(index % places * bytes, &words);
            remote.fence();
        }
        let ns = start.elapsed().as_secs_f64() * 1e9 / number(count as u64);
        let row = Row::new(
            "write_bandwidth",
            "as lanes do, fenced",
            bytes,
            remote.bytes(),
        );
        rows.push(row.ns(ns).gbps(number(bytes as u64) * 8.0 / ns));
    }
    rows
}
