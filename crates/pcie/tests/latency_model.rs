//! The latency model against the simulator, which adds what queues, and against what was measured.

use crosslane_pcie::model::latency::{Path, read_terms, total_ns, write_read_terms};
use crosslane_pcie::profile::{Host, nfp6000};
use crosslane_pcie::sim::bench::{Bench, Outcome, Run};

/// (latency model, simulator's median) of reads and of writes that are read back.
fn both_ns(host: &Host, size_bytes: u32) -> [(Bench, f64, f64); 2] {
    let (device, link) = (nfp6000(), host.link.config().unwrap());
    let path = Path::default();
    let read = read_terms(&link, &device, host, &path, size_bytes);
    let write_read = write_read_terms(&link, &device, host, &path, size_bytes);
    [(Bench::LatRd, read), (Bench::LatWrrd, write_read)].map(|(bench, terms)| {
        let run = Run {
            bench,
            size_bytes,
            ..Run::default()
        };
        match run.execute(host, &device).unwrap().outcome {
            Outcome::Latency(found) => (bench, total_ns(&terms), found.quantile_ns(0.5)),
            Outcome::Bandwidth { .. } => unreachable!("a latency benchmark"),
        }
    })
}

#[test]
fn on_an_idle_system_the_latency_model_comes_out() {
    let host = Host {
        jitter_ns: 0.0,
        ..Host::load("e5-2630v4").unwrap()
    };
    for size_bytes in [64, 128, 512] {
        for (bench, model, simulated) in both_ns(&host, size_bytes) {
            let error = simulated / model - 1.0;
            assert!(
                error.abs() < 0.05,
                "{bench:?} {size_bytes}: {simulated} and {model}"
            );
        }
    }
}

/// 24 bytes of a request, less 8 that are the flit's, and 20 of each 256 that are none of a packet's.
#[test]
fn a_packet_in_flits_takes_their_share_of_the_link() {
    let mut host = Host::load("e5-2630v4").unwrap();
    (host.link.generation, host.link.lanes) = (6, 1);
    let link = host.link.config().unwrap();
    let terms = read_terms(&link, &nfp6000(), &host, &Path::default(), 64);
    let request = terms.iter().find(|term| term.name == "request on the wire");
    let (found, right) = (request.unwrap().ns, 16.0 * 8.0 / 64.0 * 256.0 / 236.0);
    assert!((found / right - 1.0).abs() < 1e-9, "{found} and {right}");
}

/// Its median 64 B read was measured at 1,213 ns, of which 680 are one wake-up.
#[test]
fn a_host_that_sleeps_is_woken_first() {
    let host = Host::load("e3-1226v3").unwrap();
    for size_bytes in [64, 256, 512, 1024] {
        for (bench, model, simulated) in both_ns(&host, size_bytes) {
            let error = simulated / model - 1.0;
            assert!(
                error.abs() < 0.03,
                "{bench:?} {size_bytes}: {simulated} and {model}"
            );
        }
    }
    let (_, read_ns, _) = both_ns(&host, 64)[0];
    assert!((read_ns / 1213.0 - 1.0).abs() < 0.02, "{read_ns}");
}
