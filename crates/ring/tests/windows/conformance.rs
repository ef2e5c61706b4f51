//! Two sides of a window, in two threads.

use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crosslane_ctl::lane::MIN_RING_LINES;
use crosslane_ring::posted::{PostedRx, PostedTx, Slot};
use crosslane_window::backend::{half_bytes, halves};
use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

use crate::windows::{Opened, all};

const WATCHDOG: Duration = Duration::from_secs(60);

static ALONE: Mutex<()> = Mutex::new(());

/// Run a test on every window, each under a watchdog.
fn each(name: &str, test: fn(&str, Opened)) {
    // One at a time: there may be only one of a real device.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (windows, _folders) = all(name);
    for (window, opened) in windows {
        clear(&opened);
        let (done, is_done) = mpsc::channel();
        let label = window.clone();
        let thread = std::thread::spawn(move || {
            test(&label, opened);
            done.send(()).expect("somebody waits");
        });
        match is_done.recv_timeout(WATCHDOG) {
            Ok(()) => thread.join().expect("it has finished"),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("{window}: still not done after {WATCHDOG:?}")
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{window} failed, see above"),
        }
    }
}

/// As whoever lends a slot does before.
fn clear(opened: &Opened) {
    // SAFETY: the windows live as long as this function.
    for (local, remote) in unsafe { sides(opened) } {
        (0..local.bytes()).step_by(8).for_each(|at| local.clear(at));
        remote.fence();
    }
}

/// What both sides may read and write.
///
/// # Safety
/// The windows must outlive it.
unsafe fn sides(opened: &Opened) -> [(Inbound, Outbound); 2] {
    [0, 1].map(|side| {
        // SAFETY: the caller's promise.
        unsafe { halves(&*opened[side], side) }
    })
}

#[test]
fn what_one_side_writes_the_other_reads_there() {
    each("places", |name, opened| {
        let half = half_bytes(&*opened[0]);
        assert_eq!(half, half_bytes(&*opened[1]), "{name}");
        // SAFETY: the windows live as long as this function.
        let sides = unsafe { sides(&opened) };
        for (from, to) in [(0, 1), (1, 0)] {
            for at in [0, 8, 4096, half / 2 + 24, half - 8] {
                let word = (at + from + 1) as u64;
                sides[from].1.store(at, word);
                sides[from].1.fence();
                wait_for(&sides[to].0, at, word);
                sides[to].0.clear(at);
                sides[to].1.fence();
                sides[to].0.refresh(at, 8);
                assert_eq!(sides[to].0.load(at), 0, "{name}: cleared at {at}");
            }
        }
    });
}

/// Both sides may have to share a processor.
fn wait_for(local: &Inbound, at: usize, word: u64) {
    loop {
        for _ in 0..200 {
            local.refresh(at, 8);
            if local.load(at) == word {
                return;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

/// The pattern that all the lanes stand on: payload, fence, one word.
#[test]
fn what_is_written_before_a_fence_is_there_before_what_is_written_after() {
    const ROUNDS: u64 = 20_000;
    const WORDS: usize = 24;
    each("order", |name, opened| {
        // SAFETY: the windows live as long as this function, and so do the threads.
        let [(back, there), (here, answers)] = unsafe { sides(&opened) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let payload = [round; WORDS];
                    there.put(128, &payload);
                    there.fence();
                    there.store(64, round);
                    there.fence();
                    wait_for(&back, 64, round);
                }
            });
            for round in 1..=ROUNDS {
                wait_for(&here, 64, round);
                here.refresh(128, WORDS * 8);
                let stale = (0..WORDS).find(|word| here.load(128 + word * 8) != round);
                assert_eq!(stale, None, "{name}: round {round}");
                answers.store(64, round);
                answers.fence();
            }
        });
    });
}

/// A word arrives at once: never half of one and half of another.
#[test]
fn words_are_not_torn() {
    const ROUNDS: u64 = 200_000;
    each("torn", |name, opened| {
        // SAFETY: the windows live as long as this function, and so do the threads.
        let [(_, there), (here, _)] = unsafe { sides(&opened) };
        let word = |round: u64| round << 32 | round;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..=ROUNDS {
                    there.store(64, word(round));
                    there.fence();
                }
            });
            let mut last = 0;
            while last < ROUNDS {
                here.refresh(64, 8);
                let found = here.load(64);
                assert_eq!(found, word(found >> 32), "{name}: torn");
                assert!(
                    found >> 32 >= last,
                    "{name}: back from {last} to {found:#x}"
                );
                last = found >> 32;
            }
        });
    });
}

/// A megabyte by a lane in each direction, every byte checked.
#[test]
fn lanes_carry_every_byte() {
    const BYTES: usize = 1 << 20;
    each("lanes", |name, opened| {
        // SAFETY: the windows live as long as this function, and so do the threads.
        let [first, second] = unsafe { sides(&opened) };
        let slot = |(local, remote)| Slot::new(local, remote, MIN_RING_LINES);
        let (first, second) = (slot(first), slot(second));
        std::thread::scope(|scope| {
            scope.spawn(|| exchange(name, &first, BYTES));
            exchange(name, &second, BYTES);
        });
    });
}

/// Send and receive the same stream, in pieces of many sizes.
fn exchange(name: &str, slot: &Slot<Inbound, Outbound>, bytes: usize) {
    let byte = |at: usize| {
        (at as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes()[7]
    };
    let stream: Vec<u8> = (0..bytes).map(byte).collect();
    let (mut tx, mut rx) = (PostedTx::default(), PostedRx::default());
    let (mut sent, mut received) = (0, 0);
    let mut buffer = vec![0; 10_000];
    while sent < bytes || received < bytes {
        let size = 1 + (sent * 7 + received * 13) % 9_000;
        let piece = &stream[sent..bytes.min(sent + size)];
        let written = tx.write_slice(slot, piece).unwrap();
        sent += written;
        let taken = rx.read_slice(slot, &mut buffer[..size]).unwrap();
        assert_eq!(
            buffer[..taken],
            stream[received..received + taken],
            "{name} at {received}"
        );
        received += taken;
        if written + taken == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn every_window_says_what_it_is() {
    each("descriptions", |name, opened| {
        let traits = opened[0].traits();
        assert_eq!(traits, opened[1].traits(), "{name}");
        let description = opened[0].description();
        let ways = [
            traits.is_coherent(),
            traits.is_write_combining(),
            traits.needs_flush(),
        ];
        assert!(
            ways.iter().filter(|way| **way).count() <= 1,
            "{name}: {traits:?}"
        );
        assert_eq!(
            traits.is_write_combining(),
            description.contains("write-combining")
        );
        assert_eq!(traits.needs_flush(), description.contains("flushed by"));
        assert_eq!(traits.refreshes, traits.needs_flush());
    });
}
