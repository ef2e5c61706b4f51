//! How a server may wait for its next request.

use std::fmt;

/// A way of waiting, in the order of the table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// TCP, in a blocking recv
    Tcp,
    /// TCP, in a blocking recv for which the kernel polls the device (SO_BUSY_POLL)
    TcpBusyPoll,
    /// TCP, in a loop of recv that does not block
    TcpSpin,
    /// Crosslane, under run --wait sleep
    Sleep,
    /// Crosslane, under run --wait adaptive, the default
    Adaptive,
    /// Crosslane, under run --wait spin
    Spin,
    /// Crosslane, under run --wait monitor
    Monitor,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Tcp,
        Self::TcpBusyPoll,
        Self::TcpSpin,
        Self::Sleep,
        Self::Adaptive,
        Self::Spin,
        Self::Monitor,
    ];

    /// The strategy that Crosslane is asked for; none over TCP.
    pub fn strategy(self) -> Option<&'static str> {
        match self {
            Self::Tcp | Self::TcpBusyPoll | Self::TcpSpin => None,
            Self::Sleep => Some("sleep"),
            Self::Adaptive => Some("adaptive"),
            Self::Spin => Some("spin"),
            Self::Monitor => Some("monitor"),
        }
    }

    /// How the program itself receives.
    pub fn receive(self) -> &'static str {
        match self {
            Self::TcpBusyPoll => "busy-poll",
            Self::TcpSpin => "spin",
            Self::Tcp | Self::Sleep | Self::Adaptive | Self::Spin | Self::Monitor => "block",
        }
    }

    /// Over what, as in the other benches' output.
    pub fn transport(self) -> &'static str {
        match self.strategy() {
            Some(_) => "crosslane",
            None => "tcp",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::TcpBusyPoll => "tcp-busy-poll",
            Self::TcpSpin => "tcp-spin",
            Self::Sleep => "sleep",
            Self::Adaptive => "adaptive",
            Self::Spin => "spin",
            Self::Monitor => "monitor",
        })
    }
}
