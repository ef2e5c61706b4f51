//! All checks, by topic.

mod accepting;
mod anew;
mod asleep;
mod begun;
mod beside;
mod blocking;
mod brief;
mod bulk;
mod cancelling;
mod children;
mod connecting;
mod connections;
mod descriptions;
mod descriptors;
mod ending;
mod epoll;
mod exhausted;
mod flags;
mod fortified;
mod itself;
mod kernels;
mod locks;
mod loops;
mod names;
mod notices;
mod nowhere;
mod options;
mod pipes;
mod processes;
mod ready;
mod refused;
mod shared_sets;
mod signals;
mod standard_input;
mod stdio;
mod storm;
mod stormed;
mod threads;
mod urgent;
mod vectors;
mod vforked;
mod waiting;

use std::net::SocketAddr;

use crate::Stage;
use crate::warm;

/// A named check.
pub struct Check {
    pub name: &'static str,
    pub cue: Cue,
}

/// Who plays in a check.
#[derive(Clone, Copy)]
pub enum Cue {
    /// One process that makes its sockets itself.
    Solo(fn(&mut Stage)),
    /// Two processes with a connection between them.
    Pair {
        near: fn(&mut Stage),
        far: fn(&mut Stage),
        address: fn() -> SocketAddr,
    },
}

const fn pair(name: &'static str, near: fn(&mut Stage), far: fn(&mut Stage)) -> Check {
    Check {
        name,
        cue: Cue::Pair {
            near,
            far,
            address: warm::v4,
        },
    }
}

const fn solo(name: &'static str, near: fn(&mut Stage)) -> Check {
    Check {
        name,
        cue: Cue::Solo(near),
    }
}

/// Every check, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Check> {
    let topics: [&'static [Check]; 40] = [
        ending::CHECKS,
        blocking::CHECKS,
        flags::CHECKS,
        vectors::CHECKS,
        ready::CHECKS,
        epoll::CHECKS,
        connections::CHECKS,
        descriptors::CHECKS,
        processes::CHECKS,
        children::CHECKS,
        itself::CHECKS,
        exhausted::CHECKS,
        connecting::CHECKS,
        anew::CHECKS,
        names::CHECKS,
        options::CHECKS,
        kernels::CHECKS,
        bulk::CHECKS,
        standard_input::CHECKS,
        stdio::CHECKS,
        signals::CHECKS,
        begun::CHECKS,
        threads::CHECKS,
        urgent::CHECKS,
        cancelling::CHECKS,
        pipes::CHECKS,
        refused::CHECKS,
        fortified::CHECKS,
        notices::CHECKS,
        storm::CHECKS,
        stormed::CHECKS,
        accepting::CHECKS,
        descriptions::CHECKS,
        locks::CHECKS,
        loops::CHECKS,
        brief::CHECKS,
        vforked::CHECKS,
        nowhere::CHECKS,
        waiting::CHECKS,
        shared_sets::CHECKS,
    ];
    topics.into_iter().flatten().chain(beside::CHECKS)
}

/// Whether a check is about AF_UNIX alone.
pub fn is_about_unix(check: &Check) -> bool {
    beside::CHECKS.iter().any(|other| other.name == check.name)
}
