//! Bridges that are held open for others.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crosslane_ntb_model::attach::attach_held;
use crosslane_ntb_model::serve::Model;
use crosslane_window::ntb::NtbError;
use crosslane_window::ntb::hold::{HeldMemory, QUIET, State, hold};
use tempfile::TempDir;

use crate::hosts::{LENT, PATIENCE, watched};

/// A bridge that a thread holds.
struct Holder {
    path: PathBuf,
    said: Receiver<String>,
    stop: UnixStream,
    thread: JoinHandle<Result<(), NtbError>>,
}

impl Holder {
    fn start(model: &Model, side: usize, folder: &Path) -> Self {
        let path = folder.join(side.to_string());
        let memory = HeldMemory::open(&path, LENT as u64).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        model.serve(theirs);
        let held = attach_held(ours, side, memory).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (to, said) = channel();
        let thread = std::thread::spawn(move || {
            hold(held, stopped.as_fd(), &mut |state| {
                // Nobody listens after the test.
                let _ = to.send(match state {
                    State::Open(met, link) => format!("open {} {link}", met.bytes),
                    State::Closed(why) => format!("closed {why}"),
                    State::Ending => "ending".to_owned(),
                });
            })
        });
        Self {
            path,
            said,
            stop,
            thread,
        }
    }

    /// Hear all that it says until it says this.
    fn says(&self, words: &str) -> String {
        let mut heard = Vec::new();
        loop {
            let line = self.said.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {words:?} in {heard:?}"));
            if line.contains(words) {
                return line;
            }
            heard.push(line);
        }
    }

    fn tell_to_stop(&self) {
        self.stop.shutdown(Shutdown::Both).unwrap();
    }

    fn end(self) -> Result<(), NtbError> {
        self.thread.join().unwrap()
    }

    fn word(&self) -> [u8; 8] {
        let mut word = [0; 8];
        let file = std::fs::File::open(&self.path).unwrap();
        file.read_exact_at(&mut word, 0).unwrap();
        word
    }
}

fn all_say<'a>(holders: impl IntoIterator<Item = &'a Holder>, words: &str) {
    for holder in holders {
        holder.says(words);
    }
}

fn stop(holders: [Holder; 2]) {
    holders.iter().for_each(Holder::tell_to_stop);
    for holder in holders {
        holder.end().unwrap();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Write a word to the beginning of a host's region.
fn write(model: &Model, from: usize, word: &[u8; 8]) -> bool {
    let Some((memory, bytes)) = model.beyond(from).unwrap() else {
        return false;
    };
    assert_eq!(bytes, LENT as u64);
    std::fs::File::from(memory).write_all_at(word, 0).unwrap();
    true
}

fn wait_until_open(model: &Model) {
    let since = Instant::now();
    while [0, 1]
        .iter()
        .any(|side| model.beyond(*side).unwrap().is_none())
    {
        assert!(since.elapsed() < PATIENCE, "it stays closed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_either_host_writes_arrives_in_the_others_file_while_both_hold() {
    watched(|model| {
        let folder = folder();
        let first = Holder::start(model, 0, folder.path());
        first.says("link is down");
        assert!(!write(model, 1, b"too soon"));
        let second = Holder::start(model, 1, folder.path());
        for holder in [&first, &second] {
            assert_eq!(holder.says("open"), format!("open {LENT} PCIe 4 x16"));
        }
        assert!(write(model, 0, b"from one") && write(model, 1, b"from two"));
        assert_eq!((&second.word(), &first.word()), (b"from one", b"from two"));
        // Told to end, it lets nothing in before it says so, and the other one waits for it.
        second.tell_to_stop();
        assert_eq!(second.says("ending"), "ending");
        assert!(!write(model, 0, b"too late"));
        assert_eq!(second.word(), [0; 8], "no window any more");
        second.end().unwrap();
        first.says("link is down");
        let second = Holder::start(model, 1, folder.path());
        all_say([&first, &second], "open");
        assert!(write(model, 0, b"and anew"));
        stop([first, second]);
    });
}

/// Whether the link stays away or is back before anybody looks: nothing comes in for longer than two beats of the monitors,
/// and what was a window is none.
#[test]
fn a_gap_is_long_enough_to_be_found() {
    watched(|model| {
        let folder = folder();
        let holders = [0, 1].map(|side| Holder::start(model, side, folder.path()));
        for is_brief in [true, false] {
            all_say(&holders, "open");
            assert!(write(model, 0, b"XLWINDOW") && write(model, 1, b"XLWINDOW"));
            let since = Instant::now();
            model.change(|device| device.set_cable(false));
            if is_brief {
                model.change(|device| device.set_cable(true));
            }
            all_say(&holders, "closed");
            model.change(|device| device.set_cable(true));
            assert!(!write(model, 0, b"a gap...") && !write(model, 1, b"a gap..."));
            assert_eq!(holders.each_ref().map(Holder::word), [[0; 8]; 2]);
            wait_until_open(model);
            assert!(since.elapsed() >= QUIET, "{:?}", since.elapsed());
        }
        all_say(&holders, "open");
        stop(holders);
    });
}

/// As one that was killed leaves it, behind whom the other host goes on writing.
#[test]
fn what_an_earlier_holder_has_left_is_a_gap() {
    watched(|model| {
        let folder = folder();
        for side in ["0", "1"] {
            let memory = HeldMemory::open(&folder.path().join(side), LENT as u64).unwrap();
            std::fs::write(folder.path().join(side), b"XLWINDOW").unwrap();
            drop(memory);
        }
        let since = Instant::now();
        let holders = [0, 1].map(|side| Holder::start(model, side, folder.path()));
        wait_until_open(model);
        assert!(since.elapsed() >= QUIET, "{:?}", since.elapsed());
        all_say(&holders, "open");
        assert!(write(model, 0, b"and anew") && write(model, 1, b"and anew"));
        stop(holders);
    });
}

#[test]
fn a_device_that_is_gone_and_a_file_that_is_another_end_it() {
    watched(|model| {
        let folder = folder();
        let [first, second] = [0, 1].map(|side| Holder::start(model, side, folder.path()));
        all_say([&first, &second], "open");
        std::fs::remove_file(&first.path).unwrap();
        let error = first.end().unwrap_err().to_string();
        assert!(error.contains("bytes = 65536 at most"), "{error}");
        model.change(|device| device.remove(1));
        let error = second.end().unwrap_err().to_string();
        assert!(error.contains("rescan"), "{error}");
    });
}
