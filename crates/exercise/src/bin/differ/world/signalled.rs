//! What a signal makes of a call that sleeps.

use std::mem::discriminant;

use super::{Sleeper, World};

impl World {
    /// Whether a signal ends a call, which otherwise goes on, or begins again.
    pub fn is_ended_by_signal(&self, sleeper: &Sleeper, restart: bool) -> bool {
        if sleeper.is_send() {
            return self.is_send_ended_by_signal(sleeper, restart);
        }
        let has_limit = self.files[sleeper.file].limit_ms > 0;
        let begins_again = restart && sleeper.begins_again() && !has_limit;
        !begins_again && !sleeper.call.holds_signal()
    }

    /// Whether it is known what becomes of a call that a signal does not end.
    pub fn may_go_on(&self, sleeper: &Sleeper) -> bool {
        if sleeper.is_send() {
            // It would begin again on what has its number by now.
            return self.is_still_named(sleeper);
        }
        let next = self.next_file(sleeper);
        let is_taken = |file| {
            let mut takers = self.sleepers.iter().filter(|other| !other.is_send());
            takers.any(|other| other.sleeps_on(file))
        };
        !sleeper.begins_again()
            || next == Some(sleeper.file)
            || !self.has_come(sleeper.file) && !next.is_some_and(is_taken)
    }

    /// A signal has come to a call.
    pub fn signalled(&mut self, index: usize, is_ended: bool) {
        let sleeper = &self.sleepers[index];
        let (before, next) = (sleeper.file, self.next_file(sleeper));
        let begins_again = !is_ended && !sleeper.is_send() && sleeper.begins_again();
        let Some(file) = next.filter(|_| begins_again) else {
            self.sleepers[index].interrupted = is_ended || begins_again;
            return;
        };
        let it = &self.files[file];
        let is_other = discriminant(&it.kind) != discriminant(&self.files[before].kind);
        let comes_back = it.nonblocking || it.is_impatient() || is_other;
        let progress = self.progress(file);
        let sleeper = &mut self.sleepers[index];
        (sleeper.interrupted, sleeper.file) = (comes_back, file);
        if file != before {
            sleeper.progress = progress;
            self.release_if_unused(before);
        }
    }

    /// What a call that begins again is about: what its number names by now.
    fn next_file(&self, sleeper: &Sleeper) -> Option<usize> {
        let Some(number) = sleeper.numbers.first() else {
            return Some(sleeper.file);
        };
        let mut names = self.names.iter();
        let named = names.find(|((of, _), entry)| *of == sleeper.process && entry.fd == *number);
        named.map(|(_, entry)| entry.file)
    }
}
