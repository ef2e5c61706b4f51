//! Pairs of traces that count as alike, and those that do not.

use super::*;

fn are_alike(native: &str, other: &str) -> bool {
    let trace = |last: &str| Trace {
        lines: [
            "@0 epoll-add h5 h1 IN|ET 1 => 0",
            "@0 epoll-add h5 h2 IN 2 => 0",
            "@0 epoll-add h5 h3 IN|ET|ONESHOT 3 => 0",
            "@0 epoll-add h5 h2 IN|ET 2 => EEXIST",
            "@0 epoll-wait h5 9 0 => [1:IN]",
            "@1 send h9 5 - => 5",
            "@0 dup h5 h7 => 9",
            last,
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Trace::default()
    };
    super::are_alike(&trace(native), &trace(other))
}

#[test]
fn an_edge_too_many_is_allowed_and_one_too_few_is_not() {
    let (without, with) = (
        "@0 epoll-wait h5 9 0 => []",
        "@0 epoll-wait h5 9 0 => [1:IN]",
    );
    assert!(are_alike(without, with));
    assert!(!are_alike(with, without));
    assert!(!are_alike(with, "@0 epoll-wait h5 9 0 => [1:IN 1:IN]"));
}

#[test]
fn each_of_two_registrations_with_the_same_data_may_have_an_edge_too_many() {
    let add = "@0 epoll-add h5 h1 OUT|ET 1 => 0";
    let trace = |adds: usize, told: &str| Trace {
        lines: [&vec![add; adds][..], &["@0 dup3 h3 h1 => 4", told]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        ..Trace::default()
    };
    let [one, two] =
        ["[1:IN]", "[1:IN 1:OUT]"].map(|told| format!("@0 epoll-wait h5 9 0 => {told}"));
    assert!(super::are_alike(&trace(2, &one), &trace(2, &two)));
    assert!(!super::are_alike(&trace(1, &one), &trace(1, &two)));
}

#[test]
fn a_polled_set_may_have_been_filled_by_a_parent() {
    let trace = |process: &str, told: &str| Trace {
        lines: [
            "@0 epoll-add h5 h1 OUT|ET 1 => 0".to_owned(),
            "fork @0 @2 => forked".to_owned(),
            format!("{process} poll-both h1 h5 IN 0 => {told}"),
        ]
        .to_vec(),
        ..Trace::default()
    };
    let are_alike = |process| super::are_alike(&trace(process, "0 - -"), &trace(process, "1 - IN"));
    assert!(are_alike("@0") && are_alike("@2") && !are_alike("@1"));
}

#[test]
fn an_edge_too_many_is_of_what_has_been_told() {
    let told = |before: &[&str], event: &str| {
        let add = "@0 epoll-add h5 h1 IN|OUT|ET 1 => 0";
        let trace = |last: &str| Trace {
            lines: [&[add], before, &[last]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            ..Trace::default()
        };
        let other = format!("@0 epoll-wait h5 9 0 => [1:{event}]");
        super::are_alike(&trace("@0 epoll-wait h5 9 0 => []"), &trace(&other))
    };
    let read = "@0 epoll-wait h5 9 0 => [1:IN|OUT]";
    assert!(told(&[read], "IN|OUT"));
    assert!(told(&[read], "IN"));
    assert!(told(&[], "OUT"));
    assert!(!told(&[], "IN"));
    assert!(!told(&[read], "IN|RDHUP"));
    assert!(!told(&[read], "ERR|HUP"));
    assert!(!told(&[read, "@0 epoll-mod h5 h1 IN|ET 1 => 0"], "IN"));
    assert!(!told(&["@0 send h1 5 DONTWAIT => EAGAIN"], "OUT"));
}

#[test]
fn room_is_told_of_where_a_send_has_missed_it() {
    let (with, without) = (
        "@0 epoll-wait h5 9 0 => [1:OUT]",
        "@0 epoll-wait h5 9 0 => []",
    );
    assert!(are_alike(with, without));
    assert!(!are_alike("@0 epoll-wait h5 9 0 => [2:OUT]", without));
    assert!(!are_alike("@0 epoll-wait h5 9 0 => [1:IN|OUT]", without));
    let trace = |last: &str| Trace {
        lines: [
            "@0 epoll-add h5 h1 IN|OUT|ET 1 => 0",
            "@0 send h1 5 DONTWAIT => EAGAIN",
            last,
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Trace::default()
    };
    assert!(!super::are_alike(&trace(with), &trace(without)));
}

#[test]
fn room_that_another_end_has_missed_is_none_of_ours() {
    let told_with = |before: &[&str], full: &[usize]| {
        let trace = |last: &str| {
            let add = "@0 epoll-add h5 h1 IN|OUT|ET 1 => 0";
            let lines = [&[add], before, &[last]].concat();
            Trace {
                lines: lines.into_iter().map(str::to_owned).collect(),
                full: full.iter().copied().collect(),
                ..Trace::default()
            }
        };
        let (native, other) = (
            "@0 epoll-wait h5 9 0 => [1:OUT]",
            "@0 epoll-wait h5 9 0 => []",
        );
        super::are_alike(&trace(native), &trace(other))
    };
    let told = |before: &[&str]| told_with(before, &[]);
    assert!(told(&["@1 send h2 5 DONTWAIT => EAGAIN"]));
    assert!(!told(&[
        "@0 dup h1 h3 => 7",
        "@0 send h3 5 DONTWAIT => EAGAIN"
    ]));
    assert!(!told(&[
        "@0 pass h1 => 1",
        "@1 take h4 => 7",
        "@1 send h4 5 - => EAGAIN"
    ]));
    assert!(!told(&["fill-and-drain @0:h1 @1:h2 => ok"]));
    assert!(told(&["fill-and-drain @1:h2 @0:h1 => ok"]));
    let transfer = ["transfer @0:h1 @1:h2 503586 => 503586 all"];
    assert!(!told_with(&transfer, &[1]));
    assert!(told(&transfer));
}

#[test]
fn what_is_there_to_be_read_is_told_with_room_once_more() {
    let told = |before: &[&str]| {
        let trace = |last: &str| {
            let first = [
                "pair @0:h1 @1:h2 unix 1 => 3 3 ok ok",
                "pair @0:h8 @1:h9 unix 1 => 4 4 ok ok",
                "@0 epoll-add h5 h1 IN|OUT|ET 1 => 0",
                "@0 epoll-wait h5 9 0 => [1:IN|OUT]",
            ];
            let lines = [&first[..], before, &[last]].concat();
            Trace {
                lines: lines.into_iter().map(str::to_owned).collect(),
                ..Trace::default()
            }
        };
        let (native, other) = (
            "@0 epoll-wait h5 9 0 => [1:IN|OUT]",
            "@0 epoll-wait h5 9 0 => []",
        );
        super::are_alike(&trace(native), &trace(other))
    };
    assert!(told(&["@1 read h2 1 => 1"]));
    assert!(told(&["fork @1 @2 => forked", "@1 read h2 1 => 1"]));
    assert!(told(&["@1 connect-nobody h9 unix => ECONNREFUSED"]));
    assert!(!told(&["@0 connect-nobody h1 unix => ECONNREFUSED"]));
    assert!(told(&[
        "@0 dup h1 h7 => 9",
        "@0 sendfile h7 1 => 1",
        "@1 splice-in h2 1 => 1"
    ]));
    assert!(!told(&["@1 read h2 1 => 1", "@1 write h2 1 => 1"]));
    assert!(told(&[
        "@1 read h2 1 => 1",
        "@1 write h9 1 => 1",
        "@0 fstat h1 => 1"
    ]));
    assert!(!told(&["@1 dup h2 h6 => 5", "@1 write h6 1 => 1"]));
    assert!(!told(&["@1 write h10 1 => 1"]));
    assert!(!told(&["@1 shutdown h2 WR => 0"]));
    assert!(!told(&["transfer @1:h2 @0:h1 100 => ok"]));
}

#[test]
fn an_end_that_is_known_may_be_told_natively_once_more() {
    let told = |before: &[&str], event: &str| {
        let trace = |last: &str| {
            let add = "@0 epoll-add h5 h1 ET 1 => 0";
            let lines = [&[add], before, &[last]].concat();
            Trace {
                lines: lines.into_iter().map(str::to_owned).collect(),
                ..Trace::default()
            }
        };
        let native = format!("@0 epoll-wait h5 9 0 => [1:{event}]");
        super::are_alike(&trace(&native), &trace("@0 epoll-wait h5 9 0 => []"))
    };
    let hup = "@0 epoll-wait h5 9 0 => [1:HUP]";
    assert!(told(&[hup], "HUP"));
    assert!(!told(&[], "HUP"));
    assert!(!told(&[hup], "ERR|HUP"));
    assert!(!told(&[hup], "IN|HUP"));
    assert!(told(&[hup], "OUT|HUP"));
    assert!(!told(&[], "OUT|HUP"));
    assert!(!told(&[hup, "@0 send h1 5 DONTWAIT => EAGAIN"], "OUT|HUP"));
    assert!(!told(&[hup, "@0 epoll-mod h5 h1 ET 1 => 0"], "HUP"));
}

#[test]
fn a_set_with_edges_may_be_ready_once_more() {
    let native = "@0 poll-both h9 h5 IN 0 => 1 OUT -";
    assert!(are_alike(native, "@0 poll-both h9 h5 IN 0 => 2 OUT IN"));
    let by_dup = "@0 poll-both h9 h7 IN 0 => 1 OUT -";
    assert!(are_alike(by_dup, "@0 poll-both h9 h7 IN 0 => 2 OUT IN"));
    assert!(!are_alike(native, "@0 poll-both h9 h5 IN 0 => 2 IN IN"));
    assert!(!are_alike(native, "@1 poll-both h9 h5 IN 0 => 2 OUT IN"));
    let plain = "@0 poll-both h9 h6 IN 0 => 0 - -";
    assert!(!are_alike(plain, "@0 poll-both h9 h6 IN 0 => 1 - IN"));
    assert!(!are_alike(
        "@0 poll-both h9 h5 IN 0 => 1 - IN",
        "@0 poll-both h9 h5 IN 0 => 0 - -"
    ));
}

#[test]
fn so_may_a_set_in_another() {
    let told = |before: &[&str], event: &str| {
        let trace = |last: &str| Trace {
            lines: [before, &["@0 epoll-add h6 h5 IN 8 => 0", last]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            ..Trace::default()
        };
        let other = format!("@0 epoll-wait h6 9 0 => [8:{event}]");
        super::are_alike(&trace("@0 epoll-wait h6 9 0 => []"), &trace(&other))
    };
    let (edges, levels) = (
        ["@0 epoll-add h5 h1 IN|ET 1 => 0"],
        ["@0 epoll-add h5 h1 IN 1 => 0"],
    );
    assert!(told(&edges, "IN"));
    assert!(!told(&edges, "HUP"));
    assert!(!told(&levels, "IN"));
    let has_gone = [edges[0], "@0 epoll-del h5 h1 => 0"];
    assert!(!told(&has_gone, "IN"));
    let is_level_now = [edges[0], "@0 epoll-mod h5 h1 IN 1 => 0"];
    assert!(!told(&is_level_now, "IN"));
}

#[test]
fn a_sleep_that_an_edge_too_many_ends_is_found() {
    let add = "@0 epoll-add h5 h1 IN|ET 1 => 0";
    let step = "@0/1 epoll-wait h5 9 -1";
    let trace = |lines: &[&str]| {
        let told = &["@0 epoll-wait h5 9 0 => [1:IN]"][..];
        let lines = [&lines[..1], told, &lines[1..]].concat();
        Trace {
            lines: lines.into_iter().map(str::to_owned).collect(),
            ..Trace::default()
        }
    };
    let sleeps = format!("{step} => sleeps");
    let native = trace(&[add, &sleeps, "@0 recv h1 0 - => 0"]);
    let ended = |lines: &[&str]| ended_once_more(&native, &trace(lines));
    let found = Some(step.to_owned());
    assert_eq!(ended(&[add, &format!("{step} => [1:IN]")]), found);
    assert_eq!(
        ended(&[add, &sleeps, &format!("  {step} => [1:IN]")]),
        found
    );
    assert_eq!(ended(&[add, &format!("{step} => [2:IN]")]), None);
    assert_eq!(ended(&[add, &format!("{step} => []")]), None);
    assert_eq!(ended(&[add, &sleeps, "@0 recv h1 0 - => EPIPE"]), None);
}

#[test]
fn so_is_one_whose_registration_has_gone_by_the_time_that_it_is_told() {
    let step = "@1/2 epoll-wait h5 32 -1";
    let ended = |add: &str, since: &[&str], told: &str| {
        let trace = |last: String| Trace {
            lines: [&[add, &format!("{step} => sleeps")], since, &[&last]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            ..Trace::default()
        };
        let native = trace(format!("  {step} => EINTR SIGUSR1*1"));
        ended_once_more(&native, &trace(format!("  {step} => {told}")))
    };
    let (for_edges, by_level) = (
        "@1 epoll-add h5 h2 OUT|ET 2 => 0",
        "@1 epoll-add h5 h2 OUT 2 => 0",
    );
    let gone = &["@1 epoll-del h5 h2 => 0"];
    let found = Some(step.to_owned());
    assert_eq!(ended(for_edges, gone, "[2:OUT] SIGUSR1*1"), found);
    let changed = &["@1 epoll-mod h5 h2 OUT 2 => 0"];
    assert_eq!(ended(for_edges, changed, "[2:OUT]"), found);
    assert_eq!(ended(by_level, gone, "[2:OUT]"), None);
    assert_eq!(ended(for_edges, gone, "[2:IN]"), None);
    let missed = ["@1 send h2 9 DONTWAIT => EAGAIN", gone[0]];
    assert_eq!(ended(for_edges, &missed, "[2:OUT]"), None);
    assert_eq!(ended(for_edges, gone, "[3:OUT]"), None);
}

#[test]
fn so_is_a_poll_whose_number_has_come_to_name_a_set_with_edges() {
    let step = "@0/1 poll h9 IN -1";
    let ended = |wishes: &str, native: &str, other: &str| {
        let before = [
            format!("{step} => sleeps"),
            format!("@0 epoll-add h5 h1 {wishes} 1 => 0"),
            "@0 dup3 h5 h9 => 7".to_owned(),
        ];
        let trace = |answer: &str| Trace {
            lines: [&before[..], &[format!("  {step} => {answer}")]].concat(),
            ..Trace::default()
        };
        ended_once_more(&trace(native), &trace(other))
    };
    assert_eq!(ended("IN|ET", "sleeps on", "IN"), Some(step.to_owned()));
    assert_eq!(ended("IN", "sleeps on", "IN"), None);
    assert_eq!(ended("IN|ET", "sleeps on", "HUP"), None);
    assert_eq!(ended("IN|ET", "IN", "sleeps on"), None);
}

#[test]
fn so_is_another_poll_by_such_a_number() {
    for (call, told) in [
        ("ppoll h9 IN -1", "1 IN"),
        ("ppoll-masked h9 IN -1 OPENS", "1 IN"),
        ("select h9 -1", "[r]"),
        ("pselect h9 -1", "[r]"),
        ("pselect-masked h9 -1 NONE", "[r]"),
    ] {
        let step = format!("@0/1 {call}");
        let trace = |answer: &str| Trace {
            lines: vec![
                format!("{step} => sleeps"),
                "@0 epoll-add h5 h1 IN|ET 1 => 0".to_owned(),
                "@0 dup3 h5 h9 => 7".to_owned(),
                format!("  {step} => {answer}"),
            ],
            ..Trace::default()
        };
        let ended = |native, other| ended_once_more(&trace(native), &trace(other));
        assert_eq!(ended("sleeps on", told), Some(step.clone()));
        assert_eq!(ended("sleeps on", "EINTR"), None, "{step}");
    }
}

#[test]
fn each_wait_in_a_set_may_be_told_an_edge_once_more_and_no_other_signal() {
    for wait in [
        "epoll-pwait h5 9 0",
        "epoll-pwait-masked h5 9 0 HELD",
        "epoll-pwait2 h5 9 0 HELD",
    ] {
        let told = |answer: &str| format!("@0 {wait} => {answer}");
        let signal = " SIGUSR1*1";
        for behind in ["", signal] {
            let (without, with) = (
                told(&format!("[]{behind}")),
                told(&format!("[1:IN]{behind}")),
            );
            assert!(are_alike(&without, &with), "{with}");
            assert!(!are_alike(&with, &without), "{with}");
        }
        assert!(!are_alike(&told("[] SIGUSR1*1"), &told("[1:IN]")), "{wait}");
    }
}

#[test]
fn a_pending_signal_ends_a_wait_that_a_needless_edge_does_not() {
    let told = |answer: &str| format!("@0 epoll-pwait2 h5 9 -1 PENDING => {answer}");
    let (edge, room) = ("[1:IN] SIGUSR1*1", "[1:OUT] SIGUSR1*1");
    let (ended, nothing) = ("EINTR SIGUSR1*1", "[] SIGUSR1*1");
    assert!(are_alike(&told(ended), &told(edge)));
    assert!(are_alike(&told(room), &told(ended)));
    assert!(!are_alike(&told(edge), &told(ended)), "it was not told");
    assert!(!are_alike(&told(nothing), &told(ended)), "it is no error");
    assert!(!are_alike(&told(ended), &told(nothing)), "it is one");
    let opened = |answer: &str| told(answer).replace("PENDING", "OPENS");
    assert!(!are_alike(&opened(ended), &opened(edge)), "no signal came");
}

#[test]
fn a_sleep_that_needless_room_ends_natively_is_found() {
    let add = "@0 epoll-add h5 h1 IN|OUT|ET 1";
    let step = "@0/1 epoll-wait h5 9 -1";
    let trace = |lines: &[&str]| Trace {
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
        ..Trace::default()
    };
    let (sleeps, sleeps_on) = (
        format!("{step} => sleeps"),
        format!("  {step} => sleeps on"),
    );
    let added = format!("{add} => 0");
    let ended = |before: &[&str], native: &str, other: &str| {
        let lines = |last| trace(&[before, &[last]].concat());
        ended_once_more(&lines(native), &lines(other))
    };
    let told = |events: &str| format!("{step} => {events}");
    let found = Some(step.to_owned());
    assert_eq!(ended(&[&added], &told("[1:OUT]"), &sleeps), found);
    let woken = format!("  {step} => [1:OUT]");
    assert_eq!(ended(&[&added], &woken, &sleeps_on), found);
    let sent_home = format!("  {step} => EINTR SIGUSR1*1");
    assert_eq!(ended(&[&added], &woken, &sent_home), found);
    assert_eq!(ended(&[&added], &told("[1:IN|OUT]"), &sleeps), None);
    assert_eq!(ended(&[&added], &told("[2:OUT]"), &sleeps), None);
    assert_eq!(ended(&[&added], &told("[]"), &sleeps), None);
    let missed = [&added, "@0 send h1 5 DONTWAIT => EAGAIN"];
    assert_eq!(ended(&missed, &told("[1:OUT]"), &sleeps), None);
    let by_level = ["@0 epoll-add h5 h1 IN|OUT 1 => 0"];
    assert_eq!(ended(&by_level, &told("[1:OUT]"), &sleeps), None);
}

#[test]
fn the_same_data_in_another_set_is_another_registration() {
    let told = |add: &str| {
        let trace = |last: &str| Trace {
            lines: [
                "@0 epoll-add h5 h1 IN|ET 1 => 0",
                "@0 epoll-wait h5 9 0 => [1:IN]",
                add,
                last,
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Trace::default()
        };
        let (native, other) = (
            "@0 epoll-wait h5 9 0 => []",
            "@0 epoll-wait h5 9 0 => [1:IN]",
        );
        super::are_alike(&trace(native), &trace(other))
    };
    assert!(told("@0 epoll-add h6 h1 IN 1 => 0"));
    assert!(!told("@0 epoll-mod h5 h1 IN 1 => 0"));
}

#[test]
fn what_is_no_edge_must_be_the_same() {
    let native = "@0 epoll-wait h5 9 0 => [1:IN]";
    assert!(!are_alike(native, "@0 epoll-wait h5 9 0 => [1:IN 2:IN]"));
    let level = "@0 epoll-wait h5 9 0 => [2:IN]";
    assert!(!are_alike(level, "@0 epoll-wait h5 9 0 => [2:IN 2:IN]"));
    assert!(!are_alike(native, "@0 epoll-wait h5 9 0 => [1:IN 3:IN]"));
    assert!(!are_alike(native, "@0 epoll-wait h5 9 0 => [1:IN|HUP]"));
    assert!(!are_alike(native, "@1 epoll-wait h5 9 0 => [1:IN]"));
    assert!(!are_alike(
        "@0 poll h1 IN 0 => 0",
        "@0 poll h1 IN 0 => 1 IN"
    ));
}
