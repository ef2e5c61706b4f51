//! Why a connection is not accelerated. Every connection on TCP has one of these.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $slug:literal, $text:literal, $remedy:literal;)*) => {
        /// Why a connection is on TCP. The numbers are part of the shared layout.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Reason { $($(#[doc = $doc])* $name = $code,)* }

        impl Reason {
            /// All reasons, in the order of their codes.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// The reason with this code, which another process may have written.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// A short stable name for counters and JSON.
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What would change it.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

reasons! {
    /// Nothing speaks against it.
    None = 0, "none", "nothing speaks against acceleration", "nothing to do";
    /// Upgrade is lazy and the connection has moved too little yet.
    TooYoung = 1, "too-young", "the connection has carried too little to be worth a ring",
        "keep it for more requests, or name its port with --eager to upgrade at once";
    /// The monitor has not found the other end.
    NoPeer = 2, "no-peer", "the other end has not been found under Crosslane, or keeps to TCP for a reason of its own",
        "start the other program with crosslane run, in the same network namespace; if it is, see its end in crosslane ss";
    /// Both ends are known; one has not taken part yet.
    Switching = 3, "switching", "the upgrade is under way and waits for the other end's next call",
        "nothing to do: it goes on with the next call of both programs";
    /// No monitor answers.
    NoMonitor = 4, "no-monitor", "no monitor answers", "start crosslane monitor, or use crosslane run";
    /// More ends than the monitor lets one process or one user have.
    Quota = 5, "quota", "the program or its user has as many connections as the monitor allows",
        "raise --ends-per-process or --ends-per-user of crosslane monitor";
    /// The monitor speaks another version.
    Version = 6, "version", "the monitor speaks another version", "install one version for all parts";
    /// No memory for rings.
    NoMemory = 7, "no-memory", "there was no memory for rings", "free memory, or lower --ring-bytes of the monitor";
    /// The process has no descriptors left.
    NoDescriptors = 8, "no-descriptors", "the program has no file descriptor left", "raise RLIMIT_NOFILE";
    /// Somebody may have the socket whom the library does not know.
    Foreign = 9, "foreign", "the socket had been copied before it was connected, or came from another process",
        "connect it before it is copied (dup, fork, SCM_RIGHTS), in the program that made it";
    /// The kernel's count of bytes differs from ours.
    Uncounted = 10, "uncounted", "bytes moved past the library",
        "let the program use the C library's functions on this socket, not system calls of its own, and cancel no thread that sends";
    /// A standard stream of libc's, whose bytes go around the library.
    Stdio = 11, "stdio", "libc reads or writes the descriptor itself, as a standard stream",
        "print to a stream (fdopen) instead";
    /// A socket option that only the kernel can honour.
    Option = 12, "option", "a socket option or mode was set that only the kernel can honour",
        "do without it: O_ASYNC, SO_RCVLOWAT above 1, SO_SNDBUF below 16 KiB (AF_UNIX), SO_OOBINLINE, SO_ZEROCOPY, \
         SO_PEEK_OFF, SO_TIMESTAMP, socket filters, kernel TLS, SO_MAX_PACING_RATE, TCP_MD5SIG, TCP_REPAIR, TCP_INQ, IP_TRANSPARENT, MPTCP";
    /// Urgent data.
    Urgent = 13, "urgent", "urgent data was used", "do without MSG_OOB: urgent data needs TCP";
    /// A call that is not handled on rings.
    Call = 14, "call", "a call was used that only the kernel handles",
        "do without flags that few programs use, and reconnecting";
    /// More connections than the table holds.
    TableFull = 15, "table-full", "the process has more connections than the table holds",
        "spread connections over several processes: each has room for 65,536";
    /// Handed to a program that cannot be accelerated.
    Exec = 16, "exec", "the socket was handed to another program by exec",
        "let one program of the same user that can be accelerated have it alone (crosslane check)";
    /// Sent to another process.
    Passed = 17, "passed", "the socket was passed to another process",
        "run the process that gets it under Crosslane, as the same user, and close it here";
    /// The epoll set is used in a way that rings cannot follow.
    EpollUse = 18, "epoll-use", "the epoll set is polled itself, or in another set",
        "wait for the set by epoll_wait only";
    /// The other end asked for TCP.
    PeerAsked = 19, "peer-asked", "the other end brought the connection back to TCP",
        "see the reason at the other end";
    /// The other end broke the ring's rules.
    PeerLied = 20, "peer-lied", "the other end wrote nonsense into the ring",
        "distrust that program, whose connection was reset, or report a bug";
    /// The reader is so slow that the ring is full.
    Overflow = 21, "overflow", "the reader is slow, so TCP carries what does not fit the ring",
        "raise --ring-bytes of the monitor, or read faster";
    /// Brought back by the chaos knob of tests.
    Chaos = 22, "chaos", "a test brought it back to TCP", "unset CROSSLANE_CHAOS";
    /// Forked before it had rings, so that only one of the processes would have them.
    Shared = 23, "shared", "another process has inherited the socket by fork",
        "close it in the process that does not use it";
    /// One direction was shut down before the upgrade.
    HalfClosed = 24, "half-closed", "one end had shut down its direction before the upgrade",
        "nothing to do: it is about to end";
    /// A control message of an AF_UNIX socket went by the kernel, and what follows does not yet go
    /// by ring again.
    Ancillary = 25, "ancillary", "descriptors or credentials were passed along, which the kernel does",
        "nothing to do: the ring is used again from the next message on";
    /// Both ends of a socket pair are in one process.
    OwnPair = 26, "own-pair", "both ends of a socket pair are in the same process",
        "nothing to do: it is upgraded once another process has one of them alone";
    /// The peer of an AF_UNIX socket can be asked for in its own network namespace only.
    Namespace = 27, "namespace", "the monitor may not enter the network namespace of the AF_UNIX socket",
        "run crosslane monitor as root, or in the program's network namespace";
    /// The program forbids system calls to itself.
    Sandbox = 28, "sandbox", "the program has restricted its system calls (seccomp)",
        "run it without its sandbox, if it can be done without";
    /// The other host is of the rack, but there is no way to it but TCP.
    NoWindow = 29, "no-window", "no window to the other host works at the moment",
        "see crosslane rack status for what is missing";
    /// This host's list of who may use windows.
    RackPolicy = 30, "rack-policy", "this host does not let the program use a window",
        "add an [[allow]] for its user, program, port and the other host to rack.toml";
    /// The other host's list.
    PeerPolicy = 31, "peer-policy", "the other host does not let the other program use a window",
        "see the reason at the other end, and rack.toml there";
    /// Too many connections of one user.
    RackQuota = 32, "rack-quota", "a user has as many connections over windows as are allowed",
        "raise connections_per_user in rack.toml of both hosts";
    /// All of the window is used. The connection waits until others leave some of it.
    WindowFull = 33, "window-full", "the window to the other host has no room left",
        "make the window larger, or ring_bytes or slots of [[window]] smaller, in rack.toml";
    /// The memory between the hosts is gone.
    WindowLost = 34, "window-lost", "the window to the other host was lost",
        "nothing to do: the connection goes over a window again when there is one (crosslane rack status)";
    /// The program has taken the number of a descriptor of ours.
    Number = 35, "number", "the program has given the number of one of the library's descriptors to another (dup2)",
        "raise its limit of descriptors (ulimit -n) above 500000, where the library's are out of the way";
    /// Reset, because a process was killed while it changed what others share with it.
    Torn = 36, "torn", "a process that shared the connection was killed in the middle of a call, so it was reset",
        "see who kills it; SIGTERM leaves connections whole";
    /// Closed or reset before the monitor looked.
    Unconnected = 37, "unconnected", "the socket was not connected any more when the monitor looked at it",
        "nothing to do: the connection was reset or dissolved before it could have a ring";
    /// The monitor was passed something else.
    NotStream = 38, "not-stream", "what the monitor was passed was no TCP socket and no AF_UNIX stream",
        "let no thread close or replace a descriptor that another thread uses";
    /// Before Linux 5.14 nobody tells which network namespace a socket is in.
    OldKernel = 39, "old-kernel", "the kernel does not tell which network namespace a socket is in (SO_NETNS_COOKIE)",
        "run Linux 5.14 or newer";
    /// sock_diag(7) of AF_UNIX is not there, or forbidden.
    NoDiag = 40, "no-diag", "the kernel does not tell the monitor which AF_UNIX socket is whose peer (sock_diag)",
        "load the module unix_diag (CONFIG_UNIX_DIAG), and let the monitor open NETLINK_SOCK_DIAG";
    /// Descriptors that were sent to the monitor did not fit.
    MonitorFull = 41, "monitor-full", "the monitor has no file descriptor left to look at the socket with",
        "raise the limit of descriptors of the monitor (LimitNOFILE=, ulimit -n)";
    /// Registered again and again, see the monitor's GRANTS_PER_END.
    TooOften = 42, "too-often", "one of the connection's ends has been given rings as often as the monitor allows",
        "open a new connection, and see which program connects or registers this one again and again";
    /// Two living processes use an epoll set that the connection is in.
    EpollShared = 43, "epoll-shared", "two living processes use an epoll set that it is in",
        "let one process use each epoll set: make sets after the fork, and do not pass them to other processes";
    /// A registration from before the connection, which the library cannot change: EPOLLEXCLUSIVE, EPOLLONESHOT, or what a
    /// connection before this one had.
    EpollEarly = 44, "epoll-early", "the socket was in an epoll set before it was connected, in a way that only the kernel follows",
        "connect before EPOLL_CTL_ADD, or add it without EPOLLEXCLUSIVE and EPOLLONESHOT";
}

impl Reason {
    /// Whether the connection goes to its rings by itself when that has passed. Such a reason is counted each time,
    /// the others once for each connection.
    pub const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::PeerAsked
                | Self::Overflow
                | Self::Chaos
                | Self::Ancillary
                | Self::WindowLost
                | Self::WindowFull
        )
    }

    /// Whether Crosslane has failed, rather than the peer or the program's ways being
    /// against acceleration: what `crosslane run --strict` does not put up with.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::NoMonitor
                | Self::Quota
                | Self::Version
                | Self::NoMemory
                | Self::NoDescriptors
                | Self::TableFull
                | Self::OldKernel
                | Self::NoDiag
                | Self::MonitorFull
        )
    }
}

