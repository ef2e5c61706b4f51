//! Random schedules: every byte checked, no wake-up lost.
//!
//! `CROSSLANE_POSTED_SCHEDULES=10000000 cargo test --release -p crosslane-ring --test posted schedules`
//! runs more than the usual ones; `CROSSLANE_POSTED_SEED` says where to begin. A seed that fails is
//! printed, and fails alone, too.

use crate::support::programs::Lapse;
use crate::support::schedule::{Story, run};
use crate::support::world::Fault;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text}, which is no number")),
    )
}

#[test]
fn no_byte_and_no_wake_up_is_lost() {
    let count = from_environment("CROSSLANE_POSTED_SCHEDULES").unwrap_or(100_000);
    let first = from_environment("CROSSLANE_POSTED_SEED").unwrap_or(0);
    let (mut total, mut frozen) = (Story::default(), 0_u64);
    for seed in first..first + count {
        match run(seed, Fault::None, Lapse::Nothing) {
            Ok(story) => {
                total.bells += story.bells;
                total.timers += story.timers;
                frozen += u64::from(story.frozen);
            }
            Err(failure) => panic!(
                "seed {seed}: {failure:?}; again: CROSSLANE_POSTED_SEED={seed} CROSSLANE_POSTED_SCHEDULES=1"
            ),
        }
    }
    println!("{count} schedules: {total:?}, {frozen} frozen");
    // What never happened was not checked.
    if count >= 10_000 {
        assert!(total.bells > 0 && total.timers > 0 && frozen > 0);
    }
}
