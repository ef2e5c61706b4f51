//! Connections on which both sides count, and check every byte.

use std::time::SystemTime;

use crosslane_testkit::Process;
use crosslane_testkit::rack::{ADDRESSES, Rack};

/// Counts on: what each side receives must be the numbers from 0 on, as many as each likes to send at a
/// time. Whenever a line comes in, looks for a while whether all of them move, and prints that and the
/// longest time between two receives, in milliseconds, since it was last told, or from the last receive
/// until now; at `longest` does so without looking, and at `since MOMENT` of what lies behind that moment only.
const COUNT: &str = r#"
import array, collections, random, select, socket, sys, threading, time
role, address, port, connections = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
longest = [0.0] * connections
received = [0] * connections
last = [time.monotonic()] * connections
gaps = [collections.deque(maxlen=1 << 14) for _ in range(connections)]
lock = threading.Lock()
def send(connection, seed):
    dice, number = random.Random(seed), 0
    while True:
        count = dice.choice([1, 1, 1, 7, 100, 3000])
        connection.sendall(array.array("Q", range(number, number + count)).tobytes())
        number += count
        if dice.random() < 0.2:
            time.sleep(dice.random() * 0.002)
def receive(connection, index):
    expected, rest = 0, b""
    last[index] = time.monotonic()
    while data := connection.recv(1 << 16):
        with lock:
            now = time.monotonic()
            longest[index] = max(longest[index], now - last[index])
            if now - last[index] > 0.001:
                gaps[index].append((last[index], now))
            last[index] = now
        data = rest + data
        whole = len(data) // 8 * 8
        numbers = array.array("Q", data[:whole])
        rest = data[whole:]
        wanted = array.array("Q", range(expected, expected + len(numbers)))
        if numbers != wanted:
            at = next(at for at in range(len(numbers)) if numbers[at] != wanted[at])
            print("wrong", index, wanted[at], *numbers[at:at + 3], flush=True)
            return
        expected += len(numbers)
        received[index] = expected
    print("ended", index, flush=True)
def tell(word):
    with lock:
        now = time.monotonic()
        pause = max(longest + [now - then for then in last])
        longest[:] = [0.0] * connections
    print(word, int(pause * 1000), flush=True)
def tell_since(moment):
    with lock:
        now = time.monotonic()
        moment -= time.time() - now
        both = [gap for index in range(connections) for gap in [*gaps[index], (last[index], now)]]
        pause = max(until - max(since, moment) for since, until in both)
    print("since", int(max(pause, 0) * 1000), flush=True)
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
    if line.strip() == "longest":
        tell("longest")
        continue
    if line.startswith("since "):
        tell_since(float(line.split()[1]))
        continue
    before = list(received)
    time.sleep(0.15)
    moved = all(now > then for now, then in zip(received, before))
    tell("moved" if moved else "stands")
"#;

/// Where the server listens.
pub const COUNT_PORT: u16 = 6701;

/// As many connections as most tests use.
pub const CONNECTIONS: usize = 3;

fn counter(rack: &Rack, at: usize, (role, connections): (&str, usize)) -> Process {
    let counter = rack.hosts[at].program("python3");
    counter
        .args(["-c", COUNT, role, ADDRESSES[0], &COUNT_PORT.to_string()])
        .arg(connections.to_string())
        .with_open_input()
        .start()
}

/// Both sides of so many connections, which count from now on.
pub fn start(rack: &Rack, connections: usize) -> [Process; 2] {
    let server = counter(rack, 0, ("server", connections));
    server.wait_for_port(COUNT_PORT);
    let mut sides = [server, counter(rack, 1, ("client", connections))];
    for side in &mut sides {
        assert_eq!(side.next_line().as_deref(), Some("there"));
    }
    sides
}

/// See that all connections move, with nothing wrong. Returns the longest time in which one of them has received
/// nothing since they were last asked, in milliseconds, for each side.
pub fn pauses(sides: &mut [Process; 2], rack: &Rack, when: &str) -> [u64; 2] {
    for side in &mut *sides {
        side.write_line("so?");
    }
    sides.each_mut().map(|side| {
        let mut longest = 0;
        // On a busy machine some have not come to it yet.
        for _ in 0..100 {
            let line = side.next_line().unwrap_or_default();
            let (moved, pause) =
                told(&line).unwrap_or_else(|| panic!("{when}: {line:?}, {}", tell(rack)));
            longest = longest.max(pause);
            if moved {
                return longest;
            }
            side.write_line("so?");
        }
        panic!("{when}: nothing moves, {}", tell(rack));
    })
}

/// The same without seeing that they move: who still waits is counted up to now.
pub fn longest_pauses(sides: &mut [Process; 2]) -> [u64; 2] {
    ask(sides, "longest")
}

/// The same of what lies behind a moment. Pauses of less than a millisecond count as none.
pub fn pauses_since(sides: &mut [Process; 2], moment: SystemTime) -> [u64; 2] {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.expect("it is later").as_secs_f64();
    ask(sides, &format!("since {seconds:.6}"))
}

fn ask(sides: &mut [Process; 2], question: &str) -> [u64; 2] {
    for side in &mut *sides {
        side.write_line(question);
    }
    sides.each_mut().map(|side| {
        let line = side.next_line().unwrap_or_default();
        let (_, pause) = told(&line).unwrap_or_else(|| panic!("{line:?} is no pause"));
        pause
    })
}

/// The longer of both.
pub fn longest_pause(sides: &mut [Process; 2]) -> u64 {
    longest_pauses(sides).into_iter().fold(0, u64::max)
}

fn told(line: &str) -> Option<(bool, u64)> {
    let (word, pause) = line.split_once(' ')?;
    let is_pause = matches!(word, "moved" | "stands" | "longest" | "since");
    let pause = pause.parse().ok().filter(|_| is_pause)?;
    Some((word == "moved", pause))
}

/// What the connections are, and what has gone wrong with lost windows.
pub fn tell(rack: &Rack) -> String {
    let of = |at: usize| {
        let stats = rack.hosts[at].stats();
        let count = |name| format!("{name} {}", stats.count(name));
        let counts = ["windows_lost", "windows_unsettled", "peer_lies"].map(count);
        format!("{}, {:#?}", counts.join(", "), rack.ends(at, COUNT_PORT))
    };
    format!("alpha: {}; beta: {}", of(0), of(1))
}
