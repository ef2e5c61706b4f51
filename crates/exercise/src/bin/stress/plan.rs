//! What the two ends of a connection are going to do, which both know from seed and number.

use crosslane_exercise::content::Content;
use crosslane_exercise::random::Random;

/// The two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How the bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// The client asks and the server answers, each with blocking calls in one thread.
    PingPong,
    /// Both directions at once, each side in its own way.
    Streams,
    /// Both directions at once, several threads in each call at the same time.
    Crowd,
}

/// How one side of [`Shape::Streams`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Threads take turns in blocking calls.
    Threads,
    Poll,
    Select,
    EpollLevel,
    EpollEdge,
    EpollOneshot,
}

/// How the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Each side shuts its direction down when all is sent, and reads to the other's end.
    Shutdowns,
    /// The same, but this side closes instead of shutting down, once it has seen the other's end.
    CloseBy(Side),
    /// This side closes with SO_LINGER 0 in the middle.
    ResetBy(Side),
    /// This side closes in the middle, with unread bytes or not.
    AbandonedBy(Side),
}

impl Ending {
    /// The side that breaks the connection off.
    pub fn breaker(self) -> Option<Side> {
        match self {
            Self::ResetBy(side) | Self::AbandonedBy(side) => Some(side),
            Self::Shutdowns | Self::CloseBy(_) => None,
        }
    }
}

/// Everything about one connection.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub number: u64,
    pub shape: Shape,
    pub ending: Ending,
    /// Bytes that the client and the server send.
    pub bytes: [u64; 2],
    /// After how many of its bytes the breaker breaks off.
    pub break_after: u64,
    pub drivers: [Driver; 2],
    /// Whether TCP_NODELAY is set; where it is not, Nagle's algorithm makes everything slow.
    pub is_without_delay: bool,
    /// The longest call, so that some connections chatter and others shovel.
    pub longest_call: usize,
}

const DRIVERS: [Driver; 6] = [
    Driver::Threads,
    Driver::Poll,
    Driver::Select,
    Driver::EpollLevel,
    Driver::EpollEdge,
    Driver::EpollOneshot,
];

impl Plan {
    /// The plan of a connection. All connections of a group have one shape and the same drivers,
    /// so that one loop can drive them.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut group = Random::of(&[seed, number / GROUP]);
        let shape = *group.pick(&[
            Shape::PingPong,
            Shape::Streams,
            Shape::Streams,
            Shape::Crowd,
        ]);
        let drivers = [*group.pick(&DRIVERS), *group.pick(&DRIVERS)];
        let mut random = Random::of(&[seed, number, 1]);
        let ending = ending(&mut random, shape, drivers);
        let is_without_delay = !random.one_in(5);
        let longest_call = *random.pick(&[100, 5_000, 70_000, 1 << 20, 1 << 20]);
        let most = if is_without_delay {
            MOST_CALLS * longest_call
        } else {
            LONGEST_WITH_DELAY
        };
        let bytes = [total(&mut random), total(&mut random)].map(|bytes| bytes % most);
        let bytes_of_breaker = ending
            .breaker()
            .map_or(1, |side| bytes[side as usize])
            .max(1);
        Self {
            seed,
            number,
            shape,
            ending,
            bytes,
            break_after: random.next_u64() % bytes_of_breaker,
            drivers,
            is_without_delay,
            longest_call: usize::try_from(longest_call).expect("a call is short"),
        }
    }

    /// The bytes that `sender` sends.
    pub fn content(&self, sender: Side) -> Content {
        Content::new(Random::of(&[self.seed, self.number, 2, sender as u64]).next_u64())
    }

    /// The choices of one actor of one side.
    pub fn choices(&self, side: Side, actor: u64) -> Random {
        Random::of(&[self.seed, self.number, 3, side as u64, actor])
    }

    /// The choices that both sides must make alike.
    pub fn common_choices(&self) -> Random {
        Random::of(&[self.seed, self.number, 4])
    }

    pub fn total(&self, sender: Side) -> u64 {
        self.bytes[sender as usize]
    }

    pub fn driver(&self, side: Side) -> Driver {
        self.drivers[side as usize]
    }
}

