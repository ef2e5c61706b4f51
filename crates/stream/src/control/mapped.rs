//! Arenas that this process maps: when they come, and when they go.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use crosslane_ctl::message::Grant;
use crosslane_ctl::reason::Reason;
use crosslane_window::arena::Arena;

use super::Control;
use crate::process::Process;

impl Control {
    pub(super) fn arena(
        &mut self,
        grant: &Grant,
        fd: Option<OwnedFd>,
    ) -> Result<&'static Arena, Reason> {
        let key = (self.monitor, grant.arena);
        let arenas = self.arenas.get_or_insert_with(BTreeMap::new);
        if let Some(fd) = fd {
            let both = (&fd, self.beyond.take());
            let Some(arena) = open(&mut self.retired, both, grant) else {
                self.unmapped.push(key);
                return Err(Reason::NoMemory);
            };
            arenas.insert(key, arena);
        }
        let arena = *arenas.get(&key).ok_or(match self.unmapped.contains(&key) {
            true => Reason::NoMemory,
            // The kernel drops a passed descriptor for which there is no number left.
            false => Reason::NoDescriptors,
        })?;
        let fits = arena.geometry() == grant.geometry;
        fits.then_some(arena).ok_or(Reason::NoMemory)
    }

    pub(super) fn retire(&mut self, arena: u32) {
        let key = (self.monitor, arena);
        if let Some(arena) = self.arenas.as_mut().and_then(|arenas| arenas.remove(&key))
            && arena.retire().is_ok()
        {
            self.retired.push(arena);
        }
    }

    /// Let go of the arenas of earlier monitors, who cannot ask for it any more, when no lane in
    /// them is used.
    pub(super) fn retire_orphans(&mut self, process: &'static Process) {
        let (monitor, Some(arenas)) = (self.monitor, &mut self.arenas) else {
            self.has_orphans = false;
            return;
        };
        let is_orphan = |key: &(u32, u32)| key.0 != monitor;
        self.has_orphans = arenas.keys().any(is_orphan);
        if !self.has_orphans {
            return;
        }
        let used = process.lanes();
        arenas.retain(|key, arena| {
            let keep = !is_orphan(key) || used.iter().any(|lane| arena.contains(*lane));
            if !keep && arena.retire().is_ok() {
                self.retired.push(arena);
            }
            keep
        });
    }
}

/// Map an arena, at the addresses of a retired one if there is one of the same shape. Arenas are
/// never unmapped, so that a thread that peeks into a lane while another one closes the
/// connection reads stale memory at worst.
fn open(
    retired: &mut Vec<&'static Arena>,
    (fd, beyond): (&OwnedFd, Option<OwnedFd>),
    grant: &Grant,
) -> Option<&'static Arena> {
    let (geometry, location) = (grant.geometry, grant.location);
    let (fd, beyond) = (fd.as_fd(), beyond.as_ref().map(AsFd::as_fd));
    if let Some(place) = retired
        .iter()
        .position(|arena| arena.is_like(geometry, location))
    {
        let arena = retired.swap_remove(place);
        return arena.reuse(fd, beyond, location).is_ok().then_some(arena);
    }
    let arena = Arena::open_with(fd, beyond, geometry, location).ok()?;
    Some(Box::leak(Box::new(arena)))
}
