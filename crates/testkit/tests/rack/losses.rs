//! Windows that are taken away while connections go over them.

use std::time::Duration;

use crosslane_testkit::rack::{ADDRESSES, Plan, Rack, WINDOWS, can_run};
use crosslane_testkit::{Process, wait_until};

use crate::talk::Talk;

/// Moments at which the window is lost.
const LOSSES: usize = 200;

#[test]
fn a_connection_goes_back_to_tcp_when_its_window_is_lost_and_over_the_next_one() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    for round in 0..3 {
        rack.lose_window();
        talk.go("without a window");
        for at in 0..2 {
            let lost = rack.hosts[at].stats().count("windows_lost");
            assert!(lost > round, "{lost} connections have lost {round} windows");
        }
        rack.wait_for_window();
        wait_until("the same connection over the next window", || {
            talk.go("more");
            talk.is_accelerated().then_some(())
        });
    }
    for at in 0..2 {
        assert_eq!(rack.hosts[at].stats().count("windows_unsettled"), 0);
    }
}

/// A new monitor has not been told of the connections that its host has in windows.
#[test]
fn a_connection_goes_back_to_tcp_also_when_a_monitor_is_new() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut talk = Talk::new(&rack);
    talk.until_accelerated();
    for at in [0, 1] {
        rack.hosts[at].kill_monitor();
        rack.hosts[at].start_monitor();
        rack.wait_for_window();
        wait_until("the connection to be shown by the new monitor", || {
            talk.go("with a new monitor");
            talk.is_accelerated().then_some(())
        });
        // Only the other host's program is told; the memory goes on to answer.
        rack.hide_window(0);
        wait_until("the connection to be on TCP", || {
            talk.go("without a window");
            (!talk.is_accelerated()).then_some(())
        });
        rack.give_window(0);
        rack.wait_for_window();
        wait_until("the connection over the next window", || {
            talk.go("more");
            talk.is_accelerated().then_some(())
        });
    }
}

/// Counts on: what each side receives must be the numbers from 0 on, as many as each likes to send at a
/// time. Whenever a line comes in, looks for a while whether all of them move, and prints that and the
/// longest time between two receives, in milliseconds.
const COUNT: &str = r#"
import array, random, select, socket, sys, threading, time
role, address, port, connections = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
longest = [0.0] * connections
received = [0] * connections
def send(connection, seed):
    dice, number = random.Random(seed), 0
    while True:
        count = dice.choice([1, 1, 1, 7, 100, 3000])
        connection.sendall(array.array("Q", range(number, number + count)).tobytes())
        number += count
        if dice.random() < 0.2:
            time.sleep(dice.random() * 0.002)
def receive(connection, index):
    expected, rest, last = 0, b"", time.monotonic()
    while data := connection.recv(1 << 16):
        now = time.monotonic()
        longest[index] = max(longest[index], now - last)
        last = now
        data = rest + data
        whole = len(data) // 8 * 8
        numbers = array.array("Q", data[:whole])
        rest = data[whole:]
        wanted = array.array("Q", range(expected, expected + len(numbers)))
        if numbers != wanted:
            print("wrong", index, expected, flush=True)
            return
        expected += len(numbers)
        received[index] = expected
    print("ended", index, flush=True)
def serve(connection, index):
    threading.Thread(target=send, args=(connection, index), daemon=True).start()
    threading.Thread(target=receive, args=(connection, index), daemon=True).start()
if role == "server":
    listener = socket.create_server((address, port))
for index in range(connections):
    connection = listener.accept()[0] if role == "server" else socket.create_connection((address, port))
    serve(connection, index)
print("there", flush=True)
for line in sys.stdin:
    before = list(received)
    longest = [0.0] * connections
    time.sleep(0.15)
    moved = all(now > then for now, then in zip(received, before))
    print("moved" if moved else "stands", int(max(longest) * 1000), flush=True)
"#;

/// Moments that are the same in each run (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }
}

/// What has gone wrong with lost windows.
fn tell(rack: &Rack) -> String {
    let of = |at: usize| {
        let stats = rack.hosts[at].stats();
        let count = |name| format!("{name} {}", stats.count(name));
        let counts = ["windows_lost", "windows_unsettled", "peer_lies"].map(count);
        format!("{}, {:#?}", counts.join(", "), rack.ends(at, COUNT_PORT))
    };
    format!("alpha: {}; beta: {}", of(0), of(1))
}

