//! Values as words of a program's text: `h3`, `100`, `PEEK|DONTWAIT`.

/// A value that is one word.
pub trait Word: Sized {
    fn word(&self) -> String;
    fn of(word: &str) -> Option<Self>;

    /// The descriptor that this is, to be resolved.
    fn as_handle(&mut self) -> Option<&mut Handle> {
        None
    }
}

/// A descriptor: in a program the number of its name, in an order to a process its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub u32);

impl Word for Handle {
    fn word(&self) -> String {
        format!("h{}", self.0)
    }

    fn of(word: &str) -> Option<Self> {
        word.strip_prefix('h')?.parse().ok().map(Self)
    }

    fn as_handle(&mut self) -> Option<&mut Handle> {
        Some(self)
    }
}

/// The name that a new descriptor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New(pub u32);

impl Word for New {
    fn word(&self) -> String {
        format!("h{}", self.0)
    }

    fn of(word: &str) -> Option<Self> {
        Handle::of(word).map(|handle| Self(handle.0))
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => {
        $(impl Word for $kind {
            fn word(&self) -> String { self.to_string() }
            fn of(word: &str) -> Option<Self> { word.parse().ok() }
        })*
    };
}

numbers! { u32 i32 usize bool }

/// Flags by their C names without the prefix, joined by `|`; `-` for none.
macro_rules! flags {
    ($(#[$doc:meta])* $kind:ident: $number:ty { $($name:ident = $value:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $kind(pub $number);

        impl $kind {
            const NAMES: &[(&'static str, $number)] = &[$((stringify!($name), $value)),*];

            /// Whether all of these are set.
            #[allow(dead_code, reason = "not every kind of flags is asked")]
            pub fn has(self, flags: $number) -> bool {
                self.0 & flags == flags
            }
        }

        impl Word for $kind {
            fn word(&self) -> String {
                let set: Vec<_> = Self::NAMES
                    .iter()
                    .filter(|(_, bit)| self.0 & bit != 0)
                    .map(|(name, _)| *name)
                    .collect();
                if set.is_empty() { "-".into() } else { set.join("|") }
            }

            fn of(word: &str) -> Option<Self> {
                if word == "-" {
                    return Some(Self(0));
                }
                let bit = |word: &str| Self::NAMES.iter().find(|(name, _)| *name == word);
                word.split('|')
                    .map(|word| bit(word).map(|(_, bit)| bit))
                    .try_fold(0, |all, bit| bit.map(|bit| all | bit))
                    .map(Self)
            }
        }
    };
}

flags! {
    /// Of send(2) and recv(2).
    MessageFlags: i32 {
        OOB = libc::MSG_OOB,
        PEEK = libc::MSG_PEEK,
        TRUNC = libc::MSG_TRUNC,
        WAITALL = libc::MSG_WAITALL,
        DONTWAIT = libc::MSG_DONTWAIT,
        NOSIGNAL = libc::MSG_NOSIGNAL,
        MORE = libc::MSG_MORE,
        WAITFORONE = libc::MSG_WAITFORONE,
    }
}

flags! {
    /// Of poll(2).
    PollEvents: i16 {
        IN = libc::POLLIN,
        PRI = libc::POLLPRI,
        OUT = libc::POLLOUT,
        ERR = libc::POLLERR,
        HUP = libc::POLLHUP,
        NVAL = libc::POLLNVAL,
        RDHUP = libc::POLLRDHUP,
    }
}

flags! {
    /// Of epoll_ctl(2).
    EpollEvents: u32 {
        IN = libc::EPOLLIN.cast_unsigned(),
        PRI = libc::EPOLLPRI.cast_unsigned(),
        OUT = libc::EPOLLOUT.cast_unsigned(),
        ERR = libc::EPOLLERR.cast_unsigned(),
        HUP = libc::EPOLLHUP.cast_unsigned(),
        RDHUP = libc::EPOLLRDHUP.cast_unsigned(),
        ET = libc::EPOLLET.cast_unsigned(),
        ONESHOT = libc::EPOLLONESHOT.cast_unsigned(),
        EXCLUSIVE = libc::EPOLLEXCLUSIVE.cast_unsigned(),
    }
}

/// One of a list, by its name.
macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $value:expr),* $(,)? }: $value_kind:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "as C spells them")]
        pub enum $kind { $($name),* }

        impl $kind {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn value(self) -> $value_kind {
                match self { $(Self::$name => $value),* }
            }
        }

        impl Word for $kind {
            fn word(&self) -> String {
                match self { $(Self::$name => stringify!($name)),* }.into()
            }

            fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }
    };
}

