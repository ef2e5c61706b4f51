//! Schedules of what connections run over posted writes: both ends in one thread, with a memory each and TCP on the
//! loopback between them. One seed says what happens next: a call of either program, a look by either library's thread, or
//! the arrival of one posted write, of those that PCIe's order allows. TCP overtakes everything.
//!
//! A schedule goes from rest to rest: a few steps, then all arrives, both threads look, and who is rung goes on. Then every
//! byte must have come, and nobody may sleep who has something to do. A connection plays [`Run::SCHEDULES`] of them, one after
//! the other; the seed is the connection's.
//!
//! `CROSSLANE_POSTED_STREAM_SCHEDULES=10000000 cargo test --release -p crosslane-stream --lib schedules -- --nocapture` plays
//! more than the usual ones; `CROSSLANE_POSTED_STREAM_SEED` says where to begin. `cargo xtask test --only schedules` plays
//! 2,000,000.

mod credit;
mod host;
mod mutants;
mod run;
mod scripts;
mod wire;

use core::sync::atomic::Ordering;
use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::End;
use run::{Run, Told};
use wire::{Fault, Way};

thread_local! {
    /// The two ways between the hosts that this thread plays.
    static WAYS: RefCell<Option<[Way; 2]>> = const { RefCell::new(None) };
    /// What time it is there, in ticks; 0 where nothing is played.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Ends that are played, which the library's own thread leaves alone.
static PLAYED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Whether this thread plays both hosts, and the library's threads there.
pub(crate) fn is_played() -> bool {
    NOW.get() != 0
}

/// What time it is, where it is played.
pub(crate) fn now(ticks: u64) -> u64 {
    match NOW.get() {
        0 => ticks,
        now => now,
    }
}

/// Whether another thread plays this end.
pub(crate) fn is_others(end: &End) -> bool {
    let played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    played.contains(&end.index)
}

fn have(end: &End) {
    let mut played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    played.push(end.index);
}

fn have_no_more(end: &End) {
    let mut played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    played.retain(|index| *index != end.index);
}

fn on_way(from: usize, act: impl FnOnce(&mut Way)) -> bool {
    WAYS.with_borrow_mut(|ways| {
        let mut ways = ways.iter_mut().flatten();
        ways.find(|way| way.is_from(from)).map(act)
    })
    .is_some()
}

/// Keep words that are on their way. False where this thread plays nothing.
pub(super) fn take(from: usize, words: impl Iterator<Item = (usize, u64)>) -> bool {
    on_way(from, |way| way.take(words))
}

/// What is posted from here on arrives behind what was before.
pub(super) fn fence(from: usize) -> bool {
    on_way(from, Way::fence)
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is {text}, which is no number")))
}

#[test]
fn no_byte_and_no_wake_up_of_a_connection_is_lost() {
    let count = from_environment("CROSSLANE_POSTED_STREAM_SCHEDULES").unwrap_or(100_000);
    let first = from_environment("CROSSLANE_POSTED_STREAM_SEED").unwrap_or(0);
    let seeds = first..first + count.div_ceil(Run::SCHEDULES);
    let begun = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let told = std::thread::scope(|scope| {
        let start = |number| {
            let own = seeds.clone().skip(number).step_by(processors);
            scope.spawn(move || play(own))
        };
        let threads: Vec<_> = (0..processors).map(start).collect();
        threads.into_iter().fold(Told::default(), |mut all, one| {
            all.add(&one.join().expect("it names its seed above"));
            all
        })
    });
    println!("{told:?} in {:?}", begun.elapsed());
    // What never happened was not checked.
    let happened = [
        told.bells,
        told.full,
        told.woken,
        told.starts,
        told.stops,
        told.replays,
    ];
    assert!(told.schedules >= count && happened.iter().all(|times| *times > 0));
}

fn play(seeds: impl Iterator<Item = u64>) -> Told {
    let mut all = Told::default();
    for seed in seeds {
        match Run::play(seed, Fault::None) {
            Ok(told) => all.add(&told),
            Err(failure) => panic!(
                "{failure}\nagain: CROSSLANE_POSTED_STREAM_SEED={seed} CROSSLANE_POSTED_STREAM_SCHEDULES=1"
            ),
        }
    }
    all
}

#[test]
fn a_schedule_is_the_same_for_the_same_seed() {
    let play = || Run::play(42, Fault::None).unwrap();
    assert_eq!(play(), play());
}
