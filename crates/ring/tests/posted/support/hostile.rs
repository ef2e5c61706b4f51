//! A peer that writes over everything a peer may write: the whole of our slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crosslane_ring::posted::freeze::Unread;
use crosslane_ring::posted::{PostedRx, PostedTx, Slot};
use crosslane_ring::{Control, Part, Parts, PeerLied};
use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;
use crosslane_window::policy::Traits;

use super::dice::Dice;
use crate::lane_memory::{Edge, Memory};

/// Our slot, the peer's, and the copy of what we have sent, each between pages that nobody may touch.
pub struct Target {
    ours: Memory,
    peers: Memory,
    copy: Memory,
    lines: u32,
}

/// What has befallen the victim so far.
#[derive(Debug, Default)]
pub struct Suffered {
    /// Lies that were found.
    pub lies: usize,
    /// Operations that found none.
    pub fine: usize,
}

/// One end of a connection whose peer lies.
pub struct Victim {
    slot: Slot<Inbound, Outbound>,
    copy: Inbound,
    tx: PostedTx,
    rx: PostedRx,
    answered: u64,
}

impl Target {
    /// Memory with rings of so many lines.
    pub fn new(lines: u32, edge: Edge) -> Arc<Self> {
        let memory = || Memory::new(lines, edge);
        Arc::new(Self {
            ours: memory(),
            peers: memory(),
            copy: memory(),
            lines,
        })
    }

    /// Write a word over ours: any, or one that is nearly right for a victim that stands at `line`.
    pub fn scribble(&self, dice: &mut Dice, line: u64) {
        let near = (line + dice.below(2 * self.lines as usize) as u64).saturating_sub(8);
        let lap = near / u64::from(self.lines) % (1 << 14);
        let word = match dice.below(5) {
            0 => dice.roll(),
            1 => (near << 16) | (dice.roll() % 3),
            2 => (near << 16) | (dice.roll() % 9_000),
            3 => (dice.roll() % 8_192) | ((dice.roll() % 6) << 13) | (lap << 18),
            _ => 0,
        };
        // Control lines, headers, and the rest.
        let index = match dice.below(3) {
            0 => dice.below(16),
            1 => 32 + 8 * dice.below(self.lines as usize),
            _ => dice.below(self.ours.lane_words()),
        };
        self.ours.lane_word(index).store(word, Ordering::Relaxed);
    }

    /// That nothing beside the slots was written to.
    pub fn check_canaries(&self) {
        [&self.ours, &self.peers, &self.copy]
            .into_iter()
            .for_each(Memory::check_canaries);
    }
}

/// A thread that scribbles until this is dropped.
pub struct Attack {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    /// Begin.
    pub fn on(target: &Arc<Target>, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (target, seen) = (Arc::clone(target), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut dice = Dice::new(seed);
            while !seen.load(Ordering::Relaxed) {
                let line = dice.below(4096) as u64;
                target.scribble(&mut dice, line);
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a scribbler does not fail");
        }
    }
}

impl Victim {
    /// An end that stands at `line` in both directions.
    pub fn new(target: &Target, line: u64) -> Self {
        let inbound =
            |memory: &Memory| Inbound::new(memory.view(), Traits::MEMORY).expect("whole words");
        let remote = Outbound::new(target.peers.view(), Traits::COMBINED_BAR).expect("whole words");
        Self {
            slot: Slot::new(inbound(&target.ours), remote, target.lines),
            copy: inbound(&target.copy),
            tx: PostedTx::at(line),
            rx: PostedRx::at(line),
            answered: 0,
        }
    }

    /// Where its sender stands.
    pub fn line(&self) -> u64 {
        self.tx.tail
    }

    /// Do something. A liar's connection is over.
    pub fn act(&mut self, dice: &mut Dice) -> Result<(), PeerLied> {
        let slot = &self.slot;
        match dice.below(12) {
            0..3 => self.write(1 + dice.below(20_000))?,
            3 => drop(self.tx.write_control(slot, Control::Start, dice.roll())?),
            4 => drop(self.tx.answer(slot)?),
            5 => {
                self.tx.want_space(slot);
                self.tx.may_sleep(slot)?;
            }
            6 => self.thaw()?,
            7..9 => self.read(1 + dice.below(20_000))?,
            9 => {
                self.rx.peek(slot)?;
                self.rx.pass_control(slot)?;
            }
            10 => drop(self.rx.answer(slot)?),
            _ => {
                self.rx.arm(slot);
                self.rx.may_sleep(slot)?;
                self.rx.replay(slot)?;
            }
        }
        self.check();
        Ok(())
    }

    fn write(&mut self, bytes: usize) -> Result<(), PeerLied> {
        let buffer = vec![7; bytes];
        let part = [Part::of(&buffer)];
        // SAFETY: the buffer outlives the cursor.
        let mut parts = unsafe { Parts::new(&part) }.expect("a small buffer");
        self.tx.write_record(&self.slot, &mut parts).map(drop)
    }

    fn read(&mut self, bytes: usize) -> Result<(), PeerLied> {
        let mut buffer = vec![0; bytes];
        let part = [Part::of_mut(&mut buffer)];
        // SAFETY: the buffer outlives the cursor.
        let mut parts = unsafe { Parts::new(&part) }.expect("a small buffer");
        self.rx.read(&self.slot, &mut parts).map(drop)
    }

    fn thaw(&mut self) -> Result<(), PeerLied> {
        let Some(freeze) = self.tx.frozen(&self.slot, self.answered)? else {
            return Ok(());
        };
        self.answered = freeze.number;
        let mut buffer = [0; 1000];
        let part = [Part::of_mut(&mut buffer)];
        // SAFETY: the buffer outlives the cursor.
        let mut parts = unsafe { Parts::new(&part) }.expect("a small buffer");
        let mut unread = Unread::of(&freeze, &self.tx);
        unread.copy(self.copy, self.slot.lines(), &mut parts)?;
        self.tx.answer_freeze(&self.slot, &freeze, 0);
        Ok(())
    }

    /// Whatever the peer says, we never write over what it has not read, nor read beyond a lap.
    fn check(&self) {
        let lines = u64::from(self.slot.lines());
        assert!(self.tx.credit <= self.tx.tail && self.tx.tail - self.tx.credit < lines);
        assert!(self.rx.credited <= self.rx.head && self.rx.head - self.rx.credited < lines);
    }
}

/// Act and be scribbled upon, so many times each.
pub fn suffer(target: &Target, dice: &mut Dice, times: usize, suffered: &mut Suffered) {
    let mut victim = Victim::new(target, dice.below(4096) as u64);
    for _ in 0..times {
        (0..dice.below(4)).for_each(|_| target.scribble(dice, victim.line()));
        match victim.act(dice) {
            Ok(()) => suffered.fine += 1,
            Err(_) => {
                suffered.lies += 1;
                victim = Victim::new(target, dice.below(4096) as u64);
            }
        }
    }
    target.check_canaries();
}

/// A fuzzer's bytes decide on the peer's scribbling and on the victim's calls.
pub fn replay(target: &Target, bytes: &[u8]) {
    let mut dice = Dice::fed(bytes);
    suffer(
        target,
        &mut dice,
        bytes.len() / 16,
        &mut Suffered::default(),
    );
}
