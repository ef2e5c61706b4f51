//! Two threads on two processors, two lanes between them: round trips and streams, beside the bare
//! ping-pong of one cache line, which nothing between two processors can beat.
//!
//! `cargo bench -p crosslane-ring [-- ROUNDS]` prints one JSON object per line. All cases are run
//! in turn in every round, for a few milliseconds each. `p50` is the median over the rounds; as
//! long as others use the processors too, `best`, a tenth from the best round, says more.

use std::hint::{black_box, spin_loop};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use crosslane_ctl::lane::{Geometry, LINE_BYTES, Location};
use crosslane_ring::{Part, Parts, RxCursor, TxCursor, WindowLane};
use crosslane_sys::cpu::{ticks, ticks_per_us};
use crosslane_window::arena::Arena;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const DEFAULT_ROUNDS: usize = 41;

/// How long a case is run in each round.
const SLICE_US: u64 = 4_000;

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Round trips of a bare cache line.
    Limit,
    /// Round trips of messages of this size.
    RoundTrip(usize),
    /// Messages of this size one way.
    Stream(usize),
}

const CASES: [Case; 13] = [
    Case::Limit,
    Case::RoundTrip(8),
    Case::RoundTrip(56),
    Case::RoundTrip(64),
    Case::RoundTrip(512),
    Case::RoundTrip(4096),
    Case::RoundTrip(8192),
    Case::RoundTrip(16 << 10),
    Case::RoundTrip(32 << 10),
    Case::RoundTrip(64 << 10),
    Case::Stream(64),
    Case::Stream(4096),
    Case::Stream(64 << 10),
];

fn main() -> ExitCode {
    // `cargo bench` adds a flag of its own.
    let rounds = std::env::args().find_map(|word| word.parse().ok());
    let rounds = rounds.unwrap_or(DEFAULT_ROUNDS);
    let Some((here, there)) = two_processors() else {
        eprintln!("this bench needs two processors to run on");
        return ExitCode::FAILURE;
    };
    println!("{}", machine());
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); CASES.len()];
    for _ in 0..rounds {
        for (case, figures) in CASES.iter().zip(&mut figures) {
            figures.push(measure(*case, here, there));
        }
    }
    for (case, figures) in CASES.iter().zip(figures) {
        println!("{}", line(*case, figures));
    }
    ExitCode::SUCCESS
}

/// The median time of a round trip in ns, or the time from message to message.
fn measure(case: Case, here: usize, there: usize) -> f64 {
    match case {
        Case::Limit => limit(here, there),
        Case::RoundTrip(bytes) => round_trip(bytes, here, there),
        Case::Stream(bytes) => stream(bytes, here, there),
    }
}

#[repr(align(128))]
struct Alone(AtomicU64);

fn limit(here: usize, there: usize) -> f64 {
    let (ping, pong) = (Alone(AtomicU64::new(0)), Alone(AtomicU64::new(0)));
    let wait = |cell: &Alone, number| {
        while cell.0.load(Ordering::Acquire) != number {}
    };
    scope(|scope| {
        scope.spawn(|| {
            pin(there);
            for number in 1.. {
                let mut found = 0;
                while found < number {
                    found = ping.0.load(Ordering::Acquire);
                }
                if found == u64::MAX {
                    return;
                }
                pong.0.store(number, Ordering::Release);
            }
        });
        pin(here);
        let mut number = 0;
        let median = median_round_trip(|| {
            number += 1;
            ping.0.store(number, Ordering::Release);
            wait(&pong, number);
        });
        ping.0.store(u64::MAX, Ordering::Release);
        median
    })
}

/// One end: it sends in one lane and receives in the other.
struct End {
    tx: (WindowLane, TxCursor),
    rx: (WindowLane, RxCursor),
}

impl End {
    /// Both ends of slot 0.
    fn pair(arena: &Arena) -> (Self, Self) {
        let lines = arena.geometry().ring_lines;
        let lane = |role| {
            // SAFETY: the arena outlives the threads that use the lanes.
            let place = unsafe { arena.lane(0, role) };
            let lane = place.and_then(|place| WindowLane::in_arena(place, lines));
            lane.expect("slot 0 has two lanes")
        };
        let end = |tx, rx| Self {
            tx: (lane(tx), TxCursor::default()),
            rx: (lane(rx), RxCursor::default()),
        };
        (end(0, 1), end(1, 0))
    }

    fn send(&mut self, message: &[u8]) {
        let part = [Part::of(message)];
        // SAFETY: the message is valid for reads as long as the cursor.
        let mut parts = unsafe { Parts::new(&part) }.expect("a small message");
        while parts.left() > 0 {
            let written = self.tx.1.write_record(&self.tx.0, &mut parts);
            if written.expect("the peer is honest") == 0 {
                spin_loop();
            }
        }
    }

    fn receive(&mut self, message: &mut [u8]) {
        let part = [Part::of_mut(message)];
        // SAFETY: the message is valid for writes as long as the cursor.
        let mut parts = unsafe { Parts::new(&part) }.expect("a small message");
        while parts.left() > 0 {
            while !self.rx.1.has_record(&self.rx.0) {
                spin_loop();
            }
            let taken = self.rx.1.read(&self.rx.0, &mut parts);
            black_box(taken.expect("the peer is honest"));
        }
    }
}

