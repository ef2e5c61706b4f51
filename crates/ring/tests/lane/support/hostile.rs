//! A peer that writes garbage and clever lies over everything, all the time, from another thread.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use crosslane_ctl::lane::{LANE_CONTROL_BYTES, LINE_BYTES};
use crosslane_ring::receive::Next;
use crosslane_ring::{MAX_RECORD_BYTES, PeerLied, WindowLane};

use super::memory::{Edge, Memory};
use super::op::{Decoder, Op};
use super::pair::forged_header;
use super::sides::{ReceiveSide, SendSide};

/// Where in a lane, in words, the receiver says what it has consumed.
const CONSUMED_WORD: usize = 2 * LINE_BYTES / 8;

/// A lane under attack.
pub struct Target {
    memory: Memory,
    lines: u32,
    /// The line at which the victim stands, so that lies can be fitting ones.
    line: AtomicU64,
    stop: AtomicBool,
}

impl Target {
    /// A lane that nobody attacks yet.
    pub fn new(lines: u32, edge: Edge) -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(lines, edge),
            lines,
            line: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    /// Let a thread scribble over the lane until the returned guard is dropped.
    pub fn attack(self: &Arc<Self>, seed: u64) -> Attack {
        let target = Arc::clone(self);
        let scribbler = std::thread::spawn(move || target.scribble(seed));
        Attack {
            target: Arc::clone(self),
            scribbler: Some(scribbler),
        }
    }

    fn scribble(&self, seed: u64) {
        let mut dice = Dice(seed | 1);
        while !self.stop.load(Ordering::Relaxed) {
            let index = usize::try_from(dice.below(self.memory.lane_words() as u64));
            let anywhere = self.memory.lane_word(index.expect("a small index"));
            anywhere.store(dice.roll(), Ordering::Relaxed);
            let line = self.line.load(Ordering::Relaxed);
            match dice.below(4) {
                0 => self.lie_about_credit(line, &mut dice),
                // A true record now and then, or the victim would never get anywhere.
                1 => self.put_header(line, forged_header(1, dice.size(), line, self.lines)),
                2 => self.put_header(line, dice.header(line, self.lines)),
                _ => (line..line + dice.below(160))
                    .for_each(|line| self.put_header(line, dice.header(line, self.lines))),
            }
        }
    }

    fn lie_about_credit(&self, tail: u64, dice: &mut Dice) {
        let line = match dice.below(4) {
            0 => dice.roll() >> 16,
            1 => tail.wrapping_add(dice.below(8)).wrapping_sub(4),
            2 => tail.saturating_sub(dice.below(2 * u64::from(self.lines))),
            _ => tail,
        };
        let word = self.memory.lane_word(CONSUMED_WORD);
        word.store(line << 16 | dice.below(1 << 16), Ordering::Relaxed);
    }

    /// Write a header where a line has it.
    fn put_header(&self, line: u64, header: u64) {
        let line = usize::try_from(line % u64::from(self.lines)).expect("a line of the ring");
        let index = (LANE_CONTROL_BYTES + line * LINE_BYTES) / 8;
        self.memory
            .lane_word(index)
            .store(header, Ordering::Relaxed);
    }

    /// That nothing beside the lane was written to.
    pub fn check_canaries(&self) {
        self.memory.check_canaries();
    }

    fn lane(&self) -> WindowLane {
        self.memory.lane()
    }
}

/// Ends the scribbling when dropped.
pub struct Attack {
    target: Arc<Target>,
    scribbler: Option<JoinHandle<()>>,
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.target.stop.store(true, Ordering::Relaxed);
        let ended = self.scribbler.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))), "the scribbler has failed");
        self.target.check_canaries();
    }
}

/// What a victim has gone through.
#[derive(Debug, Default)]
pub struct Suffered {
    /// Calls that found the peer out.
    pub lies: usize,
    /// Bytes that were written or read.
    pub bytes: usize,
    /// Control records that were written or read.
    pub controls: usize,
}

impl Suffered {
    /// Whether the victim has met lies, and has got something done nevertheless.
    pub fn is_everything(&self) -> bool {
        self.lies > 0 && self.bytes > 0 && self.controls > 0
    }
}

/// The victim: a side of the lane whose peer scribbles.
pub enum Victim {
    /// The sender, which reads the receiver's line only.
    Sender(SendSide<WindowLane>),
    /// The receiver, which reads the ring.
    Receiver(ReceiveSide<WindowLane>),
}

