//! Two processes that share nothing but a window find each other in it, and stay in step.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::bail;
use crosslane_window::inbound::Inbound;
use crosslane_window::outbound::Outbound;

/// Words in the first page of each half, which only the other side writes.
const HELLO: usize = 0;
const ECHO: usize = 8;
const STEP: usize = 16;

/// Where checks may begin to write.
pub const FREE: usize = 4096;

/// One side, which has met the other.
pub struct Session {
    /// 0 or 1.
    pub side: u8,
    /// Our half.
    pub local: Inbound,
    /// Theirs.
    pub remote: Outbound,
    ours: u64,
    theirs: u64,
    step: u64,
    patience: Duration,
}

impl Session {
    /// Wait for the other side. What an earlier session has left in the window means nothing: each
    /// side has a number of its own, and goes on when it sees that number come back.
    pub fn meet(
        side: u8,
        local: Inbound,
        remote: Outbound,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let ours = RandomState::new().build_hasher().finish() | 1;
        let mut session = Self {
            side,
            local,
            remote,
            ours,
            theirs: 0,
            step: 0,
            patience,
        };
        remote.store(HELLO, ours);
        remote.fence();
        let deadline = Instant::now() + patience;
        while session.look(ECHO) != ours {
            session.echo();
            if Instant::now() > deadline {
                bail!(
                    "nobody has answered as side {} for {patience:?}; run `crosslane window test --side {}` on the \
                     other host, on the same window",
                    1 - side,
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
        let deadline = Instant::now() + self.patience;
        loop {
            let word = self.look(at);
            if is_right(word) {
                return Ok(word);
            }
            if Instant::now() > deadline {
                bail!("the other side has said nothing for {:?}", self.patience);
            }
            std::thread::yield_now();
        }
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
