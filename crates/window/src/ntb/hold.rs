//! A bridge that is held open for monitors and programs: they map the file that the other host writes, and the region in
//! sysfs that leads there. Who holds it only sees to it that writes arrive, or that nobody takes a gap for data.
//!
//! Writes that meet no link vanish, and lanes expect memory that is late at most. So when the link has been down, however
//! briefly, nothing is let in for [`QUIET`]: beats of the monitors do not show, and the window is lost as any that carries
//! nothing. The header's first word is taken away as well, which a monitor sees that talks to nobody.

use std::any::Any;
use std::io;
use std::mem::{Discriminant, discriminant};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crosslane_sys::event::readable;

use super::bridge::{Bridge, Device, Link};
use super::error::NtbError;
use super::meet::{self, Met};
use super::window::fresh_epoch;
use super::{Lent, gen4};

mod memory;

pub use memory::HeldMemory;

/// For how long nothing is let in after a gap, and how long who writes has to leave before the device is let go. Monitors
/// find out within a second that a window carries nothing.
pub const QUIET: Duration = Duration::from_secs(2);

/// How often the file, the link and the other host are looked at that tell of nothing themselves.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait for the other host between two looks at whether to stop.
const SLICE: Duration = Duration::from_millis(500);
/// A link that has just come may come once more.
const SETTLE: Duration = Duration::from_millis(50);

/// What is to be held.
pub struct Held {
    /// The bridge.
    pub device: Device,
    /// The file, as the device finds it.
    pub lent: Lent,
    /// The file.
    pub memory: HeldMemory,
    /// What has to live as long as the device may write.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// What has become of it.
#[derive(Debug)]
pub enum State<'a> {
    /// What either host writes arrives at the other.
    Open(Met, Link),
    /// Nothing is let in: the other host is waited for, or a gap is waited out.
    Closed(&'a NtbError),
    /// Nothing is let in any more; who writes has some time to leave.
    Ending,
}

/// Hold a bridge open until `stop` can be read, and tell of each change.
///
/// # Errors
/// If the device is gone or does not do as it is told, the file is another, or the other host does not fit.
pub fn hold(
    held: Held,
    stop: BorrowedFd<'_>,
    tell: &mut dyn FnMut(State<'_>),
) -> Result<(), NtbError> {
    let mut holder = Holder {
        bridge: Bridge::open(held.device)?,
        has_been_open: false,
        lent: held.lent,
        memory: held.memory,
        _keep: held.keep,
    };
    let ended = holder.run(stop, tell);
    holder.leave(tell);
    ended
}

/// In the order in which it is let go: nothing comes in any more, then the device is closed, and with it the IOMMU's way to the
/// memory, which keeps its pages until then.
struct Holder {
    bridge: Bridge,
    has_been_open: bool,
    lent: Lent,
    memory: HeldMemory,
    _keep: Box<dyn Any + Send + Sync>,
}

impl Holder {
    fn run(
        &mut self,
        stop: BorrowedFd<'_>,
        tell: &mut dyn FnMut(State<'_>),
    ) -> Result<(), NtbError> {
        // An earlier holder may have been killed, which is a gap like any other.
        self.shut();
        if self.stops(stop, QUIET)? {
            return Ok(());
        }
        loop {
            let Some(met) = self.meet(stop, tell)? else {
                return Ok(());
            };
            self.has_been_open = true;
            tell(State::Open(met, self.bridge.link()?));
            let Some(why) = self.watch(met, stop)? else {
                return Ok(());
            };
            self.shut();
            tell(State::Closed(&why));
            if self.stops(stop, QUIET)? {
                return Ok(());
            }
        }
    }

    /// Meet the other host, however long that takes, and let in what it writes; `None` if told to stop.
    fn meet(
        &self,
        stop: BorrowedFd<'_>,
        tell: &mut dyn FnMut(State<'_>),
    ) -> Result<Option<Met>, NtbError> {
        let (since, epoch) = (Instant::now(), fresh_epoch());
        let mut told: Option<Discriminant<NtbError>> = None;
        // What rang for an earlier driver means nothing.
        self.bridge.clear_doorbells(gen4::ALL_DOORBELLS);
        self.bridge.enable_link()?;
        while !self.stops(stop, Duration::ZERO)? {
            self.memory.check()?;
            let mut error = match self.try_to_meet(epoch) {
                Ok(met) => return Ok(Some(met)),
                Err(error) => error,
            };
            match &mut error {
                NtbError::LinkDown { waited, .. } | NtbError::Silent { waited, .. } => {
                    *waited = since.elapsed();
                }
                _ => return Err(error),
            }
            if told != Some(discriminant(&error)) {
                told = Some(discriminant(&error));
                tell(State::Closed(&error));
            }
        }
        Ok(None)
    }

    fn try_to_meet(&self, epoch: u32) -> Result<Met, NtbError> {
        self.bridge.wait_for_link(SLICE)?;
        // What the link has done so far has cost nobody anything. From here on it is a gap.
        while self.bridge.has_link_changed(SETTLE)? {}
        let bytes = self.lent.mapping.bytes() as u64;
        self.bridge.translate(self.lent.address, bytes)?;
        let met = meet::meet(&self.bridge, bytes, epoch, SLICE);
        met.inspect_err(|_| self.bridge.close())
    }

    /// Look until something is wrong, and return what; `None` if told to stop.
    fn watch(&self, met: Met, stop: BorrowedFd<'_>) -> Result<Option<NtbError>, NtbError> {
        loop {
            let link = self.bridge.link_event().as_fd();
            let [stops, _] = readable([stop, link], LOOK).map_err(|cause| self.deaf(cause))?;
            if stops {
                return Ok(None);
            }
            self.memory.check()?;
            let has_changed = self.bridge.has_link_changed(Duration::ZERO)?;
            match meet::check(&self.bridge, met) {
                Err(why @ (NtbError::LinkDown { .. } | NtbError::Restarted { .. })) => {
                    return Ok(Some(why));
                }
                Err(error) => return Err(error),
                Ok(()) if has_changed => {
                    let address = self.bridge.address().to_owned();
                    return Ok(Some(NtbError::Interrupted { address }));
                }
                Ok(()) => {}
            }
        }
    }

    /// Let nothing in, and let the monitor here see it.
    fn shut(&self) {
        self.bridge.close();
        // Answered behind what was under way: a header that comes later would be a window again. What a device says that is
        // gone does not matter.
        let _ = self.bridge.link();
        self.memory.forget_header();
    }

    fn leave(&self, tell: &mut dyn FnMut(State<'_>)) {
        self.shut();
        self.bridge.disable_link();
        if self.has_been_open {
            tell(State::Ending);
            // A device that is closed answers no more, and programs here write into its region until their monitor has told
            // them.
            std::thread::sleep(QUIET);
        }
    }

    fn stops(&self, stop: BorrowedFd<'_>, most: Duration) -> Result<bool, NtbError> {
        let [stops] = readable([stop], most).map_err(|cause| self.deaf(cause))?;
        Ok(stops)
    }

    fn deaf(&self, cause: io::Error) -> NtbError {
        NtbError::Event {
            address: self.bridge.address().to_owned(),
            cause,
        }
    }
}