impl Victim {
    /// A sender or receiver in the lane, at `line`.
    pub fn new(target: &Target, is_sender: bool, line: u64) -> Self {
        target.line.store(line, Ordering::Relaxed);
        if is_sender {
            Self::Sender(SendSide::new(target.lane(), line))
        } else {
            Self::Receiver(ReceiveSide::new(target.lane(), line))
        }
    }

    /// Do `op`, if it is this side's. The sides check what must hold whatever the peer does.
    pub fn apply(&mut self, target: &Target, op: &Op, suffered: &mut Suffered) {
        let outcome = match self {
            Self::Sender(side) => send(side, op, suffered),
            Self::Receiver(side) => receive(side, op, suffered),
        };
        suffered.lies += usize::from(outcome.is_err());
        let line = match self {
            Self::Sender(side) => side.cursor.tail,
            Self::Receiver(side) => side.cursor.head,
        };
        target.line.store(line, Ordering::Relaxed);
    }
}

fn send(side: &mut SendSide<WindowLane>, op: &Op, suffered: &mut Suffered) -> Result<(), PeerLied> {
    match op {
        Op::Write(sizes) => {
            let payload = vec![0x77; sizes.iter().sum()];
            suffered.bytes += side.write(sizes, &payload)?.iter().sum::<usize>();
        }
        Op::Build(wanted, filled) => {
            let payload = vec![0x78; *filled];
            suffered.bytes += side.build(*wanted, &payload)?.min(*filled);
        }
        Op::WriteControl(kind, value) => {
            suffered.controls += usize::from(side.control(*kind, *value)?);
        }
        _ => drop(side.writable()?),
    }
    Ok(())
}

fn receive(
    side: &mut ReceiveSide<WindowLane>,
    op: &Op,
    suffered: &mut Suffered,
) -> Result<(), PeerLied> {
    match op {
        Op::CopyOnly(sizes) => drop(side.copy_only(sizes)?),
        Op::Readable(most) => assert!(side.cursor.readable(&side.lane, *most)? <= *most),
        Op::PassControl => {
            if let Next::Control(..) = side.cursor.peek(&side.lane)? {
                side.cursor.pass_control(&side.lane);
                suffered.controls += 1;
            }
        }
        Op::Consume(places, most) => {
            let (found, taken) = side.consume(*places, *most)?;
            assert_eq!(taken.bytes, found.len().min(*most));
            suffered.bytes += taken.bytes;
        }
        Op::Read(sizes) | Op::Write(sizes) => suffered.bytes += side.read(sizes)?.0.len(),
        _ => drop(side.cursor.has_record(&side.lane)),
    }
    Ok(())
}

/// Run a fuzzer's bytes against a lane under attack: a side, a line to start at, and then
/// operations and, for `kind` bytes from 128 on, headers that are put before the victim.
pub fn replay(target: &Target, bytes: &[u8]) -> Suffered {
    let (mut input, mut suffered) = (Decoder::new(bytes), Suffered::default());
    let (Some(side), Some(line)) = (input.byte(), input.word()) else {
        return suffered;
    };
    let mut victim = Victim::new(target, side % 2 == 0, line >> 24);
    while let Some(kind) = input.byte() {
        if kind < 128 {
            let Some(op) = input.op(kind) else { break };
            victim.apply(target, &op, &mut suffered);
        } else {
            let Some(header) = input.word() else { break };
            let line = target.line.load(Ordering::Relaxed) + u64::from(kind & 127);
            let lap = (line / u64::from(target.lines) % (1 << 14)) << 18;
            target.put_header(line, header ^ lap);
        }
    }
    suffered
}

/// A small generator of numbers (xorshift).
pub struct Dice(pub u64);

impl Dice {
    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.roll() >> 20) % end
    }

    /// A length that a record may have.
    fn size(&mut self) -> usize {
        1 + usize::try_from(self.below(MAX_RECORD_BYTES as u64)).expect("a small number")
    }

    /// A header that is nearly right.
    fn header(&mut self, line: u64, ring_lines: u32) -> u64 {
        let kind = 1 + self.below(5);
        let bytes = match self.below(8) {
            0 => 0,
            1 => MAX_RECORD_BYTES,
            2 => MAX_RECORD_BYTES + 1,
            3 => 0x1fff,
            4 | 5 => 8,
            _ => self.size(),
        };
        let laps_off = if self.below(8) == 0 { ring_lines } else { 0 };
        match self.below(4) {
            0 => 0,
            _ => forged_header(kind, bytes, line + u64::from(laps_off), ring_lines),
        }
    }
}
