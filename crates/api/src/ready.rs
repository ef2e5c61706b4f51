//! Readiness: when to sleep on a descriptor, and on many.
//!
//! What arrives in memory wakes nobody; a sleeper asks for a doorbell first, and looks once more.
//! [`Connection::arm`] does that for whoever polls by himself, [`wait`] does all of it. Others do
//! it so, too: libfabric's `fi_trywait`, UCX's `ucp_worker_arm`, a virtio driver.

use core::cell::Cell;
use core::time::Duration;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crosslane_ctl::slab::{Ending, Mode};
use crosslane_stream::send::STANDSTILL;
use crosslane_stream::{End, lost, place, raw, ready, replay, slices, wait as spinning};
use crosslane_sys::{Errno, kernel};
use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, pollfd, timespec};

use crate::connection::Connection;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::socket::Socket;

/// Spinning looks at every lane in turn; with more than these it would find old news.
const MOST_TO_SPIN: usize = 32;

/// Looks in vain after which the caller rests a little between them.
const PATIENT_ROUNDS: u32 = 4;
const NAP: Duration = Duration::from_micros(100);

/// With something ready in memory at every call, the kernel is asked in each of so many for what
/// only it knows.
const CALLS_PER_KERNEL_LOOK: u32 = 16;

/// What is waited for, and what is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Something can be received, or the stream has ended.
    pub read: bool,
    /// Something can be sent, or the connection is broken.
    pub write: bool,
}

impl Interest {
    /// To receive.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// To send.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };
    /// Either.
    pub const BOTH: Self = Self {
        read: true,
        write: true,
    };

    fn events(self) -> i16 {
        let read = if self.read { POLLIN } else { 0 };
        read | if self.write { POLLOUT } else { 0 }
    }

    fn of(self, revents: i16) -> Self {
        let broken = revents & (POLLERR | POLLHUP) != 0;
        Self {
            read: self.read && (broken || revents & (POLLIN | POLLRDHUP) != 0),
            write: self.write && (broken || revents & POLLOUT != 0),
        }
    }

    /// Whether it is nothing.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Whether to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// No: something is there already.
    Ready,
    /// Yes, on the connection's descriptor. When the sleep is over, whatever ended it, any call on
    /// the connection goes on.
    Sleep {
        /// What to poll for, in bits of poll(2), which epoll shares. Not what one would think:
        /// the doorbell for a sender that waits for room comes as POLLIN.
        events: i16,
        /// Sleep no longer than this, because nobody may ring: a receiver that stands still is
        /// left to TCP when it is looked at again.
        at_most: Option<Duration>,
    },
}

impl Rest {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Sleep { events, at_most },
                Self::Sleep {
                    events: more,
                    at_most: limit,
                },
            ) => Self::Sleep {
                events: events | more,
                at_most: at_most.or(limit),
            },
            _ => Self::Ready,
        }
    }
}

/// How a half has prepared for sleeping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Armed {
    /// It has not.
    No,
    /// In the kernel alone, which keeps the peer from entering memory meanwhile.
    Kernel(raw::Call),
    /// Doorbells are asked for, for these bits of poll(2).
    Bells(i16),
}

impl Armed {
    /// The sleep, if there was one, is over.
    #[inline]
    pub(crate) fn end(&mut self, socket: &Socket) {
        if !matches!(self, Self::No) {
            self.wake(socket);
        }
    }

    #[cold]
    fn wake(&mut self, socket: &Socket) {
        let armed = core::mem::replace(self, Self::No);
        let Some(end) = socket.end() else { return };
        match armed {
            Self::No => {}
            Self::Kernel(call) => call.end(),
            Self::Bells(wanted) => {
                ready::after_sleep(&end);
                ready::note_bell(&end);
                if !ready::glance(&end, POLLIN) {
                    ready::take_bells(&end);
                    // The end of the stream, which the kernel may just have told.
                    ready::look(&end, POLLIN, true);
                } else if wanted & POLLIN == 0 {
                    // That of a record which nobody waits for would end the next sleep at once.
                    ready::take_all_bells(&end);
                }
            }
        }
    }

    fn begin(&mut self, socket: &Socket, wanted: i16) -> Rest {
        self.end(socket);
        let by_kernel = Rest::Sleep {
            events: wanted,
            at_most: None,
        };
        let Some(end) = socket.end() else {
            return by_kernel;
        };
        if !slices::is_granted(&end) {
            replay::push();
            let call = raw::Call::begin_wait(&end);
            if ready::is_kernels(&end) {
                *self = Self::Kernel(call);
                return by_kernel;
            }
            call.end();
            slices::is_granted(&end);
        }
        *self = Self::Bells(wanted);
        // A glance takes any end for news.
        let is_ready = || ready::glance(&end, wanted) && ready::look(&end, wanted, false) != 0;
        if !ready::prepare_sleep(&end, wanted) || is_ready() {
            self.end(socket);
            if lost::is_unsettled(&end) {
                // A read would find nothing yet.
                kernel::nap(NAP);
            }
            return Rest::Ready;
        }
        Rest::Sleep {
            events: ready::kernel_wish(&end, wanted),
            at_most: ready::waits_for_room(&end, wanted).then_some(STANDSTILL),
        }
    }
}

impl Receiver {
    /// [`Connection::arm`] for receiving.
    pub fn arm(&mut self) -> Rest {
        if !self.kept().is_empty() {
            return Rest::Ready;
        }
        self.armed.begin(&self.socket, POLLIN)
    }
}

impl Sender {
    /// [`Connection::arm`] for sending.
    pub fn arm(&mut self) -> Rest {
        self.push_kept();
        self.armed.begin(&self.socket, POLLOUT)
    }
}

