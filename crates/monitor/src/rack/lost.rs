//! What the two ends of a connection tell each other when the window between them is lost, by way of
//! their monitors. No socket, no clock and no system call.
//!
//! Ends are known by the addresses of their connections and the name of their lanes: the addresses alone may be
//! those of another connection a moment later, and the name alone proves nothing. Neither needs a session or an
//! earlier monitor: an end that tells its position names itself by them. What comes for an end that has not spoken yet waits for it; if only an
//! earlier monitor knew it, the slabs are searched for its lanes. A remainder is kept until the other host has it,
//! and few of one user's are under way at a time.

mod absences;
mod receiving;
mod sending;
mod shares;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crosslane_ctl::message::{MonitorMessage, Position, Remainder};

use self::absences::Absences;
pub use self::absences::{Absence, absence_in};
pub use self::sending::CHUNK_LINES;
use self::sending::Way;
use self::shares::Shares;
use super::matching::HostId;
use super::message::{HostMessage, Tuple};
use crate::registry::ClientId;

/// Ends that programs here may speak of.
const MOST_ENDS: usize = 1 << 17;

/// Ends that one host may speak of before anybody here does: the largest window has so many lanes of the usual
/// length. Each host has its own, so that none takes the others' away.
const MOST_OF_HOST: usize = 1 << 16;

/// What one user there speaks for leaves room for the others.
const _: () = assert!(shares::MOST_ENDS * 4 <= MOST_OF_HOST);

/// A remainder that is asked for again is sent again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// The time between two searches for who has ends that nobody here has spoken of.
const SEARCH: Duration = Duration::from_millis(100);

/// Who has not spoken for so long is taken to be gone: a program that runs looks once a second.
const NOBODY: Duration = Duration::from_secs(5);

/// What nobody has spoken of for so long is forgotten.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The program.
    pub client: ClientId,
    /// Its user.
    pub uid: u32,
}

/// Who speaks for an end here.
pub type Owner = (ClientId, u64);

/// An end of ours in its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Where its other end is.
    pub host: HostId,
    /// The addresses, ours first.
    pub tuple: Tuple,
    /// The name of the lanes.
    pub pair: u64,
}

/// See the module's description.
#[derive(Default)]
pub struct Lost {
    ends: HashMap<Place, End>,
    /// How many of them each has spoken of first; `None` stands for the programs here.
    spoken: HashMap<Option<HostId>, usize>,
    by_owner: HashMap<Owner, Place>,
    waiting: HashMap<Way, VecDeque<Place>>,
    under_way: HashMap<Place, Way>,
    /// What of these has not been handed over to the sessions, in the order in which it goes there.
    departing: HashMap<HostId, VecDeque<Place>>,
    arriving: HashSet<Place>,
    absences: Absences,
    shares: Shares,
    search_due: Option<Instant>,
    searched: Option<Instant>,
    outbox: Vec<Word>,
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    /// To another host.
    ToHost(HostId, HostMessage),
    /// To a program, unless it has yet to read something: it asks again.
    ToProgram(ClientId, MonitorMessage),
    /// To a program, likewise, what one of our ends had not read; [`Lost::passed_on`] if it is told.
    Pass {
        /// The end.
        place: Place,
        /// Its program.
        client: ClientId,
        /// What it is.
        remainder: Remainder,
        /// All of it.
        lines: Vec<u8>,
    },
    /// See whether our end uses the lanes at all, and tell the host if it does not.
    Look {
        /// Our end.
        place: Place,
        /// Who has it.
        owner: Owner,
    },
}

/// One of our ends.
struct End {
    /// The host that has spoken of it first, if no program here has.
    speaker: Option<HostId>,
    owner: Option<Owner>,
    /// The user of the first program that has spoken for it.
    uid: Option<u32>,
    /// What the other end has told.
    position: Option<Position>,
    outgoing: Option<(Remainder, Vec<u8>)>,
    /// It is its turn later.
    is_waiting: bool,
    /// So many of its bytes have been handed over, while not all have.
    handed_over: Option<usize>,
    /// When the last were.
    sent: Option<Instant>,
    incoming: Option<(Remainder, Vec<u8>)>,
    /// Its program has told its position since it was passed a remainder.
    asks: bool,
    spoken_of: Instant,
    /// Since when nobody has been found who has it.
    sought: Option<Instant>,
    /// Whether it is to be said that it has left the lanes, unless it is found there.
    is_gone: bool,
}

impl End {
    fn new(speaker: Option<HostId>, now: Instant) -> Self {
        Self {
            speaker,
            owner: None,
            uid: None,
            position: None,
            outgoing: None,
            is_waiting: false,
            handed_over: None,
            sent: None,
            incoming: None,
            asks: false,
            spoken_of: now,
            sought: None,
            is_gone: false,
        }
    }

