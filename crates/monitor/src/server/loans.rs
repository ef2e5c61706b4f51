//! The slabs of ends whose sockets go to other processes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crosslane_ctl::slab::SLAB_BYTES;
use crosslane_sys::memory::is_sealed;
use crosslane_window::slab::SlabMap;

use super::Monitor;
use super::message::{Fault, process_of};
use crate::registry::{ClientId, FamilyId};

/// How often loans are looked at; those whose lender is gone live for two to three times as long.
const LOOK: Duration = Duration::from_secs(30);

impl Monitor {
    /// A client lends an end, and shows the slab in which its cursors are.
    pub(super) fn lend(
        &mut self,
        client: ClientId,
        token: u64,
        (member, has_rings): (u16, bool),
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), Fault> {
        let slab = fds.last().ok_or(Fault::NoDescriptor)?;
        // Anything but a memory object might not answer.
        let is_memory = is_sealed(slab.as_fd(), SLAB_BYTES);
        let origin = self.registry.origin_of(client, token);
        let known = origin.filter(|family| {
            let identity = rustix::fs::fstat(slab).map(|found| (found.st_dev, found.st_ino));
            is_memory && identity.is_ok_and(|identity| self.knows_slab(*family, identity))
        });
        let Some(family) = known else {
            self.registry.refuse_loan(client, token);
            return Ok(());
        };
        if self.registry.lend(client, token, member, has_rings)
            && let Some(slab) = fds.pop()
        {
            self.lent_slabs
                .entry(family)
                .or_insert_with(|| Arc::new(slab));
            self.loans_due.get_or_insert_with(|| Instant::now() + LOOK);
        }
        Ok(())
    }

    /// A client has been sent the slab of a family: what it has adopted is shown there, also when
    /// the lender is gone.
    pub(super) fn welcome_adopter(&mut self, id: u64, lender: FamilyId) {
        let Some(slab) = self.lent_slabs.get(&lender).map(Arc::clone) else {
            return;
        };
        let (Ok(found), Ok(map)) = (rustix::fs::fstat(&*slab), SlabMap::open(slab.as_fd())) else {
            return;
        };
        let connection = self.connection(id);
        let Some((member, peer)) = connection.and_then(|c| Some((c.member?, c.peer))) else {
            return;
        };
        let identity = (found.st_dev, found.st_ino);
        let process = process_of(peer);
        let shown = self.families.join(member.client, process, identity, map);
        if let Some(connection) = self.connection(id) {
            connection.guest_of.push(shown);
        }
    }

    /// Whether this memory object is the family's slab.
    fn knows_slab(&self, family: FamilyId, identity: (u64, u64)) -> bool {
        let is_same = |slab: &Arc<OwnedFd>| {
            rustix::fs::fstat(slab).is_ok_and(|found| (found.st_dev, found.st_ino) == identity)
        };
        match self.families.find(family) {
            Some(found) => found.is(identity),
            None => self.lent_slabs.get(&family).is_some_and(is_same),
        }
    }

    /// Give up old loans, and the slabs that are not needed for any.
    pub(super) fn look_at_loans(&mut self) {
        if self.loans_due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        self.registry.age_loans();
        self.deliver();
        let registry = &self.registry;
        self.lent_slabs
            .retain(|family, _| registry.is_lender(*family));
        self.loans_due = (!self.lent_slabs.is_empty()).then(|| Instant::now() + LOOK);
    }
}
