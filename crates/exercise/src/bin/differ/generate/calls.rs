//! Calls by chance.

use super::{Generator, Known, Thing};
use crate::call::Call;
use crate::program::Step;
use crate::word::{Choice, EpollEvents, Family, How, PollEvents};

impl Generator {
    pub(super) fn call(&mut self, known: Known, call: Call) {
        let process = known.process;
        self.steps.push(Step::Call { process, call });
    }

    pub(super) fn look(&mut self) {
        let Some(end) = self.any_end() else { return };
        let fd = end.handle;
        let events = self.poll_events();
        let timeout_ms = if self.random.one_in(30) { 15 } else { 0 };
        let call = match self.random.below(9) {
            0..2 => Call::Poll {
                fd,
                events,
                timeout_ms,
            },
            2 => Call::Ppoll {
                fd,
                events,
                timeout_ms: 0,
            },
            3 => Call::Select { fd, timeout_ms },
            4 => Call::Pselect { fd, timeout_ms: 0 },
            5 => {
                let process = end.process;
                let others: Vec<_> = self
                    .known
                    .iter()
                    .filter(|known| known.process == process)
                    .map(|known| known.handle)
                    .collect();
                let other = *self.random.pick(&others);
                Call::PollBoth {
                    fd,
                    other,
                    events,
                    timeout_ms,
                }
            }
            6..8 => Call::Fionread { fd },
            _ if self.random.one_in(2) => Call::Outq { fd },
            _ => Call::Atmark { fd },
        };
        let call = match self.random.one_in(10) {
            true => self.masked_look(fd, events, timeout_ms),
            false => call,
        };
        self.call(end, call);
    }

    fn poll_events(&mut self) -> PollEvents {
        let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
        PollEvents(
            *self
                .random
                .pick(&[all, libc::POLLIN, libc::POLLOUT, libc::POLLRDHUP, 0]),
        )
    }

    fn epoll_events(&mut self, with_exclusive: bool) -> EpollEvents {
        let read = libc::EPOLLIN;
        let both = read | libc::EPOLLOUT;
        let closes = read | libc::EPOLLRDHUP;
        let mut events = *self
            .random
            .pick(&[read, read, both, closes, libc::EPOLLOUT, 0]);
        if self.random.one_in(2) {
            events |= libc::EPOLLET;
        }
        if self.random.one_in(6) {
            events |= libc::EPOLLONESHOT;
        } else if with_exclusive && self.random.one_in(30) {
            events = (events | libc::EPOLLEXCLUSIVE) & !libc::EPOLLRDHUP;
        }
        EpollEvents(events.cast_unsigned())
    }

    pub(super) fn epoll(&mut self) {
        let epoll = self.any(|thing| *thing == Thing::Epoll);
        let Some(epoll) = epoll.filter(|_| !self.random.one_in(30)) else {
            let (process, new) = (self.any_process(), self.new_name());
            let call = Call::EpollCreate { new };
            self.steps.push(Step::Call { process, call });
            return self.know(process, crate::word::Handle(new.0), Thing::Epoll);
        };
        let process = epoll.process;
        let ends: Vec<_> = self
            .known
            .iter()
            .filter(|known| known.process == process && known.handle != epoll.handle)
            .filter(|known| known.thing != Thing::Epoll || known.handle.0 % 4 == 0)
            .map(|known| known.handle)
            .collect();
        let kind = self.random.below(10);
        if kind < 5 || ends.is_empty() {
            return self.epoll_wait(epoll);
        }
        let (epoll_fd, fd) = (epoll.handle, *self.random.pick(&ends));
        let data = fd.0;
        let events = self.epoll_events(kind < 8);
        let call = match kind {
            5..8 => Call::EpollAdd {
                epoll: epoll_fd,
                fd,
                events,
                data,
            },
            8 => Call::EpollMod {
                epoll: epoll_fd,
                fd,
                events,
                data,
            },
            _ => Call::EpollDel {
                epoll: epoll_fd,
                fd,
            },
        };
        self.call(epoll, call);
    }

    fn epoll_wait(&mut self, known: Known) {
        let (epoll, most) = (known.handle, 32);
        let timeout_ms = if self.random.one_in(20) { 15 } else { 0 };
        let call = if self.random.one_in(4) {
            Call::EpollPwait {
                epoll,
                most,
                timeout_ms,
            }
        } else {
            Call::EpollWait {
                epoll,
                most,
                timeout_ms,
            }
        };
        let call = match self.random.one_in(6) {
            true => self.wait_by_another(epoll, timeout_ms),
            false => call,
        };
        self.call(known, call);
    }