pub(crate) fn arm(connection: &mut Connection, interest: Interest) -> Rest {
    let Connection { sender, receiver } = connection;
    // One that still sleeps would have the other's doorbells left where they are.
    sender.armed.end(&sender.socket);
    receiver.armed.end(&receiver.socket);
    match (interest.read, interest.write) {
        (true, true) => receiver.arm().and(sender.arm()),
        (true, false) => receiver.arm(),
        (false, true) => sender.arm(),
        (false, false) => Rest::Sleep {
            events: 0,
            at_most: None,
        },
    }
}

/// One of those that [`wait`] waits for.
#[derive(Debug)]
pub struct Watch<'a> {
    /// Which.
    pub connection: &'a mut Connection,
    /// For what.
    pub interest: Interest,
    /// What of it was ready when [`wait`] returned.
    pub ready: Interest,
    /// POLLERR and POLLHUP, as found then.
    pub(crate) broken: i16,
}

impl<'a> Watch<'a> {
    /// Wait for `interest` of this connection.
    pub fn new(connection: &'a mut Connection, interest: Interest) -> Self {
        Self {
            connection,
            interest,
            ready: Interest::default(),
            broken: 0,
        }
    }

    /// Whether the connection was broken, or had ended both ways, when [`wait`] returned: which [`wait`] tells as poll(2)
    /// does, whatever the interest.
    pub fn is_broken(&self) -> bool {
        self.broken != 0
    }

    fn end(&self) -> Option<End> {
        self.connection.receiver.socket.end()
    }

    fn look(&mut self, ask_kernel: bool) -> bool {
        let Connection { sender, receiver } = &mut *self.connection;
        sender.armed.end(&sender.socket);
        receiver.armed.end(&receiver.socket);
        let wanted = self.interest.events();
        let mut found = match self.end() {
            Some(end) if slices::is_granted(&end) => found_in(&end, wanted, ask_kernel),
            _ => kernel::poll_now(self.connection.as_raw_fd(), wanted),
        };
        if !self.connection.receiver.kept().is_empty() {
            found |= POLLIN;
        }
        if found & POLLOUT != 0 && self.connection.sender.has_kept() {
            self.connection.sender.push_kept();
            if self.connection.sender.has_kept() {
                found &= !POLLOUT;
            }
        }
        self.ready = self.interest.of(found);
        self.broken = found & (POLLERR | POLLHUP);
        !self.ready.is_none() || self.is_broken()
    }
}

/// What of `wanted` is ready on an end that has rings, whichever of its directions are in them.
fn found_in(end: &End, wanted: i16, ask_kernel: bool) -> i16 {
    let is_in_rings = end.rx_mode() == Mode::Ring && end.tx_mode() == Mode::Ring;
    let at_once = match is_in_rings && end.ending() == Ending::Open {
        true => ready::at_once(end, wanted),
        false => 0,
    };
    match at_once {
        0 => ready::look(end, wanted, ask_kernel),
        at_once => at_once,
    }
}

/// Wait until something is ready, spinning first as a blocking call does. Returns how many are; 0
/// when the time is up.
///
/// # Errors
/// EINTR, or as poll(2) for want of memory.
pub fn wait(watches: &mut [Watch<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut ask_kernel = is_kernels_turn();
    for round in 0_u32.. {
        let found = look(watches, ask_kernel);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if found > 0 || (left == Some(Duration::ZERO) && ask_kernel) {
            return Ok(found);
        }
        ask_kernel = true;
        if left != Some(Duration::ZERO) && (round > 0 || !spin(watches, deadline)) {
            if round > PATIENT_ROUNDS {
                kernel::nap(NAP);
            }
            sleep(watches, left)?;
            spinning::woke();
        }
    }
    Ok(0)
}

fn is_kernels_turn() -> bool {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    CALLS.set(CALLS.get().wrapping_add(1));
    CALLS.get().is_multiple_of(CALLS_PER_KERNEL_LOOK)
}

fn look(watches: &mut [Watch<'_>], ask_kernel: bool) -> usize {
    let ready = |watch: &mut Watch<'_>| usize::from(watch.look(ask_kernel));
    watches.iter_mut().map(ready).sum()
}

fn spin(watches: &[Watch<'_>], deadline: Option<Instant>) -> bool {
    if watches.len() > MOST_TO_SPIN {
        return false;
    }
    let peers = place::peers(watches.iter().filter_map(Watch::end), || {});
    let mut looks = 0_u32;
    spinning::look(peers, || {
        looks = looks.wrapping_add(1);
        let is_overdue = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        watches.iter().any(|watch| {
            watch.end().is_some_and(|end| {
                !ready::is_kernels(&end) && ready::glance(&end, watch.interest.events())
            })
        }) || looks.is_multiple_of(16) && is_overdue()
    })
}

/// Sleep in the kernel until something may be ready.
fn sleep(watches: &mut [Watch<'_>], left: Option<Duration>) -> io::Result<()> {
    let (mut limit, mut fds) = (left, Vec::with_capacity(watches.len()));
    for watch in watches {
        let fd = watch.connection.as_raw_fd();
        let (events, most) = match arm(watch.connection, watch.interest) {
            Rest::Ready => (0, Some(Duration::ZERO)),
            Rest::Sleep { events, at_most } => (events, at_most),
        };
        limit = limit.into_iter().chain(most).min();
        fds.push(pollfd {
            fd,
            events,
            revents: 0,
        });
    }
    match kernel::poll(&mut fds, limit.map(as_timespec)) {
        Err(Errno::AGAIN) | Ok(_) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn as_timespec(duration: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
