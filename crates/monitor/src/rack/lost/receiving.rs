//! What our ends had not read, as it comes from their other ends' host.

use std::collections::HashSet;
use std::time::Instant;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::message::Remainder;

use super::sending::MOST_UNDER_WAY;
use super::{Lost, Place, Word};
use crate::rack::matching::{HostId, Lie};
use crate::rack::message::HostMessage;

impl Lost {
    /// A piece of what one of our ends had not read.
    ///
    /// # Errors
    /// If the pieces do not fit together.
    pub fn heard_remainder(
        &mut self,
        place: Place,
        remainder: Remainder,
        (at, lines): (u32, &[u8]),
        now: Instant,
    ) -> Result<(), Lie> {
        let end = self.ends.get_mut(&place);
        let asking = end.and_then(|end| Some((end.owner.filter(|_| end.asks)?, end)));
        let Some((owner, end)) = asking else {
            // Nobody here has asked for it, or not since one was passed on: its program has it still, and sends it to who
            // asks again. Its place is for others until then.
            if at as usize * LINE_BYTES + lines.len() >= remainder.bytes() {
                self.say_arrived(place);
            }
            return Ok(());
        };
        end.spoken_of = now;
        if at == 0 {
            end.incoming = Some((remainder, Vec::new()));
            self.arriving.insert(place);
            if of_host(&self.arriving, place.host) > MOST_UNDER_WAY {
                return Err(Lie("sends too much of lost lanes at a time"));
            }
        }
        let Some((first, bytes)) = &mut end.incoming else {
            return Ok(());
        };
        let is_next = *first == remainder && bytes.len() == at as usize * LINE_BYTES;
        if !is_next || bytes.len() + lines.len() > remainder.bytes() {
            return Err(Lie("sends pieces of lanes that do not fit together"));
        }
        bytes.extend_from_slice(lines);
        if bytes.len() < remainder.bytes() {
            return Ok(());
        }
        let bytes = std::mem::take(bytes);
        (end.incoming, end.asks) = (None, false);
        self.arriving.remove(&place);
        let remainder = Remainder {
            token: owner.1,
            ..remainder
        };
        self.outbox.push(Word::Pass {
            place,
            client: owner.0,
            remainder,
            lines: bytes,
        });
        Ok(())
    }

    /// A program has what was to be passed on to it, or is gone.
    pub fn passed_on(&mut self, place: Place) {
        self.say_arrived(place);
    }

    /// The other host need not keep what it has sent to this end.
    fn say_arrived(&mut self, place: Place) {
        let arrived = HostMessage::Arrived {
            tuple: place.tuple.mirrored(),
            pair: place.pair,
        };
        self.outbox.push(Word::ToHost(place.host, arrived));
    }
}

fn of_host(places: &HashSet<Place>, host: HostId) -> usize {
    places.iter().filter(|place| place.host == host).count()
}
