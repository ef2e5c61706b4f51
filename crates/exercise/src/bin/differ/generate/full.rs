//! Steps by chance around a send that finds no room.

use super::{Generator, Known};
use crate::call::Call;
use crate::program::Step;
use crate::word::{How, MessageFlags};
use crate::world::CAPACITY;

/// Most that is sent beyond what surely finds no room: so much can be read before the send may return.
const BEYOND: usize = 6 << 20;
const MOST_AT_ONCE: usize = 2 << 20;

impl Generator {
    pub(super) fn fill_up(&mut self) {
        let Some((from, to)) = self.any_two_ends() else {
            return;
        };
        if self.random.one_in(5) {
            self.time_limit_of_sends(from);
        }
        let is_brimful = self.random.one_in(4);
        let count = if is_brimful {
            self.call(from, Call::Fill { fd: from.handle });
            self.random.between(1, 3000)
        } else {
            CAPACITY + self.random.between(1, BEYOND)
        };
        let (process, thread) = (from.process, self.random.between(1, 2));
        if self.random.one_in(8) {
            let (fd, flags) = (from.handle, MessageFlags(libc::MSG_DONTWAIT));
            self.call(from, Call::Send { fd, count, flags });
        } else {
            let call = self.overfilling(from, count);
            self.steps.push(Step::Begin {
                process,
                thread,
                call,
            });
        }
        for _ in 0..self.random.below(5) {
            self.beside_full(from, to, thread);
        }
        if !self.random.one_in(3) {
            let by = (to.process, to.handle);
            self.steps.push(Step::Empty { by });
        }
    }

    fn overfilling(&mut self, from: Known, count: usize) -> Call {
        let fd = from.handle;
        let first = self.random.between(0, count);
        let second = count - first;
        let flags = self.random.one_in(4).then_some(libc::MSG_NOSIGNAL);
        let flags = MessageFlags(flags.unwrap_or(0));
        match self.random.below(8) {
            0..2 => Call::Write { fd, count },
            2 => Call::Writev { fd, first, second },
            3 => Call::Sendmsg {
                fd,
                first,
                second,
                flags,
            },
            4 => Call::Sendfile { fd, count },
            5 => Call::RawWrite { fd, count },
            6 => Call::Pwritev2 { fd, count },
            _ => Call::Send { fd, count, flags },
        }
    }

    /// What others do while one sends, or has sent, more than there is room for.
    fn beside_full(&mut self, from: Known, to: Known, thread: usize) {
        match self.random.below(20) {
            0..5 => {
                let count = self.random.between(1, MOST_AT_ONCE);
                self.call(
                    to,
                    Call::Drain {
                        fd: to.handle,
                        count,
                    },
                );
            }
            5..8 => {
                let call = self.reading(to);
                self.call(to, call);
            }
            8..11 => {
                let (process, restart) = (from.process, self.random.one_in(2));
                self.steps.push(Step::Signal {
                    process,
                    thread,
                    restart,
                });
            }
            11 | 12 => {
                let end = if self.random.one_in(3) { to } else { from };
                let of_either = self.any(|thing| *thing == end.thing).unwrap_or(end);
                let (fd, how) = (of_either.handle, *self.random.pick(&[How::WR, How::RDWR]));
                self.call(of_either, Call::Shutdown { fd, how });
            }
            13 => {
                let end = if self.random.one_in(2) { to } else { from };
                self.call(end, Call::Close { fd: end.handle });
                let is_it = |it: &Known| it.process == end.process && it.handle == end.handle;
                self.known.retain(|it| !is_it(it));
            }
            14 => self.replace_by_another(from),
            15 => {
                let on = !self.random.one_in(3);
                let fd = from.handle;
                self.call(from, Call::SetNonblocking { fd, on });
            }
            16 => self.time_limit_of_sends(from),
            _ => self.step(),
        }
    }

    /// SO_SNDTIMEO: surely over before anything is read, or surely not.
    pub(super) fn time_limit_of_sends(&mut self, end: Known) {
        let (fd, timeout_ms) = (end.handle, *self.random.pick(&[0, 12, 60_000]));
        self.call(end, Call::Sndtimeo { fd, timeout_ms });
    }

    /// Another descriptor of its process gets the number of `old`.
    fn replace_by_another(&mut self, old: Known) {
        let is_other = |known: &&Known| {
            known.process == old.process && known.handle != old.handle && known.thing != old.thing
        };
        let others: Vec<_> = self.known.iter().filter(is_other).copied().collect();
        if others.is_empty() {
            return;
        }
        let other = *self.random.pick(&others);
        let is_old = |it: &&mut Known| it.process == old.process && it.handle == old.handle;
        if let Some(it) = self.known.iter_mut().find(is_old) {
            it.thing = other.thing;
        }
        let (fd, onto) = (other.handle, old.handle);
        self.call(other, Call::Dup2 { fd, onto });
    }
}
