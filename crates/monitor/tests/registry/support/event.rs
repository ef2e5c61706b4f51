//! What happens in random histories.

/// Bytes that make one event.
pub const EVENT_BYTES: usize = 4;

/// What may happen. Small numbers, so that things meet.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Hello {
        family: u64,
    },
    Register {
        client: usize,
        connection: u16,
        side: u8,
        cookie: u64,
    },
    RegisterAgain {
        client: usize,
        end: usize,
    },
    Release {
        end: usize,
    },
    Lease {
        client: usize,
    },
    LeaseEnd {
        lease: usize,
    },
    Lend {
        client: usize,
        end: usize,
        has_rings: bool,
    },
    Adopt {
        client: usize,
        end: usize,
    },
    Age,
    Gone {
        client: usize,
    },
}

impl Event {
    /// The event that these bytes describe.
    pub fn from_bytes([kind, a, b, c]: [u8; EVENT_BYTES]) -> Self {
        let client = usize::from(a % 6);
        match kind % 16 {
            0 | 1 => Self::Hello {
                family: u64::from(a % 4),
            },
            2 => Self::RegisterAgain {
                client,
                end: usize::from(b % 16),
            },
            3..=7 => Self::Register {
                client,
                connection: u16::from(b % 4),
                side: c % 2,
                cookie: u64::from(c / 2 % 3),
            },
            8 => Self::Lend {
                client,
                end: usize::from(b % 16),
                has_rings: c % 2 == 0,
            },
            9 | 10 => Self::Adopt {
                client,
                end: usize::from(b % 16),
            },
            11 if a % 4 == 0 => Self::Age,
            11 | 12 => Self::Release {
                end: usize::from(a % 40),
            },
            13 => Self::Lease { client },
            14 => Self::LeaseEnd {
                lease: usize::from(a % 4),
            },
            _ => Self::Gone { client },
        }
    }
}
