//! Forks: the child goes on without the parent's connection to the monitor, and in its rings.

use core::sync::atomic::Ordering;

use crosslane_ctl::message::ClientMessage;
use crosslane_sys::busy::MutexGuard;
use crosslane_sys::kernel;
use crosslane_window::arena::Arena;

use super::{CONTROL, Control, OwnFd};
use crate::process::{self, Children, Process};
use crate::{spare, stir, watcher, within};

/// Held while the process forks, so that the child finds the control socket in order.
pub struct Fork {
    control: MutexGuard<'static, Control>,
    _returned: Option<MutexGuard<'static, Vec<u32>>>,
    _within: MutexGuard<'static, Vec<within::Pair>>,
    _spare: MutexGuard<'static, Vec<&'static Arena>>,
    watcher: MutexGuard<'static, Option<watcher::Thread>>,
    lease: Option<[OwnFd; 2]>,
    child: Children,
}

/// Prepare for a fork: while children may use rings that were granted to this process, the
/// monitor must not give them to others. The child keeps one end of a socket pair, the monitor
/// learns of its death by the other.
pub fn before_fork(process: &'static Process) -> Option<Fork> {
    let mut control = CONTROL.lock().ok()?;
    let child = process.lend_to_child();
    control.inherited.reserve(1);
    let has_socket = control.socket.is_some();
    let lease = control.lease();
    if lease.is_none() && has_socket {
        // The child keeps the parent's connection to the monitor instead, for which nothing may be released that it
        // may be using.
        process
            .ends()
            .for_each(|end| end.local.unleased.store(1, Ordering::Relaxed));
    }
    Some(Fork {
        control,
        _returned: process.hold_returned(),
        _within: within::hold(),
        _spare: spare::hold(),
        watcher: watcher::hold(),
        lease,
        child,
    })
}

impl Control {
    /// Tell the monitor that a child may live longer than this process, by one end of a pair.
    fn lease(&mut self) -> Option<[OwnFd; 2]> {
        self.socket.as_ref()?;
        let pair = kernel::socket_pair().ok()?.map(OwnFd::new);
        let given = Some(pair[1].number());
        self.send(&ClientMessage::Lease, given).ok().map(|()| pair)
    }
}

impl Fork {
    /// Go on in the parent. Returns who the child is, if there is one.
    pub fn parent(self) -> Children {
        let Self { child, watcher, .. } = self;
        drop(watcher);
        if let Some(process) = process::get() {
            watcher::make_up(process);
        }
        child
    }

    /// Go on in the child, which has no connection to the monitor until it needs one.
    pub fn child(mut self, process: &'static Process) {
        process.adopt(self.child);
        let parents = self.control.socket.take();
        let kept = match self.lease.take() {
            Some([keep, _]) => Some(keep),
            None => parents,
        };
        self.control.inherited.extend(kept);
        watcher::leave_behind(&mut self.watcher);
        stir::leave_behind();
        self.control.failed = None;
        // Not freed: a child of clone(2) may find the heap locked by a thread that it has not.
        core::mem::forget(self.control.waiting.take());
        core::mem::forget(self.control.asked.take());
        core::mem::forget(core::mem::take(&mut self.control.owed));
    }
}
