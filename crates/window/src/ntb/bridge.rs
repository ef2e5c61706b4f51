//! What can be done with a bridge: links, translations, scratchpads, doorbells.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crosslane_sys::event::Event;

use super::Id;
use super::error::NtbError;
use super::gen4::{self, Incoming};
use super::registers::{Register, Registers};

/// How often a link is looked at that may come without an interrupt.
const LOOK: Duration = Duration::from_millis(20);

/// Which of the two bridges of a link it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one nearer to the root.
    Upstream,
    /// The other.
    Downstream,
}

impl Side {
    /// Its number, as windows have sides.
    pub const fn number(self) -> u8 {
        match self {
            Self::Upstream => 0,
            Self::Downstream => 1,
        }
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether anything passes.
    pub is_up: bool,
    /// PCIe's generation, which is the speed of a lane.
    pub generation: u8,
    /// How many lanes it has.
    pub lanes: u8,
}

impl Link {
    /// What the register says.
    fn of(status: u64) -> Self {
        let field = |shift: u32, mask: u64| u8::try_from(status >> shift & mask).unwrap_or(0);
        Self {
            is_up: status & gen4::LINK_ACTIVE != 0,
            generation: field(0, 0xf),
            lanes: field(4, 0x3f),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_up {
            true => write!(to, "PCIe {} x{}", self.generation, self.lanes),
            false => write!(to, "link down"),
        }
    }
}

/// A bridge as its driver is given it.
pub struct Device {
    /// Where it is, for people.
    pub address: String,
    /// What it is.
    pub id: Id,
    /// Its registers.
    pub registers: Box<dyn Registers>,
    /// The region that leads to the other host: 2 or 4.
    pub bar: u32,
    /// Where that begins on this host's bus.
    pub start: u64,
    /// How large it is.
    pub bytes: u64,
    /// Told at each doorbell that is not masked.
    pub doorbell: Event,
    /// Told when the link comes or goes.
    pub link: Event,
}

impl Device {
    /// Which of the two it is.
    fn side(&self) -> Result<Side, NtbError> {
        let found = self.read(gen4::TOPOLOGY)?;
        match found & gen4::TOPOLOGY_MASK {
            gen4::UPSTREAM => Ok(Side::Upstream),
            gen4::DOWNSTREAM => Ok(Side::Downstream),
            _ => {
                let address = self.address.clone();
                Err(NtbError::NotBackToBack { address, found })
            }
        }
    }

    /// Read a register that has a bit which is never set.
    fn read(&self, register: Register) -> Result<u64, NtbError> {
        let value = self.registers.read(register);
        if value == register.ones() {
            return Err(self.is_gone(register));
        }
        Ok(value)
    }

    fn is_gone(&self, register: Register) -> NtbError {
        NtbError::Removed {
            address: self.address.clone(),
            register: register.name,
        }
    }
}

/// A bridge that is being driven. When dropped, it lets nothing more in.
pub struct Bridge {
    device: Device,
    incoming: Incoming,
    side: Side,
    /// Doorbells that interrupt nobody.
    masked: Mutex<u64>,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Device { address, bar, .. } = &self.device;
        write!(to, "Bridge({address}/{bar}, {:?})", self.side)
    }
}

impl Bridge {
    /// Take a bridge: nothing comes in, no doorbell interrupts, the link is down.
    ///
    /// # Errors
    /// If it is another device, is not there, or stands alone.
    pub fn open(device: Device) -> Result<Self, NtbError> {
        let Id {
            vendor,
            device: number,
            revision,
        } = device.id;
        let is_known = super::is_driven((vendor, number)) && gen4::REVISIONS.contains(&revision);
        if !is_known {
            return Err(NtbError::OtherDevice {
                address: device.address,
                vendor,
                device: number,
                revision,
            });
        }
        let incoming = match device.bar {
            2 => gen4::INCOMING[0],
            4 => gen4::INCOMING[1],
            bar => {
                let address = device.address;
                return Err(NtbError::NoAperture { address, bar });
            }
        };
        // Before there is a bridge, which would be written to when it is dropped.
        let side = device.side()?;
        let bridge = Self {
            device,
            incoming,
            side,
            masked: Mutex::new(gen4::ALL_DOORBELLS),
        };
        bridge.quiet();
        bridge.route_interrupts();
        Ok(bridge)
    }

