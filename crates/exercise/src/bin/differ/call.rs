//! The calls that a program can make, as text and as values.

use std::fmt;
use std::str::SplitWhitespace;

use crate::word::{
    Choice, EpollEvents, Family, Handle, How, Mask, MessageFlags, New, PollEvents, Word,
};

/// An enum of calls, each a word followed by its arguments, a word each.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $word:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        /// One call. Counts are bytes unless they say otherwise.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Call { $($(#[$doc])* $name { $($field: $kind),* }),* }

        impl fmt::Display for Call {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name { $($field),* } => {
                        f.write_str($word)?;
                        $(write!(f, " {}", $field.word())?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl Call {
            /// Read the words of one call.
            pub fn parse(words: &mut SplitWhitespace<'_>) -> Option<Self> {
                match words.next()? {
                    $($word => Some(Self::$name { $($field: Word::of(words.next()?)?),* }),)*
                    _ => None,
                }
            }

            /// The descriptors that it uses.
            pub fn handles(&mut self) -> Vec<&mut Handle> {
                match self {
                    $(Self::$name { $($field),* } => {
                        let all: Vec<Option<&mut Handle>> = vec![$($field.as_handle()),*];
                        all.into_iter().flatten().collect()
                    })*
                }
            }

            /// The numbers that could be smaller.
            pub fn counts(&mut self) -> Vec<&mut usize> {
                match self {
                    $(Self::$name { $($field),* } => {
                        let all: Vec<Option<&mut usize>> =
                            vec![$(($field as &mut dyn std::any::Any).downcast_mut()),*];
                        all.into_iter().flatten().collect()
                    })*
                }
            }
        }
    };
}

calls! {
    Read = "read" { fd: Handle, count: usize }
    Recv = "recv" { fd: Handle, count: usize, flags: MessageFlags }
    Readv = "readv" { fd: Handle, first: usize, second: usize }
    /// With pieces of nothing before, between and behind.
    ReadvEmpty = "readv-empty" { fd: Handle, first: usize, second: usize }
    Recvmsg = "recvmsg" { fd: Handle, first: usize, second: usize, flags: MessageFlags }
    /// With room for so many descriptors, which are closed at once.
    RecvBeside = "recv-beside" { fd: Handle, count: usize, room: u32, flags: MessageFlags }
    Recvfrom = "recvfrom" { fd: Handle, count: usize, flags: MessageFlags }
    /// With room for so many bytes of the name.
    RecvfromShort = "recvfrom-short" { fd: Handle, count: usize, room: u32, flags: MessageFlags }
    Recvmmsg = "recvmmsg" { fd: Handle, count: usize, messages: u32, flags: MessageFlags }
    Preadv2 = "preadv2" { fd: Handle, count: usize }
    /// read(2) by syscall(2).
    RawRead = "syscall-read" { fd: Handle, count: usize }
    Pread = "pread" { fd: Handle, count: usize }
    Preadv = "preadv" { fd: Handle, count: usize }
    /// Into memory that is not there.
    ReadNowhere = "read-nowhere" { fd: Handle, count: usize }
    /// From the socket through a pipe.
    SpliceIn = "splice-in" { fd: Handle, count: usize }
    /// fread(3) by a stream on a duplicate.
    StdioRead = "fread" { fd: Handle, count: usize }
    /// Read all of so many bytes in whatever portions, and compare them with what was sent.
    Drain = "drain" { fd: Handle, count: usize }

    Write = "write" { fd: Handle, count: usize }
    Send = "send" { fd: Handle, count: usize, flags: MessageFlags }
    /// With an address, which a connection does not need.
    Sendto = "sendto" { fd: Handle, count: usize, flags: MessageFlags }
    Writev = "writev" { fd: Handle, first: usize, second: usize }
    /// With pieces of nothing before, between and behind.
    WritevEmpty = "writev-empty" { fd: Handle, first: usize, second: usize }
    Sendmsg = "sendmsg" { fd: Handle, first: usize, second: usize, flags: MessageFlags }
    Sendmmsg = "sendmmsg" { fd: Handle, count: usize, messages: u32, flags: MessageFlags }
    Pwritev2 = "pwritev2" { fd: Handle, count: usize }
    Pwrite = "pwrite" { fd: Handle, count: usize }
    Pwritev = "pwritev" { fd: Handle, count: usize }
    /// dprintf(3) of what comes before the first zero byte, so short that libc writes it at once.
    Print = "dprintf" { fd: Handle, count: usize }
    RawWrite = "syscall-write" { fd: Handle, count: usize }
    WriteNowhere = "write-nowhere" { fd: Handle, count: usize }
    /// With so many descriptors beside the bytes.
    SendBeside = "send-beside" { fd: Handle, count: usize, files: u32, flags: MessageFlags }
    /// tee(2) from the socket, and into it.
    Tee = "tee" { fd: Handle, count: usize }
    Vmsplice = "vmsplice" { fd: Handle }
    /// copy_file_range(2) from the socket, and into it.
    CopyRange = "copy-range" { fd: Handle, count: usize }
    /// From a file in memory.
    Sendfile = "sendfile" { fd: Handle, count: usize }
    /// From a pipe into the socket.
    SpliceOut = "splice-out" { fd: Handle, count: usize }
    /// fwrite(3) by a stream on a duplicate.
    StdioWrite = "fwrite" { fd: Handle, count: usize }
    /// Send without waiting until there is no room.
    Fill = "fill" { fd: Handle }
    /// So many bytes to and fro, this side first: one each way.
    Talk = "talk" { fd: Handle, count: usize }
    /// The same, the other side first.
    Echo = "echo" { fd: Handle, count: usize }
    /// The same between two ends of one process.
    Chat = "chat" { fd: Handle, other: Handle, count: usize }

    Poll = "poll" { fd: Handle, events: PollEvents, timeout_ms: i32 }
    PollBoth = "poll-both" { fd: Handle, other: Handle, events: PollEvents, timeout_ms: i32 }
    Ppoll = "ppoll" { fd: Handle, events: PollEvents, timeout_ms: i32 }
    PpollMasked = "ppoll-masked" { fd: Handle, events: PollEvents, timeout_ms: i32, mask: Mask }
    /// For everything; without a time limit, for what can be read.
    Select = "select" { fd: Handle, timeout_ms: i32 }
    Pselect = "pselect" { fd: Handle, timeout_ms: i32 }
    PselectMasked = "pselect-masked" { fd: Handle, timeout_ms: i32, mask: Mask }
    EpollCreate = "epoll" { new: New }
    EpollAdd = "epoll-add" { epoll: Handle, fd: Handle, events: EpollEvents, data: u32 }
    EpollMod = "epoll-mod" { epoll: Handle, fd: Handle, events: EpollEvents, data: u32 }
    EpollDel = "epoll-del" { epoll: Handle, fd: Handle }
    EpollWait = "epoll-wait" { epoll: Handle, most: i32, timeout_ms: i32 }
    EpollPwait = "epoll-pwait" { epoll: Handle, most: i32, timeout_ms: i32 }
    EpollPwaitMasked = "epoll-pwait-masked" { epoll: Handle, most: i32, timeout_ms: i32, mask: Mask }
    EpollPwait2 = "epoll-pwait2" { epoll: Handle, most: i32, timeout_ms: i32, mask: Mask }

    Fionread = "fionread" { fd: Handle }
    Outq = "outq" { fd: Handle }
    Atmark = "atmark" { fd: Handle }
    Fionbio = "fionbio" { fd: Handle, on: bool }
    GetFlags = "getfl" { fd: Handle }
    SetNonblocking = "nonblock" { fd: Handle, on: bool }
    GetCloexec = "getfd" { fd: Handle }
    SetCloexec = "setfd" { fd: Handle, on: bool }
    Getsockopt = "getsockopt" { fd: Handle, option: Choice }
    Setsockopt = "setsockopt" { fd: Handle, option: Choice, value: i32 }
    /// SO_LINGER; off below 0.
    Linger = "linger" { fd: Handle, seconds: i32 }
    GetLinger = "getlinger" { fd: Handle }
    /// SO_RCVTIMEO; off at 0.
    Rcvtimeo = "rcvtimeo" { fd: Handle, timeout_ms: u32 }
    /// SO_SNDTIMEO; off at 0.
    Sndtimeo = "sndtimeo" { fd: Handle, timeout_ms: u32 }
    Names = "names" { fd: Handle }
    /// With room for so many bytes.
    NamesShort = "names-short" { fd: Handle, room: i32 }
    Stat = "fstat" { fd: Handle }
    Seek = "lseek" { fd: Handle }

    Socket = "socket" { new: New, family: Family, nonblocking: bool }
    /// socketpair(2); the outcome tells both numbers.
    Socketpair = "socketpair" { new: New }
    /// bind(2) to a free port or name and listen(2).
    Listen = "listen" { fd: Handle, family: Family }
    /// connect(2) to the listener.
    Connect = "connect" { fd: Handle, listener: Handle, family: Family }
    /// connect(2) to a port that nobody listens on.
    ConnectNobody = "connect-nobody" { fd: Handle, family: Family }
    /// connect(2) to AF_UNSPEC.
    Disconnect = "disconnect" { fd: Handle }
    Accept = "accept" { fd: Handle, new: New, nonblocking: bool }
    Shutdown = "shutdown" { fd: Handle, how: How }
    Close = "close" { fd: Handle }
    /// close_range(2) of this one.
    CloseRange = "close-range" { fd: Handle }
    Dup = "dup" { fd: Handle, new: New }
    /// F_DUPFD from 40 on.
    DupFrom = "dupfd" { fd: Handle, new: New, cloexec: bool }
    Dup2 = "dup2" { fd: Handle, onto: Handle }
    Dup3 = "dup3" { fd: Handle, onto: Handle }
    /// Send by SCM_RIGHTS to whoever takes it next.
    Pass = "pass" { fd: Handle }
    /// Take what was passed.
    Take = "take" { new: New }
}

impl Call {
    /// The descriptor that it is about.
    pub fn main_handle(&self) -> Option<Handle> {
        self.clone().handles().first().map(|handle| **handle)
    }

    /// The name that it gives to a new descriptor.
    pub fn new_handle(&self) -> Option<Handle> {
        match self {
            Self::EpollCreate { new }
            | Self::Socket { new, .. }
            | Self::Socketpair { new }
            | Self::Accept { new, .. }
            | Self::Dup { new, .. }
            | Self::DupFrom { new, .. }
            | Self::Take { new } => Some(Handle(new.0)),
            _ => None,
        }
    }

    /// What it would read, when it reads: how many bytes it waits for at least, how many it takes
    /// at most, and its flags.
    pub fn reads(&self) -> Option<Reading> {
        let none = MessageFlags(0);
        let (count, flags) = match *self {
            Self::Read { count, .. } | Self::Preadv2 { count, .. } => (count, none),
            Self::RawRead { count, .. } | Self::SpliceIn { count, .. } => (count, none),
            Self::ReadNowhere { count, .. } => (count, none),
            Self::Readv { first, second, .. } | Self::ReadvEmpty { first, second, .. } => {
                (first + second, none)
            }
            Self::Recv { count, flags, .. } | Self::Recvfrom { count, flags, .. } => (count, flags),
            Self::RecvBeside { count, flags, .. } => (count, flags),
            Self::RecvfromShort { count, flags, .. } => (count, flags),
            Self::Recvmsg {
                first,
                second,
                flags,
                ..
            } => (first + second, flags),
            Self::StdioRead { count, .. } | Self::Drain { count, .. } => {
                (count, MessageFlags(libc::MSG_WAITALL))
            }
            Self::Recvmmsg {
                count,
                messages,
                flags,
                ..
            } => {
                let messages = usize::try_from(messages).unwrap_or(1);
                let least = if flags.has(libc::MSG_WAITFORONE) || messages == 0 {
                    1
                } else {
                    count * (messages - 1) + 1
                };
                let most = count * messages;
                return Some(Reading { least, most, flags });
            }
            _ => return None,
        };
        let least = if flags.has(libc::MSG_WAITALL) {
            count
        } else {
            1
        };
        let most = count;
        Some(Reading { least, most, flags })
    }

    /// How long it waits, when it waits for something to be ready; for ever below 0.
    pub fn timeout_ms(&self) -> Option<i32> {
        match *self {
            Self::Poll { timeout_ms, .. }
            | Self::PollBoth { timeout_ms, .. }
            | Self::Ppoll { timeout_ms, .. }
            | Self::PpollMasked { timeout_ms, .. }
            | Self::Select { timeout_ms, .. }
            | Self::Pselect { timeout_ms, .. }
            | Self::PselectMasked { timeout_ms, .. }
            | Self::EpollWait { timeout_ms, .. }
            | Self::EpollPwait { timeout_ms, .. }
            | Self::EpollPwaitMasked { timeout_ms, .. }
            | Self::EpollPwait2 { timeout_ms, .. } => Some(timeout_ms),
            _ => None,
        }
    }

    /// Whether it waits in a set.
    pub fn waits_in_set(&self) -> bool {
        matches!(
            self,
            Self::EpollWait { .. }
                | Self::EpollPwait { .. }
                | Self::EpollPwaitMasked { .. }
                | Self::EpollPwait2 { .. }
        )
    }

    /// Whether SIGUSR1 waits until it is over.
    pub fn holds_signal(&self) -> bool {
        match self {
            Self::PpollMasked { mask, .. }
            | Self::PselectMasked { mask, .. }
            | Self::EpollPwaitMasked { mask, .. }
            | Self::EpollPwait2 { mask, .. } => mask.value().inside == Some(true),
            _ => false,
        }
    }

    /// How many bytes it would write, when it writes.
    pub fn writes(&self) -> Option<usize> {
        match *self {
            Self::Write { count, .. } | Self::Send { count, .. } => Some(count),
            Self::Pwritev2 { count, .. } | Self::RawWrite { count, .. } => Some(count),
            Self::SendBeside { count, .. } => Some(count),
            Self::Sendto { count, .. } | Self::Print { count, .. } => Some(count),
            Self::WritevEmpty { first, second, .. } => Some(first + second),
            Self::Sendfile { count, .. } | Self::SpliceOut { count, .. } => Some(count),
            Self::StdioWrite { count, .. } | Self::WriteNowhere { count, .. } => Some(count),
            Self::Writev { first, second, .. } | Self::Sendmsg { first, second, .. } => {
                Some(first + second)
            }
            Self::Sendmmsg {
                count, messages, ..
            } => Some(count * usize::try_from(messages).unwrap_or(1)),
            _ => None,
        }
    }
}

/// See [`Call::reads`].
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub least: usize,
    pub most: usize,
    pub flags: MessageFlags,
}
