//! `rack.toml` read again while monitors run and connections go over windows.

use std::path::Path;

use crosslane_testkit::rack::{Rack, WINDOWS, can_run};
use crosslane_testkit::{End, wait_until};
use rustix::process::Signal;

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::talk::{TALK_PORT, Talk};

/// Another window, as `rack.toml` has it.
fn table(name: &str, path: &Path, host: &str) -> String {
    format!(
        "\n[[window]]\nname = {name:?}\nkind = \"file\"\npath = {path:?}\nbytes = 8388608\nhost = {host:?}\n"
    )
}

/// The file without the window that [`table`] has written, or the first one.
fn without_window(text: &str) -> String {
    let before = text.split("\n[[window]]").next().unwrap_or_default();
    format!("{before}\n")
}

fn reload(rack: &Rack, at: usize) -> String {
    rack.reload(at).expect_success().text()
}

fn windows(rack: &Rack, at: usize) -> Vec<String> {
    let status = rack.status(at);
    let windows = status["hosts"][0]["windows"].as_array().cloned();
    let name = |window: &serde_json::Value| window["name"].as_str().unwrap_or_default().to_owned();
    windows.unwrap_or_default().iter().map(name).collect()
}

fn wait_until_all_in(rack: &Rack, window: &str) {
    for at in 0..2 {
        wait_until(&format!("all connections in {window}"), || {
            let ends = rack.ends(at, COUNT_PORT);
            let is_there =
                |end: &&End| end.is_accelerated() && end.window.as_deref() == Some(window);
            (ends.iter().filter(is_there).count() == CONNECTIONS).then_some(())
        });
    }
}

/// The window that connections are in is taken out of both files, and another put in, while both sides check
/// every byte.
#[test]
fn connections_go_on_while_their_window_is_replaced_by_another() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut sides = counters::start(&rack, CONNECTIONS);
    wait_until_all_in(&rack, WINDOWS[0]);
    let path = rack.other_window();
    for at in 0..2 {
        let other = ["beta", "alpha"][at];
        rack.rewrite(at, |text| {
            without_window(&text) + &table("other", &path, other)
        });
        println!("{}", reload(&rack, at));
        counters::pauses(&mut sides, &rack, "after a reload");
    }
    wait_until_all_in(&rack, "other");
    counters::pauses(&mut sides, &rack, "in the other window");
    for at in 0..2 {
        assert_eq!(windows(&rack, at), ["other"]);
        let stats = rack.hosts[at].stats();
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("windows_lost"), CONNECTIONS as u64);
    }
    std::fs::remove_file(path).expect("the monitors have made it");
}

/// A second window is used beside the first, which notices nothing.
#[test]
fn a_window_that_is_added_is_opened_and_the_first_one_stays() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    let path = rack.other_window();
    for at in 0..2 {
        let other = ["beta", "alpha"][at];
        rack.rewrite(at, |text| text + &table("other", &path, other));
        rack.hosts[at].signal_monitor(Signal::HUP);
    }
    wait_until("both windows to be open", || {
        let is_open = |at| {
            let status = rack.status(at);
            let window = |index: usize| status["hosts"][0]["windows"][index]["state"].clone();
            window(0) == "open" && window(1) == "open"
        };
        (is_open(0) && is_open(1)).then_some(())
    });
    talk.go("still there");
    assert!(talk.is_accelerated());
    for at in 0..2 {
        assert_eq!(rack.hosts[at].stats().count("windows_lost"), 0);
    }
    std::fs::remove_file(path).expect("the monitors have made it");
}

/// Who may use windows, and how many connections each user may have, holds for new connections at once.
#[test]
fn access_and_quotas_are_those_of_the_file() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut first = Talk::new(&rack);
    first.until_accelerated();
    let everybody = "[[allow]]\nusers = [0]\n";
    rack.rewrite(1, |text| text.replacen(everybody, "", 1));
    reload(&rack, 1);
    let mut second = first.another();
    assert_eq!(second.reason(1), "rack-policy");
    assert_eq!(second.reason(0), "peer-policy");
    first.go("it keeps what it has");
    let fast = |at| {
        rack.ends(at, TALK_PORT)
            .iter()
            .filter(|end| end.is_accelerated())
            .count()
    };
    assert_eq!((fast(0), fast(1)), (1, 1));
    rack.rewrite(1, |text| {
        text.replacen(
            "# connections_per_user = 4096",
            "connections_per_user = 1",
            1,
        ) + everybody
    });
    reload(&rack, 1);
    let mut third = first.another();
    wait_until("the third to be refused", || {
        third.go("more");
        let is_refused = |end: &End| end.reason.as_deref() == Some("rack-quota");
        rack.ends(1, TALK_PORT).iter().any(is_refused).then_some(())
    });
    rack.rewrite(1, |text| {
        text.replacen("connections_per_user = 1", "connections_per_user = 9", 1)
    });
    reload(&rack, 1);
    wait_until("a new connection in the window", || {
        third.go("new");
        (fast(0) == 2 && fast(1) == 2).then_some(())
    });
}

/// The file as it was holds until it is right again.
#[test]
fn a_file_with_an_error_changes_nothing_and_says_where_it_is() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    rack.rewrite(0, |text| {
        text.replacen("kind = \"file\"", "kind = \"floppy\"", 2)
    });
    let output = rack.reload(0);
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("line") && told.contains("floppy"), "{told}");
    let status = rack.status(0);
    assert!(
        status["reload_trouble"]
            .as_str()
            .is_some_and(|told| told.contains("floppy"))
    );
    let log = rack.hosts[0].monitor_log();
    assert!(log.contains("floppy") && log.contains("line"), "{log}");
    talk.go("as before");
    assert!(talk.is_accelerated());
    talk.until_accelerated();
    rack.rewrite(0, |text| text.replace("floppy", "file"));
    reload(&rack, 0);
    assert!(rack.status(0)["reload_trouble"].is_null());
    talk.go("as before");
    assert!(talk.is_accelerated());
}

/// A host that is taken out of the file is not talked to any more, and connections to it stay where they are;
/// put in again, it is as before.
#[test]
fn hosts_come_and_go() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    for at in 0..2 {
        let path = rack.hosts[at].folder().join("rack.toml");
        let whole = std::fs::read_to_string(path).expect("it was written at the start");
        rack.rewrite(at, |text| {
            let before = text.split("\n[[host]]").next().unwrap_or_default();
            format!("{before}\n")
        });
        reload(&rack, at);
        assert_eq!(rack.status(at)["hosts"].as_array().map(Vec::len), Some(0));
        wait_until("the other host to miss it", || {
            (rack.status(1 - at)["hosts"][0]["connected"] == false).then_some(())
        });
        talk.go("without its host");
        assert!(talk.is_accelerated());
        rack.rewrite(at, |_| whole);
        reload(&rack, at);
        rack.wait_for_window();
        talk.go("with it again");
        talk.until_accelerated();
    }
    for at in 0..2 {
        assert_eq!(rack.hosts[at].stats().count("windows_lost"), 0);
    }
}