/// Of the longest that a connection makes, so that none chatters for ever.
const MOST_CALLS: u64 = 5000;
/// Bytes on a connection on which every other call may take 40 ms.
const LONGEST_WITH_DELAY: u64 = 20_000;

/// How many connections one event loop drives.
pub const GROUP: u64 = 5;

fn ending(random: &mut Random, shape: Shape, drivers: [Driver; 2]) -> Ending {
    let side = *random.pick(&[Side::Client, Side::Server]);
    let chosen = *random.pick(&[
        Ending::Shutdowns,
        Ending::Shutdowns,
        Ending::CloseBy(side),
        Ending::ResetBy(side),
        Ending::AbandonedBy(side),
    ]);
    // Who breaks off must do so alone: a thread in a call keeps the connection open.
    let is_alone = match shape {
        Shape::PingPong => true,
        Shape::Streams => drivers[side as usize] != Driver::Threads,
        Shape::Crowd => false,
    };
    if chosen.breaker().is_some() && !is_alone {
        Ending::Shutdowns
    } else {
        chosen
    }
}

fn total(random: &mut Random) -> u64 {
    let most = *random.pick(&[
        0, 100, 10_000, 100_000, 1_000_000, 1_000_000, 4_000_000, 12_000_000,
    ]);
    random.next_u64() % (most + 1)
}

/// A number of bytes for one call, with a liking for sizes at which something may change.
pub fn call_size(random: &mut Random, longest: usize) -> usize {
    const EDGES: [usize; 15] = [
        1,
        8,
        48,
        56,
        64,
        120,
        128,
        1024,
        4096,
        8192,
        16_384,
        65_536,
        131_072,
        262_144,
        1 << 20,
    ];
    let size = match random.below(8) {
        0 => random.between(1, 16),
        1 | 2 => (*random.pick(&EDGES) + random.below(3)).saturating_sub(1),
        3 => random.between(1, 128),
        4 => random.between(1, 1500),
        5 => random.between(1, 20_000),
        6 => random.between(1, 200_000),
        _ => random.between(1, 1 << 20),
    };
    size.clamp(1, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_plan_alike_and_seeds_differ() {
        let text = |seed, number| format!("{:?}", Plan::new(seed, number));
        assert_eq!(text(5, 17), text(5, 17));
        assert_ne!(text(5, 17), text(6, 17));
    }

    #[test]
    fn a_group_shares_its_shape_and_drivers() {
        for number in 0..GROUP {
            let (one, first) = (Plan::new(9, number), Plan::new(9, 0));
            assert_eq!((one.shape, one.drivers), (first.shape, first.drivers));
        }
    }

    #[test]
    fn everything_is_planned_at_some_time() {
        let plans: Vec<_> = (0..2000).map(|number| Plan::new(1, number)).collect();
        for shape in [Shape::PingPong, Shape::Streams, Shape::Crowd] {
            assert!(plans.iter().any(|plan| plan.shape == shape));
        }
        for driver in DRIVERS {
            assert!(plans.iter().any(|plan| plan.drivers.contains(&driver)));
        }
        for side in [Side::Client, Side::Server] {
            for ending in [
                Ending::CloseBy(side),
                Ending::ResetBy(side),
                Ending::AbandonedBy(side),
            ] {
                assert!(plans.iter().any(|plan| plan.ending == ending));
            }
        }
    }

    #[test]
    fn a_breaker_never_has_threads_in_calls() {
        for plan in (0..5000).map(|number| Plan::new(2, number)) {
            if let Some(side) = plan.ending.breaker() {
                assert_ne!(plan.shape, Shape::Crowd);
                assert!(plan.shape == Shape::PingPong || plan.driver(side) != Driver::Threads);
            }
        }
    }

    #[test]
    fn calls_keep_to_their_longest() {
        let mut random = Random::new(4);
        assert!((0..10_000).all(|_| (1..=100).contains(&call_size(&mut random, 100))));
    }
}