    pub(super) fn describe(&mut self) {
        let Some(end) = self.any_end() else { return };
        let (fd, on) = (end.handle, self.random.one_in(2));
        let option = *self.random.pick(Choice::ALL);
        let call = match self.random.below(16) {
            0 => Call::GetFlags { fd },
            1..4 => Call::SetNonblocking { fd, on },
            4 => Call::Fionbio { fd, on },
            5 => Call::GetCloexec { fd },
            6 => Call::SetCloexec { fd, on },
            7..9 => Call::Getsockopt { fd, option },
            9..11 => self.set_option(end, option),
            11 => Call::GetLinger { fd },
            12 => Call::Rcvtimeo {
                fd,
                // Surely over before anything comes, or surely not.
                timeout_ms: match (on, fd.0.is_multiple_of(2)) {
                    (false, _) => 0,
                    (true, true) => 12,
                    (true, false) => 60_000,
                },
            },
            13 if on => return self.time_limit_of_sends(end),
            13 => Call::Names { fd },
            14 => Call::Stat { fd },
            _ => Call::Seek { fd },
        };
        let call = match self.random.one_in(6) {
            true => self.misplaced(fd),
            false => call,
        };
        self.call(end, call);
    }

    fn set_option(&mut self, end: Known, option: Choice) -> Call {
        let fd = end.handle;
        let on = i32::from(self.random.one_in(2));
        let value = match option {
            // Most values keep a connection from its ring.
            Choice::RCVLOWAT if self.random.one_in(4) => 3,
            Choice::RCVLOWAT => 1,
            Choice::KEEPIDLE => 100,
            Choice::USER_TIMEOUT => 5000,
            Choice::TOS | Choice::PRIORITY => 4 * on,
            // Held back by time, which would only cost time.
            Choice::CORK | Choice::NODELAY => i32::from(option == Choice::NODELAY),
            _ => on,
        };
        Call::Setsockopt { fd, option, value }
    }

    pub(super) fn copy(&mut self) {
        let Some(known) = self.any(|_| true) else {
            return;
        };
        let (fd, process) = (known.handle, known.process);
        let new = self.new_name();
        let name = crate::word::Handle(new.0);
        match self.random.below(8) {
            0..3 => self.call(known, Call::Dup { fd, new }),
            3 | 4 => {
                let cloexec = self.random.one_in(2);
                self.call(known, Call::DupFrom { fd, new, cloexec });
            }
            5 | 6 => return self.replace(known),
            _ => {
                let to = self.any_process();
                self.call(known, Call::Pass { fd });
                let call = Call::Take { new };
                self.steps.push(Step::Call { process: to, call });
                return self.know(to, name, known.thing);
            }
        }
        self.know(process, name, known.thing);
    }

    fn replace(&mut self, known: Known) {
        let (fd, process) = (known.handle, known.process);
        let is_other = |other: &&mut Known| other.process == process && other.handle != fd;
        let mut others: Vec<_> = self.known.iter_mut().filter(is_other).collect();
        if others.is_empty() {
            return;
        }
        let index = self.random.below(others.len());
        let other = &mut others[index];
        other.thing = known.thing;
        let onto = other.handle;
        let call = if self.random.one_in(2) {
            Call::Dup2 { fd, onto }
        } else {
            Call::Dup3 { fd, onto }
        };
        self.call(known, call);
    }

    pub(super) fn signal(&mut self) {
        let begun = self.steps.iter().rev().find_map(|step| match step {
            Step::Begin {
                process, thread, ..
            } => Some((*process, *thread)),
            _ => None,
        });
        if let Some((process, thread)) = begun {
            let restart = self.random.one_in(2);
            self.steps.push(Step::Signal {
                process,
                thread,
                restart,
            });
        }
    }

    pub(super) fn transfer(&mut self) {
        let Some((from, to)) = self.any_two_ends() else {
            return;
        };
        let count = self.random.between(1, 600_000);
        let (from, to) = ((from.process, from.handle), (to.process, to.handle));
        self.steps.push(Step::Transfer { from, to, count });
    }

    pub(super) fn fill(&mut self) {
        let Some((from, to)) = self.any_two_ends() else {
            return;
        };
        let (from, to) = ((from.process, from.handle), (to.process, to.handle));
        self.steps.push(Step::FillAndDrain { from, to });
    }

    pub(super) fn shut(&mut self) {
        if self.random.one_in(8) {
            return self.end_listener();
        }
        let Some(end) = self.any_end() else { return };
        let how = *self
            .random
            .pick(&[How::WR, How::WR, How::WR, How::RD, How::RDWR]);
        self.call(
            end,
            Call::Shutdown {
                fd: end.handle,
                how,
            },
        );
    }

