//! One end of a connection, and a program that has it: it sends, receives, falls asleep as poll(2) or a receive does, and
//! wakes when its TCP shows something.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

use crosslane_ctl::message::Grant;
use crosslane_ctl::reason::Reason;
use crosslane_sys::{Errno, kernel};

use super::super::super::*;
use super::super::GEOMETRY;
use super::super::dice::Dice;
use crate::family::Family;
use crate::{asleep, close, ending, ready, register, rest, slices, switch};

/// More than a step receives.
pub(super) const MOST_BYTES: usize = 8_184;

/// A stream repeats itself after so many bytes, which no two places in a ring are apart.
const PERIOD: usize = 65_521;

/// What a doorbell looks like, which stands nowhere in a stream.
const BELL: u8 = 0xA5;

/// A stream, and the beginning of its next lap.
static STREAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dice = Dice::new(7);
    let mut bytes: Vec<u8> = (0..PERIOD)
        .map(|_| dice.next().to_le_bytes()[3])
        .map(|byte| if byte == BELL { 0 } else { byte })
        .collect();
    bytes.extend_from_within(..MOST_BYTES);
    bytes
});

fn stream(at: u64, bytes: usize) -> &'static [u8] {
    let at = usize::try_from(at % PERIOD as u64).unwrap();
    &STREAM[at..at + bytes]
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A byte that is not the next one of the stream.
    Byte(u64),
    /// The stream has ended, or a call was refused.
    Refused(i32),
    /// The stream has ended before all had come.
    Short,
    /// Nothing is under way, and who is told of no end has come to it.
    NoEnd,
    /// A byte on TCP that neither end has counted.
    Uncounted,
    /// Nothing is under way, and a receiver sleeps over what it has not read.
    Asleep,
    /// The same, and a sender sleeps that has room.
    NoRoom,
    /// The same, and something has not come to one who is awake.
    Missing,
    /// They go on without end.
    Restless,
}

/// How a program sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// As poll(2), for one of POLLIN and POLLOUT or both.
    Poll,
    /// As a receive.
    Receive,
}

pub(super) struct Host {
    _socket: TcpStream,
    pub(super) end: End,
    asleep: Option<(Sleep, i16)>,
    /// What it has still to send of what it was to, for want of room.
    pub(super) pending: usize,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Where the peer's stream ends, once it has.
    pub(super) expected: Option<u64>,
    /// The program has been told so.
    pub(super) has_ended: bool,
    pub(super) is_shut: bool,
    room: Vec<u8>,
}

impl Host {
    pub(super) fn new(socket: TcpStream, role: u32, arena: &'static Arena) -> Self {
        // What is sent comes at once, whoever has the connection: not as a machine's own ways of congestion control pace it.
        socket.set_nodelay(true).unwrap();
        let fd = socket.as_raw_fd();
        kernel::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno").unwrap();
        let end = register::track(fd, Family::Tcp, role == 1, None).unwrap();
        let grant = Grant {
            token: end.token(),
            arena: role,
            slot: 0,
            role,
            geometry: GEOMETRY,
            location: crosslane_ctl::lane::Location::default(),
            pair: 0,
        };
        super::have(&end);
        register::enter(&end, &grant, arena, |_| true);
        Self {
            _socket: socket,
            end,
            asleep: None,
            pending: 0,
            sent: 0,
            received: 0,
            expected: None,
            has_ended: false,
            is_shut: false,
            room: vec![0; MOST_BYTES],
        }
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.is_some()
    }

    /// Whether it could be woken by what the library does, and has something to wait for.
    pub(super) fn may_sleep(&self) -> bool {
        !ready::is_kernels(&self.end) && !self.has_ended && !self.is_asleep()
    }

