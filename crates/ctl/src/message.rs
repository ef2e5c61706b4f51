//! Control messages between programs and the monitor, one per SOCK_SEQPACKET datagram on an
//! AF_UNIX socket: a header of 16 bytes and a body of fixed size, little-endian.
//!
//! A program says [`ClientMessage::Hello`] once and registers ends; the monitor answers with
//! rings when it has found the other end. Descriptors travel beside the message by SCM_RIGHTS:
//!
//! | message | descriptor |
//! |---|---|
//! | Hello | the process's slab |
//! | Register | the TCP socket, which the monitor reads and closes at once |
//! | Lease | one end of a socket pair that forked children hold |
//! | Lend | the slab in which the end's cursors are |
//! | Adopt | the TCP socket, as for Register |
//! | Lent | the slab of the process that lends, when this process has not been sent it before |
//! | Grant | the arena, when this process has not been sent it before |
//! | Beyond | the other host's memory of that arena, where each has its own |
//! | Position, from a program | the TCP socket, as for Register |
//! | Remainder | a memory object with the lines |

mod grant;
mod kind;
mod lost;

use thiserror::Error;

pub use grant::Grant;
pub use lost::{ANY_LANES, Position, Remainder, position_flags};

use crate::ABI_VERSION;

/// First four bytes of every message.
pub const MESSAGE_MAGIC: u32 = u32::from_le_bytes(*b"XLAN");

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;

/// Most bytes of any message but [`MonitorMessage::Text`].
pub const MESSAGE_BYTES: usize = 64;

/// Most bytes of text in one [`MonitorMessage::Text`].
pub const TEXT_BYTES: usize = 32 * 1024;

/// What a program or the `crosslane` command says to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// A process of another user than the owner of a private monitor proves that it descends from
    /// a program that the owner has run. Comes before `Hello`.
    Secret {
        /// The monitor's secret, inherited by the environment.
        secret: u64,
    },
    /// A process introduces itself and passes its slab.
    Hello,
    /// Look for the other end of this connection.
    Register {
        /// Names the end in this process: generation times 2^32 plus index in the slab.
        token: u64,
    },
    /// The end is closed, or its rings are not needed any more. For the process that has registered it last to say.
    Release {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes that the end has been in; 0 for none, or [`ANY_LANES`].
        pair: u64,
    },
    /// The program passes a socket on, or becomes another program that inherits it, before its
    /// connection is all on TCP again: whoever gets it may adopt the end, as this member.
    Lend {
        /// The end's token.
        token: u64,
        /// The member of the family that the new holder will be, see the stream crate's `holders`.
        member: u16,
        /// Whether the end has rings. Otherwise who adopts it may register it in its turn.
        has_rings: bool,
    },
    /// The socket is not passed on after all.
    TakeBack {
        /// The end's token.
        token: u64,
        /// The member that nobody will be.
        member: u16,
    },
    /// A socket has come from elsewhere: ask whether its end is lent.
    Adopt {
        /// Names the end in this process from now on.
        token: u64,
    },
    /// The window of the end is lost: the other end must know how far we have read.
    Position(Position),
    /// What the other end had not read.
    Remainder(Remainder),
    /// TCP has ended, and the lane does not say that all has come which was sent there: has it?
    Doubt {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes.
        pair: u64,
    },
    /// Rings granted so far may be in use by forked children until the passed descriptor's other
    /// end is closed everywhere.
    Lease,
    /// Remember how connections of this run end, for as long as this client is connected.
    Watch {
        /// The run's number, which the command has chosen.
        run: u64,
    },
    /// The command asks for connections or counters.
    Query(Query),
}

/// What `crosslane ss` and `crosslane stats` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Every connection, one JSON object per line.
    Connections,
    /// Counters as one JSON object.
    Counters,
    /// What became of the connections of a run, open and ended, one JSON object per line.
    Run {
        /// The run, as it was watched.
        run: u64,
    },
    /// The hosts and windows of the rack as one JSON object; an empty answer without a rack.
    Rack,
}

