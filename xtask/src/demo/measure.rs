//! The measuring itself: every workload over TCP and under Crosslane in turn, for some rounds.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use crosslane_benchkit::{Crosslane, Verdict};

use super::comparison::Comparison;
use super::lane::{Lane, Side};
use super::workload::{Figures, Metric, Pace, Program, Workload};

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub rounds: usize,
    pub time: Duration,
    /// For finding out how many requests fill the time.
    pub calibration: Duration,
}

/// Where calibration starts, and how often it may correct itself.
const FIRST_GUESS: f64 = 10_000.0;
const CALIBRATIONS: usize = 4;
/// How often a client may end before its connections could be looked at.
const TRIES: usize = 3;

/// A program's two servers; one that failed is started again when it is next needed.
struct Lanes<'a> {
    program: &'a Program,
    crosslane: &'a Crosslane,
    open: [Option<Lane<'a>>; 2],
}

/// A workload, what is known of its speed on each side, and what was measured.
struct Course<'a> {
    workload: &'a dyn Workload,
    rates: [Option<f64>; 2],
    comparison: Comparison,
}

/// One run of a client.
struct Measured {
    figures: Figures,
    verdict: Option<Verdict>,
}

/// Measures all workloads of all programs.
pub fn measure(programs: &[Program], crosslane: &Crosslane, effort: Effort) -> Vec<Comparison> {
    programs
        .iter()
        .flat_map(|program| measure_program(program, crosslane, effort))
        .collect()
}

fn measure_program(program: &Program, crosslane: &Crosslane, effort: Effort) -> Vec<Comparison> {
    let mut lanes = Lanes {
        program,
        crosslane,
        open: [None, None],
    };
    let mut courses: Vec<_> = program
        .workloads
        .iter()
        .map(|workload| Course::new(&**workload))
        .collect();
    for round in 1..=effort.rounds {
        for course in courses
            .iter_mut()
            .filter(|course| course.comparison.failure.is_none())
        {
            progress(&format!(
                "  round {round} of {}  {:<22}",
                effort.rounds,
                course.workload.name()
            ));
            if let Err(error) = course.run(&mut lanes, effort) {
                progress(&format!("  failed: {error:#}"));
                course.comparison.failure = Some(format!("{error:#}"));
            }
            progress("\n");
        }
    }
    courses
        .into_iter()
        .map(|course| course.comparison)
        .collect()
}

impl<'a> Lanes<'a> {
    fn lane(&mut self, side: Side) -> anyhow::Result<&Lane<'a>> {
        let slot = &mut self.open[side as usize];
        if slot.is_none() {
            *slot = Some(Lane::open(side, self.program, self.crosslane)?);
        }
        slot.as_ref().context("just opened")
    }

    fn close(&mut self, side: Side) {
        self.open[side as usize] = None;
    }
}

impl<'a> Course<'a> {
    fn new(workload: &'a dyn Workload) -> Self {
        let comparison = Comparison::new(workload.name(), workload.description());
        Self {
            workload,
            rates: [None, None],
            comparison,
        }
    }

    /// One round: first over TCP, then under Crosslane.
    fn run(&mut self, lanes: &mut Lanes, effort: Effort) -> anyhow::Result<()> {
        for side in [Side::Tcp, Side::Crosslane] {
            let measured = lanes.lane(side).and_then(|lane| self.measure(lane, effort));
            if measured.is_err() {
                lanes.close(side);
            }
            let Measured { figures, verdict } = measured?;
            if let Some((metric, value)) = figures.first() {
                progress(&format!(
                    "  {} {:>7} {}",
                    side.name(),
                    metric.show(*value),
                    metric.title()
                ));
            }
            self.comparison.add(side, &figures);
            self.comparison.verdicts.extend(verdict);
        }
        Ok(())
    }

    fn measure(&mut self, lane: &Lane, effort: Effort) -> anyhow::Result<Measured> {
        self.workload.prepare(lane.port)?;
        let mut rate = match self.rates[lane.side as usize] {
            None if self.workload.counts_requests() => self.calibrate(lane, effort.calibration)?,
            known => known.unwrap_or(FIRST_GUESS),
        };
        for _ in 0..TRIES {
            let measured = self.pass(lane, effort.time, rate)?;
            rate = rate_of(&measured.figures).unwrap_or(rate);
            self.rates[lane.side as usize] = Some(rate);
            if lane.side == Side::Tcp || measured.verdict.is_some() {
                return Ok(measured);
            }
        }
        bail!("its client ended {TRIES} times before its connections could be looked at")
    }

    fn calibrate(&self, lane: &Lane, time: Duration) -> anyhow::Result<f64> {
        let mut rate = FIRST_GUESS;
        for _ in 0..CALIBRATIONS {
            let measured = self.pass(lane, time, rate)?;
            // A run of less than a millisecond is reported as infinitely fast.
            let next = rate_of(&measured.figures).unwrap_or(10.0 * rate);
            let is_close = next < 2.0 * rate;
            rate = next;
            if is_close {
                break;
            }
        }
        Ok(rate)
    }

    fn pass(
        &self,
        lane: &Lane,
        time: Duration,
        requests_per_second: f64,
    ) -> anyhow::Result<Measured> {
        let client = self.workload.client(
            lane.port,
            Pace {
                time,
                requests_per_second,
            },
        );
        let pass = lane.run(&client, time)?;
        let context = || {
            format!(
                "{} ({}) cannot be understood",
                client.join(" "),
                lane.side.name()
            )
        };
        let figures = self.workload.parse(&pass.stdout).with_context(context)?;
        Ok(Measured {
            figures,
            verdict: pass.verdict,
        })
    }
}

fn rate_of(figures: &[(Metric, f64)]) -> Option<f64> {
    let rps = figures.iter().find(|(metric, _)| *metric == Metric::Rps);
    rps.map(|(_, value)| *value)
        .filter(|value| value.is_finite())
}

fn progress(text: &str) {
    print!("{text}");
    // Progress that cannot be shown is no reason to stop measuring.
    let _ = std::io::stdout().flush();
}
