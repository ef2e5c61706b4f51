//! Where every connection stands: to notice that nothing moves any more, and to tell what failed.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::plan::{Plan, Side};

/// Longer than any pause that is made on purpose, on a machine with other things to do.
const STALLED: Duration = Duration::from_secs(45);

/// Longer than most connections take, even natively.
const SLOW: Duration = Duration::from_secs(8);

static BOARD: Mutex<Vec<Weak<Status>>> = Mutex::new(Vec::new());
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Where one end of one connection stands.
pub struct Status {
    pub plan: Plan,
    pub side: Side,
    born: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    is_sending_over: AtomicBool,
    is_receiving_over: AtomicBool,
    /// The last call that was begun by a sender and by a receiver.
    calls: [Mutex<&'static str>; 2],
}

/// The sending or the receiving half.
#[derive(Clone, Copy)]
pub enum Half {
    Sending,
    Receiving,
}

impl Status {
    /// Put an end on the board, where it stays as long as somebody holds it.
    pub fn post(plan: Plan, side: Side) -> Arc<Self> {
        let status = Arc::new(Self {
            plan,
            side,
            born: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            is_sending_over: AtomicBool::new(false),
            is_receiving_over: AtomicBool::new(false),
            calls: [Mutex::new("nothing"), Mutex::new("nothing")],
        });
        let mut board = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
        board.retain(|status| status.strong_count() > 0);
        board.push(Arc::downgrade(&status));
        status
    }

    pub fn begin(&self, half: Half, call: &'static str) {
        *self.calls[half as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = call;
    }

    pub fn moved(&self, half: Half, bytes: usize) {
        let counter = match half {
            Half::Sending => &self.sent,
            Half::Receiving => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        PROGRESS.fetch_add(1, Ordering::Relaxed);
    }

    pub fn over(&self, half: Half) {
        let flag = match half {
            Half::Sending => &self.is_sending_over,
            Half::Receiving => &self.is_receiving_over,
        };
        flag.store(true, Ordering::Relaxed);
        PROGRESS.fetch_add(1, Ordering::Relaxed);
    }

    /// Tell of a connection that took long; it may be worth a look.
    pub fn note_if_slow(&self) {
        let age = self.born.elapsed();
        if age > SLOW {
            complain(&format!(
                "slow: {} s for the {}\n",
                age.as_secs(),
                self.text()
            ));
        }
    }

    fn text(&self) -> String {
        let half = |half: Half, moved: &AtomicU64, over: &AtomicBool, total: u64| {
            let over = if over.load(Ordering::Relaxed) {
                ", over"
            } else {
                ""
            };
            let call = self.calls[half as usize]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            format!(
                "{} of {total}{over} (last call {call})",
                moved.load(Ordering::Relaxed)
            )
        };
        format!(
            "{:?} end of {:?}\n    sent {}\n    received {}",
            self.side,
            self.plan,
            half(
                Half::Sending,
                &self.sent,
                &self.is_sending_over,
                self.plan.total(self.side)
            ),
            half(
                Half::Receiving,
                &self.received,
                &self.is_receiving_over,
                self.plan.total(self.side.other())
            ),
        )
    }

    /// End this process because something is wrong.
    pub fn fail(&self, what: &str) -> ! {
        complain(&format!("FAILED: {what}\n  {}\n", self.text()));
        crosslane_exercise::calls::exit_now(1)
    }
}

/// Straight to standard error: in the child of a fork somebody may hold the locks of `std`.
pub fn complain(text: &str) {
    let _ = std::mem::ManuallyDrop::new(standard_error()).write_all(text.as_bytes());
}

fn standard_error() -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: it is never closed, as the file is not dropped.
    unsafe { std::fs::File::from_raw_fd(2) }
}

/// From now on, end this process when nothing moves although something should.
pub fn watch_for_stalls() {
    std::thread::spawn(|| {
        let mut last = PROGRESS.load(Ordering::Relaxed);
        loop {
            std::thread::sleep(STALLED);
            let now = PROGRESS.load(Ordering::Relaxed);
            let board = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
            let ends: Vec<_> = board.iter().filter_map(Weak::upgrade).collect();
            drop(board);
            if now == last && !ends.is_empty() {
                complain(&format!(
                    "FAILED: nothing moved for {} s\n",
                    STALLED.as_secs()
                ));
                ends.iter()
                    .for_each(|end| complain(&format!("  {}\n", end.text())));
                crosslane_exercise::calls::exit_now(1);
            }
            last = now;
        }
    });
}
