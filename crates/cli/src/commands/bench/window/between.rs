//! Two processors and the window between them: a message by each [`Carrier`], and back.

use std::time::{Duration, Instant};

use anyhow::Context;
use crosslane_benchkit::stats::{median, significant};
use crosslane_sockbench::client::{histogram, rtt_outcome};
use crosslane_sockbench::cpus::{pin, two_cpus};
use crosslane_sockbench::outcome::Outcome;
use crosslane_sockbench::span::{Span, Stopwatch};
use crosslane_window::backend::{Window, half_bytes};

use super::Row;
use super::carrier::{Carrier, End};
use crate::commands::bench::output::number;

const SIZES: [usize; 6] = [8, 56, 64, 512, 4096, 16 << 10];

/// The first byte of a message that ends a case.
const LAST: u8 = 1;

/// How a carrier that does not fit is told of.
const TOO_SMALL: &str = "the window is too small for lanes";

/// One-way times of all sizes by all carriers, in turn in each round; none where there is one processor.
pub(super) fn measure(
    window: &'static dyn Window,
    quick: bool,
) -> anyhow::Result<Option<Vec<Row>>> {
    let Ok(cpus) = two_cpus() else {
        return Ok(None);
    };
    let (rounds, slice) = if quick { (7, 15) } else { (31, 30) };
    let slice = Duration::from_millis(slice);
    let mut carriers = vec![Carrier::Bare, Carrier::Posted];
    if window.traits().is_coherent() {
        carriers.push(Carrier::Coherent);
    }
    let cases: Vec<(usize, Carrier)> = SIZES
        .into_iter()
        .flat_map(|bytes| carriers.iter().map(move |carrier| (bytes, *carrier)))
        .collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for ((bytes, carrier), times) in cases.iter().zip(&mut times) {
            let ends = carrier.ends(window).context(TOO_SMALL)?;
            times.push(one_way_ns(ends, *bytes, cpus, slice)?);
        }
    }
    Ok(Some(rows(&cases, &times, half_bytes(window))))
}

/// The median of the rounds, and a tenth from the best one: others may use the processors, too.
fn rows(cases: &[(usize, Carrier)], times: &[Vec<f64>], window_bytes: usize) -> Vec<Row> {
    let figures = |times: &[f64]| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        (
            median(&sorted).unwrap_or(f64::NAN),
            sorted[sorted.len() / 10],
        )
    };
    let mut rows = Vec::new();
    let mut bare = (f64::NAN, f64::NAN);
    for ((bytes, carrier), times) in cases.iter().zip(times) {
        let (p50, best) = figures(times);
        let row = |kind, variant: &str, ns| {
            let row = Row::new(kind, variant, *bytes, window_bytes);
            row.ns(significant(ns, 4))
        };
        let name = carrier.name();
        rows.push(row("one_way", name, p50));
        rows.push(row("one_way_best", name, best));
        if *carrier == Carrier::Bare {
            bare = (p50, best);
        } else {
            rows.push(row("overhead", name, p50 - bare.0));
            rows.push(row("overhead_best", name, best - bare.1));
        }
    }
    rows
}

fn one_way_ns(
    ends: [Box<dyn End>; 2],
    bytes: usize,
    cpus: (usize, usize),
    slice: Duration,
) -> anyhow::Result<f64> {
    with_echo(ends, bytes, cpus, |echo| {
        const TURNS: u64 = 16;
        let mut times = Vec::new();
        let start = Instant::now();
        while start.elapsed() < slice || times.is_empty() {
            let before = Instant::now();
            (0..TURNS).for_each(|_| echo.call());
            times.push(before.elapsed().as_secs_f64() * 1e9 / number(2 * TURNS));
        }
        median(&times).unwrap_or(f64::NAN)
    })
}

/// Each round trip of messages by a carrier, as programs' round trips are measured.
pub fn round_trips(
    window: &'static dyn Window,
    carrier: Carrier,
    bytes: usize,
    span: Span,
) -> anyhow::Result<Outcome> {
    let ends = carrier.ends(window).context(TOO_SMALL)?;
    let times = with_echo(ends, bytes, two_cpus()?, |echo| {
        let mut times = histogram();
        let watch = Stopwatch::start(span);
        let mut sent_at = watch.now();
        // One that takes all of the time, because others have the processor, is known by itself.
        while !watch.is_over(sent_at) || times.is_empty() {
            echo.call();
            let back_at = watch.now();
            if watch.is_warm(sent_at) {
                times.saturating_record(watch.between_ns(sent_at, back_at));
            }
            sent_at = watch.now();
        }
        times
    })?;
    Ok(rtt_outcome(bytes, &times, span)?)
}

/// The other side of a window, which sends every message back.
struct Echo {
    end: Box<dyn End>,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Echo {
    /// One round trip.
    fn call(&mut self) {
        self.end.send(&self.message);
        self.end.receive(&mut self.answer);
    }
}

/// Run `ask` on one processor, with an echo on the other.
fn with_echo<T: Send>(
    [here, mut there]: [Box<dyn End>; 2],
    bytes: usize,
    cpus: (usize, usize),
    ask: impl FnOnce(&mut Echo) -> T + Send,
) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let echoing = scope.spawn(move || {
            let placed = pin(cpus.1);
            let mut message = vec![0; bytes];
            while message[0] != LAST {
                there.receive(&mut message);
                there.send(&message);
            }
            placed
        });
        let asking = scope.spawn(move || {
            let placed = pin(cpus.0);
            let (message, answer) = (vec![0; bytes], vec![0; bytes]);
            let end = here;
            let mut echo = Echo {
                end,
                message,
                answer,
            };
            let found = ask(&mut echo);
            echo.message[0] = LAST;
            echo.call();
            placed.map(|()| found)
        });
        let found = asking.join().expect("the side that asks ends");
        echoing.join().expect("the side that answers ends")?;
        Ok(found?)
    })
}
