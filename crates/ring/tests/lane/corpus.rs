//! What the fuzz targets have found worth keeping, run again.

use std::path::{Path, PathBuf};

use crosslane_ctl::lane::MIN_RING_LINES;

use crate::support::hostile::{self, Target};
use crate::support::memory::Edge;
use crate::support::pair;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(&folder).expect("the corpus is part of the repository");
    let paths = entries.map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = paths
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

#[test]
fn inputs_of_the_model_replay() {
    for (path, bytes) in corpus("lane_model") {
        println!("{}", path.display());
        pair::replay(&bytes);
    }
}

#[test]
fn inputs_of_the_hostile_peer_replay() {
    let target = Target::new(MIN_RING_LINES, Edge::Last);
    let attack = target.attack(1);
    for (path, bytes) in corpus("lane_hostile") {
        println!("{}", path.display());
        hostile::replay(&target, &bytes);
    }
    drop(attack);
}
