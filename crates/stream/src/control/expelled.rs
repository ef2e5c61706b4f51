//! Connections of which the monitor hears no more. Like those of children, they tell it by their end only that this process is
//! gone: until then it gives none of what it has granted here to others.

use crosslane_sys::kernel;

use super::{Control, OwnFd};

/// Connections that a monitor has ended. A process with so many asks no more.
pub(super) const MOST: usize = 4;

impl Control {
    /// Whether one more connection could be kept.
    pub(super) fn may_be_expelled(&self) -> bool {
        self.expelled.iter().any(is_free)
    }

    /// Have no connection any more.
    pub(super) fn hang_up(&mut self) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        let is_known = core::mem::take(&mut self.is_introduced);
        if is_known
            && is_watched(&socket)
            && let Some(place) = self.expelled.iter_mut().find(|place| is_free(place))
        {
            *place = Some(socket);
        }
    }
}

fn is_free(place: &Option<OwnFd>) -> bool {
    place.as_ref().is_none_or(|socket| !is_watched(socket))
}

/// Whether the monitor lives, and has the other end. The program may have closed ours.
fn is_watched(socket: &OwnFd) -> bool {
    kernel::poll_now(socket.number(), 0) & (libc::POLLHUP | libc::POLLNVAL) == 0
}

#[cfg(test)]
mod tests {
    use crosslane_ctl::reason::Reason;

    use super::*;

    fn introduced() -> (Control, OwnFd) {
        let [own, monitor] = kernel::socket_pair().unwrap();
        let mut control = Control::new();
        control.socket = Some(OwnFd::new(own));
        control.is_introduced = true;
        (control, OwnFd::new(monitor))
    }

    #[test]
    fn a_monitor_that_wants_to_hear_no_more_goes_by_the_end_of_the_process() {
        let (mut control, monitor) = introduced();
        kernel::shutdown(monitor.number(), libc::SHUT_WR).unwrap();
        control.fail(Reason::NoMonitor);
        assert!(control.socket.is_none());
        assert!(is_watched(&monitor), "it is open");
        drop(control);
        assert!(!is_watched(&monitor));
    }

    #[test]
    fn nothing_is_kept_for_a_monitor_that_is_gone() {
        let (mut control, monitor) = introduced();
        drop(monitor);
        control.fail(Reason::NoMonitor);
        assert!(control.expelled.iter().all(Option::is_none));
    }

    #[test]
    fn who_has_been_expelled_too_often_asks_no_more() {
        let (mut control, _monitor) = introduced();
        control.hang_up();
        let mut monitors = Vec::new();
        for _ in 1..MOST {
            assert!(control.may_be_expelled());
            let (mut other, monitor) = introduced();
            (control.socket, control.is_introduced) = (other.socket.take(), true);
            control.hang_up();
            monitors.push(monitor);
        }
        assert!(!control.may_be_expelled());
        monitors.clear();
        assert!(control.may_be_expelled(), "but others that come later");
    }
}
