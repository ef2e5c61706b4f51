//! One seed: what happens next, until it is over or something is wrong.

use core::fmt;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_sys::{Errno, cpu, process};

use super::super::dice::Dice;
use super::super::{Memory, PATIENCE, arenas, base, describe};
use super::host::{Host, MOST_BYTES, Sleep, Wrong};
use super::wire::{Arrival, Fault, Posted, Way, name};
use super::{NOW, Ordering, WAYS};
use crate::bell::{self, Bells};
use crate::{End, doubt, lost, send, slices, watcher};

/// More than a lane has room for, and less than TCP has.
const MOST_ON_THE_WAY: u64 = 40_000;

/// Rounds of looks and calls within which all must come to rest.
const ROUNDS: usize = 300;

/// After so much time without credit a sender goes on by TCP.
const STANDSTILL_US: u64 = 20_001;

/// What happens next, at one of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send(usize, usize),
    /// Send until there is no room.
    Fill(usize, usize),
    Receive(usize, usize),
    Sleep(usize, Sleep),
    Wake(usize),
    GiveUp(usize),
    /// The library's thread looks; it has posted nothing for long.
    Look(usize, bool),
    /// What this host has posted arrives.
    Arrive(usize, Arrival),
    Leave(usize),
    Reenter(usize),
    GiveAway(usize),
    Return(usize),
    Pass(u64),
    /// It sends nothing any more.
    ShutDown(usize),
    /// From here on everything arrives, and who is rung goes on.
    Rest,
}

/// What went wrong at which host, and what was done since the last rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) seed: u64,
    pub(super) schedule: u64,
    pub(super) host: usize,
    pub(super) wrong: Wrong,
    pub(super) steps: Vec<(Step, usize)>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            schedule,
            host,
            wrong,
            steps,
        } = self;
        let steps: Vec<_> = steps
            .iter()
            .map(|(step, came)| format!("{step:?}: {came}"))
            .collect();
        write!(
            formatter,
            "seed {seed}, schedule {schedule}, host {host}: {wrong:?} after {}",
            steps.join(", ")
        )
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) schedules: u64,
    pub(super) steps: u64,
    pub(super) bytes: u64,
    /// Doorbells.
    pub(super) bells: u64,
    /// Sends that found no room.
    pub(super) full: u64,
    /// Sleepers that were woken.
    pub(super) woken: u64,
    /// Who waited for room, and could not be woken.
    pub(super) timers: u64,
    /// Directions that entered a lane, that left one, and that had to send again by TCP what stood there.
    pub(super) starts: u64,
    pub(super) stops: u64,
    pub(super) replays: u64,
    pub(super) posted: Posted,
}

impl Told {
    pub(super) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.bytes += other.bytes;
        self.bells += other.bells;
        self.full += other.full;
        self.woken += other.woken;
        self.timers += other.timers;
        self.starts += other.starts;
        self.stops += other.stops;
        self.replays += other.replays;
        self.posted.add(other.posted);
    }
}

/// What is seen of a sending direction.
#[derive(Clone, Copy, Default)]
struct Seen {
    is_in_lane: bool,
    by_tcp: u64,
    replays: u32,
}

/// A connection on which schedules are played.
pub(super) struct Run {
    seed: u64,
    schedule: u64,
    dice: Dice,
    fault: Fault,
    hosts: [Host; 2],
    seen: [Seen; 2],
    steps: Vec<(Step, usize)>,
    told: Told,
    _memory: Memory,
}

impl Run {
    /// So many of one seed.
    pub(super) const SCHEDULES: u64 = 1000;

    /// Play all schedules of a seed.
    pub(super) fn play(seed: u64, fault: Fault) -> Result<Told, Failure> {
        let mut run = Self::new(seed, fault);
        let mut outcome = Ok(());
        while outcome.is_ok() && run.schedule < Self::SCHEDULES {
            outcome = run.play_one();
            run.schedule += 1;
        }
        let outcome = outcome.and_then(|()| run.play_end());
        run.end(outcome)
    }

    /// A connection on which nothing has been done, for steps that are given.
    pub(super) fn with_nothing_done(fault: Fault) -> Self {
        Self::new(0, fault)
    }

    pub(super) fn is_in_lanes(&self) -> bool {
        let modes = |host: &Host| [host.end.tx_mode(), host.end.rx_mode()];
        self.hosts
            .iter()
            .flat_map(modes)
            .all(|mode| mode == Mode::Ring)
    }

