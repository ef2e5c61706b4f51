//! Monitors that die, that do not know each other, and that strangers visit.

use crosslane_testkit::rack::{ADDRESSES, Plan, Rack, can_run};
use crosslane_testkit::wait_until;

use crate::talk::Talk;

#[test]
fn connections_outlive_either_monitor_and_new_ones_are_accelerated_again() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.go("first");
    wait_until("the first connection in the window", || {
        talk.go("more");
        talk.is_accelerated().then_some(())
    });
    for at in [0, 1, 0] {
        rack.hosts[at].kill_monitor();
        talk.go("without a monitor");
        rack.hosts[at].start_monitor();
        rack.wait_for_window();
        talk.go("with a new one");
        talk.until_accelerated();
    }
    // What the dead monitors had given out is given back in the end.
    drop(talk);
    wait_until("all of the window to be free", || {
        let status = rack.status(0);
        let window = &status["hosts"][0]["windows"][0];
        (window["arenas_used"] == 0 && window["arenas_quarantined"] == 0).then_some(())
    });
}

/// These hosts have other monitors from now on, and the programs at both ends of connections of `port` are known to theirs.
pub fn renew(rack: &Rack, hosts: &[usize], port: u16) {
    for at in hosts {
        rack.hosts[*at].kill_monitor();
        rack.hosts[*at].start_monitor();
    }
    rack.wait_for_window();
    wait_until("both programs to be back", || {
        let is_back = |at: usize| !rack.ends(at, port).is_empty();
        (0..2).all(is_back).then_some(())
    });
}

#[test]
fn a_host_with_a_wrong_key_is_refused() {
    if !can_run() {
        return;
    }
    for liar in 0..2 {
        let rack = Rack::with(&Plan {
            wrong_key: [liar == 0, liar == 1],
            ..Plan::default()
        });
        // The one that connects is told in any case.
        wait_until("the trouble to be told", || {
            let status = rack.status(0);
            let host = &status["hosts"][0];
            let trouble = host["trouble"].as_str().unwrap_or_default();
            // By whom, tells the one remedy: the fingerprint in its rack.toml.
            let is_told = trouble.contains("fingerprint") && trouble.contains("rack.toml");
            (host["connected"] == false && is_told).then_some(())
        });
        let mut talk = Talk::new(&rack);
        for at in 0..2 {
            assert_eq!(talk.reason(at), "no-window");
        }
    }
}

/// Opens 60 connections to the other monitor; some say nothing, some nonsense.
const CROWD: &str = r#"
import socket, sys
crowd = [socket.create_connection((sys.argv[1], 7411)) for _ in range(60)]
for number, stranger in enumerate(crowd):
    if number % 2:
        try:
            stranger.sendall(bytes([number]) * 4096)
        except OSError:
            pass
print("there", flush=True)
sys.stdin.read()
"#;

#[test]
fn strangers_at_the_door_keep_nobody_out() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut crowd = rack.hosts[0]
        .plain("python3")
        .args(["-c", CROWD, ADDRESSES[1]])
        .with_open_input()
        .start();
    assert_eq!(crowd.next_line().as_deref(), Some("there"));
    // Who was connected stays so, and who comes anew gets in.
    rack.wait_for_window();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    rack.hosts[0].kill_monitor();
    rack.hosts[0].start_monitor();
    rack.wait_for_window();
    talk.until_accelerated();
    crowd.assert_running();
}
