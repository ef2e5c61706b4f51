//! A sender and a receiver, a call at a time.

use crosslane_ring::posted::freeze::{Mirrored, Unread};
use crosslane_ring::posted::{PostedRx, PostedTx, Sleep, Slot};
use crosslane_ring::receive::Next;
use crosslane_ring::{Control, Part, Parts, PeerLied};

use super::dice::Dice;
use super::direct::Plain;
use super::world::Access;

/// What a program does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    /// Nothing.
    Nothing,
    /// It sleeps until the doorbell though its request is not acknowledged: arm, look, sleep.
    SleepsUnacknowledged,
    /// It takes an early doorbell for an error, and sleeps again on the request that it has used up.
    BellKeepsRequest,
    /// It acknowledges, and does not ring later.
    ForgetsBell,
}

/// What a program is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its next call is to send or receive.
    Running,
    /// It has asked, and looks whether it may sleep.
    Asking,
    /// Asleep until the doorbell, or a timer, too.
    Asleep(Sleep),
    /// Frozen, waits for the answer.
    Frozen,
    /// It goes on by TCP.
    OnTcp,
    /// It makes no calls any more.
    Gone,
}

impl State {
    /// Whether it makes calls.
    pub fn is_awake(self) -> bool {
        !matches!(self, Self::Asleep(_) | Self::Gone)
    }
}

/// What both programs know of the stream, to compare it: data, and where control records stand.
#[derive(Default)]
pub struct Stream {
    /// All bytes sent in the lane, or yet to be sent by TCP.
    pub sent: Vec<u8>,
    /// Control records and the bytes before them.
    pub controls: Vec<(usize, u64)>,
    /// Bytes received, all of them the right ones.
    pub received: usize,
    /// Control records received.
    pub passed: usize,
    /// Bytes on TCP.
    pub tcp: std::collections::VecDeque<u8>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A byte, or a control record, is not what was sent.
    Content(String),
    /// An honest peer was taken for a liar.
    Lie(PeerLied),
    /// Somebody sleeps who has something to do, and nobody will wake them.
    LostWakeUp(&'static str),
    /// Nothing moves, or it never ends.
    Stuck(String),
}

impl From<PeerLied> for Failure {
    fn from(lie: PeerLied) -> Self {
        Self::Lie(lie)
    }
}

type Lane = Slot<Access, Mirrored<Access, Plain>>;

/// The sending program.
pub struct Sender {
    lane: Lane,
    tx: PostedTx,
    copy: Plain,
    left: usize,
    answered_freeze: u64,
    forges: bool,
    lapse: Lapse,
    /// What it does now.
    pub state: State,
}

impl Sender {
    /// A sender of so many bytes, perhaps of nothing but forged headers.
    pub fn new(
        access: Access,
        lines: u32,
        line: u64,
        bytes: usize,
        forges: bool,
        lapse: Lapse,
    ) -> Self {
        let copy = Plain::new(lines);
        let remote = Mirrored {
            remote: access.clone(),
            copy: copy.clone(),
        };
        Self {
            lane: Slot::new(access, remote, lines),
            tx: PostedTx::at(line),
            copy,
            left: bytes,
            answered_freeze: 0,
            forges,
            lapse,
            state: State::Running,
        }
    }

    /// Where it stands.
    pub fn tail(&self) -> u64 {
        self.tx.tail
    }

    /// One call. Whether it rings the receiver.
    pub fn call(&mut self, dice: &mut Dice, stream: &mut Stream) -> Result<bool, Failure> {
        if let Some(freeze) = self.tx.frozen(&self.lane, self.answered_freeze)? {
            self.answered_freeze = freeze.number;
            self.replay(Unread::of(&freeze, &self.tx), stream)?;
            self.tx.answer_freeze(&self.lane, &freeze, 0);
            self.state = State::OnTcp;
        }
        match self.state {
            State::OnTcp => self.send_by_tcp(stream),
            State::Asking => self.look(),
            _ => self.send(dice, stream),
        }
    }

