use proptest::prelude::*;

use super::*;

fn tuple() -> Tuple {
    Tuple {
        local: "10.0.0.1:6379".parse().unwrap(),
        remote: "[2001:db8::1]:65535".parse().unwrap(),
    }
}

fn messages() -> Vec<HostMessage> {
    let mut all = messages_of_pairing();
    all.extend(messages_of_losses());
    all
}

fn messages_of_pairing() -> Vec<HostMessage> {
    let tuple = tuple();
    vec![
        HostMessage::Hello {
            version: RACK_VERSION,
            abi: 6,
            name: "alpha".to_owned(),
        },
        HostMessage::Ping,
        HostMessage::Beat {
            epoch: 3,
            beat: 1,
            answers: u64::MAX,
        },
        HostMessage::BeatWanted {
            epoch: 3,
            number: 8,
        },
        HostMessage::WindowOffer(WindowOffer {
            name: "w".to_owned(),
            epoch: u64::MAX,
            bytes: 1 << 40,
            page_bytes: 1 << 21,
            ring_lines: 512,
            slots: 8,
        }),
        HostMessage::WindowAnswer {
            epoch: 1,
            works: true,
        },
        HostMessage::Offer(Offer {
            offer: 7,
            family: 8,
            tuple,
            allowed: false,
        }),
        HostMessage::Withdraw { offer: 9 },
        HostMessage::Decline { offer: 9, pair: 3 },
        HostMessage::Gone { family: 10 },
        HostMessage::Deal(Deal {
            offer: 1,
            epoch: 2,
            arena: 3,
            part: 4,
            slot: 5,
            role: 1,
            pair: 1 << 61,
        }),
        HostMessage::Refuse {
            offer: 1,
            reason: 31,
        },
        HostMessage::Retire { arena: 4 },
        HostMessage::Probe {
            epoch: 5,
            beat: 8,
            parts: vec![0b101],
        },
        HostMessage::InUse {
            epoch: 5,
            beat: 9,
            parts: vec![255; MAX_EXTENTS / 8],
        },
    ]
}

/// Of ends whose window is lost.
fn messages_of_losses() -> Vec<HostMessage> {
    let tuple = tuple();
    vec![
        HostMessage::Position {
            tuple,
            position: Position {
                token: 0,
                pair: 1 << 60,
                flags: 12,
                consumed: u64::MAX,
                tcp_taken: 1 << 50,
            },
        },
        HostMessage::Remainder {
            tuple,
            remainder: Remainder {
                token: 0,
                pair: 77,
                first: 1 << 40,
                end: (1 << 40) + 900,
                replay_seq: 2,
                replay_at: u64::MAX,
                replay_end: 7,
            },
            at: 56,
            lines: vec![9; crate::rack::lost::CHUNK_LINES * LINE_BYTES],
        },
        HostMessage::WindowLost { epoch: 3 },
        HostMessage::Alone { tuple, pair: 78 },
        HostMessage::Left { tuple, pair: 80 },
        HostMessage::Arrived { tuple, pair: 79 },
    ]
}

#[test]
fn every_message_survives_encoding_whole_and_in_pieces() {
    let mut stream = Vec::new();
    for message in messages() {
        stream.extend(message.encode());
    }
    let mut received = Vec::new();
    let mut understood = Vec::new();
    for byte in stream {
        received.push(byte);
        understood.extend(HostMessage::take(&mut received).unwrap());
    }
    assert_eq!(understood, messages());
    assert!(received.is_empty());
}

#[test]
fn a_frame_of_another_length_than_its_message_is_refused() {
    for message in messages() {
        let whole = message.encode();
        let has_any_length = matches!(
            message,
            HostMessage::Hello { .. }
                | HostMessage::WindowOffer(_)
                | HostMessage::Probe { .. }
                | HostMessage::InUse { .. }
        );
        for change in [-1i32, 1] {
            let mut frame = whole.clone();
            let length = u32::from_le_bytes(frame[..4].try_into().unwrap());
            let wrong = length.wrapping_add_signed(change);
            frame[..4].copy_from_slice(&wrong.to_le_bytes());
            frame.push(b'x');
            let taken = HostMessage::take(&mut frame);
            assert!(has_any_length || taken.is_err(), "{message:?}");
        }
    }
}

#[test]
fn a_frame_too_long_to_be_one_is_refused_before_it_is_there() {
    let mut received = 1_000_000u32.to_le_bytes().to_vec();
    assert_eq!(
        HostMessage::take(&mut received),
        Err(FrameError::Long { bytes: 1_000_000 })
    );
}

#[test]
fn addresses_lose_what_means_something_on_one_host_only() {
    let mapped: SocketAddr = "[::ffff:10.0.0.1]:1".parse().unwrap();
    let scoped: SocketAddr = "[fe80::1%3]:2".parse().unwrap();
    let message = HostMessage::Offer(Offer {
        offer: 1,
        family: 1,
        tuple: Tuple {
            local: mapped,
            remote: scoped,
        },
        allowed: true,
    });
    let Ok(Some(HostMessage::Offer(offer))) = HostMessage::take(&mut message.encode()) else {
        panic!("not understood");
    };
    assert_eq!(offer.tuple.local, "10.0.0.1:1".parse().unwrap());
    assert_eq!(offer.tuple.remote, "[fe80::1]:2".parse().unwrap());
}

proptest! {
    #[test]
    fn garbage_is_understood_or_refused_and_what_is_understood_is_canonical(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        kind in 0u16..14,
    ) {
        let mut frame = u32::try_from(bytes.len() + 2).unwrap().to_le_bytes().to_vec();
        frame.extend(kind.to_le_bytes());
        frame.extend(&bytes);
        let mut received = frame.clone();
        if let Ok(Some(message)) = HostMessage::take(&mut received) {
            prop_assert!(received.is_empty());
            let again = HostMessage::take(&mut message.encode());
            prop_assert_eq!(again, Ok(Some(message)));
        }
    }

    #[test]
    fn a_changed_byte_harms_nothing(
        which in 0usize..12,
        at in 0usize..64,
        to in any::<u8>(),
    ) {
        let mut frame = messages()[which].encode();
        let at = at % frame.len();
        frame[at] = to;
        let _ = HostMessage::take(&mut frame);
    }
}
