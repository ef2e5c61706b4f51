//! What two monitors say to each other over TLS: frames of a length (4 bytes), a kind (2 bytes) and
//! a body, little-endian. The first frame of each is [`HostMessage::Hello`].
//!
//! The other host is a stranger with a known key: what it says is checked here for form, and in
//! [`matching`](super::matching) for sense.

mod frame;
mod kind;
mod window;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crosslane_ctl::lane::{LINE_BYTES, MAX_RING_LINES};
use crosslane_ctl::message::{Position, Remainder};
use thiserror::Error;

use self::frame::Frame;
pub use self::window::WindowOffer;

/// Version of these messages and of the window's header.
pub const RACK_VERSION: u16 = 9;

/// Most bytes of a frame behind its length.
pub const FRAME_BYTES: usize = 4096;

/// Most parts that a window may be cut into, so that a set of them fits a frame.
pub const MAX_EXTENTS: usize = 4096;

const NAME_BYTES: usize = super::config::NAME_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"XLRK");

/// A connection's two names, as the end sees them that is spoken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The end's own.
    pub local: SocketAddr,
    /// Its partner's.
    pub remote: SocketAddr,
}

impl Tuple {
    /// As the partner sees them.
    pub fn mirrored(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMessage {
    /// Who speaks, and which versions.
    Hello {
        /// [`RACK_VERSION`].
        version: u16,
        /// [`crosslane_ctl::ABI_VERSION`], as programs will share lanes.
        abi: u16,
        /// The host's name.
        name: String,
    },
    /// Nothing else was said for a while.
    Ping,
    /// Owner: this window is to be used; its header says so, too.
    WindowOffer(WindowOffer),
    /// Guest: what it thinks of that.
    WindowAnswer {
        /// The offer's.
        epoch: u64,
        /// Whether it has read the offer in the window and answered there.
        works: bool,
    },
    /// Guest: this window is not there any more.
    WindowLost {
        /// The offer's.
        epoch: u64,
    },
    /// Both: this number stands in the window's header, where the other host has to find it.
    Beat {
        /// The window's epoch.
        epoch: u64,
        /// Counts the beats of a host in this epoch, from 1.
        beat: u64,
        /// The last [`HostMessage::BeatWanted`] before which it was not written; 0 for none.
        answers: u64,
    },
    /// Both: write a beat now.
    BeatWanted {
        /// The window's epoch.
        epoch: u64,
        /// Counts these of a host in this epoch, from 1.
        number: u64,
    },
    /// Guest: an end seeks its partner.
    Offer(Offer),
    /// Guest: nothing here uses what this offer has brought; it is void.
    Withdraw {
        /// The offer's number.
        offer: u64,
    },
    /// Guest: the end of this offer does not get the lanes that were dealt to it, nor any others.
    Decline {
        /// The offer's number.
        offer: u64,
        /// See [`crosslane_ctl::message::Grant::pair`].
        pair: u64,
    },
    /// Guest: the last process of a family is gone.
    Gone {
        /// The family.
        family: u64,
    },
    /// Owner: the partner has been found.
    Deal(Deal),
    /// Owner: the partner has been found, and both stay on TCP, or for [`WindowFull`](crosslane_ctl::reason::Reason::WindowFull) until there is room.
    Refuse {
        /// The offer's number.
        offer: u64,
        /// A [`crosslane_ctl::reason::Reason`] code.
        reason: u32,
    },
    /// Owner: no more slots of this arena will be dealt out.
    Retire {
        /// The arena.
        arena: u64,
    },
    /// Owner: which parts of this window are in use on your host?
    Probe {
        /// The window's epoch.
        epoch: u64,
        /// One bit for each part that is not dealt out, lowest first: what of these is in no use is to be cleared before the
        /// answer, where the guest's memory is its own.
        parts: Vec<u8>,
        /// The owner's beat that stands behind all that its host has written into these parts.
        beat: u64,
    },
    /// Guest: these.
    InUse {
        /// The window's epoch.
        epoch: u64,
        /// The guest's beat, likewise.
        beat: u64,
        /// One bit for each part, lowest first.
        parts: Vec<u8>,
    },
    /// The window of a connection is lost, and this end has read so far.
    Position {
        /// The connection, as this end sees it.
        tuple: Tuple,
        /// Its token means nothing here.
        position: Position,
    },
    /// A piece of what the other end had not read.
    Remainder {
        /// The connection, as this end sees it, which has sent it.
        tuple: Tuple,
        /// The whole; its token means nothing here.
        remainder: Remainder,
        /// Lines before this piece.
        at: u32,
        /// The piece.
        lines: Vec<u8>,
    },
    /// This end does not use the lanes of a lost window, and has not sent anything there that is not said.
    Alone {
        /// The connection, as this end sees it.
        tuple: Tuple,
        /// See [`crosslane_ctl::message::Grant::pair`].
        pair: u64,
    },
    /// This end uses the lanes of a lost window no more: what it may have sent there, and has not said, is
    /// nowhere.
    Left {
        /// The connection, as this end sees it.
        tuple: Tuple,
        /// See [`crosslane_ctl::message::Grant::pair`].
        pair: u64,
    },
    /// A remainder is there, whole.
    Arrived {
        /// The connection, as the end sees it that has sent it.
        tuple: Tuple,
        /// See [`crosslane_ctl::message::Grant::pair`].
        pair: u64,
    },
}

/// See [`HostMessage::Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Names it in this session.
    pub offer: u64,
    /// Processes that may share an arena.
    pub family: u64,
    /// The connection, as the guest's end sees it.
    pub tuple: Tuple,
    /// Whether the guest lets the end use a window.
    pub allowed: bool,
}

/// See [`HostMessage::Deal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// The offer's number.
    pub offer: u64,
    /// The window's epoch.
    pub epoch: u64,
    /// The arena, never used twice in a session.
    pub arena: u64,
    /// Which part of the window it is.
    pub part: u32,
    /// Slot in it.
    pub slot: u32,
    /// The guest's role.
    pub role: u32,
    /// See [`crosslane_ctl::message::Grant::pair`].
    pub pair: u64,
}

