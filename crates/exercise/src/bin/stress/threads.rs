//! Threads that take turns in blocking calls on one connection.

use std::sync::{Mutex, PoisonError};

use libc::{POLLIN, POLLOUT};

use crosslane_exercise::Errno;
use crosslane_exercise::random::Random;

use crate::board::Half;
use crate::connection::{Connection, End};
use crate::mischief::{dawdle, set_some_option, wait_for};
use crate::transfer::{Incoming, Moved, Outgoing, Waiting};

/// A half, and how it ended once it did.
struct Turns<T> {
    half: T,
    ended: Option<Option<Errno>>,
}

impl<T> Turns<T> {
    fn new(half: T) -> Mutex<Self> {
        Mutex::new(Self { half, ended: None })
    }

    /// The half and what broke it.
    fn over(turns: Mutex<Self>) -> (T, Option<Errno>) {
        let turns = turns.into_inner().unwrap_or_else(PoisonError::into_inner);
        (turns.half, turns.ended.flatten())
    }
}

/// Carry the connection to its end.
pub fn run(connection: Connection) {
    let Connection { end, out, incoming } = connection;
    let (plan, side) = (end.status.plan, end.status.side);
    let mut random = plan.choices(side, 10);
    let (writers, readers) = (random.between(1, 3), random.between(1, 3));
    let (out, incoming) = (Turns::new(out), Turns::new(incoming));
    std::thread::scope(|scope| {
        let (out, incoming, end) = (&out, &incoming, &end);
        let writers: Vec<_> = (0..writers)
            .map(|index| {
                let random = plan.choices(side, 20 + index as u64);
                scope.spawn(move || in_turns(out, random, |out, random| write(out, end, random)))
            })
            .collect();
        for index in 0..readers {
            let random = plan.choices(side, 30 + index as u64);
            scope.spawn(move || {
                in_turns(incoming, random, |incoming, random| {
                    read(incoming, end, random)
                });
            });
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("a writer does not panic"));
        end.end_sending();
    });
    let ((out, out_broken), (incoming, in_broken)) = (Turns::over(out), Turns::over(incoming));
    Connection { end, out, incoming }.finish(in_broken.or(out_broken));
}

/// Take turns until somebody's turn has ended the half.
fn in_turns<T>(
    turns: &Mutex<Turns<T>>,
    mut random: Random,
    mut turn: impl FnMut(&mut T, &mut Random) -> Option<Option<Errno>>,
) {
    loop {
        {
            let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
            if turns.ended.is_none() {
                turns.ended = turn(&mut turns.half, &mut random);
            }
            if turns.ended.is_some() {
                return;
            }
        }
        dawdle(&mut random);
    }
}

fn write(out: &mut Outgoing, end: &End, random: &mut Random) -> Option<Option<Errno>> {
    if out.is_over() {
        return Some(None);
    }
    match out.push(end.fd, u64::MAX, Waiting::Allowed) {
        Moved::Broken(errno) => return Some(Some(errno)),
        Moved::None => {
            end.status.begin(Half::Sending, "waiting for room");
            wait_for(end.fd, POLLOUT, random);
        }
        Moved::Some | Moved::End => {}
    }
    if random.one_in(100) {
        set_some_option(end.fd, random);
    }
    None
}

fn read(incoming: &mut Incoming, end: &End, random: &mut Random) -> Option<Option<Errno>> {
    match incoming.pull(end.fd, u64::MAX, Waiting::Allowed) {
        Moved::Broken(errno) => return Some(Some(errno)),
        Moved::End => {
            end.status.over(Half::Receiving);
            return Some(None);
        }
        Moved::None => {
            end.status.begin(Half::Receiving, "waiting for data");
            wait_for(end.fd, POLLIN, random);
        }
        Moved::Some => {}
    }
    None
}