    pub(super) fn close(&mut self) {
        let Some(known) = self.any(|_| true) else {
            return;
        };
        let fd = known.handle;
        if self.random.one_in(6) {
            self.call(known, Call::Linger { fd, seconds: 0 });
        }
        if self.random.one_in(5) {
            self.call(known, Call::CloseRange { fd });
        } else {
            self.call(known, Call::Close { fd });
        }
        let is_it = |it: &Known| it.process == known.process && it.handle == fd;
        // Some closed descriptors are used again: the player knows that they are not there.
        self.known.retain(|it| !is_it(it));
    }

    /// Listening, connecting and disconnecting by hand.
    pub(super) fn rarities(&mut self) {
        let process = self.any_process();
        match self.random.below(7) {
            0..2 => self.listener(process),
            6 => self.end_listener(),
            2 => self.client(process),
            3 => self.accept(),
            4 => {
                let family = self.family();
                let socket = self.socket(process, family, true);
                self.call(
                    socket,
                    Call::ConnectNobody {
                        fd: socket.handle,
                        family,
                    },
                );
                self.call(
                    socket,
                    Call::Getsockopt {
                        fd: socket.handle,
                        option: Choice::ERROR,
                    },
                );
            }
            _ => {
                if let Some(end) = self.any_end() {
                    self.call(end, Call::Disconnect { fd: end.handle });
                }
            }
        }
    }

    fn socket(&mut self, process: usize, family: Family, nonblocking: bool) -> Known {
        let new = self.new_name();
        let handle = crate::word::Handle(new.0);
        let call = Call::Socket {
            new,
            family,
            nonblocking,
        };
        self.steps.push(Step::Call { process, call });
        let thing = Thing::Socket(family);
        self.know(process, handle, thing);
        Known {
            process,
            handle,
            thing,
        }
    }

    fn listener(&mut self, process: usize) {
        let family = self.family();
        let nonblocking = self.random.one_in(2);
        let socket = self.socket(process, family, nonblocking);
        let fd = socket.handle;
        self.call(socket, Call::Listen { fd, family });
        self.become_thing(socket, Thing::Listener(family));
        if self.random.one_in(2) {
            self.client(process);
            self.accept();
        }
        if self.random.one_in(4) {
            self.wait_at(socket);
        }
        if self.random.one_in(4) {
            self.end_listener();
        }
    }

    /// A listener that is shut down, and mostly listens again.
    fn end_listener(&mut self) {
        let listener = self.any(|thing| matches!(thing, Thing::Listener(_)));
        let Some(listener) = listener else { return };
        let Thing::Listener(family) = listener.thing else {
            return;
        };
        let fd = listener.handle;
        let how = *self.random.pick(How::ALL);
        self.call(listener, Call::Shutdown { fd, how });
        if self.random.one_in(3) {
            self.accept();
        }
        if !self.random.one_in(4) {
            self.call(listener, Call::Listen { fd, family });
        }
    }

    /// A socket that connects to a listener of its own process, whose name it knows.
    fn client(&mut self, process: usize) {
        let listener = self
            .known
            .iter()
            .find(|known| known.process == process && matches!(known.thing, Thing::Listener(_)))
            .copied();
        let Some(listener) = listener else { return };
        let Thing::Listener(family) = listener.thing else {
            return;
        };
        let nonblocking = self.random.one_in(2);
        let socket = self.socket(process, family, nonblocking);
        let fd = socket.handle;
        let call = Call::Connect {
            fd,
            listener: listener.handle,
            family,
        };
        self.call(socket, call);
        let connection = self.connections;
        self.become_thing(
            socket,
            Thing::End {
                connection,
                side: 1,
            },
        );
    }

    fn accept(&mut self) {
        let listener = self.any(|thing| matches!(thing, Thing::Listener(_)));
        let Some(listener) = listener else { return };
        let (new, nonblocking) = (self.new_name(), self.random.one_in(2));
        let call = Call::Accept {
            fd: listener.handle,
            new,
            nonblocking,
        };
        self.call(listener, call);
        let connection = self.connections;
        self.connections += 1;
        let end = Thing::End {
            connection,
            side: 0,
        };
        self.know(listener.process, crate::word::Handle(new.0), end);
    }

    fn become_thing(&mut self, known: Known, thing: Thing) {
        let is_it = |it: &&mut Known| it.process == known.process && it.handle == known.handle;
        if let Some(it) = self.known.iter_mut().find(is_it) {
            it.thing = thing;
        }
    }
}
