//! Two hosts and the window between them: this one asks, and the other one, where `--answer` runs, sends every message
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use crosslane_ctl::lane::MIN_RING_LINES;
use crosslane_membench::map::Mapping;
use crosslane_sockbench::cpus::{pin, two_cpus};
use crosslane_window::backend::{Window, half_bytes, lasting_halves, lasting_view_beyond};

use super::between::{self, Echo, TOO_SMALL, answer_all};
use super::carrier::{Carrier, End, lane_bytes};
use super::{Row, bare};
use crate::commands::window::meet::{FREE, Session};

/// Words in the first page of each half, behind those by which the two meet.
const PLAN: usize = 24;
const PULSE: usize = 32;

/// The carriers that the host that asks may name in its plan, a bit for each, above the one for a short bench.
const CARRIERS: [Carrier; 3] = [Carrier::Bare, Carrier::Posted, Carrier::Coherent];
const QUICK: u64 = 1;

/// How often each host says that it is there.
const BEAT: Duration = Duration::from_secs(1);

/// A side of a window that is to be measured between two hosts.
pub struct Side<'a> {
    pub window: &'static dyn Window,
    pub side: u8,
    /// How long to wait for the other host.
    pub patience: Duration,
    /// What is to be run there.
    pub remedy: &'a str,
}

impl Side<'_> {
    fn meet(&self) -> anyhow::Result<(Session, Guard)> {
        let room = half_bytes(self.window).saturating_sub(FREE);
        let least = lane_bytes(MIN_RING_LINES);
        ensure!(
            room >= least,
            "halves of {} bytes have no room for a lane, {} have",
            half_bytes(self.window),
            FREE + least
        );
        let session = Session::meet(self.side, self.window, self.patience, self.remedy)?;
        // Where both hosts are this machine, on a processor each.
        if let Ok((first, second)) = two_cpus() {
            pin(if self.side == 0 { first } else { second })?;
        }
        let guard = Guard::start(self)?;
        Ok((session, guard))
    }

    /// An end in cleared halves, when both sides have left those of the case before.
    fn begin(&self, session: &mut Session, carrier: Carrier) -> anyhow::Result<Box<dyn End>> {
        session.together()?;
        let used = carrier.used_bytes(half_bytes(self.window) - FREE);
        (FREE..FREE + used)
            .step_by(8)
            .for_each(|at| session.local.clear(at));
        session.remote.fence();
        session.together()?;
        let end = carrier.end(self.window, self.side.into(), FREE);
        end.context(TOO_SMALL)
    }
}

/// Measure, with the other host answering.
pub fn ask(side: &Side<'_>, quick: bool, most_bytes: usize) -> anyhow::Result<Vec<Row>> {
    let (mut session, _guard) = side.meet()?;
    let half = half_bytes(side.window);
    let beyond = most_bytes.min(half) - FREE;
    let mut rows = match lasting_view_beyond(side.window, FREE, beyond) {
        Some(view) => bare::measure(&Mapping::of_view(view), quick),
        None => Vec::new(),
    };
    rows.extend(bare::writes(side.window, side.side.into(), FREE, quick));
    let carriers = Carrier::measured(side.window);
    session.say(PLAN, plan(&session, &carriers, quick));
    let cases = between::cases(&carriers);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    let (rounds, slice) = between::effort(quick);
    for _ in 0..rounds {
        for ((bytes, carrier), times) in cases.iter().zip(&mut times) {
            let mut echo = Echo::new(side.begin(&mut session, *carrier)?, *bytes);
            times.push(echo.one_way_ns(slice));
            echo.end();
        }
    }
    session.together()?;
    rows.extend(between::rows(&cases, &times, half - FREE));
    Ok(rows)
}

/// Send back what the other host sends. Returns how many messages there were.
pub fn answer(side: &Side<'_>) -> anyhow::Result<u64> {
    let (mut session, _guard) = side.meet()?;
    // For as long as the other host measures its own part; the guard ends this if it is gone.
    let said = loop {
        let said = session.look(PLAN);
        if (said ^ session.seed()) >> 32 == 0 && said != 0 {
            break said;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let is_named = |at: &usize| said >> (at + 1) & 1 != 0;
    let carriers: Vec<_> = (0..CARRIERS.len())
        .filter(is_named)
        .map(|at| CARRIERS[at])
        .collect();
    let (rounds, _) = between::effort(said & QUICK != 0);
    let mut count = 0;
    for _ in 0..rounds {
        for (bytes, carrier) in between::cases(&carriers) {
            let mut end = side.begin(&mut session, carrier)?;
            count += answer_all(&mut end, bytes);
        }
    }
    session.together()?;
    Ok(count)
}

/// What is to be measured, in a word that no earlier session has left there.
fn plan(session: &Session, carriers: &[Carrier], quick: bool) -> u64 {
    let named = CARRIERS.iter().enumerate();
    let named = named.filter(|(_, carrier)| carriers.contains(carrier));
    let bits: u64 = named.map(|(at, _)| 1 << (at + 1)).sum();
    let short = if quick { QUICK } else { 0 };
    session.seed() >> 32 << 32 | bits | short
}

/// Tells the other host that this one is there, and ends the process when that one is gone, whatever it waits for: lanes are
/// measured as they spin, without a clock.
struct Guard {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    fn start(side: &Side<'_>) -> anyhow::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (window, number, patience) = (side.window, side.side.into(), side.patience);
        let over = Arc::clone(&is_over);
        let watching = move || {
            if let Err(gone) = watch(window, number, patience, &over) {
                crate::output::note(&format!("crosslane: {gone:#}"));
                std::process::exit(1);
            }
        };
        let thread = std::thread::Builder::new().spawn(watching);
        let thread = thread.context("no thread can be started")?;
        Ok(Self {
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to say any more.
            let _ = thread.join();
        }
    }
}

/// Say that this host is there until it is over. An error if the other one is not.
fn watch(
    window: &'static dyn Window,
    side: usize,
    patience: Duration,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let (local, remote) = lasting_halves(window, side);
    let (mut beat, mut heard, mut heard_at) = (0, 0, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        beat += 1;
        remote.store(PULSE, beat);
        remote.fence();
        std::thread::park_timeout(BEAT);
        window.check()?;
        local.refresh(PULSE, 8);
        let word = local.load(PULSE);
        if word != heard {
            (heard, heard_at) = (word, Instant::now());
        }
        let is_silent = heard_at.elapsed() > patience && !is_over.load(Ordering::Relaxed);
        ensure!(
            !is_silent,
            "the other host has said nothing for {patience:?}"
        );
    }
    Ok(())
}
