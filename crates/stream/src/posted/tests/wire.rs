//! What lies between two hosts: words that were posted arrive late, and after those before the last fence; among them
//! only words at one place keep their order, as processors combine writes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crosslane_window::outbound::Outbound;

use super::dice::Dice;
use super::schedules;

/// One way, from the host that has this outbound memory.
struct Wire {
    from: usize,
    to: usize,
    /// By fences: what stands in one may arrive in any order.
    under_way: VecDeque<Vec<(usize, u64)>>,
}

impl Wire {
    fn put(&mut self, words: impl Iterator<Item = (usize, u64)>) {
        if self.under_way.is_empty() {
            self.under_way.push_back(Vec::new());
        }
        if let Some(last) = self.under_way.back_mut() {
            last.extend(words);
        }
    }

    /// The next word to arrive.
    fn take(&mut self, dice: &mut Dice) -> Option<(usize, u64)> {
        while self.under_way.len() > 1 && self.under_way.front().is_some_and(Vec::is_empty) {
            self.under_way.pop_front();
        }
        let first = self
            .under_way
            .front_mut()
            .filter(|words| !words.is_empty())?;
        let (place, _) = first[dice.below(first.len())];
        let oldest = first.iter().position(|(at, _)| *at == place)?;
        Some(first.remove(oldest))
    }
}

static WIRES: Mutex<Vec<Wire>> = Mutex::new(Vec::new());

fn on_wire<T>(from: usize, act: impl FnOnce(&mut Wire) -> T) -> Option<T> {
    let mut wires = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    wires.iter_mut().find(|wire| wire.from == from).map(act)
}

pub(super) fn name(memory: &Outbound) -> usize {
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
    if schedules::take(name(memory), (0..words).map(word)) {
        return true;
    }
    on_wire(name(memory), |wire| wire.put((0..words).map(word))).is_some()
}

/// What is put on the wire from here on arrives behind what was put there before.
pub(crate) fn fence(memory: &Outbound) {
    if schedules::fence(name(memory)) {
        return;
    }
    on_wire(name(memory), |wire| wire.under_way.push_back(Vec::new()));
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
                let words = dice.below(200);
                deliver(from, words, &mut dice);
                std::thread::sleep(Duration::from_micros(dice.below(longest + 1) as u64));
                if dice.below(400) == 0 {
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
            deliver(from, usize::MAX, &mut dice);
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

fn deliver(from: usize, words: usize, dice: &mut Dice) {
    on_wire(from, |wire| {
        for _ in 0..words {
            let Some((at, word)) = wire.take(dice) else {
                return;
            };
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
    let words = |wire: &Wire| wire.under_way.iter().map(Vec::len).sum();
    wires.iter().map(words).collect()
}

/// Which words are under way most.
pub(crate) fn most() -> Vec<(usize, usize)> {
    let wires = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut counts = std::collections::BTreeMap::new();
    for (at, _) in wires
        .iter()
        .flat_map(|wire| wire.under_way.iter().flatten())
    {
        *counts.entry(*at).or_insert(0) += 1;
    }
    let mut all: Vec<_> = counts.into_iter().map(|(at, count)| (count, at)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.truncate(8);
    all
}
