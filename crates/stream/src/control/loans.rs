//! Ends that are lent and adopted: what the monitor is asked, and what it answers.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crosslane_ctl::message::{ANY_LANES, ClientMessage, Grant, Loan};
use crosslane_sys::busy::MutexGuard;
use crosslane_sys::{cpu, kernel};

use super::{CONTROL, Control, TEND_US, wait_until};
use crate::process::{Member, Process};
use crate::{End, adopt as adoption};

/// How long the answer to a loan or an adoption is waited for: bytes that stand in a ring may be lost
/// without it, so that only a monitor that hangs is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// A loan or an adoption that the monitor has been asked for.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    /// Where the end is, and what came with it.
    loan: Option<(usize, Loan)>,
    /// What became of it.
    outcome: Option<bool>,
}

impl Asked {
    /// The monitor is gone.
    pub(super) fn fail(&mut self) {
        self.outcome.get_or_insert(false);
    }
}

/// Let whoever gets the end's socket adopt the end, as this member. Returns whether the monitor
/// has agreed.
pub(crate) fn lend(end: &End, member: Member, slab: RawFd) -> bool {
    let message = ClientMessage::Lend {
        token: end.token(),
        member: member.number(),
        has_rings: end.tx_lane().is_some(),
    };
    ask(end, message, slab)
}

/// Ask for an end that may have been lent with the socket `end.fd`. Returns whether it has been;
/// then it is at `end`'s index, or where [`adoption::complete`] says.
pub(crate) fn adopt(end: &End) -> bool {
    let token = end.token();
    ask(end, ClientMessage::Adopt { token }, end.fd)
}

/// A loan has been taken back.
pub(crate) fn take_back(token: u64, member: Member) {
    let member = member.number();
    if let Some(mut control) = lock_soon() {
        let _ = control.send(&ClientMessage::TakeBack { token, member }, None);
    }
}

/// The control state, for calls that may come from a signal handler.
fn lock_soon() -> Option<MutexGuard<'static, Control>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match CONTROL.try_lock() {
            Ok(control) => return Some(control),
            Err(_) if Instant::now() > deadline => return None,
            Err(_) => {
                kernel::nap(Duration::from_micros(100));
            }
        }
    }
}

/// A monitor that has not answered is not asked again before then, in ticks.
static SILENT_UNTIL: AtomicU64 = AtomicU64::new(0);

fn ask(end: &End, message: ClientMessage, fd: RawFd) -> bool {
    let (process, token) = (end.process(), end.token());
    if cpu::ticks() < SILENT_UNTIL.load(Ordering::Relaxed) {
        return false;
    }
    {
        let Some(mut control) = lock_soon() else {
            return false;
        };
        // A child of vfork has descriptors of its own, but writes to its parent's memory.
        let may_connect = process.is_current() || control.socket.is_some();
        if !may_connect || control.connect(process).is_err() {
            return false;
        }
        control.expect_releases(process);
        if control.send(&message, Some(fd)).is_err() {
            return false;
        }
        let asked = control.asked.get_or_insert_with(BTreeMap::new);
        asked.insert(token, Asked::default());
    }
    let is_answered = || {
        let asked = |control: &Control| control.asked.as_ref()?.get(&token)?.outcome;
        CONTROL
            .lock()
            .is_ok_and(|control| asked(&control).is_some())
    };
    wait_until(process, PATIENCE, is_answered);
    let Some(mut control) = lock_soon() else {
        return false;
    };
    let asked = control
        .asked
        .as_mut()
        .and_then(|asked| asked.remove(&token));
    let outcome = asked.and_then(|asked| asked.outcome);
    if outcome.is_none() {
        let until = cpu::ticks() + TEND_US * cpu::ticks_per_us();
        SILENT_UNTIL.store(until, Ordering::Relaxed);
        if matches!(message, ClientMessage::Adopt { .. }) {
            // What it may yet find is of no use.
            control.release(token, ANY_LANES);
        }
    }
    outcome == Some(true)
}

impl Control {
    pub(super) fn has_asked(&self, token: u64) -> bool {
        let asked = self.asked.as_ref();
        asked.is_some_and(|asked| asked.contains_key(&token))
    }

    pub(super) fn conclude(&mut self, token: u64, outcome: bool) {
        let asked = self.asked.as_mut().and_then(|asked| asked.get_mut(&token));
        if let Some(asked) = asked {
            asked.outcome = Some(outcome);
        }
    }

