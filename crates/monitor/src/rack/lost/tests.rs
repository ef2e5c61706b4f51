mod limits;
mod pieces;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::slab::WaitState;

use super::sending::MOST_UNDER_WAY;
use super::*;

const HOST: HostId = HostId(0);
const P: ClientId = ClientId(1);
const E: ClientId = ClientId(2);

fn by(client: ClientId) -> Speaker {
    Speaker { client, uid: 1 }
}

fn tuple() -> Tuple {
    Tuple {
        local: "10.0.0.1:6379".parse().unwrap(),
        remote: "10.0.0.2:40000".parse().unwrap(),
    }
}

/// Our end of a connection in the lanes `pair`.
fn place_in(pair: u64) -> Place {
    Place {
        host: HOST,
        tuple: tuple(),
        pair,
    }
}

fn mirrored(place: Place) -> Place {
    Place {
        tuple: place.tuple.mirrored(),
        ..place
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
            let mut words = [self.of_p.take_words(), self.of_e.take_words()];
            let now = self.now;
            let [of_p, of_e] = &mut words;
            of_p.extend(pieces(&mut self.of_p, now).filter(|_| connected));
            of_e.extend(pieces(&mut self.of_e, now).filter(|_| connected));
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
            Word::ToProgram(_, message) => return to_program[from].push((message, Vec::new())),
            Word::Pass {
                place,
                remainder,
                lines,
                ..
            } => {
                to_program[from].push((MonitorMessage::Remainder(remainder), lines));
                return [&mut self.of_p, &mut self.of_e][from].passed_on(place);
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
        let of = |tuple, pair| Place {
            host: HOST,
            tuple,
            pair,
        };
        match message {
            HostMessage::Position { tuple, position } => {
                let place = of(tuple.mirrored(), position.pair);
                other.heard_position(place, position, None, self.now);
            }
            HostMessage::Remainder {
                tuple,
                remainder,
                at,
                lines,
            } => {
                let place = of(tuple.mirrored(), remainder.pair);
                other
                    .heard_remainder(place, remainder, (at, &lines), self.now)
                    .unwrap();
            }
            HostMessage::Arrived { tuple, pair } => {
                other.heard_arrived(of(tuple, pair));
            }
            other => panic!("{other:?}"),
        }
    }

    fn e_asks(&mut self) {
        let place = mirrored(place_in(3));
        self.of_e
            .told_position(by(E), position(8, 70 << 16), place, self.now);
    }

    /// Each knows how far the other has read.
    fn both_ask(&mut self) {
        self.e_asks();
        self.p_asks();
        self.exchange(true);
        self.to_e.clear();
    }

    fn p_asks(&mut self) {
        self.of_p
            .told_position(by(P), position(5, 0), place_in(3), self.now);
    }
}

/// All that is to be handed over.
fn pieces(lost: &mut Lost, now: Instant) -> impl Iterator<Item = Word> {
    std::iter::from_fn(move || Some(Word::ToHost(HOST, lost.take_piece(HOST, now)?)))
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
fn an_end_that_nobody_has_spoken_of_is_sought_now_and_then() {
    let mut pair = Pair::new();
    let start = pair.now;
    let mut ask = |wait| {
        let now = start + wait;
        let told = position(0, 70 << 16);
        pair.of_p.heard_position(place_in(3), told, None, now);
        pair.of_p.take_sought(now).into_values().collect::<Vec<_>>()
    };
    let told = [position(0, 70 << 16)];
    assert_eq!(ask(Duration::ZERO), told);
    assert_eq!(ask(SEARCH / 2), []);
    assert_eq!(ask(SEARCH), told);
    // Who is found speaks for the end.
    pair.p_asks();
    let later = pair.now + 3 * SEARCH;
    let told = position(0, 70 << 16);
    pair.of_p.heard_position(place_in(3), told, None, later);
    assert!(pair.of_p.take_sought(later).is_empty());
}

#[test]
fn who_asks_an_end_that_is_absent_is_told_so() {
    for absence in [Absence::Alone, Absence::Left] {
        let mut pair = Pair::new();
        let place = place_in(3);
        let mut now = pair.now;
        let mut is_told = |of_p: &mut Lost| {
            now += SEARCH;
            of_p.heard_position(place, position(0, 70 << 16), None, now);
            search(of_p, now, &[]);
            let word = Word::ToHost(HOST, absence.message(tuple(), 3));
            of_p.take_words().contains(&word)
        };
        assert!(!is_told(&mut pair.of_p));
        pair.of_p.note_absence(2, absence);
        assert!(!is_told(&mut pair.of_p));
        pair.of_p.note_absence(3, absence);
        assert!(is_told(&mut pair.of_p));
        // Unless it has left something behind.
        pair.p_asks();
        pair.of_p
            .told_remainder(by(P), (remainder(5, 70, 1), lines(1)));
        assert!(!is_told(&mut pair.of_p));
    }
}

/// Search for ends, and find programs in these lanes.
fn search(lost: &mut Lost, now: Instant, found: &[u64]) {
    if !lost.take_sought(now).is_empty() {
        lost.searched(&found.iter().copied().collect(), now);
    }
}

#[test]
fn who_is_in_lanes_has_not_left_them_whatever_was_said() {
    let mut lost = Lost::default();
    let now = Instant::now();
    let left = Word::ToHost(HOST, Absence::Left.message(tuple(), 3));
    lost.note_absence(3, Absence::Left);
    let mut is_told = |wait, found: &[u64]| {
        lost.heard_position(place_in(3), position(0, 70 << 16), None, now + wait);
        search(&mut lost, now + wait, found);
        lost.take_words().contains(&left)
    };
    assert!(!is_told(SEARCH, &[3]));
    // The time after which nobody is expected any more begins when it is found no more.
    assert!(!is_told(2 * NOBODY, &[]));
    assert!(!is_told(3 * NOBODY - SEARCH, &[]));
    assert!(is_told(3 * NOBODY, &[]));
}

#[test]
fn an_end_that_nobody_is_found_for_has_left() {
    let mut pair = Pair::new();
    let start = pair.now;
    let left = Word::ToHost(HOST, Absence::Left.message(tuple(), 3));
    let is_told = |of_p: &mut Lost, wait| {
        let now = start + wait;
        of_p.heard_position(place_in(3), position(0, 70 << 16), None, now);
        search(of_p, now, &[]);
        of_p.take_words().contains(&left)
    };
    assert!(!is_told(&mut pair.of_p, Duration::ZERO));
    assert!(!is_told(&mut pair.of_p, NOBODY - SEARCH));
    assert!(is_told(&mut pair.of_p, NOBODY));
    // Whose process is gone is sought anew.
    pair.p_asks();
    assert!(!is_told(&mut pair.of_p, NOBODY + SEARCH));
    pair.of_p.disown(place_in(3), start + NOBODY + SEARCH);
    assert!(!is_told(&mut pair.of_p, NOBODY + 2 * SEARCH));
    assert!(is_told(&mut pair.of_p, 2 * NOBODY + 2 * SEARCH));
}

/// A connection may have the addresses of one that was closed a moment ago.
#[test]
fn who_had_these_addresses_is_not_asked_for_later_lanes() {
    let mut lost = Lost::default();
    let now = Instant::now();
    lost.told_position(by(P), position(5, 0), place_in(3), now);
    lost.take_words();
    let (place, owner) = (place_in(4), (E, 8));
    let later = Position {
        pair: 4,
        ..position(0, 70 << 16)
    };
    lost.heard_position(place, later, None, now);
    assert_eq!(lost.take_words(), []);
    assert_eq!(lost.take_sought(now), HashMap::from([(4, later)]));
    lost.heard_position(place, later, Some(owner), now);
    assert!(lost.take_words().contains(&Word::Look { place, owner }));
}

/// Its connection has ended, and has no addresses any more.
#[test]
fn who_has_spoken_is_known_by_it() {
    let mut lost = Lost::default();
    let kin = [(E, 5), (P, 5)];
    let place_of = |lost: &Lost, pair| lost.place_of(kin.into_iter(), pair);
    assert_eq!(place_of(&lost, 3), None);
    lost.told_position(by(P), position(5, 0), place_in(3), Instant::now());
    assert_eq!(place_of(&lost, 3), Some(place_in(3)));
    assert_eq!(place_of(&lost, 4), None);
    assert_eq!(lost.place_of([(P, 6)].into_iter(), 3), None);
}

#[test]
fn the_oldest_absence_is_forgotten_first() {
    let mut absences = Absences::default();
    let many = u64::try_from(absences::MOST).unwrap();
    (0..=many).for_each(|pair| absences.note(pair, Absence::Left));
    absences.note(many, Absence::Alone);
    absences.note(2, Absence::Alone);
    absences.forget(2);
    assert_eq!(absences.of(2), None);
    assert_eq!(absences.of(0), None);
    assert_eq!(absences.of(1), Some(Absence::Left));
    assert_eq!(absences.of(many), Some(Absence::Alone));
}

#[test]
fn a_remainder_arrives_whole_and_once() {
    for count in [0, 1, CHUNK_LINES, CHUNK_LINES + 1, 2000] {
        let mut pair = Pair::new();
        pair.both_ask();
        let told = remainder(5, 70, count as u64);
        pair.of_p.told_remainder(by(P), (told, lines(count)));
        pair.exchange(true);
        let expected = MonitorMessage::Remainder(remainder(8, 70, count as u64));
        assert_eq!(pair.to_e, [(expected, lines(count))], "{count} lines");
        assert!(pair.of_p.under_way.is_empty());
    }
}

#[test]
fn what_a_session_loses_is_sent_in_the_next() {
    for arrived in 0..=2 {
        let mut pair = Pair::new();
        pair.both_ask();
        pair.of_p
            .told_remainder(by(P), (remainder(5, 70, 100), lines(100)));
        let begun: Vec<Word> = pieces(&mut pair.of_p, pair.now).take(arrived).collect();
        begun.into_iter().for_each(|word| pair.pass(0, word, true));
        pair.exchange(false);
        pair.of_p.host_up(HOST);
        pair.of_e.host_up(HOST);
        pair.exchange(true);
        assert_eq!(pair.to_e.len(), 1);
        assert_eq!(pair.to_e[0].1, lines(100));
    }
}

#[test]
fn a_late_word_about_earlier_lanes_takes_nothing_away() {
    let mut pair = Pair::new();
    pair.p_asks();
    pair.of_p
        .told_remainder(by(P), (remainder(5, 70, 1), lines(1)));
    pair.of_p.heard_arrived(place_in(2));
    assert!(pair.of_p.ends[&place_in(3)].outgoing.is_some());
    pair.of_p.heard_arrived(place_in(3));
    assert!(pair.of_p.ends[&place_in(3)].outgoing.is_none());
}

#[test]
fn who_asks_again_is_sent_the_same_after_a_while_only() {
    let mut pair = Pair::new();
    pair.p_asks();
    pair.of_p
        .told_remainder(by(P), (remainder(5, 70, 1), lines(1)));
    assert_eq!(pieces(&mut pair.of_p, pair.now).count(), 1);
    let mut pieces_after = |wait| {
        let now = pair.now + wait;
        pair.of_p
            .heard_position(place_in(3), position(0, 70 << 16), None, now);
        pieces(&mut pair.of_p, now).count()
    };
    assert_eq!(pieces_after(AGAIN / 2), 0);
    assert_eq!(pieces_after(AGAIN), 1);
    assert_eq!(pieces_after(AGAIN + AGAIN / 2), 0);
}

/// The same of another connection, in other lanes.
fn in_lanes(pair: u64, position: Position, remainder: Remainder) -> (Place, Position, Remainder) {
    let local = format!("10.0.0.1:{pair}").parse().unwrap();
    let place = Place {
        tuple: Tuple { local, ..tuple() },
        ..place_in(pair)
    };
    (
        place,
        Position { pair, ..position },
        Remainder { pair, ..remainder },
    )
}

#[test]
fn nobody_sends_more_at_a_time_than_is_agreed() {
    let mut of_p = Lost::default();
    let now = Instant::now();
    let mut begin = |pair: u64| {
        let (place, position, remainder) = in_lanes(pair, position(pair, 0), remainder(0, 0, 2));
        of_p.told_position(by(P), position, place, now);
        of_p.heard_remainder(place, remainder, (0, &lines(1)), now)
    };
    for pair in 1..=MOST_UNDER_WAY as u64 {
        assert_eq!(begin(pair), Ok(()));
        assert_eq!(begin(1), Ok(()), "the same, begun again");
    }
    assert!(begin(1000).is_err());
}

#[test]
fn few_are_under_way_and_all_arrive() {
    let mut pair = Pair::new();
    let of = |name: u64| in_lanes(name, position(name, 0), remainder(name, 0, 3));
    for name in 1..=100 {
        let (place, position, _) = of(name);
        pair.of_p.told_position(by(P), position, place, pair.now);
        pair.of_e
            .told_position(by(E), position, mirrored(place), pair.now);
    }
    pair.exchange(true);
    pair.to_e.clear();
    for name in 1..=100 {
        let (_, _, remainder) = of(name);
        pair.of_p.told_remainder(by(P), (remainder, lines(3)));
    }
    assert_eq!(pair.of_p.under_way.len(), MOST_UNDER_WAY);
    pair.exchange(true);
    assert_eq!(pair.to_e.len(), 100);
}

#[test]
fn pieces_that_do_not_fit_are_a_lie_and_strangers_get_nothing() {
    let mut pair = Pair::new();
    let piece = lines(1);
    let told = remainder(0, 0, 2);
    let now = pair.now;
    pair.of_p
        .heard_remainder(place_in(3), told, (0, &piece), now)
        .unwrap();
    assert_eq!(pair.of_p.take_words(), []);
    pair.p_asks();
    pair.of_p.take_words();
    pair.of_p
        .heard_remainder(place_in(3), told, (0, &piece), now)
        .unwrap();
    assert!(
        pair.of_p
            .heard_remainder(place_in(3), told, (0, &lines(3)), now)
            .is_err()
    );
    pair.of_p
        .heard_remainder(place_in(3), told, (0, &piece), now)
        .unwrap();
    assert!(
        pair.of_p
            .heard_remainder(place_in(3), told, (2, &piece), now)
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

#[test]
fn an_end_that_has_sent_what_it_had_is_not_called_alone() {
    let (coming, wait) = (AtomicU64::new(3), WaitState::default());
    assert_eq!(absence_in(&coming, &wait, 3), None);
    coming.store(0, SeqCst);
    assert_eq!(absence_in(&coming, &wait, 3), Some(Absence::Alone));
    wait.pair.store(3, SeqCst);
    assert_eq!(absence_in(&coming, &wait, 3), None);
    wait.shipped.store(3, SeqCst);
    wait.pair.store(0, SeqCst);
    assert_eq!(absence_in(&coming, &wait, 3), Some(Absence::Left));
    assert_eq!(absence_in(&coming, &wait, 4), Some(Absence::Alone));
}