fn arena() -> Arena {
    let geometry = Geometry {
        slots: 1,
        ..Geometry::default()
    };
    let bytes = Location::Sealed.layout().arena_bytes(&geometry);
    let memory = crosslane_window::memory::create_sealed("lane-bench", bytes);
    let memory = memory.expect("memory for an arena");
    Arena::open(memory.as_fd(), geometry, Location::Sealed).expect("the arena that was just made")
}

/// The first byte of a message that ends a case.
const LAST: u8 = 1;

fn round_trip(bytes: usize, here: usize, there: usize) -> f64 {
    let arena = arena();
    let (mut client, mut server) = End::pair(&arena);
    scope(|scope| {
        scope.spawn(move || {
            pin(there);
            let mut message = vec![0; bytes];
            while message[0] != LAST {
                server.receive(&mut message);
                server.send(&message);
            }
        });
        pin(here);
        let (mut message, mut reply) = (vec![0; bytes], vec![0; bytes]);
        let mut once = || {
            client.send(&message);
            client.receive(&mut reply);
        };
        (0..turns_for_laps(&arena, bytes)).for_each(|_| once());
        let median = median_round_trip(once);
        message[0] = LAST;
        client.send(&message);
        client.receive(&mut reply);
        median
    })
}

/// Messages after which every line of the ring has been used.
fn turns_for_laps(arena: &Arena, bytes: usize) -> usize {
    arena.geometry().lane_bytes() / bytes.max(LINE_BYTES) + 1
}

/// The median in ns over a slice of time. The clock is too coarse for a single round trip.
fn median_round_trip(mut once: impl FnMut()) -> f64 {
    const TURNS: u64 = 8;
    let end = ticks() + SLICE_US * ticks_per_us();
    let mut times = Vec::with_capacity(1 << 16);
    let mut before = ticks();
    while times.is_empty() || before < end {
        (0..TURNS).for_each(|_| once());
        let after = ticks();
        times.push(after - before);
        before = after;
    }
    times.sort_unstable();
    as_ns(times[times.len() / 2], TURNS)
}

/// A share of some ticks in ns.
fn as_ns(ticks: u64, parts: u64) -> f64 {
    ticks as f64 * 1000.0 / ticks_per_us() as f64 / parts as f64
}

/// The first byte of the message with which the clock starts.
const FIRST: u8 = 2;

fn stream(bytes: usize, here: usize, there: usize) -> f64 {
    let arena = arena();
    let (mut client, mut server) = End::pair(&arena);
    let is_ready = AtomicBool::new(false);
    scope(|scope| {
        let receiver = scope.spawn(|| {
            pin(there);
            let (mut message, mut count) = (vec![0; bytes], 0);
            is_ready.store(true, Ordering::Release);
            while message[0] != FIRST {
                server.receive(&mut message);
            }
            let start = ticks();
            while message[0] != LAST {
                server.receive(&mut message);
                count += 1;
            }
            as_ns(ticks() - start, count)
        });
        pin(here);
        let mut message = vec![0; bytes];
        while !is_ready.load(Ordering::Acquire) {
            spin_loop();
        }
        (0..turns_for_laps(&arena, bytes)).for_each(|_| client.send(&message));
        message[0] = FIRST;
        client.send(&message);
        message[0] = 0;
        let end = ticks() + SLICE_US * ticks_per_us();
        while ticks() < end {
            (0..16).for_each(|_| client.send(&message));
        }
        message[0] = LAST;
        client.send(&message);
        receiver.join().expect("the receiver ends")
    })
}

/// What a case's figures come to, as JSON.
fn line(case: Case, mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    let (best, p50) = (figures[figures.len() / 10], figures[figures.len() / 2]);
    let (name, bytes) = match case {
        Case::Limit => ("limit", LINE_BYTES),
        Case::RoundTrip(bytes) => ("rtt", bytes),
        Case::Stream(bytes) => ("stream", bytes),
    };
    let rounds = figures.len();
    let head = format!(r#"{{"bench":"lane","case":"{name}","bytes":{bytes},"rounds":{rounds}"#);
    if let Case::Stream(bytes) = case {
        let gbps = |ns: f64| bytes as f64 * 8.0 / ns;
        let (p50_gbps, best_gbps, per_s) = (gbps(p50), gbps(best), 1e9 / p50);
        format!(
            r#"{head},"gbps":{p50_gbps:.1},"best_gbps":{best_gbps:.1},"msgs_per_s":{per_s:.0}}}"#
        )
    } else {
        format!(r#"{head},"p50_ns":{p50:.0},"best_ns":{best:.0}}}"#)
    }
}

/// The first two processors that this process may run on.
fn two_processors() -> Option<(usize, usize)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    Some((processors.next()?, processors.next()?))
}

/// Keep the calling thread on a processor.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).expect("a processor that this process may run on");
}

/// Where the figures come from.
fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split(": ").nth(1))
        .unwrap_or("unknown");
    let describe = [
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ];
    let commit = std::process::Command::new("git").args(describe).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let cores = crosslane_sys::cpu::available();
    format!(
        r#"{{"bench":"lane","case":"machine","cpu":"{model}","cores":{cores},"kernel":"{}","commit":"{}","command":"cargo bench -p crosslane-ring"}}"#,
        kernel.trim(),
        commit.unwrap_or_default()
    )
}
