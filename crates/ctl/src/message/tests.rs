use proptest::prelude::*;

use super::*;
use crate::lane::{Geometry, Location, Pages, Posting};

const POSITION: Position = Position {
    token: 11,
    pair: 5 << 33,
    flags: u32::MAX,
    consumed: u64::MAX - 3,
    tcp_taken: 1 << 40,
};
const REMAINDER: Remainder = Remainder {
    token: 12,
    pair: u64::MAX - 9,
    first: 1 << 33,
    end: (1 << 33) + 5,
    replay_seq: 3,
    replay_at: u64::MAX,
    replay_end: u64::MAX - 1,
};

fn client_messages() -> Vec<ClientMessage> {
    vec![
        ClientMessage::Secret { secret: u64::MAX },
        ClientMessage::Hello,
        ClientMessage::Register { token: u64::MAX },
        ClientMessage::Release { token: 7, pair: 9 },
        ClientMessage::Lend {
            token: u64::MAX - 1,
            member: u16::MAX,
            has_rings: true,
        },
        ClientMessage::TakeBack {
            token: 4,
            member: 1,
        },
        ClientMessage::Adopt { token: 6 },
        ClientMessage::Position(POSITION),
        ClientMessage::Remainder(REMAINDER),
        ClientMessage::Doubt {
            token: 9,
            pair: u64::MAX - 7,
        },
        ClientMessage::Lease,
        ClientMessage::Query(Query::Connections),
        ClientMessage::Query(Query::Counters),
        ClientMessage::Query(Query::Run { run: u64::MAX }),
        ClientMessage::Query(Query::Rack),
        ClientMessage::Watch { run: 7 << 40 | 1 },
    ]
}

fn grant(location: Location) -> MonitorMessage {
    MonitorMessage::Grant(Grant {
        token: 9,
        arena: 2,
        slot: 7,
        role: 1,
        geometry: Geometry::default(),
        location,
        pair: u64::MAX - 4,
    })
}

fn huge() -> Pages {
    Pages::of(2 << 20).unwrap()
}

fn monitor_messages() -> Vec<MonitorMessage> {
    vec![
        MonitorMessage::Welcome,
        MonitorMessage::Registered { token: 3 },
        grant(Location::File {
            offset: 7 << 32,
            pages: Pages::SMALL,
        }),
        grant(Location::File {
            offset: 7 << 32,
            pages: huge(),
        }),
        grant(Location::Sealed),
        MonitorMessage::Beyond { token: 9 },
        grant(Location::Apart {
            offset: 7 << 32,
            beyond: 3 << 12,
            posting: Posting::Combined,
            pages: Pages::SMALL,
        }),
        MonitorMessage::Lendable { token: 8 },
        MonitorMessage::Lent(Loan {
            token: 1,
            original: u64::MAX - 2,
            family: u32::MAX,
            member: 3,
        }),
        MonitorMessage::Position(POSITION),
        MonitorMessage::Remainder(REMAINDER),
        MonitorMessage::Alone {
            token: 13,
            pair: u64::MAX - 8,
        },
        MonitorMessage::Left {
            token: 14,
            pair: u64::MAX - 9,
        },
        MonitorMessage::WindowLost {
            token: 13,
            pair: u64::MAX - 8,
        },
        MonitorMessage::Carried {
            token: 9,
            pair: u64::MAX - 7,
        },
        MonitorMessage::LookedInto {
            token: 10,
            pair: u64::MAX - 6,
        },
        MonitorMessage::Retire { arena: 4 },
        MonitorMessage::Refused {
            token: 5,
            reason: 7,
        },
        MonitorMessage::Text(b"{}".to_vec()),
        MonitorMessage::Text(Vec::new()),
    ]
}