/// What the monitor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorMessage {
    /// The answer to `Hello`.
    Welcome,
    /// The answer to `Register`: the socket has been read and closed again. The answer to `Adopt`
    /// when the end is lent without rings, after `Lent`.
    Registered {
        /// The end's token.
        token: u64,
    },
    /// The answer to `Lend`.
    Lendable {
        /// The end's token.
        token: u64,
    },
    /// The end is lent; the grant of its rings follows, if it has any.
    Lent(Loan),
    /// The other end has been found; these are the rings.
    Grant(Grant),
    /// The other host's memory of the arena whose first grant follows, where each has its own.
    Beyond {
        /// The token of the end that is granted its rings.
        token: u64,
    },
    /// All slots of this arena are free and the other process is gone: unmap it.
    Retire {
        /// The arena.
        arena: u32,
    },
    /// The end stays on TCP, or for [`Reason::WindowFull`](crate::reason::Reason::WindowFull) waits until there is room.
    Refused {
        /// The end's token.
        token: u64,
        /// A [`crate::reason::Reason`] code.
        reason: u32,
    },
    /// The window is lost, and the other end has read so far.
    Position(Position),
    /// What this end had not read of a lost window.
    Remainder(Remainder),
    /// The other end does not use the lanes of a lost window, and has not sent anything there that is not said.
    Alone {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes.
        pair: u64,
    },
    /// The other end uses the lanes of a lost window no more: what it may have sent there, and has not said, is
    /// nowhere.
    Left {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes.
        pair: u64,
    },
    /// The window in which the end has its lanes is missing, although what is mapped may still answer.
    WindowLost {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes.
        pair: u64,
    },
    /// The window carries what the other host has written, up to when this end said [`ClientMessage::Doubt`].
    Carried {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes.
        pair: u64,
    },
    /// [`ClientMessage::Doubt`] has come, and the other host's monitor is asked: [`MonitorMessage::Carried`] follows, or
    /// [`MonitorMessage::WindowLost`].
    LookedInto {
        /// The end's token.
        token: u64,
        /// As [`Grant::pair`] of the lanes.
        pair: u64,
    },
    /// A piece of the answer to a query; an empty one ends it.
    Text(Vec<u8>),
}

/// An end in the slab of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The adopter's token.
    pub token: u64,
    /// The token in the slab of the process that lends.
    pub original: u64,
    /// Whose slab it is, numbered within this monitor; the descriptor comes with the first loan
    /// from it. 0 is the adopter's own.
    pub family: u32,
    /// The member of that family that the adopter is for this end.
    pub member: u16,
}

/// Why a message could not be understood. All of these are the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Shorter than its header or its body.
    #[error("control message of {bytes} bytes is too short")]
    Truncated {
        /// Bytes received.
        bytes: usize,
    },
    /// Does not start with the magic number.
    #[error("control message starts with {found:#010x}, not {MESSAGE_MAGIC:#010x}")]
    Magic {
        /// What was found.
        found: u32,
    },
    /// Another version of the protocol.
    #[error("control message of version {found}, this is version {ABI_VERSION}")]
    Version {
        /// The other side's version.
        found: u16,
    },
    /// No such message in this direction.
    #[error("control message of unknown kind {kind}")]
    Kind {
        /// The kind.
        kind: u16,
    },
    /// A field out of range.
    #[error("control message field {field} has the illegal value {value}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// An encoded message of fixed size.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    bytes: [u8; MESSAGE_BYTES],
    used: usize,
}

impl Packet {
    fn new(kind: u16, token: u64) -> Self {
        let mut packet = Self {
            bytes: [0; MESSAGE_BYTES],
            used: 0,
        };
        packet.put(&MESSAGE_MAGIC.to_le_bytes());
        packet.put(&ABI_VERSION.to_le_bytes());
        packet.put(&kind.to_le_bytes());
        packet.put(&token.to_le_bytes());
        packet
    }

    fn put(&mut self, field: &[u8]) {
        self.bytes[self.used..self.used + field.len()].copy_from_slice(field);
        self.used += field.len();
    }

    fn with(mut self, fields: &[u32]) -> Self {
        for field in fields {
            self.put(&field.to_le_bytes());
        }
        self
    }

