//! Translation beside everything else: who waits for whom at the walker.

use crosslane_pcie::profile::{Host, nfp6000};
use crosslane_pcie::sim::bench::{Bench, Outcome, Run};
use crosslane_pcie::sim::fabric::Options;

/// Alone, translated reads and writes of 64 B in a window of 64 MiB take a walk each, 52 and 46.5 ns apart; in turn they take
/// the sum, because both wait for one walker, and not a write's whole walk more.
#[test]
fn reads_beside_writes_share_the_walker_and_do_not_wait_for_each_others_walks() {
    let host = Host::load("e5-2630v4").unwrap();
    let each_ns = |bench| {
        let run = Run {
            bench,
            transfers: 10_000,
            options: Options {
                iommu: true,
                window_bytes: 64 << 20,
                ..Options::default()
            },
            ..Run::default()
        };
        match run.execute(&host, &nfp6000()).unwrap().outcome {
            Outcome::Bandwidth { per_s, .. } => 1e9 / per_s,
            Outcome::Latency(_) => unreachable!("a bandwidth benchmark"),
        }
    };
    let alone = each_ns(Bench::BwRd) + each_ns(Bench::BwWr);
    let together = each_ns(Bench::BwRdwr);
    assert!(
        (0.9..1.15).contains(&(together / alone)),
        "{together} and {alone} ns"
    );
}
