//! What is checked, by both sides in the same order.

use std::time::{Duration, Instant};

use anyhow::ensure;
use crosslane_benchkit::stats::{median, significant};
use crosslane_ctl::lane::{Geometry, MIN_RING_LINES, WINDOW_RING_LINES};
use crosslane_ring::posted::{PostedRx, PostedTx, Slot};
use crosslane_ring::{Control, Next};
use crosslane_window::backend::PAGE_BYTES;
use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

use super::Row;
use crate::commands::window::meet::{FREE, Session};

/// A flag, and a payload behind it, in lines of their own.
const FLAG: usize = FREE;
const PAYLOAD: usize = FREE + 64;
const PAYLOAD_WORDS: usize = 24;

/// What each half must have: a page to meet in, and what the checks write.
pub const LEAST_BYTES: usize = (PAYLOAD + PAYLOAD_WORDS * 8).next_multiple_of(PAGE_BYTES);

/// How long lanes may stand still.
const STANDSTILL: Duration = Duration::from_secs(30);

/// The last round.
const END: u64 = u64::MAX;

type Check = fn(&mut Session, &Plan) -> anyhow::Result<Found>;

struct Plan {
    time: Duration,
    bytes: usize,
}

/// What a check found.
struct Found {
    count: u64,
    ns: Option<f64>,
    note: String,
}

impl Found {
    fn counted(count: u64, note: &str) -> Self {
        let note = note.to_owned();
        Self {
            count,
            ns: None,
            note,
        }
    }
}

/// Do all checks. A check that fails ends them, because the sides may not be in step any more.
pub fn all(session: &mut Session, time: Duration, bytes: usize) -> anyhow::Result<Vec<Row>> {
    let checks: [(&str, Check); 5] = [
        ("places", places),
        ("order", order),
        ("words", words),
        ("latency", latency),
        ("lanes", lanes),
    ];
    let plan = Plan { time, bytes };
    let mut rows = Vec::new();
    for (check, act) in checks {
        let found = act(session, &plan).and_then(|found| session.together().map(|()| found));
        let ok = found.is_ok();
        let found = found.unwrap_or_else(|error| Found::counted(0, &format!("FAILED: {error:#}")));
        rows.push(Row {
            bench: "window-test".to_owned(),
            check: check.to_owned(),
            side: session.side,
            ok,
            count: found.count,
            ns: found.ns,
            declared_ns: None,
            note: found.note,
        });
        if !ok {
            break;
        }
    }
    Ok(rows)
}

