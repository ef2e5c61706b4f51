//! What each process counts about itself, for `crosslane stats`.
//!
//! In a slab, the counters of bytes are of closed connections only: the bytes of open ones stand
//! in their entries, and whoever shows a sum adds them.

macro_rules! counters {
    ($($name:ident, $slug:literal, $help:literal;)*) => {
        /// A counter in the slab's header. The order is part of the shared layout.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $(#[doc = $help] $name,)* }

        impl Counter {
            /// All counters in order.
            pub const ALL: &[Counter] = &[$(Counter::$name,)*];

            /// Name in JSON; Prometheus adds `crosslane_` before and `_total` after it.
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// One line of help.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)* }
            }
        }
    };
}

counters! {
    Connections, "connections", "TCP connections opened or accepted";
    Upgrades, "upgrades", "directions that were switched from TCP to a ring";
    Downgrades, "downgrades", "directions that were brought back from a ring to TCP";
    BellsSent, "doorbells_sent", "doorbell bytes sent to wake a sleeper";
    BellsTaken, "doorbells_taken", "doorbell bytes received and discarded";
    Sleeps, "sleeps", "times a call slept in the kernel on an accelerated connection";
    SpinHits, "spin_hits", "times spinning found what it waited for";
    SpinMisses, "spin_misses", "times spinning gave up and the call slept";
    RingBytesSent, "ring_bytes_sent", "bytes sent through rings";
    RingBytesReceived, "ring_bytes_received", "bytes received through rings";
    TcpBytesSent, "tcp_bytes_sent", "bytes of data sent through TCP";
    TcpBytesReceived, "tcp_bytes_received", "bytes of data received through TCP";
    PeerLies, "peer_lies", "connections reset because the peer broke the ring's rules";
    Backoffs, "backoffs", "short naps because several waiters share one doorbell";
    ControlErrors, "control_errors", "control messages that could not be sent or understood";
    Replays, "replays", "times unread ring bytes were sent again by TCP";
    Resumes, "resumes", "connections that went back to their rings after the socket was handed on";
    WindowsLost, "windows_lost", "connections whose window to the other host was lost";
    WindowsUnsettled, "windows_unsettled", "connections reset because what stood in a lost window could not be had";
    IoUringRefused, "io_uring_refused", "calls of io_uring_setup that were answered with ENOSYS";
    StrandedBytes, "stranded_bytes", "bytes left unread in the ring of a peer that had ended, where the socket was left to others or to the kernel";
    RescuedBytes, "rescued_bytes", "stranded bytes that a program under Crosslane has adopted after all";
}
