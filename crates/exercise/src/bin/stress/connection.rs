//! One end of one connection, and what may become of it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{close, recv, set_linger, set_nonblocking, setsockopt, shutdown};

use crate::Rules;
use crate::board::{Half, Status};
use crate::plan::{Ending, Plan, Side};
use crate::transfer::{Incoming, Outgoing};

/// Ends that came to theirs.
pub static FINISHED: AtomicU64 = AtomicU64::new(0);
/// Those that were reset, which nobody had planned.
pub static RESET: AtomicU64 = AtomicU64::new(0);
/// Bytes that they received, each of which was checked.
pub static CHECKED: AtomicU64 = AtomicU64::new(0);

/// One end and its two halves.
pub struct Connection {
    pub end: End,
    pub out: Outgoing,
    pub incoming: Incoming,
}

/// What the halves share.
pub struct End {
    pub fd: RawFd,
    pub status: Arc<Status>,
    /// What may become of it.
    pub rules: Rules,
}

impl Connection {
    pub fn new(fd: RawFd, plan: Plan, side: Side, rules: Rules) -> Self {
        if plan.is_without_delay {
            setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).expect("it is a connection");
        }
        let status = Status::post(plan, side);
        let (out, incoming) = (Outgoing::new(&status), Incoming::new(&status, rules));
        Self {
            end: End { fd, status, rules },
            out,
            incoming,
        }
    }

    /// Whether this end breaks the connection off, and has sent all that it will.
    pub fn is_to_break(&self) -> bool {
        let plan = self.end.status.plan;
        plan.ending.breaker() == Some(self.end.status.side) && self.out.sent >= plan.break_after
    }

    /// Close in the middle.
    pub fn break_off(self) {
        if self.end.status.plan.ending == Ending::ResetBy(self.end.status.side) {
            set_linger(self.end.fd, Some(0)).expect("SO_LINGER can be set");
        }
        self.close();
    }

    /// Close after the end of both directions, of which one or none was `broken`.
    pub fn finish(self, broken: Option<Errno>) {
        if !self.end.may_end_anyhow() {
            self.judge(broken);
        }
        self.close();
    }

    fn judge(&self, broken: Option<Errno>) {
        let status = &self.end.status;
        if let Some(errno) = broken {
            let is_reset = [libc::ECONNRESET, libc::EPIPE].contains(&errno.0);
            if is_reset && self.end.rules.window_may_go {
                RESET.fetch_add(1, Ordering::Relaxed);
                return;
            }
            status.fail(&format!(
                "the connection broke with {errno}, which nobody planned"
            ));
        }
        if !self.incoming.is_complete() {
            status.fail("the stream ended too early");
        }
        if !self.out.is_over() {
            status.fail("the connection ended before all was sent");
        }
        set_nonblocking(self.end.fd, true).expect("a flag can be set");
        let again = recv(self.end.fd, &mut [0; 10], 0);
        if again != Ok(0) {
            status.fail(&format!("after the end of the stream recv said {again:?}"));
        }
    }

    fn close(&self) {
        self.end.status.note_if_slow();
        if let Err(errno) = close(self.end.fd) {
            self.end.status.fail(&format!("close failed with {errno}"));
        }
        FINISHED.fetch_add(1, Ordering::Relaxed);
        CHECKED.fetch_add(self.incoming.received, Ordering::Relaxed);
    }
}

impl End {
    /// What is done when everything is sent, or nothing more can be.
    pub fn end_sending(&self) {
        self.status.over(Half::Sending);
        if self.status.plan.ending == Ending::CloseBy(self.status.side) {
            return;
        }
        if let Err(errno) = shutdown(self.fd, libc::SHUT_WR) {
            // A connection that was reset has nothing to shut down.
            let may_be_over = self.may_end_anyhow() || self.rules.window_may_go;
            if errno != Errno(libc::ENOTCONN) || !may_be_over {
                self.status.fail(&format!("shutdown failed with {errno}"));
            }
        }
    }

    /// Whether the peer may end it in the middle.
    fn may_end_anyhow(&self) -> bool {
        let breaker = self.status.plan.ending.breaker();
        self.rules.peer_may_die || breaker == Some(self.status.side.other())
    }
}
