//! Names of the two ends, and the families of addresses.

use std::net::IpAddr;

use crosslane_exercise::calls::{close, getpeername, getsockname, getsockopt, set_linger};
use libc::{POLLHUP, SO_DOMAIN, SO_PROTOCOL, SO_TYPE, SOL_SOCKET};

use super::{Check, Cue, pair};
use crate::Stage;
use crate::stage::{digest, drain, pattern};
use crate::warm::{mapped, v6};

/// Say both names without the ports, which differ from run to run.
fn names(s: &mut Stage) {
    let ip = |name: crosslane_exercise::calls::Name| {
        name.address()
            .map_or_else(|| "none".into(), |address| show(address.ip()))
    };
    s.say("mine", getsockname(s.fd).map(ip));
    s.say("other", getpeername(s.fd).map(ip));
}

fn show(ip: IpAddr) -> String {
    ip.to_string()
}

fn near(s: &mut Stage) {
    names(s);
    s.say("domain", getsockopt(s.fd, SOL_SOCKET, SO_DOMAIN));
    s.send(&pattern(100_000));
    s.say(
        "shutdown",
        crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR),
    );
    s.say("took", drain(s.fd).map(|bytes| digest(&bytes)));
}

fn far(s: &mut Stage) {
    names(s);
    s.say("took", drain(s.fd).map(|bytes| digest(&bytes)));
    s.send(&pattern(100_000));
    s.say(
        "shutdown",
        crosslane_exercise::calls::shutdown(s.fd, libc::SHUT_WR),
    );
}

pub const CHECKS: &[Check] = &[
    pair("names_of_ipv4", near, far),
    Check {
        name: "names_of_ipv6",
        cue: Cue::Pair {
            near,
            far,
            address: v6,
        },
    },
    Check {
        name: "names_of_mapped_ipv4",
        cue: Cue::Pair {
            near,
            far,
            address: mapped,
        },
    },
    pair(
        "names_after_a_reset",
        |s| {
            s.until(POLLHUP);
            names(s);
        },
        |s| {
            set_linger(s.fd, Some(0)).expect("SO_LINGER can be set");
            s.say("close", close(s.fd));
        },
    ),
    pair(
        "kind_of_socket",
        |s| {
            for option in [SO_TYPE, SO_DOMAIN, SO_PROTOCOL] {
                s.say("is", getsockopt(s.fd, SOL_SOCKET, option));
            }
        },
        |_| {},
    ),
];