const COUNT_PORT: u16 = 6701;
const CONNECTIONS: usize = 3;

fn counter(rack: &Rack, at: usize, (role, connections): (&str, usize)) -> Process {
    let counter = rack.hosts[at].program("python3");
    counter
        .args(["-c", COUNT, role, ADDRESSES[0], &COUNT_PORT.to_string()])
        .arg(connections.to_string())
        .with_open_input()
        .start()
}

/// Both sides of so many connections, which count from now on.
fn counters(rack: &Rack, connections: usize) -> [Process; 2] {
    let server = counter(rack, 0, ("server", connections));
    server.wait_for_port(COUNT_PORT);
    let mut sides = [server, counter(rack, 1, ("client", connections))];
    for side in &mut sides {
        assert_eq!(side.next_line().as_deref(), Some("there"));
    }
    sides
}

/// Losses at random moments under load in both directions; every byte is checked.
#[test]
fn no_byte_is_lost_doubled_or_reordered_whenever_the_window_goes() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    let mut sides = counters(&rack, CONNECTIONS);
    let mut pauses = Vec::new();
    let mut dice = Dice(7);
    for loss in 0..LOSSES {
        rack.wait_for_accelerated(COUNT_PORT, 1);
        std::thread::sleep(Duration::from_micros(dice.next() % 20_000));
        rack.lose_window();
        for side in &mut sides {
            side.write_line("so?");
        }
        for side in &mut sides {
            let told = |line: String| -> Option<(bool, u64)> {
                let (moved, pause) = line.split_once(' ')?;
                Some((moved == "moved", pause.parse().ok()?))
            };
            let (mut moved, mut pause) = (false, 0);
            // On a busy machine some have not come to it yet.
            for _ in 0..100 {
                let line = side.next_line().unwrap_or_default();
                let found = told(line.clone());
                let found =
                    found.unwrap_or_else(|| panic!("loss {loss}: {line:?}, {}", tell(&rack)));
                (moved, pause) = (found.0, pause.max(found.1));
                if moved {
                    break;
                }
                side.write_line("so?");
            }
            assert!(moved, "loss {loss}: nothing moves, {}", tell(&rack));
            pauses.push(pause);
        }
    }
    pauses.sort_unstable();
    let at = |share: usize| pauses[(pauses.len() - 1) * share / 100];
    println!(
        "pauses of {LOSSES} losses: p50 {} ms, p90 {} ms, longest {} ms",
        at(50),
        at(90),
        at(100)
    );
    for at in 0..2 {
        let stats = rack.hosts[at].stats();
        assert!(stats.count("windows_lost") >= LOSSES as u64);
        assert_eq!(stats.count("windows_unsettled"), 0);
        assert_eq!(stats.count("peer_lies"), 0);
    }
}

/// Wait until all connections of both hosts are in these windows, some in each.
fn wait_until_in(rack: &Rack, windows: &[&str], connections: usize) {
    for at in 0..2 {
        wait_until(&format!("all in {windows:?}"), || {
            let ends = rack.ends(at, COUNT_PORT);
            let fast: Vec<&str> = ends
                .iter()
                .filter(|end| end.is_accelerated())
                .filter_map(|end| end.window.as_deref())
                .collect();
            let is_used = |window: &&str| fast.contains(window);
            let are_there = fast.iter().all(|window| windows.contains(window));
            let is_done = fast.len() == connections && are_there && windows.iter().all(is_used);
            is_done.then_some(())
        });
    }
}

#[test]
fn connections_are_spread_over_two_windows_and_go_over_the_one_that_is_left() {
    if !can_run() {
        return;
    }
    let rack = Rack::with(&Plan {
        windows: 2,
        ..Plan::default()
    });
    rack.wait_for_window();
    let mut sides = counters(&rack, 6);
    wait_until_in(&rack, &WINDOWS, 6);
    for lost in [0, 1] {
        rack.take_window(lost);
        wait_until_in(&rack, &[WINDOWS[1 - lost]], 6);
        rack.give_window(lost);
        rack.wait_for_window();
    }
    for side in &mut sides {
        wait_until("all to move", || {
            side.write_line("so?");
            let line = side.next_line().unwrap_or_default();
            assert!(!line.contains("wrong"), "{line}");
            line.starts_with("moved").then_some(())
        });
    }
}
