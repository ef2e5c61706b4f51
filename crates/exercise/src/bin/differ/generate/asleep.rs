//! Calls by chance that sleep, and that wait under a mask of signals.

use super::{Generator, Known, Thing};
use crate::call::Call;
use crate::program::Step;
use crate::word::{Handle, Mask, PollEvents};

const MOST: i32 = 32;

impl Generator {
    pub(super) fn sleep(&mut self) {
        let thread = self.random.between(1, 2);
        let epolls = self.random.one_in(4);
        let listens = self.random.one_in(10);
        let known = self.any(|thing| match thing {
            Thing::Epoll => epolls,
            Thing::Listener(_) => listens,
            Thing::End { .. } => !epolls && !listens,
            Thing::Socket(_) => false,
        });
        let Some(known) = known else { return };
        let (fd, timeout_ms) = (known.handle, -1);
        let call = match known.thing {
            Thing::Epoll if self.random.one_in(2) => self.wait_by_another(fd, timeout_ms),
            Thing::Epoll => Call::EpollWait {
                epoll: fd,
                most: MOST,
                timeout_ms,
            },
            Thing::Listener(_) => {
                let new = self.new_name();
                let nonblocking = false;
                Call::Accept {
                    fd,
                    new,
                    nonblocking,
                }
            }
            _ if self.random.one_in(4) => self.sleeping_poll(known),
            _ => self.reading(known),
        };
        let process = known.process;
        let is_masked = call.holds_signal();
        self.steps.push(Step::Begin {
            process,
            thread,
            call,
        });
        if is_masked && self.random.one_in(2) {
            self.signal();
        }
    }

    /// An accept that sleeps, or a poll for what it would accept.
    pub(super) fn wait_at(&mut self, listener: Known) {
        let (fd, process, thread) = (listener.handle, listener.process, 1);
        let (new, nonblocking) = (self.new_name(), false);
        let call = match self.random.one_in(3) {
            true => self.sleeping_poll(listener),
            false => Call::Accept {
                fd,
                new,
                nonblocking,
            },
        };
        self.steps.push(Step::Begin {
            process,
            thread,
            call,
        });
    }

    /// A wait in a set by one of the rarer calls.
    pub(super) fn wait_by_another(&mut self, epoll: Handle, timeout_ms: i32) -> Call {
        let (most, mask) = (MOST, self.mask());
        match self.random.below(5) {
            0 => Call::EpollPwait {
                epoll,
                most,
                timeout_ms,
            },
            1 | 2 => Call::EpollPwaitMasked {
                epoll,
                most,
                timeout_ms,
                mask,
            },
            _ => Call::EpollPwait2 {
                epoll,
                most,
                timeout_ms,
                mask,
            },
        }
    }

    /// A poll of one end under a mask of signals.
    pub(super) fn masked_look(&mut self, fd: Handle, events: PollEvents, timeout_ms: i32) -> Call {
        let mask = self.mask();
        match self.random.one_in(2) {
            true => Call::PpollMasked {
                fd,
                events,
                timeout_ms,
                mask,
            },
            false => Call::PselectMasked {
                fd,
                timeout_ms,
                mask,
            },
        }
    }

    fn mask(&mut self) -> Mask {
        *self.random.pick(Mask::ALL)
    }

    /// A poll for one end or for two.
    fn sleeping_poll(&mut self, known: Known) -> Call {
        let (fd, process) = (known.handle, known.process);
        let (events, timeout_ms) = (PollEvents(libc::POLLIN), -1);
        let is_end = |thing| matches!(thing, Thing::End { .. });
        let others = self
            .known
            .iter()
            .filter(|other| other.process == process && is_end(other.thing));
        let others: Vec<_> = others.map(|other| other.handle).collect();
        match self.random.below(if others.is_empty() { 6 } else { 8 }) {
            0..2 => Call::Poll {
                fd,
                events,
                timeout_ms,
            },
            2 => Call::Ppoll {
                fd,
                events,
                timeout_ms,
            },
            3 => Call::Select { fd, timeout_ms },
            4 => Call::Pselect { fd, timeout_ms },
            5 => self.masked_look(fd, events, timeout_ms),
            _ => Call::PollBoth {
                fd,
                other: *self.random.pick(&others),
                events,
                timeout_ms,
            },
        }
    }
}
