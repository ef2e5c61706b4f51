//! Two processes that share nothing but a window find each other in it, and stay in step.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::bail;
use crosslane_window::backend::{Window, lasting_halves};
use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

/// Words in the first page of each half, which only the other side writes.
const HELLO: usize = 0;
const ECHO: usize = 8;
const STEP: usize = 16;

/// Where checks may begin to write.
pub const FREE: usize = 4096;

/// How often whoever waits asks whether the window is still there: over a bridge, that takes registers.
const CHECK: Duration = Duration::from_secs(1);

/// Somebody waits for the other side, as long as the window is there.
pub struct Waiting {
    window: &'static dyn Window,
    check_at: Instant,
    deadline: Instant,
}

impl Waiting {
    fn new(window: &'static dyn Window, patience: Duration) -> Self {
        let now = Instant::now();
        Self {
            window,
            check_at: now + CHECK,
            deadline: now + patience,
        }
    }

    /// Whether it was long enough. An error if the window is why nothing comes.
    pub fn is_over(&mut self) -> anyhow::Result<bool> {
        let now = Instant::now();
        let is_over = now > self.deadline;
        if is_over || now >= self.check_at {
            self.window.check()?;
            self.check_at = now + CHECK;
        }
        Ok(is_over)
    }
}

/// One side, which has met the other.
pub struct Session {
    /// 0 or 1.
    pub side: u8,
    /// Our half.
    pub local: Inbound,
    /// Theirs.
    pub remote: Outbound,
    window: &'static dyn Window,
    ours: u64,
    theirs: u64,
    step: u64,
    patience: Duration,
}

impl Session {
    /// Wait for the other side, which is to run the command that `remedy` names. What an earlier session has left in the window means nothing: each
    /// side has a number of its own, and goes on when it sees that number come back.
    pub fn meet(
        side: u8,
        window: &'static dyn Window,
        patience: Duration,
        remedy: &str,
    ) -> anyhow::Result<Self> {
        let (local, remote) = lasting_halves(window, usize::from(side));
        let ours = RandomState::new().build_hasher().finish() | 1;
        let mut session = Self {
            side,
            local,
            remote,
            window,
            ours,
            theirs: 0,
            step: 0,
            patience,
        };
        remote.store(HELLO, ours);
        remote.fence();
        let mut waiting = session.waiting(patience);
        while session.look(ECHO) != ours {
            session.echo();
            if waiting.is_over()? {
                bail!(
                    "nobody has answered as side {} for {patience:?}; run {remedy} on the other host, on the same \
                     window",
                    1 - side
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        session.echo();
        session.together()?;
        Ok(session)
    }

    fn echo(&mut self) {
        self.theirs = self.look(HELLO);
        self.remote.store(ECHO, self.theirs);
        self.remote.fence();
    }

    /// A word of our half, as it is now.
    #[inline]
    pub fn look(&self, at: usize) -> u64 {
        self.local.refresh(at, 8);
        self.local.load(at)
    }

    /// Write a word of their half, behind all that was written before.
    #[inline]
    pub fn say(&self, at: usize, word: u64) {
        self.remote.fence();
        self.remote.store(at, word);
        self.remote.fence();
    }

    /// Wait until a word of our half is as it should be, and return it.
    #[inline]
    pub fn wait(&self, at: usize, is_right: impl Fn(u64) -> bool) -> anyhow::Result<u64> {
        for _ in 0..2_000 {
            let word = self.look(at);
            if is_right(word) {
                return Ok(word);
            }
            std::hint::spin_loop();
        }
        let mut waiting = self.waiting(self.patience);
        loop {
            let word = self.look(at);
            if is_right(word) {
                return Ok(word);
            }
            if waiting.is_over()? {
                bail!("the other side has said nothing for {:?}", self.patience);
            }
            std::thread::yield_now();
        }
    }

    /// Begin to wait for something.
    pub fn waiting(&self, patience: Duration) -> Waiting {
        Waiting::new(self.window, patience)
    }

    /// Wait until the other side is here, too.
    pub fn together(&mut self) -> anyhow::Result<()> {
        self.step += 1;
        self.say(STEP, self.ours.wrapping_add(self.step));
        let (theirs, step) = (self.theirs, self.step);
        // They may be one step ahead already.
        let is_here = |word: u64| [step, step + 1].contains(&word.wrapping_sub(theirs));
        self.wait(STEP, is_here).map(drop)
    }

    /// A number that both sides know and no earlier session knew.
    pub fn seed(&self) -> u64 {
        self.ours ^ self.theirs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crosslane_window::backend::{FileWindow, Memory, WindowError};
    use crosslane_window::ntb::NtbError;
    use crosslane_window::policy::Traits;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Memory whose cable can be pulled.
    struct Cabled {
        memory: FileWindow,
        is_pulled: AtomicBool,
    }

    impl Window for Cabled {
        fn traits(&self) -> Traits {
            self.memory.traits()
        }

        fn description(&self) -> String {
            self.memory.description()
        }

        fn check(&self) -> Result<(), WindowError> {
            if self.is_pulled.load(Ordering::Relaxed) {
                let address = "0000:17:00.0".to_owned();
                let (status, waited) = (0, Duration::ZERO);
                return Err(WindowError::Ntb(NtbError::LinkDown {
                    address,
                    status,
                    waited,
                }));
            }
            Ok(())
        }

        fn memory(&self) -> Memory<'_> {
            self.memory.memory()
        }
    }

    fn says_link(found: anyhow::Result<impl Sized>) {
        let said = found.err().expect("nobody is there").to_string();
        assert!(said.contains("the link is down"), "{said}");
    }

    #[test]
    fn whoever_waits_is_told_of_a_link_that_is_lost() {
        let (memory, _) = FileWindow::memfd(1 << 16).unwrap();
        let window: &'static Cabled = Box::leak(Box::new(Cabled {
            memory,
            is_pulled: AtomicBool::new(false),
        }));
        let other =
            std::thread::spawn(move || Session::meet(1, window, PATIENCE, "this test").map(drop));
        let session = Session::meet(0, window, PATIENCE, "this test").unwrap();
        other.join().unwrap().unwrap();
        window.is_pulled.store(true, Ordering::Relaxed);
        says_link(session.wait(FREE, |word| word == 1));
        says_link(session.waiting(Duration::ZERO).is_over());
        says_link(Session::meet(0, window, PATIENCE, "this test"));
    }
}
