//! From moments in two programs and in the library in each of them to the stages of each message.

use crosslane_ring::trace::{Point, unpack};
use crosslane_sockbench::moments::Moments;

/// The stages in the order in which a message passes them.
pub const STAGES: [&str; 8] = [
    "call", "lookup", "copy in", "publish", "transfer", "poll", "copy out", "return",
];

/// A point that a message has passed, and when.
pub type Moment = (Point, u64);

/// What one end has noted: the program, and the library in it.
pub struct Side {
    /// Three of each message.
    pub program: Vec<Moments>,
    /// In order.
    pub library: Vec<Moment>,
}

/// Ticks of a message, the mean of its way there and of the answer's way back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// Of each stage.
    pub stages: [f64; STAGES.len()],
    /// From the moment before the send to that after the receive.
    pub whole: f64,
    /// From publishing to the return of the send, while the message is on its way.
    pub send_returns: f64,
}

/// The moments in a file that the library has written.
pub fn moments_of(bytes: &[u8]) -> Vec<Moment> {
    let (words, _) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    words.map_while(unpack).collect()
}

/// The stages of each round trip; without those of which a moment is missing, such as those that went
/// over TCP before the rings were there.
pub fn steps(client: &Side, server: &Side) -> Vec<Steps> {
    let mut steps = Vec::new();
    let mut last_answered = 0;
    for (asked, answered) in client.program.iter().zip(&server.program) {
        let [before, sent, returned] = *asked;
        let [received, answers, has_answered] = *answered;
        let there = Way {
            send: between(&client.library, before, sent),
            receive: between(&server.library, last_answered, received),
            begin: before,
            send_end: sent,
            end: received,
        };
        let back = Way {
            send: between(&server.library, answers, has_answered),
            receive: between(&client.library, sent, returned),
            begin: answers,
            send_end: has_answered,
            end: returned,
        };
        last_answered = has_answered;
        if let (Some(there), Some(back)) = (there.steps(), back.steps()) {
            steps.push(there.mean(back));
        }
    }
    steps
}

/// Half of a round trip at the client.
pub fn one_way(&[before, _, returned]: &Moments) -> f64 {
    ticks(before, returned) / 2.0
}

/// One message from one end to the other.
struct Way<'a> {
    send: &'a [Moment],
    receive: &'a [Moment],
    begin: u64,
    send_end: u64,
    end: u64,
}

impl Way<'_> {
    fn steps(&self) -> Option<Steps> {
        let published = last(self.send, Point::Published)?;
        let found = last(self.receive, Point::Found)?;
        // A receiver that goes on from an earlier record finds the last one without a new look.
        let seen = last(self.receive, Point::Seen).filter(|seen| *seen >= published);
        let passed = [
            self.begin,
            first(self.send, Point::Called)?,
            first(self.send, Point::Locked)?,
            last(self.send, Point::CopiedIn)?,
            published,
            seen.unwrap_or(found),
            found,
            last(self.receive, Point::CopiedOut)?,
            self.end,
        ];
        let mut stages = [0.0; STAGES.len()];
        for (stage, pair) in stages.iter_mut().zip(passed.windows(2)) {
            *stage = ticks(pair[0], pair[1]);
        }
        Some(Steps {
            stages,
            whole: ticks(self.begin, self.end),
            send_returns: ticks(published, self.send_end),
        })
    }
}

impl Steps {
    fn mean(self, other: Self) -> Self {
        let mean = |one: f64, other: f64| f64::midpoint(one, other);
        let mut stages = self.stages;
        for (stage, other) in stages.iter_mut().zip(other.stages) {
            *stage = mean(*stage, other);
        }
        Self {
            stages,
            whole: mean(self.whole, other.whole),
            send_returns: mean(self.send_returns, other.send_returns),
        }
    }
}

/// What one processor noted within a time of its own.
fn between(moments: &[Moment], from: u64, to: u64) -> &[Moment] {
    let start = moments.partition_point(|moment| moment.1 < from);
    let end = moments.partition_point(|moment| moment.1 <= to);
    &moments[start..end.max(start)]
}

fn first(moments: &[Moment], point: Point) -> Option<u64> {
    let found = moments.iter().find(|moment| moment.0 == point)?;
    Some(found.1)
}

fn last(moments: &[Moment], point: Point) -> Option<u64> {
    let found = moments.iter().rfind(|moment| moment.0 == point)?;
    Some(found.1)
}

/// From one moment to another, which a counter that is behind may show as the earlier one.
#[expect(clippy::cast_precision_loss, reason = "differences far below 2^53")]
fn ticks(from: u64, to: u64) -> f64 {
    to.wrapping_sub(from).cast_signed() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A send of one record that begins at `at`, and its receive, ten ticks a stage.
    fn message(at: u64) -> (Vec<Moment>, Vec<Moment>) {
        let send = [
            (Point::Called, at + 10),
            (Point::Locked, at + 20),
            (Point::CopiedIn, at + 30),
            (Point::Published, at + 40),
        ];
        let receive = [
            (Point::Called, at.saturating_sub(30)),
            (Point::Seen, at + 50),
            (Point::Found, at + 60),
            (Point::CopiedOut, at + 70),
        ];
        (send.into(), receive.into())
    }

    /// A round trip in which the server's counter is `ahead`.
    fn round_trip(ahead: u64) -> (Side, Side) {
        let (there, there_received) = message(1000);
        let (back, back_received) = message(1100);
        let shifted = |moments: Vec<Moment>| {
            let shift = |(point, at)| (point, at + ahead);
            moments.into_iter().map(shift).collect::<Vec<_>>()
        };
        let client = Side {
            program: vec![[1000, 1045, 1180]],
            library: [there, back_received].concat(),
        };
        let server = Side {
            program: vec![[1080 + ahead, 1100 + ahead, 1145 + ahead]],
            library: shifted([there_received, back].concat()),
        };
        (client, server)
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let (client, server) = round_trip(0);
        let steps = steps(&client, &server);
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].stages, [10.0; 8]);
        assert_eq!((steps[0].whole, steps[0].send_returns), (80.0, 5.0));
    }

    #[test]
    fn counters_that_disagree_do_not_matter() {
        let (client, server) = round_trip(7);
        assert_eq!(steps(&client, &server)[0].stages, [10.0; 8]);
    }

    #[test]
    fn the_last_of_several_records_counts() {
        let (mut client, server) = round_trip(0);
        client.library.insert(2, (Point::Published, 1025));
        client.library.insert(2, (Point::CopiedIn, 1022));
        assert_eq!(steps(&client, &server)[0].stages, [10.0; 8]);
    }

    #[test]
    fn a_message_without_its_moments_is_left_out() {
        let (client, mut server) = round_trip(0);
        server.library.clear();
        assert!(steps(&client, &server).is_empty());
    }

    #[test]
    fn a_file_ends_at_the_first_empty_word() {
        let word = crosslane_ring::trace::pack(Point::Seen, 77).to_ne_bytes();
        let bytes = [word, [0; 8], word].concat();
        assert_eq!(moments_of(&bytes), [(Point::Seen, 77)]);
    }
}