    /// The end's slab is known from now on; its rings follow. Without it the end cannot be had, and nobody is to wait.
    pub(super) fn note_loan(&mut self, process: &'static Process, loan: Loan, fd: Option<OwnedFd>) {
        let key = (self.monitor, loan.family);
        let guests = self.guests.get_or_insert_with(BTreeMap::new);
        let table = match (loan.family, fd) {
            (0, _) => Some(0),
            (_, Some(fd)) => adoption::keep_slab(process, fd).inspect(|number| {
                guests.insert(key, *number);
            }),
            (_, None) => guests.get(&key).copied(),
        };
        let Some(table) = table else {
            self.release(loan.token, ANY_LANES);
            return self.conclude(loan.token, false);
        };
        let asked = self.asked.as_mut();
        if let Some(asked) = asked.and_then(|asked| asked.get_mut(&loan.token)) {
            asked.loan = Some((table, loan));
        }
    }

    /// The end is ours, in these rings.
    pub(super) fn complete_adoption(
        &mut self,
        process: &'static Process,
        grant: &Grant,
        fd: Option<OwnedFd>,
    ) -> bool {
        let arena = self.arena(grant, fd);
        match (self.loan(grant.token), arena) {
            (Some((table, loan)), Ok(arena)) => {
                adoption::complete(process, table, &loan, Some((grant, arena)))
            }
            _ => false,
        }
    }

    /// The end is ours, and has no rings.
    pub(super) fn complete_without_rings(&self, process: &'static Process, token: u64) -> bool {
        let loan = self.loan(token);
        loan.is_some_and(|(table, loan)| adoption::complete(process, table, &loan, None))
    }

    /// What has been said of a loan that we have asked for.
    pub(super) fn loan(&self, token: u64) -> Option<(usize, Loan)> {
        self.asked.as_ref()?.get(&token)?.loan
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixDatagram;

    use crosslane_ctl::message::MonitorMessage;
    use crosslane_ctl::reason::Reason;
    use crosslane_ctl::slab::EndPhase;

    use super::*;
    use crate::control::OwnFd;
    use crate::family::Family;
    use crate::{process, register};

    /// It went before; and the close of an end that waits for its answer would wait in vain.
    #[test]
    fn a_refused_registration_is_heard_of_while_a_loan_is_asked_for() {
        crosslane_sys::process::resolve();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end = register::track(socket.as_raw_fd(), Family::Tcp, false, None).unwrap();
        end.set_phase(EndPhase::Registered);
        end.entry.id.cookie.store(0, Ordering::Relaxed);
        assert!(register::is_in_flight(&end));
        let token = end.token();
        let mut control = Control::new();
        control.asked = Some(BTreeMap::from([(token, Asked::default())]));
        let reason = Reason::Quota as u32;
        control.handle(
            end.process(),
            MonitorMessage::Refused { token, reason },
            None,
        );
        assert!(!register::is_in_flight(&end));
        assert_eq!(end.reason(), Reason::Quota);
        let asked = control.asked.as_ref().and_then(|asked| asked.get(&token));
        assert_eq!(asked.and_then(|asked| asked.outcome), Some(false));
    }

    #[test]
    fn a_loan_whose_slab_cannot_be_had_is_over_at_once() {
        let (own, monitor) = UnixDatagram::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let mut control = Control::new();
        control.socket = Some(OwnFd::new(own.into_raw_fd()));
        control.asked = Some(BTreeMap::from([(5, Asked::default())]));
        let loan = Loan {
            token: 5,
            original: 1,
            family: 9,
            member: 2,
        };
        let none = std::fs::File::open("/dev/null").unwrap();
        control.note_loan(process::start().unwrap(), loan, Some(none.into()));
        assert_eq!(control.loan(5), None);
        let asked = control.asked.as_ref().and_then(|asked| asked.get(&5));
        assert_eq!(asked.and_then(|asked| asked.outcome), Some(false));
        let mut bytes = [0; 4096];
        let length = monitor.recv(&mut bytes).unwrap();
        let (token, pair) = (5, ANY_LANES);
        assert_eq!(
            ClientMessage::decode(&bytes[..length]).ok(),
            Some(ClientMessage::Release { token, pair })
        );
    }
}
