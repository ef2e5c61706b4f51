//! Ends whose other end is on another host.

use crosslane_ctl::message::ANY_LANES;
use crosslane_monitor::arenas::WindowId;
use crosslane_monitor::registry::rack::Notice;
use crosslane_monitor::registry::{ClientId, FamilyId};

use crate::support::{Bench, socket};

const WINDOW: WindowId = WindowId(0);
const PAIR: u64 = 77;

/// A process with an end that has been granted the lanes `PAIR` in a window.
fn granted() -> (Bench, ClientId) {
    let mut bench = Bench::new();
    bench.registry.join_rack();
    let client = bench.process();
    bench.register(client, 1, socket(1, 0, 1));
    grant(&mut bench, PAIR);
    (bench, client)
}

/// The end that seeks its peer is granted these lanes.
fn grant(bench: &mut Bench, pair: u64) {
    let notices = bench.registry.take_notices();
    let seeking = |notice: &Notice| match notice {
        Notice::Seeking(end) => Some(*end),
        _ => None,
    };
    let end = notices.iter().find_map(seeking).unwrap();
    let stranger = FamilyId::stranger(1);
    assert!(
        bench
            .registry
            .grant_in(WINDOW, end, stranger, pair)
            .is_some()
    );
    assert_eq!(bench.grants().len(), 1);
}

/// Which lanes have been left since the last look, and whether they had been used.
fn left(bench: &mut Bench) -> Vec<(u64, bool)> {
    let notices = bench.registry.take_notices().into_iter();
    let left = notices.filter_map(|notice| match notice {
        Notice::Left(left) => Some((left.pair, left.was_used)),
        _ => None,
    });
    left.collect()
}

#[test]
fn lanes_that_a_process_declines_because_it_has_forked_are_left_unused() {
    let (mut bench, client) = granted();
    bench.registry.lease(client).unwrap();
    bench.registry.release(client, 1, 0);
    assert_eq!(left(&mut bench), [(PAIR, false)]);
}

#[test]
fn lanes_that_a_forked_child_may_be_in_are_left_when_it_ends() {
    for pair in [PAIR, ANY_LANES] {
        let (mut bench, client) = granted();
        let lease = bench.registry.lease(client).unwrap().unwrap();
        bench.registry.release(client, 1, pair);
        assert_eq!(left(&mut bench), []);
        bench.registry.lease_ended(lease);
        assert_eq!(left(&mut bench), [(PAIR, true)]);
    }
}

#[test]
fn the_children_of_a_process_that_is_gone_keep_its_lanes() {
    let (mut bench, client) = granted();
    let lease = bench.registry.lease(client).unwrap().unwrap();
    bench.registry.gone(client);
    assert_eq!(left(&mut bench), []);
    bench.registry.lease_ended(lease);
    assert_eq!(left(&mut bench), [(PAIR, true)]);
}