    fn replay(&self, mut unread: Unread, stream: &mut Stream) -> Result<(), Failure> {
        loop {
            let mut buffer = [0; 100];
            let part = [Part::of_mut(&mut buffer)];
            // SAFETY: the buffer outlives the cursor.
            let mut parts = unsafe { Parts::new(&part) }.expect("a small buffer");
            match unread.copy(self.copy.clone(), self.lane.lines(), &mut parts)? {
                0 => return Ok(()),
                bytes => stream.tcp.extend(&buffer[..bytes]),
            }
        }
    }

    fn send_by_tcp(&mut self, stream: &mut Stream) -> Result<bool, Failure> {
        let bytes = payload(stream.sent.len(), self.left);
        stream.sent.extend(&bytes);
        stream.tcp.extend(&bytes);
        self.left = 0;
        self.state = State::Gone;
        Ok(true)
    }

    fn send(&mut self, dice: &mut Dice, stream: &mut Stream) -> Result<bool, Failure> {
        if self.left == 0 {
            self.state = State::Gone;
            return Ok(false);
        }
        if dice.happens(16) {
            let value = dice.roll();
            if self.tx.write_control(&self.lane, Control::Start, value)? {
                stream.controls.push((stream.sent.len(), value));
            }
            return self.answer();
        }
        let bytes = dice.size(9).min(self.left);
        let payload = match self.forges {
            true => forged(self.tx.tail, self.lane.lines(), bytes),
            false => payload(stream.sent.len(), bytes),
        };
        let cut = dice.below(bytes + 1);
        let parts = [Part::of(&payload[..cut]), Part::of(&payload[cut..])];
        // SAFETY: the payload outlives the cursor.
        let mut parts = unsafe { Parts::new(&parts) }.expect("a small payload");
        let written = self.tx.write_record(&self.lane, &mut parts)?;
        stream.sent.extend(&payload[..written]);
        self.left -= written;
        if written == 0 {
            self.tx.want_space(&self.lane);
            self.state = State::Asking;
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<bool, Failure> {
        let rings = self.tx.answer(&self.lane)?;
        Ok(rings && self.lapse != Lapse::ForgetsBell)
    }

    fn look(&mut self) -> Result<bool, Failure> {
        let rings = self.answer()?;
        self.state = match self.tx.may_sleep(&self.lane)? {
            Sleep::No => State::Running,
            Sleep::Lightly if self.lapse == Lapse::SleepsUnacknowledged => {
                State::Asleep(Sleep::Soundly)
            }
            sleep => State::Asleep(sleep),
        };
        Ok(rings)
    }

    /// It takes a doorbell, asleep or not, and asks anew.
    pub fn wake(&mut self) {
        let keeps = self.lapse == Lapse::BellKeepsRequest && matches!(self.state, State::Asleep(_));
        self.state = match self.state {
            State::OnTcp => State::OnTcp,
            _ if keeps => State::Asking,
            _ => State::Running,
        };
    }
}

/// The receiving program.
pub struct Receiver {
    lane: Slot<Access, Access>,
    rx: PostedRx,
    lapse: Lapse,
    /// After how many bytes it wants TCP.
    freeze_after: usize,
    /// What it does now.
    pub state: State,
}

impl Receiver {
    /// A receiver that freezes the lane after so many bytes.
    pub fn new(access: Access, lines: u32, line: u64, freeze_after: usize, lapse: Lapse) -> Self {
        Self {
            lane: Slot::new(access.clone(), access, lines),
            rx: PostedRx::at(line),
            lapse,
            freeze_after,
            state: State::Running,
        }
    }

    /// Where it stands.
    pub fn head(&self) -> u64 {
        self.rx.head
    }

    /// One call. Whether it rings the sender.
    pub fn call(&mut self, dice: &mut Dice, stream: &mut Stream) -> Result<bool, Failure> {
        match self.state {
            State::Asking => self.look(dice),
            State::Frozen => self.wait_for_replay(dice),
            State::OnTcp => receive_by_tcp(stream),
            _ if stream.received >= self.freeze_after => {
                self.rx.freeze(&self.lane);
                self.state = State::Frozen;
                Ok(true)
            }
            _ => self.receive(dice, stream),
        }
    }

    /// A doorbell may overtake the freeze, so one is not enough.
    fn wait_for_replay(&mut self, dice: &mut Dice) -> Result<bool, Failure> {
        self.state = match self.rx.replay(&self.lane)? {
            Some(_) => State::OnTcp,
            None => State::Frozen,
        };
        Ok(self.state == State::Frozen && dice.happens(16))
    }

    fn receive(&mut self, dice: &mut Dice, stream: &mut Stream) -> Result<bool, Failure> {
        let mut buffer = vec![0; dice.size(9)];
        let part = [Part::of_mut(&mut buffer)];
        // SAFETY: the buffer outlives the cursor.
        let mut parts = unsafe { Parts::new(&part) }.expect("a small buffer");
        let bytes = self.rx.read(&self.lane, &mut parts)?;
        stream.take(&buffer[..bytes])?;
        if bytes == 0 {
            match self.rx.peek(&self.lane)? {
                Next::Control(_, value) => {
                    stream.pass(value)?;
                    self.rx.pass_control(&self.lane)?;
                }
                Next::Data(_) => {}
                Next::Empty => {
                    self.rx.arm(&self.lane);
                    self.state = State::Asking;
                }
            }
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<bool, Failure> {
        let rings = self.rx.answer(&self.lane)?;
        Ok(rings && self.lapse != Lapse::ForgetsBell)
    }

    fn look(&mut self, dice: &mut Dice) -> Result<bool, Failure> {
        let rings = self.answer()?;
        self.state = match self.rx.may_sleep(&self.lane)? {
            Sleep::No => {
                if dice.happens(64) {
                    self.rx.disarm(&self.lane);
                }
                State::Running
            }
            Sleep::Lightly if self.lapse == Lapse::SleepsUnacknowledged => {
                State::Asleep(Sleep::Soundly)
            }
            sleep => State::Asleep(sleep),
        };
        Ok(rings)
    }

    /// It takes a doorbell, asleep or not, and asks anew.
    pub fn wake(&mut self) {
        if matches!(self.state, State::Asleep(_) | State::Asking) {
            self.state = match self.lapse {
                Lapse::BellKeepsRequest => State::Asking,
                _ => State::Running,
            };
        }
    }
}

fn receive_by_tcp(stream: &mut Stream) -> Result<bool, Failure> {
    let bytes: Vec<u8> = stream.tcp.drain(..).collect();
    stream.take(&bytes)?;
    Ok(false)
}

impl Stream {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let end = self.received + bytes.len();
        let expected = self.sent.get(self.received..end);
        if expected != Some(bytes) {
            let from = self.received;
            return Err(Failure::Content(format!(
                "bytes {from} to {end} are not those sent"
            )));
        }
        self.received = end;
        Ok(())
    }

    fn pass(&mut self, value: u64) -> Result<(), Failure> {
        if self.controls.get(self.passed) != Some(&(self.received, value)) {
            let (received, passed) = (self.received, self.passed);
            let what = format!("control record {passed} after {received} bytes was not sent there");
            return Err(Failure::Content(what));
        }
        self.passed += 1;
        Ok(())
    }
}

/// Bytes that differ from their neighbours.
fn payload(from: usize, bytes: usize) -> Vec<u8> {
    let byte = |position: usize| (position as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (from..from + bytes)
        .map(|position| u8::try_from(byte(position)).expect("eight bits"))
        .collect()
}

/// Headers that would be valid where they lie, one lap later.
fn forged(line: u64, lines: u32, bytes: usize) -> Vec<u8> {
    let words = (0..bytes as u64 / 8 + 1).flat_map(|word| {
        let lies_at = line + (1 + word) / 8;
        let lap = (lies_at / u64::from(lines) + 1) % (1 << 14);
        (16 | 1 << 13 | lap << 18).to_le_bytes()
    });
    words.take(bytes).collect()
}
