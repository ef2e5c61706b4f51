//! Whether spinning is worth its time (`adaptive`).
//!
//! A spin that finds something saves a sleep and a wake-up, of both ends' time and of the answer's; it costs what it
//! takes, found or not. So a thread remembers how many of its spins have found something, and how soon. While they
//! are worth it, it spins for as long as a sleep costs, or longer where that has paid; when they are not, it rests:
//! some dozens of waits are slept before it tries again, and twice as many after each try in vain.

/// What a sleep costs that a spin would have saved: the doorbell, and waking, on an idle processor most of all.
const SLEEP_US: u64 = 30;
/// It counts twice, because the answer is late by it, too.
const SAVED_US: u64 = 2 * SLEEP_US;
/// Most that a spin may take, and what one takes that is to find out.
const MOST_US: u64 = 50;
/// What a spin takes while the thread rests.
const LEAST_US: u64 = 2;
/// After so many sleeps in a row not even that: it pays where one in fifteen finds something.
const VAIN: u32 = 16;
/// A rest is of so many waits at least, and of up to twice as many more. Not the same number each time: two ends that
/// try again at the same time find each other.
const LEAST_REST: u32 = 32;
const MOST_REST: u32 = 512;

/// All of them.
const WHOLE: u64 = 1 << 8;
/// Half of them: not known.
const UNKNOWN: u64 = WHOLE / 2;
/// So many have paid for the next rest to be a short one.
const MANY: u64 = WHOLE * 3 / 4;
/// Each spin changes what is known of those before by one part in so many.
const MEMORY: u64 = 8;
/// Parts of a microsecond that are kept.
const PARTS: u64 = 16;

/// What a thread knows of its spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worth {
    /// Of [`WHOLE`] spins, how many found something.
    found: u64,
    /// How long those took, in [`PARTS`] of a microsecond.
    took: u64,
    /// Waits to be slept before the next try.
    rests: u32,
    /// How long the next rest is.
    next_rest: u32,
    /// Sleeps in a row.
    vain: u32,
}

impl Worth {
    /// Of a new thread.
    pub(crate) const NEW: Self = Self {
        found: UNKNOWN,
        took: MOST_US / 2 * PARTS,
        rests: 0,
        next_rest: LEAST_REST,
        vain: 0,
    };

    /// How long the next spin may take.
    pub(crate) fn patience_us(self) -> u64 {
        match (self.rests, self.found) {
            (0, UNKNOWN) => MOST_US,
            (0, _) => self.usual_us(),
            _ if self.vain < VAIN => LEAST_US,
            _ => 0,
        }
    }

    /// How long a spin takes that is worth it: what a sleep costs, as nothing else is lost by it, or longer if those
    /// that found something have taken longer.
    fn usual_us(self) -> u64 {
        (2 * self.took / PARTS).clamp(SLEEP_US, MOST_US)
    }

    /// After a spin of `took_us` that has found something.
    pub(crate) fn after_found(self, took_us: u64) -> Self {
        let (old, new) = (self.took, took_us.min(MOST_US) * PARTS);
        // What takes longer than it did must be waited for longer at once.
        let took = if new > old {
            new.midpoint(old)
        } else {
            old - (old - new) / MEMORY
        };
        let found = self.found + (WHOLE - self.found) / MEMORY;
        let next_rest = if found > MANY {
            LEAST_REST
        } else {
            self.next_rest
        };
        Self {
            found,
            took,
            next_rest,
            vain: 0,
            ..self
        }
    }

    /// Whether the last wait was slept.
    #[inline]
    pub(crate) fn is_in_vain(self) -> bool {
        self.vain > 0
    }

    /// After a spin that took nearly no time.
    pub(crate) fn after_brief(self) -> Self {
        Self { vain: 0, ..self }
    }

    /// After a wait that was slept; `some` is any number.
    pub(crate) fn after_sleep(self, some: u64) -> Self {
        let vain = self.vain.saturating_add(1);
        if self.rests > 0 {
            let rests = self.rests - 1;
            return Self {
                rests,
                vain,
                ..self
            };
        }
        let found = self.found - self.found / MEMORY;
        let next = Self {
            found,
            vain,
            ..self
        };
        match next.is_worth_it() {
            true => next,
            false => next.resting(some),
        }
    }

    fn resting(self, some: u64) -> Self {
        let least = self.next_rest;
        let more = u32::try_from(some % u64::from(2 * least)).unwrap_or(0);
        Self {
            found: UNKNOWN,
            rests: least + more,
            next_rest: (2 * least).min(MOST_REST),
            ..self
        }
    }

    fn is_worth_it(self) -> bool {
        let took_us = self.took / PARTS;
        let saved = self.found * SAVED_US;
        let spent = self.found * took_us + (WHOLE - self.found) * self.usual_us();
        saved >= spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of so many microseconds each, in turn. What was spun in the second half of them, and how many of those were
    /// slept.
    fn play(waits: &[u64], rounds: u64) -> (u64, u64) {
        let (mut worth, mut spun, mut slept) = (Worth::NEW, 0, 0);
        for round in 0..2 * rounds {
            for &wait in waits {
                let patience = worth.patience_us();
                let is_found = wait <= patience;
                worth = match is_found {
                    true => worth.after_found(wait),
                    false => worth.after_sleep(round * 7919),
                };
                if round >= rounds {
                    spun += wait.min(patience);
                    slept += u64::from(!is_found);
                }
            }
        }
        (spun, slept)
    }

    #[test]
    fn answers_that_come_soon_are_spun_for() {
        for wait in [1, 10, 20, 45] {
            assert_eq!(play(&[wait], 10_000).1, 0, "{wait} us");
        }
    }

    #[test]
    fn news_that_come_late_are_slept_for() {
        for wait in [60, 100, 10_000] {
            let (spun, slept) = play(&[wait], 10_000);
            assert_eq!(slept, 10_000, "{wait} us");
            assert!(spun < 10_000, "{spun} us for nothing, {wait} us each");
        }
    }

    #[test]
    fn what_is_mostly_soon_is_spun_for_as_long_as_a_sleep_costs() {
        let (_, slept) = play(&[1, 1, 1, 25], 10_000);
        assert_eq!(slept, 0);
        let (_, slept) = play(&[10, 10, 10, 10, 10, 10, 10, 1_000], 10_000);
        assert_eq!(slept, 10_000);
    }

    #[test]
    fn a_change_is_noticed() {
        let idle = (0..5_000).fold(Worth::NEW, |worth, _| worth.after_sleep(17));
        let mut worth = idle;
        let mut slept = 0;
        while worth.patience_us() < 20 {
            (worth, slept) = (worth.after_sleep(17), slept + 1);
        }
        assert!(slept <= 3 * MOST_REST, "{slept} sleeps");
        worth = worth.after_found(20);
        assert!(worth.patience_us() >= 30);
    }
}