    fn with_long(mut self, number: u64) -> Self {
        self.put(&number.to_le_bytes());
        self
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// A received message after its header has been checked.
struct Received<'a> {
    kind: u16,
    token: u64,
    body: &'a [u8],
}

impl<'a> Received<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let short = MessageError::Truncated { bytes: bytes.len() };
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(short)?;
        let (version, rest) = rest.split_first_chunk::<2>().ok_or(short)?;
        let (kind, rest) = rest.split_first_chunk::<2>().ok_or(short)?;
        let (token, body) = rest.split_first_chunk::<8>().ok_or(short)?;
        let found = u32::from_le_bytes(*magic);
        if found != MESSAGE_MAGIC {
            return Err(MessageError::Magic { found });
        }
        let found = u16::from_le_bytes(*version);
        if found != ABI_VERSION {
            return Err(MessageError::Version { found });
        }
        let kind = u16::from_le_bytes(*kind);
        Ok(Self {
            kind,
            token: u64::from_le_bytes(*token),
            body,
        })
    }

    fn field(&self, index: usize) -> Result<u32, MessageError> {
        self.body
            .get(4 * index..4 * index + 4)
            .and_then(|field| field.try_into().ok())
            .map(u32::from_le_bytes)
            .ok_or(MessageError::Truncated {
                bytes: HEADER_BYTES + self.body.len(),
            })
    }

    /// Two fields that are one number.
    fn long(&self, index: usize) -> Result<u64, MessageError> {
        let (low, high) = (self.field(index)?, self.field(index + 1)?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    fn flag(&self, index: usize) -> Result<bool, MessageError> {
        match self.field(index)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(MessageError::Field {
                field: "flag",
                value: value.into(),
            }),
        }
    }

    fn member(&self, index: usize) -> Result<u16, MessageError> {
        let value = self.field(index)?;
        let member = u16::try_from(value).ok().filter(|member| *member != 0);
        member.ok_or(MessageError::Field {
            field: "member",
            value: value.into(),
        })
    }
}

impl ClientMessage {
    /// Encode for sending.
    pub fn encode(&self) -> Packet {
        match *self {
            Self::Secret { secret } => Packet::new(kind::SECRET, secret),
            Self::Hello => Packet::new(kind::HELLO, 0),
            Self::Register { token } => Packet::new(kind::REGISTER, token),
            Self::Release { token, pair } => Packet::new(kind::RELEASE, token).with_long(pair),
            Self::Lend {
                token,
                member,
                has_rings,
            } => Packet::new(kind::LEND, token).with(&[member.into(), has_rings.into()]),
            Self::TakeBack { token, member } => {
                Packet::new(kind::TAKE_BACK, token).with(&[member.into()])
            }
            Self::Adopt { token } => Packet::new(kind::ADOPT, token),
            Self::Position(position) => position.encode(kind::POSITION),
            Self::Remainder(remainder) => remainder.encode(kind::REMAINDER),
            Self::Doubt { token, pair } => Packet::new(kind::DOUBT, token).with_long(pair),
            Self::Lease => Packet::new(kind::LEASE, 0),
            Self::Watch { run } => Packet::new(kind::WATCH, run),
            Self::Query(Query::Connections) => Packet::new(kind::QUERY, 0).with(&[0]),
            Self::Query(Query::Counters) => Packet::new(kind::QUERY, 0).with(&[1]),
            Self::Query(Query::Run { run }) => Packet::new(kind::QUERY, run).with(&[2]),
            Self::Query(Query::Rack) => Packet::new(kind::QUERY, 0).with(&[3]),
        }
    }

    /// Decode what a client sent.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let received = Received::parse(bytes)?;
        let token = received.token;
        match received.kind {
            kind::SECRET => Ok(Self::Secret { secret: token }),
            kind::HELLO => Ok(Self::Hello),
            kind::REGISTER => Ok(Self::Register { token }),
            kind::RELEASE => received.long(0).map(|pair| Self::Release { token, pair }),
            kind::LEND => Ok(Self::Lend {
                token,
                member: received.member(0)?,
                has_rings: received.flag(1)?,
            }),
            kind::TAKE_BACK => Ok(Self::TakeBack {
                token,
                member: received.member(0)?,
            }),
            kind::ADOPT => Ok(Self::Adopt { token }),
            kind::POSITION => Position::decode(&received).map(Self::Position),
            kind::REMAINDER => Remainder::decode(&received).map(Self::Remainder),
            kind::DOUBT => received.long(0).map(|pair| Self::Doubt { token, pair }),
            kind::LEASE => Ok(Self::Lease),
            kind::WATCH => Ok(Self::Watch { run: token }),
            kind::QUERY => match received.field(0)? {
                0 => Ok(Self::Query(Query::Connections)),
                1 => Ok(Self::Query(Query::Counters)),
                2 => Ok(Self::Query(Query::Run { run: token })),
                3 => Ok(Self::Query(Query::Rack)),
                value => Err(MessageError::Field {
                    field: "query",
                    value: value.into(),
                }),
            },
            kind => Err(MessageError::Kind { kind }),
        }
    }
}

