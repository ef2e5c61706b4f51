//! Calls by chance that send and receive.

use libc::{
    MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_WAITFORONE,
};

use super::{Generator, Known, Over};
use crate::call::Call;
use crate::word::{Handle, MessageFlags};

/// Sizes at which something changes: lines, records, pages.
const EDGES: [usize; 10] = [0, 1, 8, 55, 56, 57, 120, 500, 4000, 8185];
/// For receiving there may be more room than there is to come.
const WIDE: usize = 20_000;

/// So little libc writes at once, whichever it is: more would be told an end between two writes, or not.
const PRINTED: usize = 500;

impl Generator {
    fn count(&mut self) -> usize {
        match self.random.below(10) {
            0..6 => self.random.between(1, 100),
            6..9 => *self.random.pick(&EDGES),
            _ => self.random.between(1, 3000),
        }
    }

    fn flags(&mut self, choices: &[i32]) -> MessageFlags {
        let mut flags = 0;
        for &choice in choices {
            if self.random.one_in(4) {
                flags |= choice;
            }
        }
        // Urgent data keeps a connection from its ring, so it is rare.
        if self.random.one_in(120) {
            flags |= MSG_OOB;
        }
        MessageFlags(flags)
    }

    pub(super) fn send(&mut self) {
        let Some(end) = self.any_end() else { return };
        let (fd, count, second) = (end.handle, self.count(), self.count());
        let flags = self.flags(&[MSG_NOSIGNAL, MSG_DONTWAIT]);
        let messages = u32::try_from(self.random.between(1, 4)).unwrap_or(1);
        if self.over == Over::Unix && self.random.one_in(6) {
            let files = messages;
            let call = Call::SendBeside {
                fd,
                count,
                files,
                flags,
            };
            return self.call(end, call);
        }
        if self.random.one_in(16) {
            let call = self.rarer_send(fd, count, second);
            return self.call(end, call);
        }
        let call = match self.random.below(20) {
            0..4 => Call::Write { fd, count },
            4..8 => Call::Send { fd, count, flags },
            8 => {
                let flags = self.flags(&[MSG_MORE, MSG_NOSIGNAL]);
                Call::Send { fd, count, flags }
            }
            9..11 => Call::Writev {
                fd,
                first: count,
                second,
            },
            11..13 => Call::Sendmsg {
                fd,
                first: count,
                second,
                flags,
            },
            13..15 => Call::Sendmmsg {
                fd,
                count: count.clamp(1, 900),
                messages,
                flags,
            },
            15 => Call::Pwritev2 { fd, count },
            16 => Call::RawWrite { fd, count },
            17 => Call::Sendfile { fd, count },
            18 => Call::SpliceOut {
                fd,
                count: count.max(1),
            },
            _ if self.random.one_in(4) => Call::WriteNowhere { fd, count },
            _ => Call::StdioWrite { fd, count },
        };
        self.call(end, call);
    }

    pub(super) fn reading(&mut self, end: Known) -> Call {
        let (fd, second) = (end.handle, self.count());
        let count = if self.random.one_in(4) {
            WIDE
        } else {
            self.count()
        };
        let flags = self.flags(&[MSG_DONTWAIT, MSG_PEEK, MSG_DONTWAIT]);
        let messages = u32::try_from(self.random.between(1, 4)).unwrap_or(1);
        if self.over == Over::Unix && self.random.one_in(6) {
            let room = messages - 1;
            let flags = self.flags(&[MSG_DONTWAIT, MSG_WAITALL]);
            return Call::RecvBeside {
                fd,
                count,
                room,
                flags,
            };
        }
        if self.random.one_in(16) {
            return self.rarer_reading(fd, count, second);
        }
        match self.random.below(24) {
            0..4 => Call::Read { fd, count },
            4..9 => Call::Recv { fd, count, flags },
            9..11 => {
                let flags = self.flags(&[MSG_WAITALL, MSG_TRUNC, MSG_PEEK, MSG_DONTWAIT]);
                Call::Recv { fd, count, flags }
            }
            11..13 => Call::Readv {
                fd,
                first: count,
                second,
            },
            13..15 => Call::Recvmsg {
                fd,
                first: count,
                second,
                flags,
            },
            15 => Call::Recvfrom { fd, count, flags },
            16..18 => {
                let flags = self.flags(&[MSG_DONTWAIT, MSG_WAITFORONE]);
                Call::Recvmmsg {
                    fd,
                    count: count.clamp(1, 900),
                    messages,
                    flags,
                }
            }
            18 => Call::Preadv2 { fd, count },
            19 => Call::RawRead { fd, count },
            20 => Call::SpliceIn {
                fd,
                count: count.max(1),
            },
            21 => Call::StdioRead { fd, count },
            22 => Call::Pread { fd, count },
            _ => Call::ReadNowhere { fd, count },
        }
    }

    fn rarer_send(&mut self, fd: Handle, count: usize, second: usize) -> Call {
        match self.random.below(3) {
            0 => Call::Sendto {
                fd,
                count,
                flags: MessageFlags(*self.random.pick(&[0, MSG_NOSIGNAL, MSG_DONTWAIT])),
            },
            1 => Call::WritevEmpty {
                fd,
                first: count,
                second,
            },
            _ => Call::Print {
                fd,
                count: count.min(PRINTED),
            },
        }
    }

    fn rarer_reading(&mut self, fd: Handle, count: usize, second: usize) -> Call {
        if self.random.one_in(2) {
            return Call::ReadvEmpty {
                fd,
                first: count,
                second,
            };
        }
        Call::RecvfromShort {
            fd,
            count,
            room: *self.random.pick(&[0, 1, 2, 3, 8]),
            flags: self.flags(&[MSG_DONTWAIT, MSG_PEEK]),
        }
    }

    /// What is not for a socket, or has no room for what it asks for.
    pub(super) fn misplaced(&mut self, fd: Handle) -> Call {
        let count = self.count();
        match self.random.below(8) {
            0 => Call::Preadv { fd, count },
            1 => Call::Pwrite { fd, count },
            2 => Call::Pwritev { fd, count },
            3 => Call::Tee { fd, count },
            4 => Call::Vmsplice { fd },
            5 => Call::CopyRange { fd, count },
            _ => Call::NamesShort {
                fd,
                room: *self.random.pick(&[-1, 0, 1, 2, 3, 8, 15, 16, 28]),
            },
        }
    }

    pub(super) fn receive(&mut self) {
        let Some(end) = self.any_end() else { return };
        let call = self.reading(end);
        self.call(end, call);
    }
}
