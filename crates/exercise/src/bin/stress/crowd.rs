//! Several threads in calls on one connection at the same time.
//!
//! Nobody can say in which order their bytes come, but each byte tells who sent it and, modulo
//! 64, as its how manieth: every writer's bytes must come in order and be complete.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::MSG_NOSIGNAL;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{read, recv, send, write, writev};
use crosslane_exercise::random::Random;

use crate::board::Half;
use crate::connection::{Connection, End};
use crate::mischief::dawdle;
use crate::plan::{Plan, Side, call_size};

/// Two bits of each byte name the writer, the other six count.
const WRITERS: usize = 4;
const COUNTED: u64 = 64;
const LONGEST: usize = 60_000;

/// How often each byte came.
type Histogram = [u64; 256];

/// Carry the connection to its end.
pub fn run(mut connection: Connection) {
    let end = &connection.end;
    let (plan, side) = (end.status.plan, end.status.side);
    let readers = plan.choices(side, 40).between(1, 3);
    let is_broken = AtomicBool::new(false);
    let histograms: Vec<Histogram> = std::thread::scope(|scope| {
        let is_broken = &is_broken;
        let writers: Vec<_> = (0..WRITERS)
            .map(|tag| scope.spawn(move || send_as(end, tag, is_broken)))
            .collect();
        let readers: Vec<_> = (0..readers)
            .map(|index| scope.spawn(move || receive(end, index, readers == 1, is_broken)))
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("a writer does not panic"));
        end.end_sending();
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader does not panic"))
            .collect()
    });
    let count = |byte: usize| {
        histograms
            .iter()
            .map(|histogram| histogram[byte])
            .sum::<u64>()
    };
    let is_broken = is_broken.load(Ordering::Relaxed);
    let may_be_less = end.rules.peer_may_die || is_broken && end.rules.window_may_go;
    compare(end, std::array::from_fn(count), may_be_less);
    connection.incoming.received = (0..256).map(count).sum();
    connection.incoming.total = connection.incoming.received;
    connection.out.sent = connection.out.total;
    connection.finish(is_broken.then_some(Errno(libc::ECONNRESET)));
}

/// The bytes that the writer with this tag sends.
fn share(plan: &Plan, sender: Side, tag: usize) -> u64 {
    let total = plan.total(sender) / 4;
    total / WRITERS as u64 + u64::from(tag == 0) * (total % WRITERS as u64)
}

/// A writer's byte number `count`.
fn byte(tag: usize, count: u64) -> u8 {
    u8::try_from(tag as u64 * COUNTED + count % COUNTED).expect("four times 64 is 256")
}

fn send_as(end: &End, tag: usize, is_broken: &AtomicBool) {
    let (plan, side) = (end.status.plan, end.status.side);
    let mut random = plan.choices(side, 50 + tag as u64);
    let total = share(&plan, side, tag);
    let mut sent = 0;
    while sent < total {
        let size = call_size(&mut random, LONGEST).min(usize::try_from(total - sent).unwrap_or(1));
        let bytes: Vec<u8> = (0..size as u64)
            .map(|index| byte(tag, sent + index))
            .collect();
        end.status.begin(Half::Sending, "several calls at once");
        let answer = match random.below(3) {
            0 => write(end.fd, &bytes),
            1 => writev(end.fd, &[std::io::IoSlice::new(&bytes)]),
            _ => send(end.fd, &bytes, MSG_NOSIGNAL),
        };
        match answer {
            Ok(count) => {
                sent += count as u64;
                end.status.moved(Half::Sending, count);
            }
            Err(Errno(libc::EPIPE | libc::ECONNRESET)) => {
                return is_broken.store(true, Ordering::Relaxed);
            }
            Err(errno) => end.status.fail(&format!("sending failed with {errno}")),
        }
        dawdle(&mut random);
    }
}

fn receive(end: &End, index: usize, is_alone: bool, is_broken: &AtomicBool) -> Histogram {
    let mut random: Random = end.status.plan.choices(end.status.side, 60 + index as u64);
    let mut histogram = [0; 256];
    let mut next = [0; WRITERS];
    loop {
        let mut buffer = vec![0; call_size(&mut random, LONGEST)];
        end.status.begin(Half::Receiving, "several calls at once");
        let answer = match random.below(2) {
            0 => read(end.fd, &mut buffer),
            _ => recv(end.fd, &mut buffer, 0),
        };
        match answer {
            Ok(0) => return histogram,
            Ok(count) => {
                buffer[..count]
                    .iter()
                    .for_each(|&byte| histogram[usize::from(byte)] += 1);
                if is_alone {
                    buffer[..count]
                        .iter()
                        .for_each(|&byte| check_order(end, &mut next, byte));
                }
                end.status.moved(Half::Receiving, count);
            }
            Err(Errno(libc::ECONNRESET | libc::EPIPE)) => {
                is_broken.store(true, Ordering::Relaxed);
                return histogram;
            }
            Err(errno) => end.status.fail(&format!("receiving failed with {errno}")),
        }
        dawdle(&mut random);
    }
}

fn check_order(end: &End, next: &mut [u64; WRITERS], found: u8) {
    let tag = usize::from(found) / 64;
    if found != byte(tag, next[tag]) {
        end.status.fail(&format!(
            "byte {} of writer {tag} came as {found:#04x}: one is missing, doubled or reordered",
            next[tag]
        ));
    }
    next[tag] += 1;
}

/// Every byte must have come as often as it was sent, or less often from a peer that died.
fn compare(end: &End, found: Histogram, may_be_less: bool) {
    let (plan, sender) = (end.status.plan, end.status.side.other());
    for tag in 0..WRITERS {
        let total = share(&plan, sender, tag);
        for count in 0..COUNTED {
            let sent = total / COUNTED + u64::from(count < total % COUNTED);
            let came = found[usize::from(byte(tag, count))];
            if came > sent || (came < sent && !may_be_less) {
                end.status.fail(&format!(
                    "of the bytes {:#04x} of writer {tag} {sent} were sent and {came} came",
                    byte(tag, count)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writers_share_a_quarter_of_the_total() {
        for number in 0..100 {
            let plan = Plan::new(1, number);
            let shares: u64 = (0..WRITERS)
                .map(|tag| share(&plan, Side::Client, tag))
                .sum();
            assert_eq!(shares, plan.total(Side::Client) / 4);
        }
    }

    #[test]
    fn every_byte_names_its_writer() {
        assert_eq!(byte(3, 63), 255);
        assert_eq!(byte(1, 64), 64);
    }
}