    /// Send so many bytes more, or what has found no room before. Returns how many have.
    pub(super) fn send(&mut self, bytes: usize) -> Result<usize, Wrong> {
        let bytes = if self.pending > 0 {
            self.pending
        } else {
            bytes
        };
        let sent = match slices::send(&self.end, stream(self.sent, bytes), true) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Err(Wrong::Refused(errno.0)),
        };
        self.sent += sent as u64;
        self.pending = bytes - sent;
        Ok(sent)
    }

    /// Receive up to so many bytes. Returns how many came.
    pub(super) fn receive(&mut self, bytes: usize) -> Result<usize, Wrong> {
        let room = &mut self.room[..bytes];
        let taken = match slices::receive(&self.end, room, true) {
            Ok(0) if self.expected == Some(self.received) => {
                self.has_ended = true;
                return Ok(0);
            }
            Ok(0) => return Err(Wrong::Short),
            Ok(taken) => taken,
            Err(Errno::AGAIN) => return Ok(0),
            Err(errno) => return Err(Wrong::Refused(errno.0)),
        };
        let expected = stream(self.received, taken);
        if room[..taken] != *expected {
            let wrong = room
                .iter()
                .zip(expected)
                .position(|(one, other)| one != other);
            return Err(Wrong::Byte(self.received + wrong.unwrap_or(0) as u64));
        }
        self.received += taken as u64;
        Ok(taken)
    }

    /// Look once more, and sleep if there is nothing. Returns whether it sleeps.
    pub(super) fn sleep(&mut self, how: Sleep) -> Result<bool, Wrong> {
        let end = self.end;
        if !self.may_sleep() {
            return Ok(false);
        }
        let quiet = match how {
            Sleep::Poll => {
                let out = if self.pending > 0 { libc::POLLOUT } else { 0 };
                let wish = ready::kernel_wish(&end, libc::POLLIN | out);
                self.asleep = Some((how, wish));
                ready::prepare_sleep(&end, libc::POLLIN | out)
            }
            Sleep::Receive => {
                if self.receive(1)? > 0 {
                    return Ok(false);
                }
                // It has sent what there was room for, and waits for an answer.
                self.pending = 0;
                end.begin_sleep();
                self.asleep = Some((how, libc::POLLIN | libc::POLLRDHUP));
                asleep::prepare_sleep(&end)
            }
        };
        if !quiet {
            self.give_up();
        }
        Ok(quiet)
    }

    /// Sleep no more, whatever there is.
    pub(super) fn give_up(&mut self) {
        match self.asleep.take() {
            Some((Sleep::Poll, _)) => ready::after_sleep(&self.end),
            Some((Sleep::Receive, _)) => {
                self.end.end_sleep();
                asleep::after_sleep(&self.end);
            }
            None => {}
        }
    }

    /// Wake if the kernel says that there is something. Returns whether it does.
    pub(super) fn wake(&mut self) -> bool {
        let Some((how, wish)) = self.asleep else {
            return false;
        };
        let end = self.end;
        if kernel::poll_now(end.fd(), wish) == 0 {
            return false;
        }
        if how == Sleep::Receive {
            ready::note_bell(&end);
            if end.rx_mode() != Mode::Tcp && !end.has_record() {
                let _rx = end.lock_rx();
                asleep::take_bells(&end, 1);
                ending::look_for_end(&end);
            }
            self.give_up();
            return true;
        }
        self.give_up();
        ready::note_bell(&end);
        if !ready::glance(&end, libc::POLLIN) {
            ready::take_bells(&end);
        }
        let _ = ready::look(&end, libc::POLLIN | libc::POLLOUT, true);
        true
    }

    /// Send no more.
    pub(super) fn shut_down(&mut self) {
        if !self.is_shut {
            self.give_up();
            self.is_shut = true;
            self.pending = 0;
            close::before_shutdown(&self.end, libc::SHUT_WR);
            kernel::shutdown(self.end.fd(), libc::SHUT_WR).unwrap();
            close::after_shutdown(&self.end, libc::SHUT_WR);
        }
    }

    /// The program is killed: the kernel closes its socket, and nobody else does anything.
    pub(super) fn kill(&self) {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both are open; the number is the socket's, which closes what it names then.
        let killed = unsafe { libc::dup2(nothing.as_raw_fd(), self.end.fd()) };
        assert_eq!(killed, self.end.fd());
    }

    /// Bytes that the kernel holds for it.
    pub(super) fn queued(&self) -> u64 {
        kernel::queued(self.end.fd(), libc::FIONREAD).map_or(u64::MAX, u64::from)
    }

    /// Have the kernel acknowledge what has come: it sends but so many short segments before.
    pub(super) fn acknowledge(&self) {
        let _ = kernel::setsockopt(self.end.fd(), libc::IPPROTO_TCP, libc::TCP_QUICKACK, &1u32);
    }

    /// Go back to TCP, or come from there.
    pub(super) fn leave(&self) {
        switch::leave(&self.end, Reason::Chaos);
    }

    pub(super) fn reenter(&self) {
        switch::reenter(&self.end);
    }

    /// Freeze, as who gives its socket to another process and does not wait; the other one has closed it at once.
    pub(super) fn give_away(&self) {
        rest::give_away(&self.end, Reason::Passed, core::time::Duration::ZERO);
        self.end.entry.wait.away.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether it is still on TCP for that, and sees whether it may go back.
    pub(super) fn rests(&self) -> bool {
        let rests = || self.end.has_flags(end_flags::RESTING);
        rests() && {
            rest::look_now(&self.end);
            rests()
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.give_up();
        switch::dissolve(&self.end);
        super::have_no_more(&self.end);
        close::before_close(&self.end);
    }
}