/// Why a frame could not be understood. All of these are the other host's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Longer than any message.
    #[error("a frame of {bytes} bytes, {FRAME_BYTES} is the most")]
    Long {
        /// Bytes announced.
        bytes: u32,
    },
    /// Longer or shorter than its message.
    #[error("a frame of kind {kind} has the wrong length")]
    Length {
        /// Its kind.
        kind: u16,
    },
    /// No such message.
    #[error("a frame of unknown kind {kind}")]
    Kind {
        /// Its kind.
        kind: u16,
    },
    /// A field out of range.
    #[error("a frame of kind {kind} has an illegal {field}")]
    Field {
        /// Its kind.
        kind: u16,
        /// Name of the field.
        field: &'static str,
    },
}

impl Deal {
    fn encode(&self) -> Frame {
        Frame::new(kind::DEAL)
            .u64(self.offer)
            .u64(self.epoch)
            .u64(self.arena)
            .u32(self.part)
            .u32(self.slot)
            .u32(self.role)
            .u64(self.pair)
    }
}

impl HostMessage {
    /// The whole frame.
    pub fn encode(&self) -> Vec<u8> {
        let frame = match self {
            Self::Hello { version, abi, name } => Frame::new(kind::HELLO)
                .u32(MAGIC)
                .u16(*version)
                .u16(*abi)
                .text(name),
            Self::Ping => Frame::new(kind::PING),
            Self::WindowOffer(offer) => offer.encode(),
            Self::WindowAnswer { epoch, works } => Frame::new(kind::WINDOW_ANSWER)
                .u64(*epoch)
                .u16((*works).into()),
            Self::WindowLost { epoch } => Frame::new(kind::WINDOW_LOST).u64(*epoch),
            Self::Beat {
                epoch,
                beat,
                answers,
            } => Frame::new(kind::BEAT).u64(*epoch).u64(*beat).u64(*answers),
            Self::BeatWanted { epoch, number } => {
                Frame::new(kind::BEAT_WANTED).u64(*epoch).u64(*number)
            }
            Self::Offer(offer) => Frame::new(kind::OFFER)
                .u64(offer.offer)
                .u64(offer.family)
                .tuple(offer.tuple)
                .u16(offer.allowed.into()),
            Self::Withdraw { offer } => Frame::new(kind::WITHDRAW).u64(*offer),
            Self::Decline { offer, pair } => Frame::new(kind::DECLINE).u64(*offer).u64(*pair),
            Self::Gone { family } => Frame::new(kind::GONE).u64(*family),
            Self::Deal(deal) => deal.encode(),
            Self::Refuse { offer, reason } => Frame::new(kind::REFUSE).u64(*offer).u32(*reason),
            Self::Retire { arena } => Frame::new(kind::RETIRE).u64(*arena),
            Self::Probe { epoch, beat, parts } => {
                Frame::new(kind::PROBE).u64(*epoch).u64(*beat).rest(parts)
            }
            Self::InUse { epoch, beat, parts } => {
                Frame::new(kind::IN_USE).u64(*epoch).u64(*beat).rest(parts)
            }
            Self::Position { tuple, position } => Frame::new(kind::POSITION)
                .tuple(*tuple)
                .u64(position.pair)
                .u32(position.flags)
                .u64(position.consumed)
                .u64(position.tcp_taken),
            Self::Remainder {
                tuple,
                remainder,
                at,
                lines,
            } => Frame::new(kind::REMAINDER)
                .tuple(*tuple)
                .u64(remainder.pair)
                .u64(remainder.first)
                .u64(remainder.end)
                .u32(remainder.replay_seq)
                .u64(remainder.replay_at)
                .u64(remainder.replay_end)
                .u32(*at)
                .rest(lines),
            Self::Alone { tuple, pair } => Frame::new(kind::ALONE).tuple(*tuple).u64(*pair),
            Self::Left { tuple, pair } => Frame::new(kind::LEFT).tuple(*tuple).u64(*pair),
            Self::Arrived { tuple, pair } => Frame::new(kind::ARRIVED).tuple(*tuple).u64(*pair),
        };
        frame.finish()
    }

