//! One run of both programs in a world, all from a seed.

use crosslane_ctl::lane::LINE_BYTES;
use crosslane_ctl::posted::RING;
use crosslane_ctl::posted::receiver::CONSUMED;
use crosslane_ring::posted::Sleep;

use super::dice::Dice;
use super::programs::{Failure, Lapse, Receiver, Sender, State, Stream};
use super::world::{Access, Fault, Habits, World};

/// Far more steps than any schedule that ends. (Some take 300,000: everybody asks all the time, and the
/// world hardly gets to deliver a word.)
const STEPS: usize = 2_000_000;

/// Safety timers that may ring one after the other without anything having come of it.
const FRUITLESS_TIMERS: usize = 4;

/// Who steps, and whom it rings.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// How a run went that ended well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Story {
    /// Sleeps from which a doorbell woke.
    pub bells: usize,
    /// Sleeps that only a safety timer ended.
    pub timers: usize,
    /// Whether the lane was frozen.
    pub frozen: bool,
}

/// Who can do something.
#[derive(Clone, Copy)]
enum Actor {
    Sender,
    Receiver,
    Bell,
    World,
}

struct Run {
    dice: Dice,
    access: Access,
    sender: Sender,
    receiver: Receiver,
    stream: Stream,
    bells: [usize; 2],
    /// How often each actor steps, beside the others.
    paces: [u8; 4],
    story: Story,
    fruitless: usize,
}

/// Run the schedule of this seed.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64, fault: Fault, lapse: Lapse) -> Result<Story, Failure> {
    let mut run = Run::new(seed, fault, lapse);
    for _ in 0..STEPS {
        if run.step()? {
            return Ok(run.story);
        }
    }
    Err(run.stuck("it does not end"))
}

impl Run {
    fn new(seed: u64, fault: Fault, lapse: Lapse) -> Self {
        let mut dice = Dice::new(seed);
        let mut often = || dice.pick(&[8, 40, 120, 200, 250]);
        let habits = Habits {
            turmoil: often().min(200),
            delivery: [often(), often()],
            coherent: often() > 100,
        };
        let paces = [often(), often(), often(), often()];
        let lines: u32 = dice.pick(&[8, 16, 32]);
        // The lap in a header wraps after 2^14 laps.
        let line = dice.pick(&[0, 3, (1 << 14) * u64::from(lines) - 5]);
        let most = dice.pick(&[60, 600, 3_000]);
        let bytes = 1 + dice.below(most);
        let forges = dice.happens(100);
        let freeze_after = match dice.happens(40) {
            true => dice.below(bytes),
            false => usize::MAX,
        };
        let room = RING + lines as usize * LINE_BYTES;
        let [here, there] = World::between(room, dice.roll(), habits, fault);
        here.preset(CONSUMED, line << 16);
        Self {
            access: here.clone(),
            sender: Sender::new(here, lines, line, bytes, forges, lapse),
            receiver: Receiver::new(there, lines, line, freeze_after, lapse),
            dice,
            stream: Stream::default(),
            bells: [0, 0],
            paces,
            story: Story::default(),
            fruitless: 0,
        }
    }

    fn stuck(&self, why: &str) -> Failure {
        let (tail, head) = (self.sender.tail(), self.receiver.head());
        let states = (self.sender.state, self.receiver.state);
        let (sent, received) = (self.stream.sent.len(), self.stream.received);
        Failure::Stuck(format!(
            "{why}: {sent} bytes sent, {received} received, tail {tail}, head {head}, {states:?}"
        ))
    }

    /// Whether the run is over.
    fn step(&mut self) -> Result<bool, Failure> {
        if self.is_over() {
            return Ok(true);
        }
        match self.choose() {
            Some(Actor::Bell) => self.deliver_bell(),
            Some(Actor::World) => drop(self.access.stir()),
            Some(Actor::Sender) => self.call(SENDER)?,
            Some(Actor::Receiver) => self.call(RECEIVER)?,
            None => self.all_asleep()?,
        }
        Ok(false)
    }

    /// Who is next, of those who can do something.
    fn choose(&mut self) -> Option<Actor> {
        let actors = [
            (Actor::Sender, self.sender.state.is_awake()),
            (Actor::Receiver, self.receiver.state.is_awake()),
            (Actor::Bell, self.bells != [0, 0]),
            (Actor::World, !self.access.is_settled()),
        ];
        let weights = actors.iter().zip(self.paces);
        let weights =
            weights.map(|((actor, can), pace)| (*actor, usize::from(pace) * usize::from(*can)));
        let total: usize = weights.clone().map(|(_, weight)| weight).sum();
        let mut chosen = if total == 0 {
            return None;
        } else {
            self.dice.below(total)
        };
        for (actor, weight) in weights {
            if chosen < weight {
                return Some(actor);
            }
            chosen -= weight;
        }
        None
    }

    fn is_over(&self) -> bool {
        self.sender.state == State::Gone
            && self.stream.received == self.stream.sent.len()
            && (self.stream.passed == self.stream.controls.len() || self.story.frozen)
    }

    fn call(&mut self, who: usize) -> Result<(), Failure> {
        let (dice, stream) = (&mut self.dice, &mut self.stream);
        let before = (stream.sent.len(), stream.received, stream.passed);
        let rings = match who {
            SENDER => self.sender.call(dice, stream)?,
            _ => self.receiver.call(dice, stream)?,
        };
        self.bells[1 - who] += usize::from(rings);
        self.story.frozen |= self.receiver.state == State::Frozen;
        if before != (stream.sent.len(), stream.received, stream.passed) {
            self.fruitless = 0;
        }
        Ok(())
    }

    fn deliver_bell(&mut self) {
        let who = match self.bells {
            [0, _] => RECEIVER,
            [_, 0] => SENDER,
            _ => self.dice.below(2),
        };
        self.bells[who] -= 1;
        self.story.bells += 1;
        match who {
            SENDER => self.sender.wake(),
            _ => self.receiver.wake(),
        }
    }

    /// Nobody runs, and nothing is under way but what stays in write buffers.
    fn all_asleep(&mut self) -> Result<(), Failure> {
        let (tail, head) = (self.sender.tail(), self.receiver.head());
        let soundly = State::Asleep(Sleep::Soundly);
        if self.receiver.state == soundly && head < tail {
            return Err(Failure::LostWakeUp(
                "the receiver sleeps with records to read",
            ));
        }
        if self.sender.state == soundly && head == tail {
            return Err(Failure::LostWakeUp(
                "the sender sleeps with all the ring free",
            ));
        }
        let mut any = false;
        for state in [&mut self.sender.state, &mut self.receiver.state] {
            if *state == State::Asleep(Sleep::Lightly) {
                *state = State::Asking;
                any = true;
            }
        }
        self.story.timers += 1;
        self.fruitless += 1;
        if !any || self.fruitless > FRUITLESS_TIMERS {
            return Err(self.stuck("nothing moves"));
        }
        Ok(())
    }
}
