//! What one user or one host may have, so that others' connections do not wait for it.

use super::*;

/// One of many lanes, of a connection of its own.
fn another(number: u16) -> (Place, Position, Remainder) {
    let mut place = place_in(3);
    place.tuple.local.set_port(number);
    let token = 100 + u64::from(number);
    (place, position(token, 0), remainder(token, 70, 1))
}

#[test]
fn what_never_arrives_holds_up_its_own_user_only() {
    let mut lost = Lost::default();
    let now = Instant::now();
    let hostile = Speaker { client: E, uid: 2 };
    let many = u16::try_from(MOST_UNDER_WAY).unwrap() + 9;
    for number in 0..many {
        let (place, position, remainder) = another(number);
        lost.told_position(hostile, position, place, now);
        // Again and again, of which nothing comes.
        for _ in 0..3 {
            lost.told_remainder(hostile, (remainder, lines(1)));
        }
    }
    let sent = |lost: &mut Lost| {
        let sent = pieces(lost, now).filter_map(|word| match word {
            Word::ToHost(_, HostMessage::Remainder { tuple, .. }) => Some(tuple),
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut lost).len(), MOST_UNDER_WAY);
    lost.told_position(by(P), position(5, 0), place_in(3), now);
    lost.told_remainder(by(P), (remainder(5, 70, 1), lines(1)));
    assert_eq!(sent(&mut lost), [tuple()]);
    // Room for the others of the user when one has arrived, or all are forgotten.
    lost.heard_arrived(another(0).0);
    assert_eq!(sent(&mut lost).len(), 1);
    lost.expire(now + PATIENCE);
    assert!(lost.ends.is_empty() && lost.under_way.is_empty() && lost.waiting.is_empty());
}

#[test]
fn a_remainder_is_taken_from_who_speaks_for_its_lanes_only() {
    let mut lost = Lost::default();
    let now = Instant::now();
    let told = remainder(5, 70, 1);
    assert!(!lost.takes_remainder(by(P), &told));
    lost.told_position(by(P), position(5, 0), place_in(3), now);
    assert!(lost.takes_remainder(by(P), &told));
    assert!(!lost.takes_remainder(by(E), &told));
    assert!(!lost.takes_remainder(by(P), &Remainder { pair: 4, ..told }));
    lost.shares.replace(1, 0, shares::MOST_BYTES);
    assert!(!lost.takes_remainder(by(P), &told));
}

#[test]
fn one_user_leaves_room_for_the_ends_of_others() {
    let mut shares = Shares::default();
    (0..shares::MOST_ENDS).for_each(|_| assert!(shares.add_end(1)));
    assert!(!shares.add_end(1));
    assert!(shares.add_end(2));
    shares.forget_end(1, 0);
    assert!(shares.add_end(1));
}

/// What it makes us keep is nobody else's loss.
#[test]
fn of_a_host_that_speaks_of_too_many_ends_no_more_are_kept() {
    let mut lost = Lost::default();
    let start = Instant::now();
    let of = |host, pair| Place {
        host,
        ..place_in(pair)
    };
    let hear = |lost: &mut Lost, place: Place, now| {
        let position = Position {
            pair: place.pair,
            ..position(0, 0)
        };
        lost.heard_position(place, position, None, now);
        lost.ends.contains_key(&place)
    };
    let most = u64::try_from(MOST_OF_HOST).unwrap();
    let (liar, other) = (HostId(0), HostId(1));
    assert!((1..=most).all(|pair| hear(&mut lost, of(liar, pair), start)));
    assert!(!hear(&mut lost, of(liar, most + 1), start));
    assert!(hear(&mut lost, of(liar, most), start), "known already");
    assert!(hear(&mut lost, of(other, 1), start));
    // Of what is forgotten others may take the place.
    let later = start + PATIENCE;
    lost.expire(later);
    assert!(hear(&mut lost, of(other, 1), later));
    assert!(hear(&mut lost, of(liar, most + 1), later));
    // Those of programs here are counted apart.
    lost.told_position(by(P), position(5, 0), of(liar, 3), later);
    assert_eq!(lost.spoken[&None], 1);
}

/// Such as one whose program has been killed meanwhile: its place is needed by others.
#[test]
fn what_is_for_nobody_keeps_no_place() {
    let mut pair = Pair::new();
    for name in 1..=2 * MOST_UNDER_WAY as u64 {
        let (place, position, remainder) =
            in_lanes(name, position(name, 0), remainder(name, 0, 100));
        pair.of_p.told_position(by(P), position, place, pair.now);
        let told = (remainder, lines(100));
        pair.of_p.told_remainder(by(P), told);
    }
    pair.exchange(true);
    assert_eq!(pair.to_e, []);
    assert!(pair.of_p.under_way.is_empty());
    assert!(pair.of_p.waiting.values().all(VecDeque::is_empty));
}

/// A host that says the same again and again would have a program that does not read told it as often.
#[test]
fn a_program_is_passed_one_remainder_for_each_time_that_it_asks() {
    let mut lost = Lost::default();
    let now = Instant::now();
    let mut hear = |asks: bool| {
        if asks {
            lost.told_position(by(E), position(8, 70 << 16), place_in(3), now);
        }
        lost.take_words();
        let heard = lost.heard_remainder(place_in(3), remainder(0, 70, 1), (0, &lines(1)), now);
        assert_eq!(heard, Ok(()));
        let [word] = &lost.take_words()[..] else {
            panic!("one word")
        };
        match word {
            Word::Pass { .. } => true,
            Word::ToHost(_, HostMessage::Arrived { .. }) => false,
            other => panic!("{other:?}"),
        }
    };
    assert!(hear(true));
    assert!(!hear(false));
    assert!(hear(true));
    assert!(!hear(false));
}
