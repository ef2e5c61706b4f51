//! What lies between two hosts: words that were posted arrive late, and in order.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crosslane_window::outbound::Outbound;

use super::dice::Dice;

/// One way, from the host that has this outbound memory.
struct Wire {
    from: usize,
    to: usize,
    under_way: VecDeque<(usize, u64)>,
}

static WIRES: Mutex<Vec<Wire>> = Mutex::new(Vec::new());

fn on_wire<T>(from: usize, act: impl FnOnce(&mut Wire) -> T) -> Option<T> {
    let mut wires = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    wires.iter_mut().find(|wire| wire.from == from).map(act)
}

fn name(memory: &Outbound) -> usize {
    core::ptr::from_ref(memory).addr()
}

/// Keep words that are on their way. False where nothing lies between.
///
/// # Safety
/// `from` must be valid for reads of so many words.
pub(crate) unsafe fn take(memory: &Outbound, at: usize, from: *const u8, words: usize) -> bool {
    let word = |index: usize| {
        let from = from.wrapping_add(8 * index).cast::<u64>();
        // SAFETY: the caller's promise.
        (at + 8 * index, unsafe { from.read_unaligned() })
    };
    let take = |wire: &mut Wire| wire.under_way.extend((0..words).map(word));
    on_wire(name(memory), take).is_some()
}

/// Brings what was posted.
pub(crate) struct Courier {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Courier {
    /// Have what is written into `memory` arrive where its bytes begin at `to`.
    pub(crate) fn new(memory: &'static Outbound, to: usize, seed: u64) -> Self {
        let from = name(memory);
        let wire = Wire {
            from,
            to,
            under_way: VecDeque::new(),
        };
        WIRES.lock().unwrap().push(wire);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut dice = Dice::new(seed);
            let longest = [0, 100, 1_000, 5_000][dice.below(4)];
            while !over.load(Ordering::Relaxed) {
                deliver(from, dice.below(200));
                std::thread::sleep(Duration::from_micros(dice.below(longest + 1) as u64));
                if dice.below(400) == 0 {
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
            deliver(from, usize::MAX);
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

fn deliver(from: usize, words: usize) {
    on_wire(from, |wire| {
        let count = words.min(wire.under_way.len());
        for (at, word) in wire.under_way.drain(..count) {
            let cell = core::ptr::with_exposed_provenance_mut(wire.to + at);
            // SAFETY: an aligned word of memory that is never unmapped.
            unsafe { AtomicU64::from_ptr(cell) }.store(word, Ordering::Release);
        }
    });
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How many words are under way, from each host that has posted any.
pub(crate) fn under_way() -> Vec<usize> {
    let wires = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    wires.iter().map(|wire| wire.under_way.len()).collect()
}

/// Which words are under way most.
pub(crate) fn most() -> Vec<(usize, usize)> {
    let wires = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut counts = std::collections::BTreeMap::new();
    for (at, _) in wires.iter().flat_map(|wire| &wire.under_way) {
        *counts.entry(*at).or_insert(0) += 1;
    }
    let mut all: Vec<_> = counts.into_iter().map(|(at, count)| (count, at)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.truncate(8);
    all
}