/// The word that belongs at an offset of the half that `side` writes.
fn pattern(seed: u64, side: u8, at: usize) -> u64 {
    let mixed = (at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(side);
    mixed ^ (mixed >> 29)
}

/// Each side fills the other's half, and finds its own filled with what belongs there.
fn places(session: &mut Session, plan: &Plan) -> anyhow::Result<Found> {
    let end = session.local.bytes().min(FREE + plan.bytes / 8 * 8);
    let (seed, side) = (session.seed(), session.side);
    let mut page = [0; 512];
    for at in (FREE..end).step_by(FREE) {
        let words = &mut page[..(end - at).min(FREE) / 8];
        for (index, word) in words.iter_mut().enumerate() {
            *word = pattern(seed, side, at + index * 8);
        }
        session.remote.put(at, words);
    }
    session.together()?;
    for at in (FREE..end).step_by(8) {
        let (found, right) = (session.look(at), pattern(seed, 1 - side, at));
        ensure!(
            found == right,
            "at offset {at:#x} of the half there is {found:#018x}, not {right:#018x}"
        );
    }
    session.together()?;
    Ok(Found::counted(
        ((end - FREE) / 8) as u64,
        "words written and read",
    ))
}

/// In turn, one side sends and the other looks.
fn in_turn(
    session: &mut Session,
    send: impl Fn(&Session) -> anyhow::Result<u64>,
    look: impl Fn(&Session) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let mut looked = 0;
    for sender in [0, 1] {
        session.local.clear(FLAG);
        session.together()?;
        match session.side == sender {
            true => drop(send(session)?),
            false => looked = look(session)?,
        }
        session.together()?;
    }
    Ok(looked)
}

/// What is written before a fence arrives before what is written after.
fn order(session: &mut Session, plan: &Plan) -> anyhow::Result<Found> {
    let send = |session: &Session| {
        let start = Instant::now();
        let mut round = 0;
        while start.elapsed() < plan.time {
            round += 1;
            session.remote.put(PAYLOAD, &[round; PAYLOAD_WORDS]);
            session.say(FLAG, round);
            session.wait(FLAG, |word| word == round)?;
        }
        session.say(FLAG, END);
        Ok(round)
    };
    let look = |session: &Session| {
        let mut last = 0;
        loop {
            let round = session.wait(FLAG, |word| word != last)?;
            if round == END {
                return Ok(last);
            }
            let mut payload = [0; PAYLOAD_WORDS];
            session.local.refresh(PAYLOAD, PAYLOAD_WORDS * 8);
            session.local.take(PAYLOAD, &mut payload);
            ensure!(
                payload == [round; PAYLOAD_WORDS],
                "the flag of round {round} came before its payload"
            );
            session.say(FLAG, round);
            last = round;
        }
    };
    let rounds = in_turn(session, send, look)?;
    Ok(Found::counted(
        rounds,
        "payloads that were there when their flag was",
    ))
}

/// Words are not torn, and do not go back.
fn words(session: &mut Session, plan: &Plan) -> anyhow::Result<Found> {
    let word = |round: u64| round << 32 | round;
    let send = |session: &Session| {
        let (start, mut round) = (Instant::now(), 0);
        while start.elapsed() < plan.time {
            for _ in 0..64 {
                round += 1;
                session.say(FLAG, word(round));
            }
        }
        session.say(FLAG, END);
        Ok(round)
    };
    let look = |session: &Session| {
        let (mut last, mut seen) = (0, 0);
        loop {
            let found = session.wait(FLAG, |found| found != word(last))?;
            if found == END {
                return Ok(seen);
            }
            let round = found >> 32;
            ensure!(found == word(round), "a word is torn: {found:#018x}");
            ensure!(round > last, "a word goes back from {last} to {round}");
            (last, seen) = (round, seen + 1);
        }
    };
    let seen = in_turn(session, send, look)?;
    Ok(Found::counted(seen, "words seen whole and in order"))
}

/// How long a word takes: half of a round trip.
fn latency(session: &mut Session, plan: &Plan) -> anyhow::Result<Found> {
    session.local.clear(FLAG);
    session.together()?;
    if session.side == 1 {
        let (mut last, mut answers) = (0, 0);
        while last != END {
            last = session.wait(FLAG, |word| word != last)?;
            session.say(FLAG, last);
            answers += u64::from(last != END);
        }
        return Ok(Found::counted(answers, "answers"));
    }
    let (start, mut times, mut round) = (Instant::now(), Vec::new(), 0);
    while start.elapsed() < plan.time / 2 {
        let before = Instant::now();
        for _ in 0..16 {
            round += 1;
            session.say(FLAG, round);
            session.wait(FLAG, |word| word == round)?;
        }
        times.push(before.elapsed().as_secs_f64() * 1e9 / 32.0);
    }
    session.say(FLAG, END);
    session.wait(FLAG, |word| word == END)?;
    Ok(Found {
        count: round,
        ns: median(&times).map(|ns| significant(ns, 4)),
        note: "round trips; half of one takes so long".to_owned(),
    })
}

/// Lanes as connections would have them, both ways, every byte compared.
fn lanes(session: &mut Session, plan: &Plan) -> anyhow::Result<Found> {
    let Some(slot) = slot(session) else {
        let (found, needed) = (session.local.bytes(), room(MIN_RING_LINES));
        let note =
            format!("SKIPPED: halves of {found} bytes have no room for a lane, {needed} have");
        return Ok(Found::counted(0, &note));
    };
    (0..slot.local.bytes())
        .step_by(8)
        .for_each(|at| slot.local.clear(at));
    session.remote.fence();
    session.together()?;
    let seed = session.seed();
    let outgoing = stream(seed, session.side);
    let incoming = stream(seed, 1 - session.side);
    exchange(session, &slot, &outgoing, &incoming, plan.time)
}

fn room(lines: u32) -> usize {
    let slots = 1;
    FREE + Geometry {
        ring_lines: lines,
        slots,
    }
    .lane_bytes()
}

fn slot(session: &Session) -> Option<Slot<Inbound, Outbound>> {
    let lines = [WINDOW_RING_LINES, MIN_RING_LINES];
    let lines = lines
        .into_iter()
        .find(|lines| room(*lines) <= session.local.bytes())?;
    let bytes = room(lines) - FREE;
    let (local, remote) = (
        session.local.part(FREE, bytes)?,
        session.remote.part(FREE, bytes)?,
    );
    Some(Slot::new(local, remote, lines))
}

/// The bytes that a side sends again and again.
fn stream(seed: u64, side: u8) -> Vec<u8> {
    const BYTES: usize = (1 << 20) - 8;
    (0..BYTES)
        .step_by(8)
        .flat_map(|at| pattern(seed, side, at).to_le_bytes())
        .collect()
}

fn exchange(
    session: &Session,
    slot: &Slot<Inbound, Outbound>,
    outgoing: &[u8],
    incoming: &[u8],
    time: Duration,
) -> anyhow::Result<Found> {
    let mut ways = Ways::default();
    let mut buffer = vec![0; LARGEST];
    let (start, mut waiting) = (Instant::now(), session.waiting(STANDSTILL));
    while !ways.has_stopped || ways.announced != Some(ways.received) {
        let size = 1 + (ways.sent * 7 + ways.received) % LARGEST;
        let sent = match start.elapsed() < time {
            true => ways.send(slot, outgoing, size)?,
            false => ways.stop(slot)?,
        };
        let received = ways.receive(slot, incoming, &mut buffer[..size])?;
        if sent + received > 0 {
            waiting = session.waiting(STANDSTILL);
        } else {
            ensure!(!waiting.is_over()?, "nothing has moved for {STANDSTILL:?}");
            std::thread::yield_now();
        }
    }
    Ok(Found::counted(
        ways.received as u64,
        "bytes received by a lane, each compared",
    ))
}

/// Most that is written or read at once.
const LARGEST: usize = 12 << 10;

/// Where both lanes stand.
#[derive(Default)]
struct Ways {
    tx: PostedTx,
    rx: PostedRx,
    sent: usize,
    has_stopped: bool,
    received: usize,
    /// How many bytes the other side says that it has sent in all.
    announced: Option<usize>,
}

impl Ways {
    fn send(
        &mut self,
        slot: &Slot<Inbound, Outbound>,
        outgoing: &[u8],
        size: usize,
    ) -> anyhow::Result<usize> {
        let at = self.sent % outgoing.len();
        let piece = &outgoing[at..outgoing.len().min(at + size)];
        let sent = self.tx.write_slice(slot, piece)?;
        self.sent += sent;
        Ok(sent)
    }

    fn stop(&mut self, slot: &Slot<Inbound, Outbound>) -> anyhow::Result<usize> {
        if self.has_stopped {
            return Ok(0);
        }
        self.has_stopped = self
            .tx
            .write_control(slot, Control::Stop, self.sent as u64)?;
        Ok(usize::from(self.has_stopped))
    }

    fn receive(
        &mut self,
        slot: &Slot<Inbound, Outbound>,
        incoming: &[u8],
        buffer: &mut [u8],
    ) -> anyhow::Result<usize> {
        let taken = self.rx.read_slice(slot, buffer)?;
        for byte in &buffer[..taken] {
            let right = incoming[self.received % incoming.len()];
            ensure!(
                *byte == right,
                "byte {} of the lane is not the one sent",
                self.received
            );
            self.received += 1;
        }
        if let Next::Control(_, count) = self.rx.peek(slot)? {
            self.rx.pass_control(slot)?;
            let received = self.received;
            ensure!(count == received as u64, "{received} bytes came of {count}");
            self.announced = Some(received);
        }
        Ok(taken)
    }
}
