//! Calls on a posted lane whose peer writes over all of our slot, both as these bytes say and, from
//! another thread, all the time.
#![no_main]

use std::sync::{Arc, LazyLock};

use crosslane_ctl::lane::MIN_RING_LINES;
use crosslane_fuzz::lane_memory::Edge;
use crosslane_fuzz::posted::hostile::{self, Attack, Target};
use libfuzzer_sys::fuzz_target;

/// The scribbler goes on as long as the fuzzer does.
static TARGET: LazyLock<(Arc<Target>, Attack)> = LazyLock::new(|| {
    let target = Target::new(MIN_RING_LINES, Edge::Last);
    let attack = Attack::on(&target, u64::from(std::process::id()));
    (target, attack)
});

fuzz_target!(|bytes: &[u8]| hostile::replay(&TARGET.0, bytes));
