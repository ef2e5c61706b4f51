//! A peer that scribbles over our slot between our calls, and during them.

use crosslane_ctl::lane::MIN_RING_LINES;

use crate::lane_memory::Edge;
use crate::support::dice::Dice;
use crate::support::hostile::{Attack, Suffered, Target, replay, suffer};

fn survive(edge: Edge, attacked: bool) {
    let target = Target::new(MIN_RING_LINES, edge);
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let attack = attacked.then(|| Attack::on(&target, seed));
    let (mut dice, mut suffered) = (Dice::new(seed), Suffered::default());
    suffer(&target, &mut dice, 50_000, &mut suffered);
    drop(attack);
    println!("{suffered:?}");
    assert!(suffered.lies > 0 && suffered.fine > 0, "{suffered:?}");
}

#[test]
fn scribbling_between_calls_is_survived() {
    survive(Edge::First, false);
    survive(Edge::Last, false);
}

#[test]
fn scribbling_during_calls_is_survived() {
    survive(Edge::Last, true);
}

/// The corpus of the fuzz target, and bytes that it may find.
#[test]
fn what_a_fuzzer_found_is_survived() {
    let target = Target::new(MIN_RING_LINES, Edge::Last);
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/posted_hostile"
    );
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("a folder that can be listed").path();
        replay(&target, &std::fs::read(path).expect("a readable file"));
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is empty");
}
