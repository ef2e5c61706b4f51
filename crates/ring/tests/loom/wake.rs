//! How the two sides of a lane put each other to sleep and wake each other (DESIGN 3.4).
//!
//! Both protocols are alike. Who wants to sleep sets a mark, looks once more, and sleeps until the
//! bell rings. Who has made progress looks at the mark, and rings if it is the one that takes the
//! mark away. Between mark and look, and between progress and look at the mark, stands a full
//! fence. A bell that nobody waits for any more ends the next sleep early, which does no harm.

use crosslane_ctl::lane::receiver_flags::ARMED;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};

use crate::lane::LoomLane;
use crate::support::sides::{ReceiveSide, SendSide};

/// What is left out of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapse {
    Nothing,
    /// Who wants to sleep does not look once more.
    Look,
    /// It looks, but what it sees may be older than its mark.
    FenceBeforeLook,
    /// The receiver forgets that a control record may pass a quarter of the ring too.
    ControlRecord,
}

/// A mark that asks for a bell, and the bell.
pub struct Wake {
    mark: AtomicU32,
    rung: Mutex<bool>,
    changed: Condvar,
    lapse: Lapse,
}

impl Wake {
    pub fn new(lapse: Lapse) -> Self {
        Self {
            mark: AtomicU32::new(0),
            rung: Mutex::new(false),
            changed: Condvar::new(),
            lapse,
        }
    }

    /// Wake the other side if it sleeps; after progress that is fenced.
    pub fn ring_if_marked(&self) {
        if self.mark.load(Relaxed) & ARMED != 0 && self.mark.fetch_and(!ARMED, AcqRel) & ARMED != 0
        {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    /// Sleep until the other side has rung, unless `progress` shows that there is no need to.
    fn sleep_unless(&self, progress: impl FnOnce() -> bool) {
        self.mark.fetch_or(ARMED, AcqRel);
        if self.lapse != Lapse::FenceBeforeLook {
            fence(SeqCst);
        }
        if self.lapse == Lapse::Look || !progress() {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }
        self.mark.fetch_and(!ARMED, AcqRel);
    }
}

/// What the two sides of a lane share besides the lane.
pub struct Shared {
    /// `ARMED` in the receiver's flags, and the doorbell.
    pub data: Wake,
    /// `space_wanted`, and the bell for it.
    pub space: Wake,
}

impl Shared {
    pub fn new(data: Lapse, space: Lapse) -> Self {
        Self {
            data: Wake::new(data),
            space: Wake::new(space),
        }
    }

    /// The receiver has found the ring empty.
    pub fn sleep_for_data(&self, side: &ReceiveSide<LoomLane>) {
        self.data
            .sleep_unless(|| side.cursor.has_record(&side.lane));
    }

    /// The sender has found the ring full.
    pub fn sleep_for_space(&self, side: &mut SendSide<LoomLane>) {
        self.space.sleep_unless(|| side.writable().unwrap());
    }
}
