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
pub(super) const TOO_SMALL: &str = "the window is too small for lanes";

/// One-way times of all sizes by all carriers, in turn in each round; none where there is one processor.
pub(super) fn measure(
    window: &'static dyn Window,
    quick: bool,
) -> anyhow::Result<Option<Vec<Row>>> {
    let Ok(cpus) = two_cpus() else {
        return Ok(None);
    };
    let (rounds, slice) = effort(quick);
    let cases = cases(&Carrier::measured(window));
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for ((bytes, carrier), times) in cases.iter().zip(&mut times) {
            let ends = carrier.ends(window).context(TOO_SMALL)?;
            times.push(one_way_ns(ends, *bytes, cpus, slice)?);
        }
    }
    Ok(Some(rows(&cases, &times, half_bytes(window))))
}

/// Each size by each carrier, in the order in which both sides go through them.
pub(super) fn cases(carriers: &[Carrier]) -> Vec<(usize, Carrier)> {
    let of_size = |bytes| carriers.iter().map(move |carrier| (bytes, *carrier));
    SIZES.into_iter().flat_map(of_size).collect()
}

/// How often each case is measured, and how long each time.
pub(super) const fn effort(quick: bool) -> (usize, Duration) {
    match quick {
        true => (7, Duration::from_millis(15)),
        false => (31, Duration::from_millis(30)),
    }
}

/// The median of the rounds, and a tenth from the best one: others may use the processors, too.
pub(super) fn rows(
    cases: &[(usize, Carrier)],
    times: &[Vec<f64>],
    window_bytes: usize,
) -> Vec<Row> {
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
    with_echo(ends, bytes, cpus, |echo| echo.one_way_ns(slice))
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
pub(super) struct Echo {
    end: Box<dyn End>,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Echo {
    pub(super) fn new(end: Box<dyn End>, bytes: usize) -> Self {
        let (message, answer) = (vec![0; bytes], vec![0; bytes]);
        Self {
            end,
            message,
            answer,
        }
    }

    /// Half of a round trip, the median over so long a time.
    pub(super) fn one_way_ns(&mut self, slice: Duration) -> f64 {
        const TURNS: u64 = 16;
        let mut times = Vec::new();
        let start = Instant::now();
        while start.elapsed() < slice || times.is_empty() {
            let before = Instant::now();
            (0..TURNS).for_each(|_| self.call());
            times.push(before.elapsed().as_secs_f64() * 1e9 / number(2 * TURNS));
        }
        median(&times).unwrap_or(f64::NAN)
    }

    /// One more, behind which the other side waits for nothing.
    pub(super) fn end(&mut self) {
        self.message[0] = LAST;
        self.call();
    }

    /// One round trip.
    fn call(&mut self) {
        self.end.send(&self.message);
        self.end.receive(&mut self.answer);
    }
}

/// Send every message back, up to the last one. Returns how many there were.
pub(super) fn answer_all(end: &mut impl End, bytes: usize) -> u64 {
    let mut message = vec![0; bytes];
    let mut count = 0;
    while message[0] != LAST {
        end.receive(&mut message);
        end.send(&message);
        count += 1;
    }
    count
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
            answer_all(&mut there, bytes);
            placed
        });
        let asking = scope.spawn(move || {
            let placed = pin(cpus.0);
            let mut echo = Echo::new(here, bytes);
            let found = ask(&mut echo);
            echo.end();
            placed.map(|()| found)
        });
        let found = asking.join().expect("the side that asks ends");
        echoing.join().expect("the side that answers ends")?;
        Ok(found?)
    })
}
