//! `crosslane run --strict` when Crosslane fails while the program runs.

use crosslane_testkit::{Host, Process, Route, binary, wait_until};

use crate::talk::Talk;

const STRICT: (&str, &str) = ("CROSSLANE_STRICT", "1");
const STATUS: i32 = 125;

/// A monitor on `host` with an option.
fn start_monitor(host: &Host, option: &str, value: &str) -> Process {
    let monitor = host
        .plain(binary("crosslane"))
        .args(["monitor", "--runtime-dir"])
        .arg(host.folder())
        .args([option, value])
        .start();
    wait_until("the monitor's socket", || {
        monitor.assert_running();
        host.folder().join("monitor.sock").exists().then_some(())
    });
    monitor
}

/// The program ends by itself, and says why.
fn assert_gives_up(program: Process, why: &str) {
    wait_until("the program to give up", || {
        (!program.is_running()).then_some(())
    });
    let output = program.finish();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(STATUS), "{said}");
    assert!(said.contains(why), "{said}");
    let lines = said.lines().filter(|line| line.starts_with("crosslane: "));
    assert_eq!(lines.count(), 1, "{said}");
}

#[test]
fn a_strict_program_ends_when_its_monitor_stays_away() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin_with(&host, &[STRICT]);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    host.kill_monitor();
    talk.client.write_line("open");
    assert_gives_up(talk.client, "no monitor answers");
}

#[test]
fn a_strict_program_outlives_a_restart_of_its_monitor() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::begin_with(&host, &[STRICT]);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    host.kill_monitor();
    host.start_monitor();
    talk.open();
    talk.wait_for_accelerated(&host, 4);
    talk.close();
    talk.close();
    talk.end();
}

#[test]
fn a_strict_program_ends_when_it_is_refused() {
    for (option, value, why) in [
        (
            "--ends-per-user",
            "0",
            "as many connections as the monitor allows",
        ),
        ("--memory-floor", "1000000000", "no memory for rings"),
    ] {
        let host = Host::without_monitor(Route::Crosslane);
        let _monitor = start_monitor(&host, option, value);
        let mut talk = Talk::begin_with(&host, &[STRICT]);
        talk.go();
        talk.client.write_line("open");
        assert_gives_up(talk.client, why);
    }
}

#[test]
fn others_go_on_over_tcp_and_show_why() {
    for (option, value, reason) in [
        ("--ends-per-user", "0", "quota"),
        ("--memory-floor", "1000000000", "no-memory"),
    ] {
        let host = Host::without_monitor(Route::Crosslane);
        let _monitor = start_monitor(&host, option, value);
        let mut talk = Talk::begin(&host);
        talk.go();
        talk.open();
        wait_until(&format!("both ends to be {reason}"), || {
            let ends = host.ends();
            let told = ends
                .iter()
                .filter(|end| end.reason.as_deref() == Some(reason));
            (told.count() == 2).then_some(())
        });
        talk.close();
        talk.end();
    }
}

#[test]
fn what_the_peer_decides_ends_no_strict_program() {
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_plain_server(&host, &[STRICT]);
    talk.go();
    talk.open();
    wait_until("the client to be registered in vain", || {
        let ends = host.ends();
        ends.iter()
            .any(|end| end.reason.as_deref() == Some("no-peer"))
            .then_some(())
    });
    talk.close();
    talk.end();
}
