//! Sleeps of poll and select on connections without rings.

use crosslane_stream::{End, raw, ready, replay};
use libc::pollfd;

use crate::strays::{Kept, Stray};

/// Connections without rings on which the kernel alone lets a call sleep. They get none while it
/// does, nor does what their numbers name meanwhile: nobody would ring for it.
pub struct Asleep(Vec<(raw::Call, raw::ByNumber)>);

impl Asleep {
    /// Known connections among `fds`; `None` if one has rings.
    pub fn new(fds: &[pollfd]) -> Option<Self> {
        Self::beside(core::iter::empty(), (&Kept::default(), &[]), fds)
    }

    /// As [`Asleep::new`], but for those at places that are seen to otherwise. A number that another thread is about to
    /// give to another descriptor names nothing for a moment; what it then names may be what it has named before.
    pub fn beside(
        others: impl Iterator<Item = usize>,
        (kept, strays): (&Kept, &[Stray]),
        fds: &[pollfd],
    ) -> Option<Self> {
        let is_lost = |place| strays.iter().any(|stray| stray.place == place);
        let named = fds.iter().enumerate();
        let named = named.filter(|(place, _)| !is_lost(*place));
        let named = named.filter_map(|(place, one)| Some((place, End::of(one.fd)?)));
        let mut all = named.chain(kept.ends()).peekable();
        if all.peek().is_none() {
            // A handler may have interrupted an allocation, and poll by other descriptors.
            return Some(Self(Vec::new()));
        }
        let mut is_seen_to = vec![false; fds.len()];
        others.for_each(|place| is_seen_to[place] = true);
        let left = all.filter(|(place, _)| !is_seen_to[*place]);
        let ends: Vec<End> = left.map(|(_, end)| end).collect();
        replay::push();
        let begin = |end| (raw::Call::begin_wait(end), raw::ByNumber::begin(end));
        let asleep = Self(ends.iter().map(begin).collect());
        ends.iter().all(ready::is_kernels).then_some(asleep)
    }
}

impl Asleep {
    /// Whether the call has gone into the kernel for this connection.
    pub fn has(&self, end: &End) -> bool {
        self.0.iter().any(|(call, _number)| call.is_on(end))
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(call, _number)| call.end());
    }
}
