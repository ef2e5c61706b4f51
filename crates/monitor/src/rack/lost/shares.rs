//! What one user's programs make the monitor keep of lost windows, so that they leave room for those of others.

use std::collections::HashMap;

/// Ends that one user's programs may speak for. The other host, which is told of them, remembers four times as many.
pub const MOST_ENDS: usize = 1 << 14;

/// Bytes of their remainders that are kept at a time: who says more says it again when its peer asks again.
pub const MOST_BYTES: usize = 1 << 30;

/// By user.
#[derive(Default)]
pub struct Shares(HashMap<u32, Share>);

#[derive(Default, PartialEq, Eq)]
struct Share {
    ends: usize,
    bytes: usize,
}

impl Shares {
    /// One more end is spoken for. False if these are too many.
    pub fn add_end(&mut self, uid: u32) -> bool {
        let share = self.0.entry(uid).or_default();
        let has_room = share.ends < MOST_ENDS;
        share.ends += usize::from(has_room);
        has_room
    }

    /// Whether so much may be kept beside what is kept already.
    pub fn has_room(&self, uid: u32, bytes: usize) -> bool {
        let kept = self.0.get(&uid).map_or(0, |share| share.bytes);
        kept + bytes <= MOST_BYTES
    }

    /// So much is kept from now on in place of what was before.
    pub fn replace(&mut self, uid: u32, before: usize, bytes: usize) {
        let share = self.0.entry(uid).or_default();
        share.bytes = share.bytes.saturating_sub(before) + bytes;
    }

    /// An end for which so much was kept is forgotten.
    pub fn forget_end(&mut self, uid: u32, kept: usize) {
        self.replace(uid, kept, 0);
        let share = self.0.entry(uid).or_default();
        share.ends = share.ends.saturating_sub(1);
        if *share == Share::default() {
            self.0.remove(&uid);
        }
    }
}
