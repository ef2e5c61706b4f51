//! Random schedules: every byte checked, no wake-up lost.
//!
//! `CROSSLANE_POSTED_SCHEDULES=10000000 cargo test --release -p crosslane-ring --test posted schedules`
//! runs more than the usual ones, on all processors; `CROSSLANE_POSTED_SEED` says where to begin. A seed that fails
//! is printed, and fails alone, too. `cargo xtask test --only schedules` runs 2,000,000.

use std::num::NonZero;
use std::ops::Range;

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
    let told = play_on_all_processors(first..first + count);
    println!("{told:?}");
    assert_eq!(told.schedules, count);
    // What never happened was not checked.
    if count >= 10_000 {
        assert!(told.bells > 0 && told.timers > 0 && told.frozen > 0);
    }
}

/// What has happened in all of them.
#[derive(Debug, Default)]
struct Told {
    schedules: u64,
    bells: usize,
    timers: usize,
    frozen: u64,
}

impl Told {
    fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.bells += other.bells;
        self.timers += other.timers;
        self.frozen += other.frozen;
    }
}

fn play_on_all_processors(seeds: Range<u64>) -> Told {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let start = |number| {
            let own = seeds.clone().skip(number).step_by(processors);
            scope.spawn(move || play(own))
        };
        let threads: Vec<_> = (0..processors).map(start).collect();
        threads.into_iter().fold(Told::default(), |mut all, one| {
            all.add(&one.join().expect("it names its seed above"));
            all
        })
    })
}

fn play(seeds: impl Iterator<Item = u64>) -> Told {
    let mut told = Told::default();
    for seed in seeds {
        let Story {
            bells,
            timers,
            frozen,
        } = run(seed, Fault::None, Lapse::Nothing).unwrap_or_else(|failure| {
            panic!(
                "seed {seed}: {failure:?}; again: CROSSLANE_POSTED_SEED={seed} CROSSLANE_POSTED_SCHEDULES=1"
            )
        });
        told.add(&Told {
            schedules: 1,
            bells,
            timers,
            frozen: u64::from(frozen),
        });
    }
    told
}
