//! What the two ends of a connection tell each other when the window between them is lost, by way of
//! their monitors. No socket, no clock and no system call.
//!
//! Ends are known by the names of their connections, which need no session and no earlier monitor:
//! an end that tells its position names itself by that. What comes for an end that has not spoken yet waits for
//! it. A remainder is kept until the other host has it, and few are under way at a time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::message::{MonitorMessage, Position, Remainder};

use super::matching::{HostId, Lie};
use super::message::{HostMessage, Tuple};
use crate::registry::ClientId;

/// Lines of a remainder in one frame.
pub const CHUNK_LINES: usize = 56;

/// Connections that may be spoken of.
const MOST_ENDS: usize = 1 << 17;

/// Remainders on their way to one host.
const MOST_UNDER_WAY: usize = 16;

/// What nobody has spoken of for so long is forgotten.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who speaks for an end here.
pub type Owner = (ClientId, u64);

/// See the module's description.
#[derive(Default)]
pub struct Lost {
    ends: HashMap<(HostId, Tuple), End>,
    by_owner: HashMap<Owner, (HostId, Tuple)>,
    waiting: HashMap<HostId, VecDeque<Tuple>>,
    under_way: HashSet<(HostId, Tuple)>,
    outbox: Vec<Word>,
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    /// To another host.
    ToHost(HostId, HostMessage),
    /// To a program, with these lines if there are any.
    ToProgram(ClientId, MonitorMessage, Vec<u8>),
    /// See whether our end uses the lanes at all, and tell the host if it does not.
    Look {
        /// The host that has asked.
        host: HostId,
        /// Our end.
        tuple: Tuple,
        /// Who has it.
        owner: Owner,
        /// The lanes.
        pair: u64,
    },
}

/// One of our ends.
struct End {
    owner: Option<Owner>,
    /// What the other end has told.
    position: Option<Position>,
    outgoing: Option<(Remainder, Vec<u8>)>,
    incoming: Option<(Remainder, Vec<u8>)>,
    spoken_of: Instant,
}

impl End {
    fn new(now: Instant) -> Self {
        Self {
            owner: None,
            position: None,
            outgoing: None,
            incoming: None,
            spoken_of: now,
        }
    }
}