impl MonitorMessage {
    /// Encode for sending.
    pub fn encode(&self) -> Vec<u8> {
        let packet = match self {
            Self::Welcome => Packet::new(kind::WELCOME, 0),
            Self::Registered { token } => Packet::new(kind::REGISTERED, *token),
            Self::Lendable { token } => Packet::new(kind::LENDABLE, *token),
            Self::Lent(loan) => Packet::new(kind::LENT, loan.token)
                .with(&[loan.family, loan.member.into()])
                .with_long(loan.original),
            Self::Grant(grant) => grant.encode(),
            Self::Beyond { token } => Packet::new(kind::BEYOND, *token),
            Self::Retire { arena } => Packet::new(kind::RETIRE, 0).with(&[*arena]),
            Self::Refused { token, reason } => Packet::new(kind::REFUSED, *token).with(&[*reason]),
            Self::Position(position) => position.encode(kind::POSITION_OF_PEER),
            Self::Remainder(remainder) => remainder.encode(kind::REMAINDER_OF_PEER),
            Self::Alone { token, pair } => Packet::new(kind::ALONE, *token).with_long(*pair),
            Self::Left { token, pair } => Packet::new(kind::LEFT, *token).with_long(*pair),
            Self::WindowLost { token, pair } => {
                Packet::new(kind::WINDOW_LOST, *token).with_long(*pair)
            }
            Self::Carried { token, pair } => Packet::new(kind::CARRIED, *token).with_long(*pair),
            Self::LookedInto { token, pair } => {
                Packet::new(kind::LOOKED_INTO, *token).with_long(*pair)
            }
            Self::Text(text) => {
                let mut bytes = Packet::new(kind::TEXT, 0).as_bytes().to_vec();
                bytes.extend_from_slice(text);
                return bytes;
            }
        };
        packet.as_bytes().to_vec()
    }

    /// Decode what the monitor sent; a grant's geometry, slot and role are checked.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let received = Received::parse(bytes)?;
        let token = received.token;
        match received.kind {
            kind::WELCOME => Ok(Self::Welcome),
            kind::REGISTERED => Ok(Self::Registered { token }),
            kind::LENDABLE => Ok(Self::Lendable { token }),
            kind::LENT => Ok(Self::Lent(Loan {
                token,
                original: received.long(2)?,
                family: received.field(0)?,
                member: received.member(1)?,
            })),
            kind::GRANT => Grant::decode(&received).map(Self::Grant),
            kind::BEYOND => Ok(Self::Beyond { token }),
            kind::RETIRE => Ok(Self::Retire {
                arena: received.field(0)?,
            }),
            kind::REFUSED => Ok(Self::Refused {
                token,
                reason: received.field(0)?,
            }),
            kind::POSITION_OF_PEER => Position::decode(&received).map(Self::Position),
            kind::REMAINDER_OF_PEER => Remainder::decode(&received).map(Self::Remainder),
            kind::ALONE => Ok(Self::Alone {
                token,
                pair: received.long(0)?,
            }),
            kind::LEFT => Ok(Self::Left {
                token,
                pair: received.long(0)?,
            }),
            kind::WINDOW_LOST => Ok(Self::WindowLost {
                token,
                pair: received.long(0)?,
            }),
            kind::CARRIED => Ok(Self::Carried {
                token,
                pair: received.long(0)?,
            }),
            kind::LOOKED_INTO => Ok(Self::LookedInto {
                token,
                pair: received.long(0)?,
            }),
            kind::TEXT => Ok(Self::Text(received.body.to_vec())),
            kind => Err(MessageError::Kind { kind }),
        }
    }
}

#[cfg(test)]
mod tests;