/// Exit status of a program that ends because of `--strict`, or is not even started.
pub const STRICT_STATUS: u8 = 125;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_slugs_unique() {
        let mut slugs = std::collections::HashSet::new();
        for (code, reason) in (0u32..).zip(Reason::ALL) {
            assert_eq!(Reason::from_code(code), Some(*reason));
            assert!(slugs.insert(reason.slug()), "{}", reason.slug());
        }
        assert_eq!(
            Reason::from_code(u32::try_from(Reason::ALL.len()).unwrap()),
            None
        );
    }

    /// What each remedy has to name: the knob, the call, or that there is none.
    const REMEDIES: &[(Reason, &str)] = &[
        (Reason::None, "nothing to do"),
        (Reason::TooYoung, "--eager"),
        (Reason::NoPeer, "crosslane run"),
        (Reason::Switching, "nothing to do"),
        (Reason::NoMonitor, "crosslane monitor"),
        (Reason::Quota, "--ends-per-user of crosslane monitor"),
        (Reason::Version, "one version"),
        (Reason::NoMemory, "--ring-bytes of the monitor"),
        (Reason::NoDescriptors, "RLIMIT_NOFILE"),
        (Reason::Foreign, "SCM_RIGHTS"),
        (Reason::Uncounted, "C library's functions"),
        (Reason::Stdio, "fdopen"),
        (Reason::Option, "SO_RCVLOWAT"),
        (Reason::Urgent, "MSG_OOB"),
        (Reason::Call, "flags"),
        (Reason::TableFull, "several processes"),
        (Reason::Exec, "crosslane check"),
        (Reason::Passed, "under Crosslane"),
        (Reason::EpollUse, "epoll_wait"),
        (Reason::PeerAsked, "at the other end"),
        (Reason::PeerLied, "distrust"),
        (Reason::Overflow, "--ring-bytes of the monitor"),
        (Reason::Chaos, "CROSSLANE_CHAOS"),
        (Reason::Shared, "close it"),
        (Reason::HalfClosed, "nothing to do"),
        (Reason::Ancillary, "nothing to do"),
        (Reason::OwnPair, "nothing to do"),
        (Reason::Namespace, "network namespace"),
        (Reason::Sandbox, "sandbox"),
        (Reason::NoWindow, "crosslane rack status"),
        (Reason::RackPolicy, "[[allow]]"),
        (Reason::PeerPolicy, "rack.toml there"),
        (Reason::RackQuota, "connections_per_user"),
        (Reason::WindowFull, "[[window]]"),
        (Reason::WindowLost, "crosslane rack status"),
        (Reason::Number, "ulimit -n"),
        (Reason::Torn, "SIGTERM"),
        (Reason::Unconnected, "nothing to do"),
        (Reason::NotStream, "descriptor that another thread uses"),
        (Reason::OldKernel, "Linux 5.14"),
        (Reason::NoDiag, "unix_diag"),
        (Reason::MonitorFull, "LimitNOFILE="),
        (Reason::TooOften, "new connection"),
        (Reason::EpollShared, "after the fork"),
        (Reason::EpollEarly, "connect before"),
    ];

    #[test]
    fn every_reason_has_a_remedy_of_its_own() {
        let told: Vec<Reason> = REMEDIES.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(told, Reason::ALL);
        for (reason, names) in REMEDIES {
            let (text, remedy) = (reason.text(), reason.remedy());
            assert!(!text.is_empty(), "{reason:?}");
            assert!(remedy.contains(names), "{reason:?}: {remedy}");
        }
    }

    #[test]
    fn only_what_a_quota_has_refused_is_said_to_need_a_larger_one() {
        let of_quotas = |reason: &&Reason| reason.remedy().contains("ends-per-");
        let found: Vec<_> = Reason::ALL.iter().filter(of_quotas).collect();
        assert_eq!(found, [&Reason::Quota]);
    }
}
