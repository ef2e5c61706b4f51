use super::super::tests::TestRack;
use super::*;

const HOST: HostId = HostId(0);

fn position(pair: u64) -> Position {
    Position {
        token: 0,
        pair,
        flags: 0,
        consumed: 0,
        tcp_taken: 0,
    }
}

/// What the other host says of its end with this address, which is connected to our port 7000.
fn said_of(address: &str, pair: u64) -> HostMessage {
    let tuple = Tuple {
        local: address.parse().unwrap(),
        remote: "10.0.0.1:7000".parse().unwrap(),
    };
    let position = position(pair);
    HostMessage::Position { tuple, position }
}

#[test]
fn what_is_said_of_an_end_with_an_address_that_is_not_listed_is_not_heard() {
    let mut test = TestRack::new(1);
    let said = said_of("10.0.0.3:40000", 9);
    assert_eq!(test.hear(&said), Ok(()));
    assert_eq!(test.rack.lost.take_words(), []);
    assert_eq!(test.rack.lost.due(), None);
}

/// `rack.toml` gives the other host another address, while a connection to the old one is in a window.
#[test]
fn an_end_in_a_window_is_known_whatever_address_its_host_has_by_now() {
    let mut test = TestRack::new(1);
    let (owner, key, pair) = test.deal(0);
    let tuple = Tuple {
        local: "10.0.0.1:7000".parse().unwrap(),
        remote: "10.0.0.2:40000".parse().unwrap(),
    };
    let host = HOST;
    let place = Place { host, tuple, pair };
    let mut config = (*test.rack.config).clone();
    config.hosts[0].addresses = vec!["10.0.0.9".parse().unwrap()];
    let matching = &mut test.rack.matching;
    matching.renew(&mut test.registry, Arc::new(config), |_| String::new());
    assert_eq!(matching.host_of(&key), None);
    let found = test
        .rack
        .place_of((Some(key), pair), &[owner], &test.registry);
    assert_eq!(found, Some(place));
    // Nobody else's.
    let nobodys = test
        .rack
        .place_of((Some(key), pair + 1), &[owner], &test.registry);
    assert_eq!(nobodys, None);
    assert_eq!(test.hear(&said_of("10.0.0.2:40000", pair)), Ok(()));
    let words = test.rack.lost.take_words();
    assert!(words.contains(&Word::Look { place, owner }), "{words:?}");
}
