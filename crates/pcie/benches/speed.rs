//! How fast the model and the simulator themselves are; prints one JSON object.
//!
//! `cargo bench -p crosslane-pcie`

use std::hint::black_box;
use std::time::Instant;

use crosslane_pcie::model::bandwidth::rate;
use crosslane_pcie::model::{Generation, LinkConfig, LinkSpec, Mix};
use crosslane_pcie::profile::{Host, nfp6000};
use crosslane_pcie::sim::bench::{Bench, Run};
use crosslane_pcie::sim::fabric::Options;

/// Milliseconds for sizes 1 to 4096 and all generations, write, read and both.
fn model_table_ms() -> f64 {
    let start = Instant::now();
    for generation in Generation::ALL {
        let link = LinkConfig::new(LinkSpec {
            generation,
            ..LinkSpec::default()
        })
        .expect("legal");
        for bytes in 1..=4096 {
            for mix in [Mix::Write, Mix::Read, Mix::ReadWrite] {
                black_box(rate(black_box(&link), mix, bytes));
            }
        }
    }
    start.elapsed().as_secs_f64() * 1e3
}

/// Millions of TLPs per second of one run, and whether it translated.
#[allow(clippy::cast_precision_loss)]
fn simulated(bench: Bench, size_bytes: u32, iommu: bool) -> f64 {
    let options = Options {
        iommu,
        window_bytes: 1 << 20,
        ..Options::default()
    };
    let run = Run {
        bench,
        size_bytes,
        transfers: 500_000,
        options,
        ..Run::default()
    };
    let host = Host::load("e5-2630v4").expect("a ready profile");
    let start = Instant::now();
    let report = run.execute(&host, &nfp6000()).expect("a legal run");
    report.tlps as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let table = (0..5)
        .map(|_| model_table_ms())
        .fold(f64::INFINITY, f64::min);
    let mut runs = serde_json::Map::new();
    for (bench, size, iommu) in [
        (Bench::BwRd, 64, false),
        (Bench::BwRd, 512, false),
        (Bench::BwWr, 64, false),
        (Bench::BwRdwr, 256, false),
        (Bench::BwRd, 64, true),
    ] {
        let name = format!(
            "{}_{size}{}",
            bench.name(),
            if iommu { "_iommu" } else { "" }
        );
        runs.insert(name, simulated(bench, size, iommu).into());
    }
    println!(
        "{}",
        serde_json::json!({ "model_table_ms": table, "million_tlps_per_s": runs })
    );
}