    /// Whether doorbells may be on their way to host 1, which takes those that have come.
    pub(super) fn bells_of_receiver(&self) -> Bells {
        let end = self.hosts[1].end;
        let (lane, _rx) = end.hold_rx_lane().expect("it has lanes");
        bell::take(&end, &lane)
    }

    /// What a host has posted so far.
    pub(super) fn posted_by(&self, at: usize) -> Posted {
        WAYS.with_borrow(|ways| {
            ways.as_ref()
                .map_or(Posted::default(), |ways| ways[at].posted)
        })
    }

    /// Kill the program of host 1. Returns what a receive at host 0 is told, once it is clear that all has arrived.
    pub(super) fn receiver(&self) -> End {
        self.hosts[1].end
    }

    pub(super) fn kill_receiver(&mut self) -> Result<usize, Errno> {
        self.hosts[1].kill();
        let end = self.hosts[0].end;
        let until = Instant::now() + PATIENCE;
        loop {
            let told = slices::receive(&end, &mut [0; 8], true);
            if told != Err(Errno::AGAIN) || Instant::now() > until {
                return told;
            }
            doubt::hear_carried(end.process(), end.token(), lost::pair_of(&end));
        }
    }

    /// Take one step.
    pub(super) fn take(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::Rest => self.come_to_rest(),
            step => self.act(step).map(drop),
        }
    }

    /// This thread plays no more.
    pub(super) fn end(mut self, outcome: Result<(), Failure>) -> Result<Told, Failure> {
        if let Some(ways) = WAYS.take() {
            ways.iter().for_each(|way| self.told.posted.add(way.posted));
        }
        let told = self.told;
        drop(self);
        NOW.set(0);
        outcome.map(|()| told)
    }

    fn new(seed: u64, fault: Fault) -> Self {
        process::resolve();
        NOW.set(1 << 40);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let arenas = arenas();
        let ways = [0, 1].map(|at| {
            let from = name(arenas[at].beyond().unwrap());
            Way::new((from, base(arenas[1 - at])), fault, seed ^ at as u64)
        });
        WAYS.set(Some(ways));
        let hosts = [(near, 0), (far, 1)];
        Self {
            seed,
            schedule: 0,
            dice: Dice::new(seed),
            fault,
            hosts: hosts.map(|(socket, role)| Host::new(socket, role, arenas[role as usize])),
            seen: Default::default(),
            steps: Vec::new(),
            told: Told::default(),
            _memory: Memory(arenas),
        }
    }

    /// One schedule, from rest to rest.
    fn play_one(&mut self) -> Result<(), Failure> {
        self.steps.clear();
        let steps = 3 + self.dice.below(16);
        let longest = [8, 60, 600, MOST_BYTES][self.dice.below(4)];
        let arrivals = [10, 30, 60][self.dice.below(3)];
        for _ in 0..steps {
            let step = self.choose(longest, arrivals);
            self.act(step)?;
        }
        self.told.steps += steps as u64;
        self.come_to_rest()?;
        // Who has gone to TCP comes back in a later schedule.
        for at in [0, 1] {
            if self.dice.below(3) == 0 {
                self.hosts[at].reenter();
                self.hosts[at].rests();
            }
        }
        self.told.schedules += 1;
        Ok(())
    }

    /// The last one: both streams end.
    fn play_end(&mut self) -> Result<(), Failure> {
        self.steps.clear();
        for _ in 0..2 {
            for _ in 0..self.dice.below(8) {
                let step = self.choose(600, 30);
                self.act(step)?;
            }
            let at = self.dice.below(2);
            self.act(Step::ShutDown(at))?;
        }
        for at in [0, 1] {
            self.act(Step::ShutDown(at))?;
            let step = self.choose(600, 30);
            self.act(step)?;
        }
        self.come_to_rest()?;
        let is_over = self.hosts.iter().position(|host| !host.has_ended);
        self.found(
            is_over.unwrap_or(0),
            is_over.map_or(Ok(()), |_| Err(Wrong::NoEnd)),
        )
    }

    fn choose(&mut self, longest: usize, arrivals: usize) -> Step {
        let at = self.dice.below(2);
        if self.dice.below(100) < arrivals {
            let arrival = match self.dice.below(10) {
                0..=4 => Arrival::One,
                5..=6 => Arrival::Part,
                7..=8 => Arrival::ToFence,
                _ => Arrival::All,
            };
            return Step::Arrive(at, arrival);
        }
        let bytes = 1 + self.dice.below(longest);
        let asleep = self.hosts[at].is_asleep();
        match self.dice.below(1000) {
            0..350 if !asleep => Step::Send(at, bytes),
            350..370 if !asleep => Step::Fill(at, bytes.max(500)),
            370..650 if !asleep => Step::Receive(at, bytes),
            650..790 if !asleep && self.dice.below(3) > 0 => Step::Sleep(at, Sleep::Poll),
            650..790 if !asleep => Step::Sleep(at, Sleep::Receive),
            0..700 => Step::Wake(at),
            700..790 => Step::GiveUp(at),
            790..950 => Step::Look(at, self.dice.below(8) == 0),
            950..965 => Step::Leave(at),
            965..985 => Step::Reenter(at),
            985..990 => Step::GiveAway(at),
            990..997 => Step::Return(at),
            _ => Step::Pass(STANDSTILL_US),
        }
    }

    fn act(&mut self, step: Step) -> Result<usize, Failure> {
        self.steps.push((step, 0));
        let outcome = match step {
            Step::Send(at, bytes) => self.send(at, bytes),
            Step::Fill(at, bytes) => self.fill(at, bytes),
            Step::Receive(at, bytes) => self.receive(at, bytes),
            Step::Sleep(at, how) => {
                let slept = self.hosts[at].sleep(how).map(usize::from);
                self.found(at, slept)
            }
            Step::Wake(at) => Ok(usize::from(self.wake(at))),
            Step::GiveUp(at) => {
                self.hosts[at].give_up();
                Ok(0)
            }
            Step::Look(at, is_idle) => {
                self.look(at, is_idle);
                Ok(0)
            }
            Step::Arrive(at, arrival) => Ok(usize::from(self.arrive(at, arrival))),
            Step::Leave(at) => {
                self.hosts[at].leave();
                Ok(0)
            }
            Step::Reenter(at) => {
                self.hosts[at].reenter();
                Ok(0)
            }
            Step::GiveAway(at) => {
                self.hosts[at].give_away();
                Ok(0)
            }
            Step::Return(at) => Ok(usize::from(self.hosts[at].rests())),
            Step::Pass(us) => {
                NOW.set(NOW.get() + us * cpu::ticks_per_us());
                Ok(0)
            }
            Step::ShutDown(at) => {
                let sent = self.hosts[at].sent;
                self.hosts[at].shut_down();
                self.hosts[1 - at].expected = Some(sent);
                Ok(0)
            }
            Step::Rest => Ok(0),
        };
        let came = outcome?;
        if let Some((_, outcome)) = self.steps.last_mut() {
            *outcome = came;
        }
        self.note()?;
        Ok(came)
    }

    fn found<T>(&self, host: usize, found: Result<T, Wrong>) -> Result<T, Failure> {
        let tell = |_: &Wrong| {
            if self.fault == Fault::None {
                let told = |host: &Host| println!("{}", describe(&host.end));
                self.hosts.iter().for_each(told);
            }
        };
        found.inspect_err(tell).map_err(|wrong| Failure {
            seed: self.seed,
            schedule: self.schedule,
            host,
            wrong,
            steps: self.steps.clone(),
        })
    }

    fn send(&mut self, at: usize, bytes: usize) -> Result<usize, Failure> {
        if self.hosts[at].is_shut {
            return Ok(0);
        }
        let on_the_way = self.hosts[at].sent - self.hosts[1 - at].received;
        if self.hosts[at].pending == 0 && on_the_way + bytes as u64 > MOST_ON_THE_WAY {
            return Ok(0);
        }
        let sent = self.hosts[at].send(bytes);
        self.told.full += u64::from(self.hosts[at].pending > 0);
        let sent = self.found(at, sent)?;
        self.told.bytes += sent as u64;
        Ok(sent)
    }

    fn fill(&mut self, at: usize, bytes: usize) -> Result<usize, Failure> {
        let mut all = 0;
        loop {
            let sent = self.send(at, bytes)?;
            all += sent;
            if sent < bytes {
                return Ok(all);
            }
        }
    }

    fn receive(&mut self, at: usize, bytes: usize) -> Result<usize, Failure> {
        let received = self.hosts[at].receive(bytes);
        self.found(at, received)
    }

    fn wake(&mut self, at: usize) -> bool {
        let woken = self.hosts[at].wake();
        self.told.woken += u64::from(woken);
        woken
    }

    fn look(&mut self, at: usize, is_idle: bool) {
        if self.fault != Fault::NoThread {
            watcher::tend_end(&self.hosts[at].end, is_idle);
        }
    }

    fn arrive(&mut self, at: usize, arrival: Arrival) -> bool {
        let dice = &mut self.dice;
        WAYS.with_borrow_mut(|ways| {
            let ways = ways.as_mut().expect("this thread plays");
            ways[at].deliver(dice, arrival)
        })
    }

    /// See what has changed, and wait until what was put on TCP is there.
    fn note(&mut self) -> Result<(), Failure> {
        for at in [0, 1] {
            let end = self.hosts[at].end;
            if self.fault == Fault::BellBeforeFound {
                end.clear_flags(end_flags::AWAITED);
            }
            let replays = |lane: super::super::super::WindowLane| {
                lane.control().sender.replay_seq.load(Ordering::Relaxed)
            };
            let now = Seen {
                is_in_lane: end.tx_mode() == Mode::Ring,
                by_tcp: end.entry.tx.tcp_bytes.load(Ordering::Relaxed),
                replays: end.tx_lane().map_or(0, replays),
            };
            let before = core::mem::replace(&mut self.seen[at], now);
            self.told.starts += u64::from(now.is_in_lane && !before.is_in_lane);
            self.told.stops += u64::from(!now.is_in_lane && before.is_in_lane);
            self.told.replays += u64::from(now.replays != before.replays);
            if now.by_tcp != before.by_tcp {
                if now.is_in_lane && before.is_in_lane {
                    self.told.bells += now.by_tcp - before.by_tcp;
                }
                let come = self.await_tcp(at, now.by_tcp);
                self.found(at, come)?;
            }
        }
        Ok(())
    }

    fn await_tcp(&self, at: usize, sent: u64) -> Result<(), Wrong> {
        let there = &self.hosts[1 - at];
        let taken = there.end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
        let mut until = None;
        while taken + there.queued() != sent {
            let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
            if Instant::now() > until {
                return Err(Wrong::Uncounted);
            }
            there.acknowledge();
        }
        Ok(())
    }

    /// Everything arrives, both threads look, and the programs do what they can without waking by themselves.
    fn come_to_rest(&mut self) -> Result<(), Failure> {
        self.act(Step::Rest)?;
        let again = [0, 1].map(|_| self.dice.below(2) == 0);
        for _ in 0..ROUNDS {
            let mut moves = false;
            for at in [0, 1] {
                moves |= self.arrive(at, Arrival::All);
                self.act(Step::Look(at, false))?;
            }
            for at in [0, 1] {
                moves |= self.arrive(at, Arrival::All);
                moves |= match self.hosts[at].is_asleep() {
                    true => self.act(Step::Wake(at))? > 0,
                    false => self.go_on(at, again[at])?,
                };
            }
            if !moves && !self.time_passes() {
                return self.check();
            }
        }
        self.found(0, Err(Wrong::Restless))
    }

    /// Who waits for room of a peer that is on TCP, and cannot ring, looks every [`crate::send::STANDSTILL`]. Returns whether
    /// somebody does.
    fn time_passes(&mut self) -> bool {
        let mut any = false;
        for host in &mut self.hosts {
            if host.is_asleep() && host.pending > 0 && !send::can_be_rung(&host.end) {
                host.give_up();
                self.told.timers += 1;
                any = true;
            }
        }
        any
    }

    /// What a program does that is awake, and perhaps sleeps again when there is nothing. Returns whether it does anything.
    fn go_on(&mut self, at: usize, sleeps_again: bool) -> Result<bool, Failure> {
        let mut moves = false;
        while self.act(Step::Receive(at, MOST_BYTES))? > 0 {
            moves = true;
        }
        let pending = self.hosts[at].pending;
        if pending > 0 {
            moves |= self.act(Step::Send(at, pending))? > 0;
        }
        let sleeps = self.hosts[at].pending > 0 || sleeps_again && self.hosts[at].may_sleep();
        if sleeps && !moves {
            moves = self.act(Step::Sleep(at, Sleep::Poll))? == 0;
        }
        Ok(moves)
    }

    fn check(&self) -> Result<(), Failure> {
        for at in [0, 1] {
            let (host, peer) = (&self.hosts[at], &self.hosts[1 - at]);
            if host.received != peer.sent {
                let wrong = match host.is_asleep() {
                    true => Wrong::Asleep,
                    false => Wrong::Missing,
                };
                return self.found(at, Err(wrong));
            }
            if host.pending > 0 {
                return self.found(at, Err(Wrong::NoRoom));
            }
        }
        Ok(())
    }
}
