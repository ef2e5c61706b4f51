//! The least that a file takes from the page cache to another processor: the copies, and nothing else.
//!
//! Records go from thread to thread whole, and come back empty, so that together they are a ring. Nobody sleeps, parses
//! or asks whether the other one lives.

use std::fs::File;
use std::hint::spin_loop;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use anyhow::Context;
use crosslane_sockbench::client::{histogram, per_second};
use crosslane_sockbench::cpus::{pin, two_cpus};
use crosslane_sockbench::span::{Span, Stopwatch};

use super::results::{Figures, Way};

/// What nginx reads at a time where it reads itself (`output_buffers`).
const READ_BYTES: usize = 32 * 1024;
/// What the other processor may begin with while the rest is under way, as the records of a lane.
const RECORD_BYTES: usize = 8 * 1024;
/// As long a ring as a lane's that has grown: 4 MiB.
const RING_BYTES: usize = 4 << 20;
/// What the receiver copies into, again and again.
const TARGET_BYTES: usize = 128 * 1024;
/// So many fetches count at least.
const LEAST: u64 = 3;

/// A piece of a file.
struct Record {
    bytes: usize,
    room: Vec<u8>,
}

/// The side that sends: where empty records come from and full ones go, and how many have been copied out.
struct Sending<'a> {
    empty: Receiver<Record>,
    full: Sender<Record>,
    sent: u64,
    copied: &'a AtomicU64,
}

/// Times of a file's way, as a fetch's are.
pub fn measure(file: &Path, bytes: u64, way: Way, span: Span) -> anyhow::Result<Figures> {
    let file = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let (here, there) = two_cpus()?;
    let (full, filled) = channel();
    let (back, empty) = channel();
    let room = match way {
        Way::Sendfile => READ_BYTES,
        Way::Write => RECORD_BYTES,
    };
    for _ in 0..RING_BYTES / room {
        let (bytes, room) = (0, vec![0; room]);
        back.send(Record { bytes, room })?;
    }
    let copied = &AtomicU64::new(0);
    let sending = Sending {
        empty,
        full,
        sent: 0,
        copied,
    };
    thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let placed = pin(there);
            copy_out(&filled, &back, copied);
            placed
        });
        let sending = scope.spawn(move || {
            pin(here)?;
            sending.repeat(&file, bytes, way, span)
        });
        let figures = sending.join().expect("the side that sends ends");
        receiving.join().expect("the side that receives ends")?;
        figures
    })
}

impl Sending<'_> {
    fn repeat(mut self, file: &File, bytes: u64, way: Way, span: Span) -> anyhow::Result<Figures> {
        let mut times = histogram();
        let mut busy_ns = 0;
        let watch = Stopwatch::start(span);
        while !watch.is_over(watch.now()) || times.len() < LEAST {
            let asked = watch.now();
            match way {
                Way::Sendfile => self.read_into_records(file, bytes)?,
                Way::Write => self.read_and_copy(file, bytes)?,
            }
            while self.copied.load(Ordering::Acquire) != self.sent {
                spin_loop(); // SYNC: copied
            }
            let done = watch.now();
            if watch.is_warm(asked) {
                times.saturating_record(watch.between_ns(asked, done));
                busy_ns += watch.between_ns(asked, done);
            }
        }
        Ok(Figures::Fetch {
            fetches: times.len(),
            p50_ns: times.value_at_quantile(0.5),
            p99_ns: times.value_at_quantile(0.99),
            gbps: per_second(8 * bytes * times.len(), busy_ns) / 1e9,
        })
    }

    /// The kernel copies into the ring.
    fn read_into_records(&mut self, file: &File, bytes: u64) -> anyhow::Result<()> {
        let mut at = 0;
        while at < bytes {
            let mut record = next(&self.empty)?;
            record.bytes = read(file, &mut record.room, at, bytes)?;
            at += record.bytes as u64;
            self.send(record)?;
        }
        Ok(())
    }

    /// The kernel copies into a buffer, and the program into the ring.
    fn read_and_copy(&mut self, file: &File, bytes: u64) -> anyhow::Result<()> {
        let mut buffer = [0; READ_BYTES];
        let mut at = 0;
        while at < bytes {
            let read = read(file, &mut buffer, at, bytes)?;
            for piece in buffer[..read].chunks(RECORD_BYTES) {
                let mut record = next(&self.empty)?;
                record.bytes = piece.len();
                record.room[..piece.len()].copy_from_slice(piece);
                self.send(record)?;
            }
            at += read as u64;
        }
        Ok(())
    }

    fn send(&mut self, record: Record) -> anyhow::Result<()> {
        self.full.send(record)?;
        self.sent += 1;
        Ok(())
    }
}

/// As much of `file` from `at` on as there is room for.
fn read(file: &File, room: &mut [u8], at: u64, bytes: u64) -> anyhow::Result<usize> {
    let left = usize::try_from(bytes - at).unwrap_or(usize::MAX);
    let most = left.min(room.len());
    file.read_exact_at(&mut room[..most], at)?;
    Ok(most)
}

/// Copies out what comes, until there is nobody to send any more.
fn copy_out(filled: &Receiver<Record>, back: &Sender<Record>, copied: &AtomicU64) {
    let mut target = vec![0; TARGET_BYTES];
    let mut at = 0;
    while let Ok(record) = next(filled) {
        if at + record.bytes > target.len() {
            at = 0;
        }
        target[at..][..record.bytes].copy_from_slice(&record.room[..record.bytes]);
        at += record.bytes;
        if back.send(record).is_err() {
            return;
        }
        copied.fetch_add(1, Ordering::Release); // SYNC: copied
    }
}

/// The next record, looked for without sleeping.
fn next(from: &Receiver<Record>) -> anyhow::Result<Record> {
    loop {
        match from.try_recv() {
            Ok(record) => return Ok(record),
            Err(TryRecvError::Empty) => spin_loop(),
            Err(TryRecvError::Disconnected) => anyhow::bail!("the other side has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use crosslane_sockbench::cpus::PlaceError;

    use super::*;

    #[test]
    fn a_file_of_odd_size_is_copied_both_ways() {
        let bytes = 100_001;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&vec![1; 100_001]).expect("room on disk");
        let span = Span {
            warmup: Duration::ZERO,
            measure: Duration::from_millis(5),
        };
        for way in Way::ALL {
            match measure(file.path(), bytes, way, span) {
                Ok(Figures::Fetch { p50_ns, gbps, .. }) => assert!(p50_ns > 0 && gbps > 0.0),
                Ok(other) => panic!("{other:?}"),
                Err(error) if error.is::<PlaceError>() => {
                    let _ = writeln!(std::io::stderr(), "SKIPPED: {error}");
                }
                Err(error) => panic!("{error}"),
            }
            assert!(
                measure(file.path(), bytes + 1, way, span).is_err(),
                "a file that is cut short"
            );
        }
    }
}