    /// As it is left, too.
    fn quiet(&self) {
        self.close();
        self.write(gen4::INTERRUPT_DISABLE, gen4::ALL_DOORBELLS);
        self.write(gen4::INTERRUPT_STATUS, gen4::ALL_DOORBELLS);
        self.disable_link();
    }

    /// After a reset the link has the first interrupt and doorbells those behind: put them in order.
    fn route_interrupts(&self) {
        for vector in 0..gen4::VECTORS {
            self.write(gen4::VECTOR.nth(vector), vector as u64);
        }
    }

    /// Where it is, for people.
    pub fn address(&self) -> &str {
        &self.device.address
    }

    /// Which of the two it is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Let the link come up as soon as the other host does the same.
    ///
    /// # Errors
    /// If the device is gone, or does not train.
    pub fn enable_link(&self) -> Result<(), NtbError> {
        self.write(gen4::CONTROL, gen4::CONTROL_SNOOPS);
        let control = self.read(gen4::LINK_CONTROL)?;
        self.write(gen4::LINK_CONTROL, control & !gen4::LINK_DISABLE);
        let trains = self.read(gen4::PORT)? | gen4::PORT_TRAINS;
        // Among its other bits are states, which change by themselves or by being written.
        self.put_bits(gen4::PORT, trains, gen4::PORT_TRAINS)
    }

    /// Take the link down.
    pub fn disable_link(&self) {
        self.write(gen4::CONTROL, 0);
        // A device that is gone reads as ones, and takes no harm.
        let control = self.device.registers.read(gen4::LINK_CONTROL);
        self.write(gen4::LINK_CONTROL, control | gen4::LINK_DISABLE);
    }

    /// How the link is.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn link(&self) -> Result<Link, NtbError> {
        // In this order, or the second does nothing.
        self.write(gen4::SLOT_STATUS, gen4::SLOT_LINK_CHANGED);
        self.write(gen4::INTERRUPT_STATUS, gen4::LINK_CHANGED);
        Ok(Link::of(self.read(gen4::LINK_STATUS)?))
    }

    /// Wait until the link is up.
    ///
    /// # Errors
    /// If it does not come.
    pub fn wait_for_link(&self, patience: Duration) -> Result<Link, NtbError> {
        let start = Instant::now();
        loop {
            let link = self.link()?;
            if link.is_up {
                return Ok(link);
            }
            if start.elapsed() >= patience {
                return Err(NtbError::LinkDown {
                    address: self.device.address.clone(),
                    status: self.read(gen4::LINK_STATUS)?,
                    waited: patience,
                });
            }
            self.wait(&self.device.link, LOOK)?;
        }
    }

