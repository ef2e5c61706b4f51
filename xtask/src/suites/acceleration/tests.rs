use super::*;

fn end(local: &str, peer: &str, reason: Option<&str>, ring: u64, tcp: u64) -> End {
    End {
        program: "redis-server".into(),
        pid: 1,
        local: local.into(),
        peer: peer.into(),
        state: reason.map_or("accelerated", |_| "tcp").into(),
        reason: reason.map(Into::into),
        window: None,
        ring_bytes_sent: ring,
        ring_bytes_received: 0,
        tcp_bytes_sent: tcp,
        tcp_bytes_received: 0,
    }
}

/// Of ends, of which as many were counted, with room for all of them in rings.
fn of(ends: Vec<End>) -> Acceleration {
    let counts = Counts {
        ends: ends.len() as u64,
        paired: ends.len() as u64,
    };
    let told = Told { ends, left_out: 0 };
    Acceleration::of(&told, Counts::default(), counts)
}

#[test]
fn every_end_is_accelerated_or_short_lived_or_has_a_reason() {
    let found = of(vec![
        end("a:1", "b:80", None, 10, 0),
        end("b:80", "a:1", Some("switching"), 10, 2),
        end("a:2", "b:80", Some("too-young"), 0, 10),
        end("a:3", "b:80", Some("option"), 0, 10),
    ]);
    assert_eq!((found.ends, found.short_lived), (4, 1));
    assert_eq!((found.accelerated, found.long_lived()), (2, 3));
    assert_eq!(found.others, BTreeMap::from([("option".into(), 1)]));
    assert!(found.is_proven() && found.impossible.is_empty());
}

#[test]
fn an_end_that_has_carried_much_was_not_short_lived() {
    for reason in SHORT_LIVED {
        let much = of(vec![end("a:1", "b:80", Some(reason), 0, LONG_LIVED_BYTES)]);
        assert_eq!((much.long_lived(), much.percent()), (1, 0), "{reason}");
        let little = of(vec![end("a:1", "b:80", Some(reason), 0, 100)]);
        assert_eq!(
            (little.long_lived(), little.short_lived),
            (0, 1),
            "{reason}"
        );
    }
}

#[test]
fn who_waited_for_a_short_lived_end_is_as_short_lived() {
    let found = of(vec![
        end("a:1", "b:80", Some("no-peer"), 0, 10),
        end("b:80", "a:1", Some("too-young"), 0, 10),
        end("b:80", "a:2", Some("no-peer"), 0, 10),
        // Closed before it knew its peer's name.
        end("a:2", "", Some("too-young"), 0, 0),
    ]);
    assert_eq!((found.short_lived, found.long_lived()), (4, 0));
}

#[test]
fn who_waited_for_anybody_else_was_not_accelerated() {
    let found = of(vec![
        end("a:1", "b:80", Some("no-peer"), 0, 10),
        end("b:80", "a:2", Some("too-young"), 0, 10),
        // The same names once more: the other end of one of them is not told of.
        end("a:2", "b:80", Some("no-peer"), 0, 10),
        end("a:2", "b:80", Some("no-peer"), 0, 10),
    ]);
    assert_eq!((found.short_lived, found.long_lived()), (2, 2));
    assert_eq!(found.others, BTreeMap::from([("no-peer".into(), 2)]));
}

#[test]
fn who_was_accelerated_until_the_other_end_closed_was_accelerated() {
    for reason in ENDING {
        let end = || end("b:80", "a:1", Some(reason), 10, LONG_LIVED_BYTES);
        let other = |reason| self::end("a:1", "b:80", reason, 10, 0);
        assert_eq!(of(vec![end(), other(None)]).accelerated, 2, "{reason}");
        let twice = of(vec![end(), end(), other(None)]);
        assert_eq!((twice.accelerated, twice.long_lived()), (2, 3), "{reason}");
        let again = of(vec![
            end(),
            other(None),
            self::end("b:80", "a:1", None, 10, 0),
        ]);
        assert_eq!((again.accelerated, again.long_lived()), (2, 3), "{reason}");
        let early = of(vec![end(), other(Some("peer-asked"))]);
        assert_eq!((early.accelerated, early.long_lived()), (0, 2), "{reason}");
    }
    let kept = of(vec![
        end("b:80", "a:1", Some("option"), 0, 10),
        end("a:1", "b:80", None, 10, 0),
    ]);
    assert_eq!((kept.accelerated, kept.long_lived()), (1, 2));
}

#[test]
fn what_was_counted_and_not_told_is_left_out() {
    let ends = vec![end("a:1", "b:80", None, 10, 0)];
    let told = Told { ends, left_out: 3 };
    let (before, after) = (
        Counts {
            ends: 10,
            paired: 5,
        },
        Counts {
            ends: 16,
            paired: 6,
        },
    );
    let found = Acceleration::of(&told, before, after);
    assert_eq!((found.ends, found.left_out, found.paired), (1, 5, 1));
    assert_eq!(found.impossible, Vec::<String>::new());
    assert!(
        found
            .line()
            .ends_with("; 5 ends more, of which nothing is known")
    );
}

#[test]
fn figures_that_contradict_each_other_are_not_hidden() {
    let told = Told {
        ends: vec![end("a:1", "b:80", None, 10, 0); 3],
        left_out: 0,
    };
    let of = |ends, paired| {
        let found = Acceleration::of(&told, Counts::default(), Counts { ends, paired });
        found.impossible.len()
    };
    assert_eq!((of(3, 2), of(4, 2)), (0, 0));
    assert_eq!(of(2, 2), 1, "more ends than were counted");
    assert_eq!(of(3, 1), 1, "more ends in rings than were given any");
    let before = Counts { ends: 5, paired: 0 };
    let found = Acceleration::of(&told, before, Counts { ends: 4, paired: 9 });
    assert_eq!(found.impossible.len(), 1, "fewer than before");
}

#[test]
fn nothing_long_lived_is_not_accelerated() {
    let found = of(Vec::new());
    assert_eq!((found.percent(), found.is_proven()), (0, false));
}

#[test]
fn what_is_told_is_understood_and_has_to_be_whole() {
    let end = r#"{"program":"x","pid":1,"fd":3,"local":"a:1","peer":"b:2","state":"tcp","reason":"option",
        "ring_bytes_sent":0,"ring_bytes_received":0,"tcp_bytes_sent":1,"tcp_bytes_received":2,"ended":true}"#;
    let end = end.replace('\n', "");
    let told = Told::parse(&format!("{end}\n{{\"ends\":3,\"left_out\":2}}\n")).unwrap();
    assert_eq!((told.ends.len(), told.left_out), (1, 2));
    assert!(Told::parse(&format!("{end}\n{{\"ends\":3,\"left_out\":0}}\n")).is_err());
    assert!(Told::parse(&end).is_err());
    assert!(Told::parse("").is_err());
}

#[test]
fn the_parts_together_are_the_suite() {
    let parts = [
        of(vec![end("a:1", "b:80", None, 10, 0)]),
        of(vec![
            end("a:1", "b:80", Some("option"), 0, 9),
            end("a:2", "b:80", Some("too-young"), 0, 0),
        ]),
    ];
    let sum = Acceleration::sum(&parts);
    assert_eq!((sum.ends, sum.short_lived, sum.accelerated), (3, 1, 1));
    assert_eq!((sum.long_lived(), sum.percent(), sum.paired), (2, 50, 3));
}
