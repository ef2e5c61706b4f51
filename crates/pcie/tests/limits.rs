//! What cannot be simulated is refused, and nothing panics.

use crosslane_pcie::profile::{Device, Host, nfp6000};
use crosslane_pcie::sim::bench::{Bench, Run, SWITCH};
use crosslane_pcie::sim::fabric::{Fabric, Hop, MAX_HOPS, Options};

fn host(name: &str) -> Host {
    Host::load(name).unwrap()
}

fn with(options: Options) -> Run {
    Run {
        transfers: 100,
        options,
        ..Run::default()
    }
}

#[test]
fn a_way_has_at_most_32_hops() {
    let run = |hops: usize| {
        let options = Options {
            hops: vec![SWITCH; hops],
            ..Options::default()
        };
        let made = Fabric::new(&host("e5-2630v4"), &options).is_ok();
        let run = with(options).execute(&host("e5-2630v4"), &nfp6000());
        assert_eq!(made, run.is_ok());
        run.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(MAX_HOPS, 32);
    assert_eq!(run(32), Ok(()));
    for hops in [33, 256, 300, 1000] {
        let error = run(hops).unwrap_err();
        assert!(
            error.contains(&hops.to_string()) && error.contains("up to 32"),
            "{error}"
        );
    }
}

#[test]
fn tags_and_hops_that_no_system_has_are_refused() {
    let refused = |options: Options| {
        let run = with(options).execute(&host("e5-2630v4"), &nfp6000());
        run.unwrap_err().to_string()
    };
    for tags in [0, 1025] {
        let options = Options {
            tags,
            ..Options::default()
        };
        assert!(refused(options).contains("1 to 1024"));
    }
    for forward_ns in [-1.0, f64::NAN, 1e300] {
        let options = Options {
            hops: vec![Hop { forward_ns }],
            ..Options::default()
        };
        assert!(refused(options).contains("0 to 1000000 ns"));
    }
}

/// Virtual time went beyond what its 64 bits hold, and numbers of another run came out.
#[test]
fn a_run_that_takes_too_long_is_refused() {
    let mut host = host("e3-1226v3");
    let sleep = host.sleep.as_mut().unwrap();
    (sleep.period_ns, sleep.spread_ns) = (1e9, 1e9);
    (sleep.first_success, sleep.later_success) = (0.01, 0.01);
    sleep.deep_every_ns = 1e9;
    host.write_line_ns = 1e9;
    // Reads in a stream keep it awake.
    for bench in [Bench::LatRd, Bench::LatWrrd, Bench::BwWr, Bench::BwRdwr] {
        let run = Run {
            bench,
            size_bytes: 1024,
            transfers: 500_000,
            ..Run::default()
        };
        let error = run.execute(&host, &nfp6000()).unwrap_err().to_string();
        assert!(
            error.starts_with("500000 transfers of 1024 B take more than 53 days"),
            "{error}"
        );
    }
}

/// They filled the memory of the machine.
#[test]
fn more_requests_at_once_than_fit_into_memory_are_refused() {
    let device = Device {
        contexts: 65_536,
        ..nfp6000()
    };
    let run = |bench, size_bytes| Run {
        bench,
        size_bytes,
        transfers: 100,
        options: Options {
            window_bytes: 16 << 20,
            ..Options::default()
        },
        ..Run::default()
    };
    let refused = run(Bench::BwRd, 16 << 20).execute(&host("e5-2630v4"), &device);
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("65536 reads of 16777216 B") && error.contains("at most 33554432"),
        "{error}"
    );
    assert!(
        run(Bench::BwRd, 64)
            .execute(&host("e5-2630v4"), &device)
            .is_ok()
    );
}

#[test]
fn transfers_beyond_the_range_are_not_called_too_few() {
    let run = Run {
        transfers: 100_000_001,
        ..Run::default()
    };
    let error = run.execute(&host("e5-2630v4"), &nfp6000()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "100000001 transfers are outside 100 to 100000000: --transfers takes these"
    );
}

/// The median run's interval is legal; those of the fifth and 95th percentile were refused in its stead.
#[test]
fn a_range_is_of_legal_runs() {
    let mut host = host("e3-1226v3");
    let sleep = host.sleep.as_mut().unwrap();
    (sleep.deep_every_ns, sleep.deep_every_spread) = (1.0, 3.0);
    let run = Run {
        bench: Bench::BwWr,
        transfers: 100,
        ..Run::default()
    };
    let range = run.range_gbps(&host, &nfp6000()).unwrap();
    assert!(range.is_some());
}
