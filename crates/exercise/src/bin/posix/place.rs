//! Where the two processes of a check meet.

use std::fmt::{self, Display};
use std::net::SocketAddr;

use clap::ValueEnum;
use crosslane_exercise::calls::Name;

use crate::Options;

/// What connects the two processes of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// A TCP connection
    Tcp,
    /// An AF_UNIX stream, connected and accepted
    Unix,
    /// A socket pair across fork
    Pair,
}

impl Over {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Pair => "pair",
        }
    }
}

/// Where a listener is.
#[derive(Clone)]
pub enum Place {
    Ip(SocketAddr),
    /// An AF_UNIX name outside of the file system.
    Unix(String),
}

impl Place {
    /// From what [`Display`] made of it.
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("unix:") {
            Some(name) => Self::Unix(name.to_owned()),
            None => Self::Ip(text.parse().expect("the other side names its address")),
        }
    }

    pub fn name(&self) -> Name {
        match self {
            Self::Ip(address) => (*address).into(),
            Self::Unix(name) => Name::of_unix(name),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(name) => write!(f, "unix:{name}"),
        }
    }
}

impl Options {
    /// Where to listen instead of at `address`, if the check is to run over something else.
    pub fn place(&self, address: SocketAddr) -> Place {
        match self.over {
            Over::Tcp => Place::Ip(address),
            // Of the same length in every run, because checks show it.
            Over::Unix | Over::Pair => {
                Place::Unix(format!("crosslane-posix-{:010}", std::process::id()))
            }
        }
    }
}
