//! What the other ends of ours had not read, on its way to their host: in pieces, of which the session is given as many as it
//! has room for.

use std::collections::VecDeque;
use std::time::Instant;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::message::Remainder;

use super::{End, Lost, Place, Speaker};
use crate::rack::matching::HostId;
use crate::rack::message::HostMessage;

/// Lines of a remainder in one frame.
pub const CHUNK_LINES: usize = 56;

/// Remainders of one user on their way to one host. Those of others do not wait for them: whether they ever arrive is up
/// to what the user's programs say.
pub(super) const MOST_UNDER_WAY: usize = 16;

/// Bytes of all of them.
const MOST_BYTES_UNDER_WAY: usize = 4 << 20;

/// Of which user the remainders are, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Way {
    host: HostId,
    uid: u32,
}

impl End {
    /// The next piece of what is being sent.
    fn hand_over(&mut self, place: Place, now: Instant) -> Option<HostMessage> {
        let (remainder, lines) = self.outgoing.as_ref()?;
        let at = self.handed_over?;
        let rest = lines.get(at..)?;
        let piece = &rest[..rest.len().min(CHUNK_LINES * LINE_BYTES)];
        let next = at + piece.len();
        self.handed_over = (next < lines.len()).then_some(next);
        if self.handed_over.is_none() {
            self.sent = Some(now);
        }
        Some(HostMessage::Remainder {
            tuple: place.tuple,
            remainder: *remainder,
            at: u32::try_from(at / LINE_BYTES).unwrap_or(u32::MAX),
            lines: piece.to_vec(),
        })
    }
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
    pub fn told_remainder(&mut self, by: Speaker, (remainder, lines): (Remainder, Vec<u8>)) {
        let Some(place) = self.spoken_for(by, &remainder) else {
            return;
        };
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        // What has been begun goes on as it was. It is told again where it is missed.
        if end.handed_over.is_some_and(|bytes| bytes > 0) {
            return;
        }
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
        self.send_more(way);
    }

    pub(super) fn send_more(&mut self, way: Way) {
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
                self.send(place);
            }
        }
    }

    /// Whether one more of a user's may be under way: one always, more while all have little there.
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

    /// Hand over all of it, behind what is to be handed over already.
    pub(super) fn send(&mut self, place: Place) {
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        if end.outgoing.is_none() {
            return;
        }
        end.sent = None;
        if end.handed_over.replace(0).is_none() {
            let departing = self.departing.entry(place.host).or_default();
            departing.push_back(place);
        }
    }

    /// Whether [`Self::take_piece`] has something for this host.
    pub fn has_pieces(&self, host: HostId) -> bool {
        let departing = self.departing.get(&host);
        departing.is_some_and(|departing| !departing.is_empty())
    }

    /// The next piece for a host whose session has room. One remainder goes after the other, so that the other host never
    /// holds parts of many.
    pub fn take_piece(&mut self, host: HostId, now: Instant) -> Option<HostMessage> {
        while let Some(place) = self.departing.get_mut(&host)?.front().copied() {
            let end = self.ends.get_mut(&place);
            let piece = end.and_then(|end| end.hand_over(place, now));
            let goes_on = |end: &End| end.handed_over.is_some();
            if piece.is_none() || !self.ends.get(&place).is_some_and(goes_on) {
                self.depart(place);
            }
            if piece.is_some() {
                return piece;
            }
        }
        None
    }

    /// Nothing of it is to be handed over any more.
    fn depart(&mut self, place: Place) {
        if let Some(departing) = self.departing.get_mut(&place.host) {
            departing.retain(|other| *other != place);
        }
    }

    /// The other host has what one of our ends has sent of these lanes.
    pub fn heard_arrived(&mut self, place: Place) {
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        // It has what was sent before, and would keep the beginning of what is sent again.
        if end.handed_over.is_some_and(|bytes| bytes > 0) {
            return;
        }
        let kept = end.kept();
        if end.outgoing.take().is_some() {
            (end.sent, end.handed_over) = (None, None);
            if let Some(uid) = end.uid {
                self.shares.replace(uid, kept, 0);
            }
            self.depart(place);
            if let Some(way) = self.under_way.remove(&place) {
                self.send_more(way);
            }
        }
    }
}