    /// Whether the link has come or gone since this was asked or a link was waited for, after at most this time. A link that
    /// is up may have been down meanwhile.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_link_changed(&self, most: Duration) -> Result<bool, NtbError> {
        self.wait(&self.device.link, most)
    }

    /// What is told when the link comes or goes, to be polled beside others.
    pub fn link_event(&self) -> &Event {
        &self.device.link
    }

    /// Let what the other host writes into its region arrive in memory that this bridge finds at `at`.
    ///
    /// # Errors
    /// If the bridge cannot translate to there, or does not take it. Nothing comes in then.
    pub fn translate(&self, at: u64, bytes: u64) -> Result<(), NtbError> {
        let Device {
            bar,
            start,
            bytes: most,
            ..
        } = self.device;
        let address = || self.device.address.clone();
        if !bytes.is_power_of_two() || !(4096..=most).contains(&bytes) {
            return Err(NtbError::Size {
                address: address(),
                bar,
                bytes,
                most,
            });
        }
        if !at.is_multiple_of(most) {
            return Err(NtbError::Unaligned {
                address: address(),
                bar,
                at,
                multiple: most,
            });
        }
        self.close();
        let Incoming { base, limit, index } = self.incoming;
        let set = self
            .put(base, at)
            .and_then(|()| self.put(index, u64::from(bytes.ilog2())))
            // Last: from now on it comes in.
            .and_then(|()| self.put(limit, start + bytes));
        set.inspect_err(|_| self.close())
    }

    /// Let nothing in any more.
    pub fn close(&self) {
        let Incoming { base, limit, index } = self.incoming;
        self.write(limit, self.device.start);
        self.write(base, 0);
        self.write(index, 0);
    }

    /// A word that the other host has written for us.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn scratchpad(&self, number: usize) -> u32 {
        assert!(number < gen4::SCRATCHPADS, "scratchpad {number}");
        self.word(gen4::SCRATCHPAD.nth(number))
    }

    /// Write such a word ourselves.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn set_scratchpad(&self, number: usize, word: u32) {
        assert!(number < gen4::SCRATCHPADS, "scratchpad {number}");
        self.write(gen4::SCRATCHPAD.nth(number), u64::from(word));
    }

    /// A word that we have written for the other host: a read across the link, for tests and people.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn peer_scratchpad(&self, number: usize) -> u32 {
        assert!(number < gen4::SCRATCHPADS, "scratchpad {number}");
        self.word(gen4::PEER_SCRATCHPAD.nth(number))
    }

    /// Write a word for the other host. It vanishes where the link is down.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn set_peer_scratchpad(&self, number: usize, word: u32) {
        assert!(number < gen4::SCRATCHPADS, "scratchpad {number}");
        self.write(gen4::PEER_SCRATCHPAD.nth(number), u64::from(word));
    }

    /// Ring doorbells at the other host, a bit for each.
    ///
    /// # Panics
    /// If there are no such doorbells.
    pub fn ring(&self, bells: u64) {
        assert!(bells & !gen4::ALL_DOORBELLS == 0, "doorbells {bells:#x}");
        for bell in (0..gen4::DOORBELLS).filter(|bell| bells >> bell & 1 != 0) {
            self.write(gen4::PEER_DOORBELL.nth(bell), 1);
        }
    }

    /// Doorbells that have been rung here and not been cleared, masked ones too.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn doorbells(&self) -> Result<u64, NtbError> {
        Ok(self.read(gen4::INTERRUPT_STATUS)? & gen4::ALL_DOORBELLS)
    }

    /// Clear doorbells.
    ///
    /// # Panics
    /// If there are no such doorbells.
    pub fn clear_doorbells(&self, bells: u64) {
        assert!(bells & !gen4::ALL_DOORBELLS == 0, "doorbells {bells:#x}");
        self.write(gen4::INTERRUPT_STATUS, bells);
    }

    /// Let these doorbells interrupt, and no others.
    ///
    /// # Panics
    /// If there are no such doorbells.
    pub fn unmask_only(&self, bells: u64) {
        assert!(bells & !gen4::ALL_DOORBELLS == 0, "doorbells {bells:#x}");
        let mut masked = self.masked.lock().unwrap_or_else(PoisonError::into_inner);
        *masked = gen4::ALL_DOORBELLS & !bells;
        // The link's bit stays as it is: not disabled.
        self.write(gen4::INTERRUPT_DISABLE, *masked);
    }

    /// Wait until a doorbell interrupts, or the time is over. Returns those that have been rung, and
    /// clears them.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn wait_for_doorbells(&self, most: Duration) -> Result<u64, NtbError> {
        self.wait(&self.device.doorbell, most)?;
        let masked = *self.masked.lock().unwrap_or_else(PoisonError::into_inner);
        let rung = self.doorbells()? & !masked;
        self.clear_doorbells(rung);
        Ok(rung)
    }

    fn wait(&self, event: &Event, most: Duration) -> Result<bool, NtbError> {
        event.wait(most).map_err(|cause| NtbError::Event {
            address: self.device.address.clone(),
            cause,
        })
    }

    fn write(&self, register: Register, value: u64) {
        self.device.registers.write(register, value);
    }

    fn read(&self, register: Register) -> Result<u64, NtbError> {
        self.device.read(register)
    }

    fn word(&self, register: Register) -> u32 {
        u32::try_from(self.device.registers.read(register)).unwrap_or(u32::MAX)
    }

    /// Write a register and see that it has taken it.
    fn put(&self, register: Register, wrote: u64) -> Result<(), NtbError> {
        self.put_bits(register, wrote, register.ones())
    }

    /// Write a register and see that it has taken some of its bits.
    fn put_bits(&self, register: Register, wrote: u64, bits: u64) -> Result<(), NtbError> {
        self.write(register, wrote);
        let read = self.read(register)?;
        if (read ^ wrote) & bits != 0 {
            return Err(NtbError::Refused {
                address: self.device.address.clone(),
                register: register.name,
                wrote,
                read,
            });
        }
        Ok(())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.quiet();
    }
}
