//! A host's end of the model: the parts of a bridge, as its driver wants them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use crosslane_sys::event::Event;
use crosslane_sys::memory::{Mapping, create_sealed};
use crosslane_window::ntb::bridge::Device;
use crosslane_window::ntb::hold::{Held, HeldMemory};
use crosslane_window::ntb::{Aperture, Id, Lent, Parts, Register, Registers};

use crate::message::{READ, WRITE, receive, send};

/// How a host is to be attached.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// 0 for upstream, 1 for downstream.
    pub side: usize,
    /// Bytes that it lends.
    pub lent_bytes: usize,
    /// Where its device finds them.
    pub lent_address: u64,
}

impl Setup {
    /// A host that lends memory where every region may lead.
    pub fn of(side: usize, lent_bytes: usize) -> Self {
        Self {
            side,
            lent_bytes,
            lent_address: 1 << 32,
        }
    }
}

/// What Ice Lake's is.
pub const ID: Id = Id {
    vendor: 0x8086,
    device: 0x347e,
    revision: 4,
};

/// Attach to the model behind a socket.
///
/// # Errors
/// The kernel's, or that the model is not there.
pub fn attach(stream: UnixStream, setup: Setup) -> io::Result<Parts> {
    let memory = create_sealed(c"ntb-model", setup.lent_bytes)?;
    let (device, region) = attach_lending(stream, setup, memory.as_fd())?;
    let mapping = Mapping::shared(memory.as_fd(), setup.lent_bytes)?;
    Ok(Parts {
        address: device.address,
        id: device.id,
        registers: device.registers,
        aperture: Aperture {
            bar: device.bar,
            start: device.start,
            mapping: region,
            is_combined: true,
        },
        lent: Lent {
            mapping,
            address: setup.lent_address,
        },
        doorbell: device.doorbell,
        link: device.link,
        keep: Box::new(()),
    })
}

/// Attach a bridge that lends a file, and is held open for others.
///
/// # Errors
/// As [`attach`].
pub fn attach_held(stream: UnixStream, side: usize, memory: HeldMemory) -> anyhow::Result<Held> {
    let setup = Setup::of(side, usize::try_from(memory.bytes())?);
    let (device, _) = attach_lending(stream, setup, memory.as_fd())?;
    Ok(Held {
        device,
        lent: Lent {
            mapping: memory.map()?,
            address: setup.lent_address,
        },
        memory,
        keep: Box::new(()),
    })
}

/// The bridge, and its region as this process maps it.
fn attach_lending(
    stream: UnixStream,
    setup: Setup,
    memory: BorrowedFd<'_>,
) -> io::Result<(Device, Arc<Mapping>)> {
    let (doorbell, link) = (Event::new()?, Event::new()?);
    let (ours, theirs) = UnixStream::pair()?;
    let fds = [memory, doorbell.as_fd(), link.as_fd(), theirs.as_fd()];
    let words = [
        setup.side as u64,
        setup.lent_address,
        setup.lent_bytes as u64,
        0,
    ];
    send(&stream, words, &fds)?;
    let ([start, bytes, ..], _) = receive(&stream)?;
    let mapped = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let region = Arc::new(Mapping::private(mapped)?);
    let led = Arc::clone(&region);
    std::thread::spawn(move || lead(&led, &ours));
    let device = Device {
        address: format!("model:{}", setup.side),
        id: ID,
        registers: Box::new(Remote(Mutex::new(stream))),
        bar: 2,
        start,
        bytes,
        doorbell,
        link,
    };
    Ok((device, region))
}

/// Let the region lead where the model says, as long as there is a model. What leads nowhere goes to memory
/// that nobody reads.
fn lead(region: &Mapping, model: &UnixStream) {
    while let Ok(([bytes, offset, ..], memory)) = receive(model) {
        let led = region.replace_private().is_ok() && way(region, bytes, offset, &memory).is_some();
        if send(model, [u64::from(led), 0, 0, 0], &[]).is_err() {
            return;
        }
    }
}

fn way(region: &Mapping, bytes: u64, offset: u64, memory: &[OwnedFd]) -> Option<()> {
    let (bytes, offset) = (usize::try_from(bytes).ok()?, usize::try_from(offset).ok()?);
    if bytes == 0 {
        return Some(());
    }
    let memory = memory.first()?.as_fd();
    region.replace_first_shared_at(bytes, memory, offset).ok()
}

/// Registers that the model has. One that does not answer is a device that is gone.
struct Remote(Mutex<UnixStream>);

impl Remote {
    fn ask(&self, what: u64, register: Register, value: u64) -> io::Result<u64> {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = [what, register.at as u64, u64::from(register.bits), value];
        send(&stream, words, &[])?;
        let ([answer, ..], _) = receive(&stream)?;
        Ok(answer)
    }
}

impl Registers for Remote {
    fn read(&self, register: Register) -> u64 {
        let answer = self.ask(READ, register, 0);
        answer.unwrap_or(register.ones())
    }

    fn write(&self, register: Register, value: u64) {
        // A posted write tells nobody whether it arrived.
        let _ = self.ask(WRITE, register, value);
    }
}
