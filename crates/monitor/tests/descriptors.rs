//! Without room for a passed descriptor. Alone in its file, because it lowers the limit of the
//! whole process.

mod common;

use std::fs::File;

use common::{monitor, tcp_pair};
use crosslane_ctl::message::{ClientMessage, MonitorMessage};
use crosslane_ctl::reason::Reason;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::os::fd::AsFd;

#[test]
fn a_socket_that_does_not_fit_is_refused_and_nobody_is_disconnected() {
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(100);
    setrlimit(Resource::Nofile, limit).unwrap();
    let full: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    one.send(ClientMessage::Register { token: 1 }, &[a.as_fd()]);
    let reason = Reason::MonitorFull as u32;
    assert_eq!(one.expect(), MonitorMessage::Refused { token: 1, reason });
    drop(full);
    one.register(2, &a);
    two.register(2, &b);
    assert_eq!(one.expect_grant().0.token, 2);
    assert_eq!(monitor.counters().monitor.protocol_errors, 0);
}
