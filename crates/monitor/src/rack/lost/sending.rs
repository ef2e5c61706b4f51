//! What the other ends of ours had not read, on its way to their host.

use std::collections::VecDeque;
use std::time::Instant;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::message::Remainder;

use super::{End, Lost, Place, Speaker, Word};
use crate::rack::matching::HostId;
use crate::rack::message::HostMessage;

/// Lines of a remainder in one frame.
pub const CHUNK_LINES: usize = 56;

/// Remainders of one user on their way to one host. Those of others do not wait for them: whether they ever arrive is up
/// to what the user's programs say.
pub(super) const MOST_UNDER_WAY: usize = 16;

/// Bytes of all of them, of which a session holds twice as many.
const MOST_BYTES_UNDER_WAY: usize = 4 << 20;

/// Of which user the remainders are, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Way {
    host: HostId,
    uid: u32,
}

impl Lost {
    /// Whether a remainder is of use, and there is room for it.
    pub fn takes_remainder(&self, by: Speaker, remainder: &Remainder) -> bool {
        let end = self
            .spoken_for(by, remainder)
            .and_then(|place| self.ends.get(&place));
        end.is_some_and(|end| {
            let new = remainder.bytes().saturating_sub(end.kept());
            self.shares.has_room(end.uid.unwrap_or(by.uid), new)
        })
    }

    fn spoken_for(&self, by: Speaker, remainder: &Remainder) -> Option<Place> {
        let place = self.by_owner.get(&(by.client, remainder.token)).copied();
        place.filter(|place| place.pair == remainder.pair)
    }

    /// What the other end of one of ours had not read, where [`Self::takes_remainder`].
    pub fn told_remainder(
        &mut self,
        by: Speaker,
        (remainder, lines): (Remainder, Vec<u8>),
        now: Instant,
    ) {
        let Some(place) = self.spoken_for(by, &remainder) else {
            return;
        };
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        if end.uid.is_none() && !self.shares.add_end(by.uid) {
            return;
        }
        let uid = *end.uid.get_or_insert(by.uid);
        self.shares.replace(uid, end.kept(), lines.len());
        end.outgoing = Some((remainder, lines));
        // What is under way is sent again when the other host asks again.
        if self.under_way.contains_key(&place) || std::mem::replace(&mut end.is_waiting, true) {
            return;
        }
        let way = Way {
            host: place.host,
            uid,
        };
        self.waiting.entry(way).or_default().push_back(place);
        self.send_more(way, now);
    }

    pub(super) fn send_more(&mut self, way: Way, now: Instant) {
        while self.may_send(way) {
            let next = self.waiting.get_mut(&way).and_then(VecDeque::pop_front);
            let Some(place) = next else {
                self.waiting.remove(&way);
                return;
            };
            let Some(end) = self.ends.get_mut(&place) else {
                continue;
            };
            end.is_waiting = false;
            if end.outgoing.is_some() && self.under_way.insert(place, way).is_none() {
                self.send(place, now);
            }
        }
    }

    /// Whether one more of a user's may be under way: one always, more as far as the session holds what all have there.
    fn may_send(&self, way: Way) -> bool {
        let of_host = self
            .under_way
            .iter()
            .filter(|(_, other)| other.host == way.host);
        let (mut count, mut bytes) = (0, 0);
        for (place, other) in of_host {
            count += usize::from(*other == way);
            bytes += self.ends.get(place).map_or(0, End::kept);
        }
        count == 0 || count < MOST_UNDER_WAY && bytes < MOST_BYTES_UNDER_WAY
    }

    pub(super) fn send(&mut self, place: Place, now: Instant) {
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        let Some((remainder, lines)) = &end.outgoing else {
            return;
        };
        end.sent = Some(now);
        let mut chunks = lines.chunks(CHUNK_LINES * LINE_BYTES).peekable();
        let none: &[u8] = &[];
        let mut at = 0;
        loop {
            let chunk = chunks.next().unwrap_or(none);
            let message = HostMessage::Remainder {
                tuple: place.tuple,
                remainder: *remainder,
                at,
                lines: chunk.to_vec(),
            };
            self.outbox.push(Word::ToHost(place.host, message));
            at += u32::try_from(chunk.len() / LINE_BYTES).unwrap_or(0);
            if chunks.peek().is_none() {
                break;
            }
        }
    }

    /// The other host has what one of our ends has sent of these lanes.
    pub fn heard_arrived(&mut self, place: Place, now: Instant) {
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        let kept = end.kept();
        if end.outgoing.take().is_some() {
            end.sent = None;
            if let Some(uid) = end.uid {
                self.shares.replace(uid, kept, 0);
            }
            if let Some(way) = self.under_way.remove(&place) {
                self.send_more(way, now);
            }
        }
    }
}
