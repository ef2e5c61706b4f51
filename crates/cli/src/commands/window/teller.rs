//! Lines for whoever reads them. Who says them waits for nobody.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that wait for a reader. What is said while there are more is dropped.
const MOST_WAITING: usize = 1 << 10;
/// How long an end waits until the last are written.
const LAST_CALL: Duration = Duration::from_millis(500);
const NAP: Duration = Duration::from_millis(1);

/// A thread that writes them.
pub struct Teller {
    lines: Option<SyncSender<String>>,
    thread: JoinHandle<()>,
}

impl Teller {
    /// Have what is said written by `write`, which may wait.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(write: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let (lines, said) = sync_channel::<String>(MOST_WAITING);
        let thread = std::thread::Builder::new().name("lines".to_owned());
        let thread = thread.spawn(move || said.iter().for_each(|line| write(&line)))?;
        Ok(Self {
            lines: Some(lines),
            thread,
        })
    }

    /// Say something, if that can be had without waiting.
    pub fn say(&self, line: String) {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.lines = None;
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < LAST_CALL {
            std::thread::sleep(NAP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Whether all was said within a while.
    fn says_all(teller: Teller, lines: usize) -> bool {
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            (0..lines).for_each(|line| teller.say(format!("{line}\n")));
            drop(teller);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[test]
    fn what_nobody_reads_holds_nobody_up() {
        let (_unread, writer) = pipe().unwrap();
        let teller = Teller::start(move |line| {
            let _ = (&writer).write_all(line.repeat(100).as_bytes());
        });
        assert!(says_all(teller.unwrap(), 5000));
    }

    #[test]
    fn what_is_read_is_written_before_the_end() {
        let written = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&written);
        let teller = Teller::start(move |line| {
            std::thread::sleep(Duration::from_millis(20));
            text.lock().unwrap().push_str(line);
        });
        assert!(says_all(teller.unwrap(), 3));
        assert_eq!(*written.lock().unwrap(), "0\n1\n2\n");
    }
}