    /// Take the first frame out of what has been received; `None` while it is not all there.
    ///
    /// # Errors
    /// See [`FrameError`]; nothing more can be understood then.
    pub fn take(received: &mut Vec<u8>) -> Result<Option<Self>, FrameError> {
        let Some((length, rest)) = received.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let bytes = u32::from_le_bytes(*length);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if length > FRAME_BYTES {
            return Err(FrameError::Long { bytes });
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let message = Self::decode(frame)?;
        received.drain(..4 + length);
        Ok(Some(message))
    }

    fn decode(frame: &[u8]) -> Result<Self, FrameError> {
        let (kind, body) = frame
            .split_first_chunk::<2>()
            .ok_or(FrameError::Length { kind: 0 })?;
        let kind = u16::from_le_bytes(*kind);
        let mut body = Body { kind, rest: body };
        let message = body.message()?;
        match body.rest.is_empty() {
            true => Ok(message),
            false => Err(FrameError::Length { kind }),
        }
    }
}

/// A frame's body that is being read.
struct Body<'a> {
    kind: u16,
    rest: &'a [u8],
}

impl Body<'_> {
    fn message(&mut self) -> Result<HostMessage, FrameError> {
        Ok(match self.kind {
            kind::HELLO => self.hello()?,
            kind::PING => HostMessage::Ping,
            kind::WINDOW_OFFER => HostMessage::WindowOffer(WindowOffer::decode(self)?),
            kind::WINDOW_ANSWER => HostMessage::WindowAnswer {
                epoch: self.u64()?,
                works: self.flag()?,
            },
            kind::WINDOW_LOST => HostMessage::WindowLost { epoch: self.u64()? },
            kind::BEAT => HostMessage::Beat {
                epoch: self.u64()?,
                beat: self.u64()?,
                answers: self.u64()?,
            },
            kind::BEAT_WANTED => HostMessage::BeatWanted {
                epoch: self.u64()?,
                number: self.u64()?,
            },
            kind::OFFER => HostMessage::Offer(Offer {
                offer: self.u64()?,
                family: self.u64()?,
                tuple: self.tuple()?,
                allowed: self.flag()?,
            }),
            kind::WITHDRAW => HostMessage::Withdraw { offer: self.u64()? },
            kind::DECLINE => HostMessage::Decline {
                offer: self.u64()?,
                pair: self.u64()?,
            },
            kind::GONE => HostMessage::Gone {
                family: self.u64()?,
            },
            kind::DEAL => HostMessage::Deal(Deal {
                offer: self.u64()?,
                epoch: self.u64()?,
                arena: self.u64()?,
                part: self.u32()?,
                slot: self.u32()?,
                role: self.u32()?,
                pair: self.u64()?,
            }),
            kind::REFUSE => HostMessage::Refuse {
                offer: self.u64()?,
                reason: self.u32()?,
            },
            kind::RETIRE => HostMessage::Retire { arena: self.u64()? },
            kind::PROBE => HostMessage::Probe {
                epoch: self.u64()?,
                beat: self.u64()?,
                parts: self.parts()?,
            },
            kind::IN_USE => HostMessage::InUse {
                epoch: self.u64()?,
                beat: self.u64()?,
                parts: self.parts()?,
            },
            _ => self.message_of_losses()?,
        })
    }

    fn message_of_losses(&mut self) -> Result<HostMessage, FrameError> {
        Ok(match self.kind {
            kind::POSITION => HostMessage::Position {
                tuple: self.tuple()?,
                position: Position {
                    token: 0,
                    pair: self.u64()?,
                    flags: self.u32()?,
                    consumed: self.u64()?,
                    tcp_taken: self.u64()?,
                },
            },
            kind::REMAINDER => self.remainder()?,
            kind @ (kind::ALONE | kind::LEFT | kind::ARRIVED) => {
                let (tuple, pair) = (self.tuple()?, self.u64()?);
                match kind {
                    kind::ALONE => HostMessage::Alone { tuple, pair },
                    kind::LEFT => HostMessage::Left { tuple, pair },
                    _ => HostMessage::Arrived { tuple, pair },
                }
            }
            kind => return Err(FrameError::Kind { kind }),
        })
    }

    fn remainder(&mut self) -> Result<HostMessage, FrameError> {
        let tuple = self.tuple()?;
        let remainder = Remainder {
            token: 0,
            pair: self.u64()?,
            first: self.u64()?,
            end: self.u64()?,
            replay_seq: self.u32()?,
            replay_at: self.u64()?,
            replay_end: self.u64()?,
        };
        let at = self.u32()?;
        let lines = std::mem::take(&mut self.rest).to_vec();
        let count = remainder.end.checked_sub(remainder.first);
        let fits = count.is_some_and(|count| count <= u64::from(MAX_RING_LINES));
        if !fits || !lines.len().is_multiple_of(LINE_BYTES) {
            return Err(self.illegal("number of lines"));
        }
        Ok(HostMessage::Remainder {
            tuple,
            remainder,
            at,
            lines,
        })
    }

    fn tuple(&mut self) -> Result<Tuple, FrameError> {
        Ok(Tuple {
            local: self.address()?,
            remote: self.address()?,
        })
    }

    fn hello(&mut self) -> Result<HostMessage, FrameError> {
        if self.u32()? != MAGIC {
            return Err(self.illegal("magic number"));
        }
        Ok(HostMessage::Hello {
            version: self.u16()?,
            abi: self.u16()?,
            name: self.name()?,
        })
    }

    fn illegal(&self, field: &'static str) -> FrameError {
        FrameError::Field {
            kind: self.kind,
            field,
        }
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let kind = self.kind;
        let (chunk, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(FrameError::Length { kind })?;
        self.rest = rest;
        Ok(*chunk)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, FrameError> {
        match self.u16()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.illegal("flag")),
        }
    }

    fn address(&mut self) -> Result<SocketAddr, FrameError> {
        let ip = Ipv6Addr::from(self.chunk::<16>()?);
        Ok(SocketAddr::new(IpAddr::V6(ip).to_canonical(), self.u16()?))
    }

    /// What is left, as a name.
    fn name(&mut self) -> Result<String, FrameError> {
        let bytes = std::mem::take(&mut self.rest);
        let is_plain = |byte: &u8| byte.is_ascii_graphic();
        match (1..=NAME_BYTES).contains(&bytes.len()) && bytes.iter().all(is_plain) {
            true => Ok(String::from_utf8_lossy(bytes).into_owned()),
            false => Err(self.illegal("name")),
        }
    }

    fn parts(&mut self) -> Result<Vec<u8>, FrameError> {
        let bytes = std::mem::take(&mut self.rest);
        match bytes.len() <= MAX_EXTENTS / 8 {
            true => Ok(bytes.to_vec()),
            false => Err(self.illegal("set of parts")),
        }
    }
}

#[cfg(test)]
mod tests;
