//! The model, given to two hosts.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crosslane_sys::event::Event;

use crate::device::{Device, Effect};
use crate::message::{READ, WRITE, receive, send};

/// The vector that the driver is to give to the link.
const LINK_VECTOR: usize = 32;

/// A host that is attached.
struct Host {
    /// What it lends, and where its device finds that: what an IOMMU would know.
    memory: OwnedFd,
    address: u64,
    bytes: u64,
    doorbell: Event,
    link: Event,
    /// By which it is told where its region leads.
    routes: UnixStream,
    /// What it was told: how many bytes from where on.
    told: (u64, u64),
}

struct World {
    device: Device,
    hosts: [Option<Host>; 2],
}

/// The model, and what a test does to it.
#[derive(Clone)]
pub struct Model {
    world: Arc<Mutex<World>>,
}

impl Model {
    /// Two bridges with regions of so many bytes.
    pub fn new(region_bytes: u64) -> Self {
        let world = World {
            device: Device::new(region_bytes),
            hosts: [None, None],
        };
        Self {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Serve hosts that connect to a socket at `path`.
    ///
    /// # Errors
    /// If there can be no such socket.
    pub fn listen(&self, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let model = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                model.serve(stream);
            }
        });
        Ok(())
    }

    /// Serve a host in a thread of its own.
    pub fn serve(&self, stream: UnixStream) {
        let model = self.clone();
        std::thread::spawn(move || {
            // A host that ends closes its socket.
            if let Ok(side) = model.admit(&stream) {
                while model.answer(side, &stream).is_ok() {}
                model.dismiss(side);
            }
        });
    }

    /// Do something to the device, with all that follows.
    pub fn change(&self, change: impl FnOnce(&mut Device) -> Vec<Effect>) {
        let mut world = self.lock();
        let effects = change(&mut world.device);
        world.perform(&effects);
    }

    /// What a host's region leads to: the other host's memory from its beginning on, and how many bytes of it. `None` where
    /// that is nowhere, or not its beginning.
    ///
    /// # Errors
    /// The kernel's.
    pub fn beyond(&self, side: usize) -> io::Result<Option<(OwnedFd, u64)>> {
        let world = self.lock();
        let memory = world.hosts[1 - side].as_ref().map(|there| &there.memory);
        match (world.way(side), memory) {
            (Some((bytes, 0)), Some(memory)) => Ok(Some((memory.try_clone()?, bytes))),
            _ => Ok(None),
        }
    }

    /// What drivers did wrong.
    pub fn faults(&self) -> Vec<String> {
        self.lock().device.faults().to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, stream: &UnixStream) -> io::Result<usize> {
        let ([side, address, bytes, _], fds) = receive(stream)?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let side = usize::try_from(side).ok().filter(|side| *side < 2);
        let side = side.ok_or_else(invalid)?;
        let fds: [OwnedFd; 4] = fds.try_into().map_err(|_| invalid())?;
        let [memory, doorbell, link, routes] = fds;
        let mut world = self.lock();
        world.hosts[side] = Some(Host {
            memory,
            address,
            bytes,
            doorbell: doorbell.into(),
            link: link.into(),
            routes: routes.into(),
            told: (0, 0),
        });
        let effects = world.device.reset(side);
        world.perform(&effects);
        let (start, bytes) = world.device.region(side);
        send(stream, [start, bytes, 0, 0], &[])?;
        Ok(side)
    }

    fn answer(&self, side: usize, stream: &UnixStream) -> io::Result<()> {
        let ([what, at, bits, value], _) = receive(stream)?;
        let bits = u32::try_from(bits).unwrap_or(0);
        let mut world = self.lock();
        let answer = match what {
            READ => world.device.read(side, at, bits),
            WRITE => {
                let effects = world.device.write(side, at, bits, value);
                world.perform(&effects);
                0
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        send(stream, [answer, 0, 0, 0], &[])
    }

    /// A host has ended: its memory is nobody's any more.
    fn dismiss(&self, side: usize) {
        let mut world = self.lock();
        world.hosts[side] = None;
        let effects = world.device.reset(side);
        world.perform(&effects);
    }
}

impl World {
    fn perform(&mut self, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::Routes => [0, 1].into_iter().for_each(|side| self.route(side)),
                Effect::Interrupt { side, vector } => {
                    let Some(host) = &self.hosts[side] else {
                        continue;
                    };
                    let event = match vector {
                        LINK_VECTOR => &host.link,
                        _ => &host.doorbell,
                    };
                    // A host that has just ended hears nothing.
                    let _ = event.signal();
                }
            }
        }
    }

    /// Tell a host where its region leads now, and wait until it does.
    fn route(&mut self, side: usize) {
        let route = self.way(side).unwrap_or((0, 0));
        let [first, second] = &mut self.hosts;
        let (here, there) = match side {
            0 => (first, second),
            _ => (second, first),
        };
        let Some(here) = here.as_mut().filter(|here| here.told != route) else {
            return;
        };
        here.told = route;
        let memory = there.as_ref().map(|there| there.memory.as_fd());
        let (bytes, offset) = route;
        let told = send(&here.routes, [bytes, offset, 0, 0], memory.as_slice());
        // A host that has just ended needs no way.
        let answer = told.and_then(|()| receive(&here.routes));
        if let Ok(([led, ..], _)) = answer {
            assert_eq!(led, 1, "host {side} cannot map what its region leads to");
        }
    }

    /// How many bytes of a host's region lead anywhere, and from where on in the other's memory.
    fn way(&self, side: usize) -> Option<(u64, u64)> {
        let there = self.hosts[1 - side].as_ref()?;
        let first = self.device.route(side, 0)?;
        let offset = first.checked_sub(there.address)?;
        let (_, most) = self.device.region(side);
        // Page by page; what the IOMMU does not know leads nowhere.
        let leads = |at: &u64| {
            let to = self.device.route(side, *at);
            to == Some(first + at) && offset + at < there.bytes
        };
        let pages = (0..most).step_by(4096).take_while(leads).count();
        (pages > 0).then_some((pages as u64 * 4096, offset))
    }
}