names! {
    /// Of shutdown(2).
    How { RD = libc::SHUT_RD, WR = libc::SHUT_WR, RDWR = libc::SHUT_RDWR }: i32
}

names! {
    /// Where a listener is, and where that is for who connects, if it has an IP address: a mapped one
    /// is IPv4 seen by an IPv6 socket. AF_UNIX streams have names, or come as a pair.
    Family {
        v4 = Some(("127.0.0.1:0", "127.0.0.1:0")),
        v6 = Some(("[::1]:0", "[::1]:0")),
        mapped = Some(("[::]:0", "[::ffff:127.0.0.1]:0")),
        unix = None,
        pair = None,
    }: Option<(&'static str, &'static str)>
}

impl Family {
    pub const TCP: [Self; 3] = [Self::v4, Self::v6, Self::mapped];
    pub const UNIX: [Self; 2] = [Self::unix, Self::pair];
}

names! {
    /// Options whose value is an int.
    Choice {
        KEEPALIVE = (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        OOBINLINE = (libc::SOL_SOCKET, libc::SO_OOBINLINE),
        REUSEADDR = (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        RCVLOWAT = (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
        PRIORITY = (libc::SOL_SOCKET, libc::SO_PRIORITY),
        TYPE = (libc::SOL_SOCKET, libc::SO_TYPE),
        DOMAIN = (libc::SOL_SOCKET, libc::SO_DOMAIN),
        PROTOCOL = (libc::SOL_SOCKET, libc::SO_PROTOCOL),
        ACCEPTCONN = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
        ERROR = (libc::SOL_SOCKET, libc::SO_ERROR),
        NODELAY = (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        CORK = (libc::IPPROTO_TCP, libc::TCP_CORK),
        KEEPIDLE = (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
        USER_TIMEOUT = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
        TOS = (libc::IPPROTO_IP, libc::IP_TOS),
    }: (i32, i32)
}

/// What becomes of SIGUSR1 in a call that takes a mask of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masking {
    /// Whether it is blocked before and after the call.
    pub outside: bool,
    /// Whether it is sent just before the call.
    pub sent: bool,
    /// Whether the mask of the call has it, if there is one.
    pub inside: Option<bool>,
}

names! {
    /// The mask of a call that waits.
    Mask {
        NONE = Masking { outside: false, sent: false, inside: None },
        BLOCKS = Masking { outside: false, sent: false, inside: Some(true) },
        OPENS = Masking { outside: true, sent: false, inside: Some(false) },
        PENDING = Masking { outside: true, sent: true, inside: Some(false) },
        HELD = Masking { outside: true, sent: true, inside: Some(true) },
    }: Masking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_written() {
        for flags in [0, libc::MSG_PEEK, libc::MSG_PEEK | libc::MSG_DONTWAIT] {
            let word = MessageFlags(flags).word();
            assert_eq!(MessageFlags::of(&word), Some(MessageFlags(flags)), "{word}");
        }
        for &choice in Choice::ALL {
            assert_eq!(Choice::of(&choice.word()), Some(choice));
        }
        for &mask in Mask::ALL {
            assert_eq!(Mask::of(&mask.word()), Some(mask));
        }
        assert_eq!(Handle::of("h12"), Some(Handle(12)));
        assert_eq!((Handle::of("12"), MessageFlags::of("NO")), (None, None));
    }
}
