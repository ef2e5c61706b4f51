//! Offers whose ends have found each other, and a window without room.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::registry::FamilyId;

/// Whom lanes would be between: a family here, and one of the guest's by its own number. They share parts of a window,
/// so where one connection of theirs finds no room, none does.
pub(super) type Parties = (FamilyId, u64);

/// The numbers of the offers, which grow: who came first is served first.
#[derive(Default)]
pub(super) struct Short {
    lines: BTreeMap<Parties, BTreeSet<u64>>,
    parties: HashMap<u64, Parties>,
}

impl Short {
    /// An offer waits. False if it did so before.
    pub(super) fn add(&mut self, offer: u64, parties: Parties) -> bool {
        let before = self.parties.insert(offer, parties);
        if let Some(others) = before.filter(|before| *before != parties) {
            self.take_from(others, offer);
        }
        self.lines.entry(parties).or_default().insert(offer);
        before.is_none()
    }

    /// It does not wait any more. False if it did not.
    pub(super) fn remove(&mut self, offer: u64) -> bool {
        let parties = self.parties.remove(&offer);
        if let Some(parties) = parties {
            self.take_from(parties, offer);
        }
        parties.is_some()
    }

    /// Whether it waits.
    pub(super) fn has(&self, offer: u64) -> bool {
        self.parties.contains_key(&offer)
    }

    fn take_from(&mut self, parties: Parties, offer: u64) {
        if let Some(line) = self.lines.get_mut(&parties) {
            line.remove(&offer);
            if line.is_empty() {
                self.lines.remove(&parties);
            }
        }
    }

    /// All who have connections that wait.
    pub(super) fn all_parties(&self) -> Vec<Parties> {
        self.lines.keys().copied().collect()
    }

    /// The offer between them that has waited longest.
    pub(super) fn first(&self, parties: Parties) -> Option<u64> {
        self.lines.get(&parties)?.first().copied()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.parties.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_found_in_order_and_once() {
        let mut short = Short::default();
        let [ours, others] = [(FamilyId(1), 7), (FamilyId(2), 7)];
        assert!(short.add(5, ours) && short.add(3, ours) && short.add(4, others));
        assert!(!short.add(3, ours), "it is told once");
        assert_eq!(short.all_parties(), [ours, others]);
        assert_eq!(short.first(ours), Some(3));
        assert!(short.has(3) && short.remove(3) && !short.has(3));
        assert!(!short.remove(9));
        assert_eq!((short.first(ours), short.first(others)), (Some(5), Some(4)));
        // Its end here was closed, and another process has one of the same names.
        assert!(!short.add(5, others));
        assert_eq!((short.first(ours), short.first(others)), (None, Some(4)));
        short.remove(4);
        short.remove(5);
        assert!(short.is_empty() && short.all_parties().is_empty());
    }
}
