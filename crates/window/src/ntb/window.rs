//! The window that two bridges make.

use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::bridge::{Bridge, Device};
use super::error::NtbError;
use super::meet::{self, Met};
use super::{Aperture, Lent, Parts, gen4};
use crate::backend::{Memory, Window, WindowError};
use crate::policy::Traits;

/// A window over a bridge. Each host reads its own memory and writes the other's through the region.
pub struct NtbWindow {
    // First, so that nothing comes in any more before its memory is given back.
    bridge: Bridge,
    /// Changed by meeting again.
    met: Mutex<Met>,
    /// What can be written of each memory; stays.
    bytes: usize,
    lent: Lent,
    aperture: Aperture,
    _keep: Box<dyn Any + Send + Sync>,
}

impl NtbWindow {
    /// Bring the link up, lend the memory, and meet the other host, which has to do the same.
    ///
    /// # Errors
    /// If any of that fails, or takes longer than `patience`.
    pub fn open(parts: Parts, patience: Duration) -> Result<Self, NtbError> {
        let Parts {
            address,
            id,
            registers,
            aperture,
            lent,
            doorbell,
            link,
            keep,
        } = parts;
        let bridge = Bridge::open(Device {
            address,
            id,
            registers,
            bar: aperture.bar,
            start: aperture.start,
            bytes: aperture.mapping.bytes() as u64,
            doorbell,
            link,
        })?;
        let met = connect(&bridge, &lent, patience)?;
        Ok(Self {
            bridge,
            met: Mutex::new(met),
            bytes: usize::try_from(met.bytes).unwrap_or(usize::MAX),
            lent,
            aperture,
            _keep: keep,
        })
    }

    /// Whether both hosts are as they were when they met.
    ///
    /// # Errors
    /// If the link or the device is gone, or the other host has begun anew.
    pub fn check(&self) -> Result<(), NtbError> {
        meet::check(&self.bridge, self.met())
    }

    /// Meet the other host again, after the link was gone or it has begun anew. What is in the window
    /// means nothing then: writes that met no link have vanished.
    ///
    /// # Errors
    /// As [`NtbWindow::open`]; and if the other host lends less than before.
    pub fn meet_again(&self, patience: Duration) -> Result<(), NtbError> {
        let met = connect(&self.bridge, &self.lent, patience)?;
        if met.bytes < self.bytes as u64 {
            return Err(NtbError::TheirSize {
                address: self.bridge.address().to_owned(),
                bytes: met.bytes,
                least: self.bytes as u64,
            });
        }
        *self.met.lock().unwrap_or_else(PoisonError::into_inner) = met;
        Ok(())
    }

    /// The bridge.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// What was agreed upon with the other host.
    pub fn met(&self) -> Met {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(bridge: &Bridge, lent: &Lent, patience: Duration) -> Result<Met, NtbError> {
    let deadline = Instant::now() + patience;
    let bytes = lent.mapping.bytes() as u64;
    bridge.translate(lent.address, bytes)?;
    // What rang for an earlier driver means nothing.
    bridge.clear_doorbells(gen4::ALL_DOORBELLS);
    bridge.enable_link()?;
    bridge.wait_for_link(patience)?;
    let rest = deadline.saturating_duration_since(Instant::now());
    meet::meet(bridge, bytes, fresh_epoch(), rest)
}

/// A number that was not used before, as far as chance goes, and is neither 0 nor all ones.
#[expect(clippy::cast_possible_truncation, reason = "half of a random number")]
pub(super) fn fresh_epoch() -> u32 {
    let random = RandomState::new().build_hasher().finish() as u32;
    random & !(1 << 31) | 1
}

impl Window for NtbWindow {
    fn traits(&self) -> Traits {
        match self.aperture.is_combined {
            true => Traits::COMBINED_BRIDGE,
            false => Traits::UNCACHED_BAR,
        }
    }

    fn description(&self) -> String {
        let way = match self.aperture.is_combined {
            true => "write-combining",
            false => "uncached",
        };
        let link = self.bridge.link();
        let link = link.map_or_else(|_| "device gone".to_owned(), |link| link.to_string());
        let bar = self.aperture.bar;
        format!("Intel NTB, Ice Lake, BAR {bar}, {way}, {link}")
    }

    fn side(&self) -> Option<u8> {
        Some(self.bridge.side().number())
    }

    fn check(&self) -> Result<(), WindowError> {
        Ok(Self::check(self)?)
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Apart {
            local: &self.lent.mapping,
            remote: &self.aperture.mapping,
            bytes: self.bytes,
        }
    }
}