    /// Bytes of the remainder that is kept.
    fn kept(&self) -> usize {
        self.outgoing.as_ref().map_or(0, |(_, lines)| lines.len())
    }
}

impl Lost {
    /// What has to be said since the last call, in order.
    pub fn take_words(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.outbox)
    }

    /// An end of which a host speaks, or a program here; `None` where there would be too many.
    fn end(&mut self, place: Place, speaker: Option<HostId>, now: Instant) -> Option<&mut End> {
        let spoken = self.spoken.entry(speaker).or_default();
        let most = speaker.map_or(MOST_ENDS, |_| MOST_OF_HOST);
        let end = match self.ends.entry(place) {
            Entry::Occupied(end) => end.into_mut(),
            Entry::Vacant(_) if *spoken >= most => return None,
            Entry::Vacant(place) => {
                *spoken += 1;
                place.insert(End::new(speaker, now))
            }
        };
        end.spoken_of = now;
        Some(end)
    }

    /// The place of an end of which this program, or one that it was forked from, has spoken before, or the other
    /// host has: a connection that has ended has no addresses any more.
    pub fn place_of(&self, mut kin: impl Iterator<Item = Owner>, pair: u64) -> Option<Place> {
        let place = kin.find_map(|owner| self.by_owner.get(&owner));
        place.filter(|place| place.pair == pair).copied()
    }

    /// Whether a program here speaks for this end.
    pub fn is_spoken_for(&self, place: Place) -> bool {
        let end = self.ends.get(&place);
        end.is_some_and(|end| end.owner.is_some())
    }

    /// One of our ends has read so far.
    pub fn told_position(&mut self, by: Speaker, position: Position, place: Place, now: Instant) {
        // It speaks: whatever was said of it before, it has the lanes.
        self.absences.forget(position.pair);
        let is_counted = self.ends.get(&place).is_some_and(|end| end.uid.is_some());
        if !is_counted && !self.shares.add_end(by.uid) {
            return;
        }
        let Some(end) = self.end(place, None, now) else {
            return self.shares.forget_end(by.uid, 0);
        };
        end.uid.get_or_insert(by.uid);
        end.asks = true;
        self.is_owned(place, (by.client, position.token));
        let tuple = place.tuple;
        let message = HostMessage::Position { tuple, position };
        self.outbox.push(Word::ToHost(place.host, message));
    }

    /// This program speaks for the end from now on.
    fn is_owned(&mut self, place: Place, owner: Owner) {
        let Some(end) = self.ends.get_mut(&place) else {
            return;
        };
        (end.sought, end.is_gone) = (None, false);
        if let Some(before) = end.owner.replace(owner).filter(|before| *before != owner) {
            self.forget_owner(before, place);
        }
        self.by_owner.insert(owner, place);
        self.pass_position_on(place);
    }

    /// It may speak for an end in later lanes.
    fn forget_owner(&mut self, owner: Owner, place: Place) {
        if self.by_owner.get(&owner) == Some(&place) {
            self.by_owner.remove(&owner);
        }
    }

    fn pass_position_on(&mut self, place: Place) {
        let Some(end) = self.ends.get(&place) else {
            return;
        };
        if let (Some(owner), Some(position)) = (end.owner, end.position) {
            let position = Position {
                token: owner.1,
                ..position
            };
            let message = MonitorMessage::Position(position);
            self.outbox.push(Word::ToProgram(owner.0, message));
        }
    }

    /// The other end of one of our ends has read so far. `owner` is who has been granted these lanes, as far as
    /// that is known.
    pub fn heard_position(
        &mut self,
        place: Place,
        position: Position,
        owner: Option<Owner>,
        now: Instant,
    ) {
        let Some(end) = self.end(place, Some(place.host), now) else {
            // It is told again. Windows that come and go may have had so many lanes.
            return;
        };
        end.position = Some(position);
        let is_answered = end.outgoing.is_some();
        let is_late = end.sent.is_some_and(|sent| sent + AGAIN <= now);
        match owner.filter(|_| end.owner.is_none()) {
            Some(owner) => self.is_owned(place, owner),
            // Each time: the program may not have been in these lanes before.
            None => self.pass_position_on(place),
        }
        let owner = self.ends.get(&place).and_then(|end| end.owner);
        match self.absences.of(position.pair).filter(|_| !is_answered) {
            Some(Absence::Alone) => {
                let message = Absence::Alone.message(place.tuple, place.pair);
                self.outbox.push(Word::ToHost(place.host, message));
                return;
            }
            // Another process may have it still, or a program whose monitor connection has ended.
            Some(Absence::Left) => {
                if let Some(end) = self.ends.get_mut(&place) {
                    end.is_gone = true;
                }
                self.plan_search(now);
                return;
            }
            None if owner.is_none() => self.plan_search(now),
            None => {}
        }
        if let Some(owner) = owner.filter(|_| !is_answered) {
            self.outbox.push(Word::Look { place, owner });
        }
        if is_answered && is_late && self.under_way.contains_key(&place) {
            // It asks again: what has been sent may have been lost with a session.
            self.send(place);
        }
    }

    /// Nobody here is in these lanes from now on.
    pub fn note_absence(&mut self, pair: u64, absence: Absence) {
        self.absences.note(pair, absence);
    }

    fn plan_search(&mut self, now: Instant) {
        let next = self.searched.map_or(now, |at| now.max(at + SEARCH));
        self.search_due.get_or_insert(next);
    }

    /// Who spoke for one of our ends is gone; another process may have it.
    pub fn disown(&mut self, place: Place, now: Instant) {
        if let Some(end) = self.ends.get_mut(&place)
            && let Some(owner) = end.owner.take()
        {
            self.forget_owner(owner, place);
            self.plan_search(now);
        }
    }

    /// What has been told to ends that nobody here has spoken of, by their lanes, when it is time to search
    /// for them.
    pub fn take_sought(&mut self, now: Instant) -> HashMap<u64, Position> {
        if self.search_due.take_if(|due| *due <= now).is_none() {
            return HashMap::new();
        }
        self.searched = Some(now);
        let mut sought = HashMap::new();
        for (place, end) in &self.ends {
            let is_sought = end.owner.is_none() || end.is_gone;
            if let Some(position) = end.position.filter(|_| is_sought && place.pair != 0) {
                sought.insert(place.pair, position);
            }
        }
        sought
    }

    /// A search for ends that [`Self::take_sought`] has named has found programs that have these lanes.
    pub fn searched(&mut self, found: &HashSet<u64>, now: Instant) {
        for (Place { host, tuple, pair }, end) in &mut self.ends {
            let is_sought = end.owner.is_none() || end.is_gone;
            if !is_sought || end.position.is_none() {
                continue;
            }
            if found.contains(pair) {
                (end.sought, end.is_gone) = (None, false);
                self.absences.forget(*pair);
            } else if end.is_gone || *end.sought.get_or_insert(now) + NOBODY <= now {
                let message = Absence::Left.message(*tuple, *pair);
                self.outbox.push(Word::ToHost(*host, message));
                (end.position, end.is_gone) = (None, false);
            }
        }
    }

    /// The other end of one of ours is not in its lanes, as `message` says, which is given our end's token.
    pub fn heard_absence(&mut self, place: Place, message: impl FnOnce(u64) -> MonitorMessage) {
        let owner = self.ends.get(&place).and_then(|end| end.owner);
        if let Some((client, token)) = owner {
            let word = Word::ToProgram(client, message(token));
            self.outbox.push(word);
        }
    }

    /// A new session: what was under way in the one before is sent again, by either side.
    pub fn host_up(&mut self, host: HostId) {
        for place in self.arriving.extract_if(|place| place.host == host) {
            if let Some(end) = self.ends.get_mut(&place) {
                end.incoming = None;
            }
        }
        let again: Vec<Place> = self
            .under_way
            .keys()
            .filter(|place| place.host == host)
            .copied()
            .collect();
        for place in again {
            self.send(place);
        }
    }

    /// When [`Self::expire`] or [`Self::take_sought`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.ends.values().map(|end| end.spoken_of).min();
        let expiry = oldest.map(|oldest| oldest + PATIENCE);
        expiry.into_iter().chain(self.search_due).min()
    }

    /// Forget what nobody speaks of any more.
    pub fn expire(&mut self, now: Instant) {
        let before = self.ends.len();
        let is_old = |_: &Place, end: &mut End| end.spoken_of + PATIENCE <= now;
        for (_, end) in self.ends.extract_if(is_old) {
            if let Some(spoken) = self.spoken.get_mut(&end.speaker) {
                *spoken -= 1;
            }
            if let Some(uid) = end.uid {
                self.shares.forget_end(uid, end.kept());
            }
        }
        if self.ends.len() == before {
            return;
        }
        let ends = &self.ends;
        self.by_owner.retain(|_, place| ends.contains_key(place));
        self.under_way.retain(|place, _| ends.contains_key(place));
        self.arriving.retain(|place| ends.contains_key(place));
        for departing in self.departing.values_mut() {
            departing.retain(|place| ends.contains_key(place));
        }
        let ways: Vec<Way> = self.waiting.keys().copied().collect();
        for way in ways {
            self.send_more(way);
        }
    }
}

#[cfg(test)]
mod tests;