#[test]
fn every_message_survives_encoding() {
    for message in client_messages() {
        assert_eq!(
            ClientMessage::decode(message.encode().as_bytes()),
            Ok(message)
        );
    }
    for message in monitor_messages() {
        assert_eq!(MonitorMessage::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn every_truncation_is_refused() {
    for message in client_messages() {
        let packet = message.encode();
        for end in 0..packet.as_bytes().len() {
            let error = ClientMessage::decode(&packet.as_bytes()[..end]);
            assert!(
                matches!(error, Err(MessageError::Truncated { .. })),
                "{message:?} cut at {end}"
            );
        }
    }
}

#[test]
fn a_future_version_is_refused_by_name() {
    let mut bytes = ClientMessage::Hello.encode().as_bytes().to_vec();
    bytes[4] += 1;
    assert_eq!(
        ClientMessage::decode(&bytes),
        Err(MessageError::Version {
            found: ABI_VERSION + 1
        })
    );
}

#[test]
fn a_grant_outside_its_arena_is_refused() {
    let geometry = Geometry::default();
    for (slot, role) in [(geometry.slots, 0), (0, 2), (u32::MAX, 1)] {
        let grant = Grant {
            token: 1,
            arena: 0,
            slot,
            role,
            geometry,
            location: Location::Sealed,
            pair: 0,
        };
        let error = MonitorMessage::decode(&MonitorMessage::Grant(grant).encode());
        assert!(
            matches!(error, Err(MessageError::Field { field: "slot", .. })),
            "{slot} {role}"
        );
    }
}

fn decoded_at(location: Location) -> Result<MonitorMessage, MessageError> {
    MonitorMessage::decode(&grant(location).encode())
}

#[test]
fn a_grant_off_the_pages_of_its_file_is_refused() {
    for (offset, pages) in [(4095, Pages::SMALL), (3 << 20, huge()), (4096, huge())] {
        let error = decoded_at(Location::File { offset, pages });
        let expected = MessageError::Field {
            field: "offset",
            value: offset,
        };
        assert_eq!(error, Err(expected));
        let error = decoded_at(Location::Apart {
            offset: 0,
            beyond: offset,
            posting: Posting::Memory,
            pages,
        });
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn a_grant_with_pages_that_no_memory_has_is_refused() {
    const PLACE_AT: usize = 16 + 5 * 4;
    let fit = grant(Location::File {
        offset: 0,
        pages: Pages::SMALL,
    });
    let said = fit.encode();
    assert_eq!(said[PLACE_AT..][..4], [1, 0, 0, 0]);
    for (kind, shift) in [(1, 19), (1, 51), (1, 52), (1, 64), (1, 255), (0, 9)] {
        let mut lie = said.clone();
        lie[PLACE_AT..][..2].copy_from_slice(&[kind, shift]);
        let error = MonitorMessage::decode(&lie);
        assert!(
            matches!(error, Err(MessageError::Field { field: "page", .. })),
            "{kind} {shift}: {error:?}"
        );
    }
}

#[test]
fn a_member_that_cannot_be_is_refused() {
    for member in [0u32, 1 << 16] {
        let packet = Packet::new(kind::LEND, 1).with(&[member]);
        let error = ClientMessage::decode(packet.as_bytes());
        let expected = MessageError::Field {
            field: "member",
            value: member.into(),
        };
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn a_remainder_longer_than_any_ring_is_refused() {
    for (first, end) in [
        (1, 0),
        (0, u64::from(crate::lane::MAX_RING_LINES) + 1),
        (9, u64::MAX),
    ] {
        let lie = ClientMessage::Remainder(Remainder {
            first,
            end,
            ..REMAINDER
        });
        let decoded = ClientMessage::decode(lie.encode().as_bytes());
        assert!(
            matches!(decoded, Err(MessageError::Field { field: "lines", .. })),
            "{first} {end}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = ClientMessage::decode(&bytes);
        let _ = MonitorMessage::decode(&bytes);
    }

    #[test]
    fn no_body_makes_decoding_panic(kind: u16, body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = Packet::new(kind, 1).as_bytes().to_vec();
        bytes.extend_from_slice(&body);
        let _ = ClientMessage::decode(&bytes);
        let _ = MonitorMessage::decode(&bytes);
    }
}