impl Lost {
    /// What has to be said since the last call, in order.
    pub fn take_words(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.outbox)
    }

    fn end(&mut self, host: HostId, tuple: Tuple, now: Instant) -> Option<&mut End> {
        if self.ends.len() >= MOST_ENDS && !self.ends.contains_key(&(host, tuple)) {
            return None;
        }
        let end = self.ends.entry((host, tuple));
        let end = end.or_insert_with(|| End::new(now));
        end.spoken_of = now;
        Some(end)
    }

    /// One of our ends has read so far.
    pub fn told_position(
        &mut self,
        (client, position): (ClientId, Position),
        (host, tuple): (HostId, Tuple),
        now: Instant,
    ) {
        self.is_owned(host, tuple, (client, position.token), now);
        let message = HostMessage::Position { tuple, position };
        self.outbox.push(Word::ToHost(host, message));
    }

    /// This program speaks for the end from now on.
    fn is_owned(&mut self, host: HostId, tuple: Tuple, owner: Owner, now: Instant) {
        let Some(end) = self.end(host, tuple, now) else {
            return;
        };
        if let Some(before) = end.owner.replace(owner).filter(|before| *before != owner) {
            self.by_owner.remove(&before);
        }
        self.by_owner.insert(owner, (host, tuple));
        self.pass_position_on(host, tuple);
    }

    fn pass_position_on(&mut self, host: HostId, tuple: Tuple) {
        let Some(end) = self.ends.get(&(host, tuple)) else {
            return;
        };
        if let (Some(owner), Some(position)) = (end.owner, end.position) {
            let position = Position {
                token: owner.1,
                ..position
            };
            let message = MonitorMessage::Position(position);
            self.outbox
                .push(Word::ToProgram(owner.0, message, Vec::new()));
        }
    }

    /// What the other end of one of ours had not read.
    pub fn told_remainder(&mut self, client: ClientId, remainder: Remainder, lines: Vec<u8>) {
        let Some(place) = self.by_owner.get(&(client, remainder.token)).copied() else {
            return;
        };
        if let Some(end) = self.ends.get_mut(&place) {
            end.outgoing = Some((remainder, lines));
            let waiting = self.waiting.entry(place.0).or_default();
            waiting.push_back(place.1);
            self.send_more(place.0);
        }
    }

    fn send_more(&mut self, host: HostId) {
        while self
            .under_way
            .iter()
            .filter(|place| place.0 == host)
            .count()
            < MOST_UNDER_WAY
        {
            let next = self.waiting.get_mut(&host).and_then(VecDeque::pop_front);
            let Some(tuple) = next else {
                return;
            };
            self.send(host, tuple);
        }
    }

    fn send(&mut self, host: HostId, tuple: Tuple) {
        let end = self.ends.get(&(host, tuple));
        let Some((remainder, lines)) = end.and_then(|end| end.outgoing.as_ref()) else {
            return;
        };
        let mut chunks = lines.chunks(CHUNK_LINES * LINE_BYTES).peekable();
        let none: &[u8] = &[];
        let mut at = 0;
        loop {
            let chunk = chunks.next().unwrap_or(none);
            let message = HostMessage::Remainder {
                tuple,
                remainder: *remainder,
                at,
                lines: chunk.to_vec(),
            };
            self.outbox.push(Word::ToHost(host, message));
            at += u32::try_from(chunk.len() / LINE_BYTES).unwrap_or(0);
            if chunks.peek().is_none() {
                break;
            }
        }
        self.under_way.insert((host, tuple));
    }

    /// The other end of one of our ends has read so far. `owner` is who has the end, as far as that is
    /// known.
    pub fn heard_position(
        &mut self,
        (host, tuple): (HostId, Tuple),
        position: Position,
        owner: Option<Owner>,
        now: Instant,
    ) {
        let Some(end) = self.end(host, tuple, now) else {
            return;
        };
        end.position = Some(position);
        let is_unknown = end.owner.is_none();
        let is_answered = end.outgoing.is_some();
        match owner.filter(|_| is_unknown) {
            Some(owner) => self.is_owned(host, tuple, owner, now),
            // Each time: the program may not have been in these lanes before.
            None => self.pass_position_on(host, tuple),
        }
        let owner = self.ends.get(&(host, tuple)).and_then(|end| end.owner);
        if let Some(owner) = owner.filter(|_| !is_answered) {
            let pair = position.pair;
            self.outbox.push(Word::Look {
                host,
                tuple,
                owner,
                pair,
            });
        }
        if is_answered && self.under_way.contains(&(host, tuple)) {
            // It asks again: what has been sent may have been lost with a session.
            self.send(host, tuple);
        }
    }

    /// A piece of what one of our ends had not read.
    ///
    /// # Errors
    /// If the pieces do not fit together.
    pub fn heard_remainder(
        &mut self,
        (host, tuple): (HostId, Tuple),
        remainder: Remainder,
        (at, lines): (u32, &[u8]),
        now: Instant,
    ) -> Result<(), Lie> {
        let end = self.ends.get_mut(&(host, tuple));
        let Some((end, owner)) = end.and_then(|end| end.owner.map(|owner| (end, owner))) else {
            // Nobody here has asked for it, or not yet.
            return Ok(());
        };
        end.spoken_of = now;
        if at == 0 {
            end.incoming = Some((remainder, Vec::new()));
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
        end.incoming = None;
        let remainder = Remainder {
            token: owner.1,
            ..remainder
        };
        let message = MonitorMessage::Remainder(remainder);
        self.outbox.push(Word::ToProgram(owner.0, message, bytes));
        let tuple = tuple.mirrored();
        self.outbox
            .push(Word::ToHost(host, HostMessage::Arrived { tuple }));
        Ok(())
    }

    /// The other end of one of ours does not use these lanes.
    pub fn heard_alone(&mut self, (host, tuple): (HostId, Tuple), pair: u64) {
        let owner = self.ends.get(&(host, tuple)).and_then(|end| end.owner);
        if let Some((client, token)) = owner {
            let message = MonitorMessage::Alone { token, pair };
            self.outbox
                .push(Word::ToProgram(client, message, Vec::new()));
        }
    }

    /// The other host has what one of our ends has sent.
    pub fn heard_arrived(&mut self, host: HostId, tuple: Tuple) {
        if let Some(end) = self.ends.get_mut(&(host, tuple)) {
            end.outgoing = None;
        }
        self.under_way.remove(&(host, tuple));
        self.send_more(host);
    }

    /// A new session: what was under way in the one before is sent again.
    pub fn host_up(&mut self, host: HostId) {
        let again: Vec<Tuple> = self
            .under_way
            .iter()
            .filter(|place| place.0 == host)
            .map(|place| place.1)
            .collect();
        for tuple in again {
            self.send(host, tuple);
        }
    }

    /// When [`Self::expire`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.ends.values().map(|end| end.spoken_of).min()?;
        Some(oldest + PATIENCE)
    }

    /// Forget what nobody speaks of any more.
    pub fn expire(&mut self, now: Instant) {
        self.ends.retain(|_, end| end.spoken_of + PATIENCE > now);
        let ends = &self.ends;
        self.by_owner.retain(|_, place| ends.contains_key(place));
        self.under_way.retain(|place| ends.contains_key(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId(0);
    const P: ClientId = ClientId(1);
    const E: ClientId = ClientId(2);

    fn tuple() -> Tuple {
        Tuple {
            local: "10.0.0.1:6379".parse().unwrap(),
            remote: "10.0.0.2:40000".parse().unwrap(),
        }
    }

    fn position(token: u64, consumed: u64) -> Position {
        Position {
            token,
            pair: 3,
            flags: 4,
            consumed,
            tcp_taken: 9,
        }
    }

    fn remainder(token: u64, first: u64, lines: u64) -> Remainder {
        Remainder {
            token,
            pair: 3,
            first,
            end: first + lines,
            replay_seq: 0,
            replay_at: 0,
            replay_end: 0,
        }
    }

    /// Two hosts, one of which (P's) has sent and the other (E's) has read.
    struct Pair {
        of_p: Lost,
        of_e: Lost,
        now: Instant,
        to_p: Vec<(MonitorMessage, Vec<u8>)>,
        to_e: Vec<(MonitorMessage, Vec<u8>)>,
    }

    impl Pair {
        fn new() -> Self {
            Self {
                of_p: Lost::default(),
                of_e: Lost::default(),
                now: Instant::now(),
                to_p: Vec::new(),
                to_e: Vec::new(),
            }
        }

        /// Move all words; `connected` says whether what goes between the hosts arrives.
        fn exchange(&mut self, connected: bool) {
            loop {
                let words = [self.of_p.take_words(), self.of_e.take_words()];
                if words.iter().all(Vec::is_empty) {
                    return;
                }
                for (side, words) in words.into_iter().enumerate() {
                    for word in words {
                        self.pass(side, word, connected);
                    }
                }
            }
        }

        fn pass(&mut self, from: usize, word: Word, connected: bool) {
            let to_program = [&mut self.to_p, &mut self.to_e];
            let message = match word {
                Word::ToProgram(_, message, lines) => {
                    let [p, e] = to_program;
                    return [p, e][from].push((message, lines));
                }
                Word::ToHost(_, message) if connected => message,
                Word::ToHost(..) => return,
                // The ends of these tests use their lanes.
                Word::Look { .. } => return,
            };
            let mut frame = message.encode();
            let message = HostMessage::take(&mut frame).unwrap().unwrap();
            let other = if from == 0 {
                &mut self.of_e
            } else {
                &mut self.of_p
            };
            match message {
                HostMessage::Position { tuple, position } => {
                    other.heard_position((HOST, tuple.mirrored()), position, None, self.now);
                }
                HostMessage::Remainder {
                    tuple,
                    remainder,
                    at,
                    lines,
                } => {
                    let place = (HOST, tuple.mirrored());
                    other
                        .heard_remainder(place, remainder, (at, &lines), self.now)
                        .unwrap();
                }
                HostMessage::Arrived { tuple } => other.heard_arrived(HOST, tuple),
                other => panic!("{other:?}"),
            }
        }

        fn e_asks(&mut self) {
            let place = (HOST, tuple().mirrored());
            self.of_e
                .told_position((E, position(8, 70 << 16)), place, self.now);
        }

        fn p_asks(&mut self) {
            self.of_p
                .told_position((P, position(5, 0)), (HOST, tuple()), self.now);
        }
    }

    fn lines(count: usize) -> Vec<u8> {
        (0..count * LINE_BYTES)
            .map(|i| u8::try_from(i % 251).unwrap())
            .collect()
    }

    #[test]
    fn positions_meet_whoever_speaks_first() {
        for e_first in [true, false] {
            let mut pair = Pair::new();
            if e_first {
                pair.e_asks();
                pair.exchange(true);
                pair.p_asks();
            } else {
                pair.p_asks();
                pair.exchange(true);
                pair.e_asks();
            }
            pair.exchange(true);
            let expected = MonitorMessage::Position(position(5, 70 << 16));
            assert_eq!(pair.to_p, [(expected, Vec::new())], "E first: {e_first}");
            assert_eq!(pair.to_e.len(), 1);
            // P may not have been ready for it: asked again, it is passed on again.
            pair.e_asks();
            pair.exchange(true);
            assert_eq!(pair.to_p.len(), 2);
        }
    }

    #[test]
    fn a_remainder_arrives_whole_and_once() {
        for count in [0, 1, CHUNK_LINES, CHUNK_LINES + 1, 2000] {
            let mut pair = Pair::new();
            pair.e_asks();
            pair.p_asks();
            pair.exchange(true);
            pair.to_e.clear();
            let told = remainder(5, 70, count as u64);
            pair.of_p.told_remainder(P, told, lines(count));
            pair.exchange(true);
            let expected = MonitorMessage::Remainder(remainder(8, 70, count as u64));
            assert_eq!(pair.to_e, [(expected, lines(count))], "{count} lines");
            assert!(pair.of_p.under_way.is_empty());
        }
    }

    #[test]
    fn what_a_session_loses_is_sent_in_the_next() {
        let mut pair = Pair::new();
        pair.e_asks();
        pair.p_asks();
        pair.exchange(true);
        pair.to_e.clear();
        pair.of_p
            .told_remainder(P, remainder(5, 70, 100), lines(100));
        pair.exchange(false);
        assert_eq!(pair.to_e, []);
        pair.of_p.host_up(HOST);
        pair.exchange(true);
        assert_eq!(pair.to_e.len(), 1);
        assert_eq!(pair.to_e[0].1, lines(100));
    }

    #[test]
    fn few_are_under_way_and_all_arrive() {
        let mut pair = Pair::new();
        let of = |port: u16| Tuple {
            local: format!("10.0.0.1:{port}").parse().unwrap(),
            ..tuple()
        };
        for port in 1..=100 {
            let (p, e) = (position(port.into(), 0), position(port.into(), 0));
            pair.of_p.told_position((P, p), (HOST, of(port)), pair.now);
            pair.of_e
                .told_position((E, e), (HOST, of(port).mirrored()), pair.now);
        }
        pair.exchange(true);
        pair.to_e.clear();
        for port in 1..=100u16 {
            pair.of_p
                .told_remainder(P, remainder(port.into(), 0, 3), lines(3));
        }
        assert_eq!(pair.of_p.under_way.len(), MOST_UNDER_WAY);
        pair.exchange(true);
        assert_eq!(pair.to_e.len(), 100);
    }

    #[test]
    fn pieces_that_do_not_fit_are_a_lie_and_strangers_get_nothing() {
        let mut pair = Pair::new();
        let place = (HOST, tuple());
        let piece = lines(1);
        let told = remainder(0, 0, 2);
        let now = pair.now;
        pair.of_p
            .heard_remainder(place, told, (0, &piece), now)
            .unwrap();
        assert_eq!(pair.of_p.take_words(), []);
        pair.p_asks();
        pair.of_p.take_words();
        pair.of_p
            .heard_remainder(place, told, (0, &piece), now)
            .unwrap();
        assert!(
            pair.of_p
                .heard_remainder(place, told, (0, &lines(3)), now)
                .is_err()
        );
        pair.of_p
            .heard_remainder(place, told, (0, &piece), now)
            .unwrap();
        assert!(
            pair.of_p
                .heard_remainder(place, told, (2, &piece), now)
                .is_err()
        );
    }

    #[test]
    fn what_nobody_speaks_of_is_forgotten() {
        let mut pair = Pair::new();
        pair.p_asks();
        assert!(pair.of_p.due().is_some());
        pair.of_p.expire(pair.now + PATIENCE);
        assert!(pair.of_p.ends.is_empty() && pair.of_p.by_owner.is_empty());
        assert_eq!(pair.of_p.due(), None);
    }
}
