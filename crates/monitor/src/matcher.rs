//! Finds the other end of a connection.

use std::collections::HashMap;

use crate::endpoint::EndKey;

/// An end in the monitor, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndId(pub u64);

/// The newest end of every key. At any time a key names one living socket, so an older end of
/// the same key is a dead socket whose release is under way.
#[derive(Debug, Default)]
pub struct Matcher {
    newest: HashMap<EndKey, EndId>,
}

/// What [`Matcher::enter`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// The older end of the same key, which the new one has replaced.
    pub replaced: Option<EndId>,
    /// The other end.
    pub partner: Option<EndId>,
}

impl Matcher {
    /// The newest end of this key.
    pub fn find(&self, key: &EndKey) -> Option<EndId> {
        self.newest.get(key).copied()
    }

    /// Enter an end as the newest one of its key.
    pub fn enter(&mut self, key: EndKey, id: EndId) -> Entered {
        Entered {
            replaced: self.newest.insert(key, id),
            partner: self.find(&key.mirrored()),
        }
    }

    /// Take an end out; an end that has been replaced leaves its successor alone.
    pub fn leave(&mut self, key: &EndKey, id: EndId) {
        if self.find(key) == Some(id) {
            self.newest.remove(key);
        }
    }

    /// Keys with an end.
    pub fn len(&self) -> usize {
        self.newest.len()
    }

    /// Whether no end is known.
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }
}
