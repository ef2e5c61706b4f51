//! Remainders that are more than a session has room for.

use crosslane_ctl::lane::MAX_RING_LINES;

use super::*;

#[test]
fn a_large_remainder_waits_for_room_and_goes_on_as_it_was() {
    let count = MAX_RING_LINES as usize;
    let mut pair = Pair::new();
    pair.both_ask();
    let told = remainder(5, 70, count as u64);
    pair.of_p.told_remainder(by(P), (told, lines(count)));
    assert_eq!(pair.of_p.take_words(), []);
    assert!(pair.of_p.has_pieces(HOST));
    let begun: Vec<Word> = pieces(&mut pair.of_p, pair.now).take(10).collect();
    assert_eq!(begun.len(), 10);
    begun.into_iter().for_each(|word| pair.pass(0, word, true));
    // What is said meanwhile would leave the other host with a part, or with one that does not fit.
    pair.of_p
        .told_remainder(by(P), (remainder(5, 71, 1), lines(1)));
    pair.of_p.heard_arrived(place_in(3));
    pair.exchange(true);
    let expected = MonitorMessage::Remainder(remainder(8, 70, count as u64));
    // Not to be printed: these are 16 MiB.
    assert!(pair.to_e == [(expected, lines(count))]);
    assert!(!pair.of_p.has_pieces(HOST));
    assert!(pair.of_p.under_way.is_empty());
}

#[test]
fn one_remainder_goes_after_the_other() {
    let mut lost = Lost::default();
    let now = Instant::now();
    for name in [1, 2] {
        let (place, position, remainder) =
            in_lanes(name, position(name, 0), remainder(name, 0, 100));
        lost.told_position(by(P), position, place, now);
        lost.told_remainder(by(P), (remainder, lines(100)));
    }
    let sent = pieces(&mut lost, now).filter_map(|word| match word {
        Word::ToHost(_, HostMessage::Remainder { remainder, at, .. }) => Some((remainder.pair, at)),
        _ => None,
    });
    let sent: Vec<_> = sent.collect();
    assert_eq!(sent, [(1, 0), (1, 56), (2, 0), (2, 56)]);
    // What is forgotten is not sent.
    lost.host_up(HOST);
    assert!(lost.has_pieces(HOST));
    lost.expire(now + PATIENCE);
    assert!(!lost.has_pieces(HOST));
}
