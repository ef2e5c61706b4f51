//! Programs that root runs and that become another user before they open a socket.

use std::os::unix::fs::PermissionsExt;

use crosslane_testkit::{Host, Route, is_root, skipped};

use crate::talk::Talk;

/// `nobody`, without root's groups.
const BECOME_NOBODY: [&str; 4] = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];

/// A host on which a private monitor will be started, in a directory that others can pass.
fn host() -> Option<Host> {
    if !is_root() {
        skipped("only root can become another user");
        return None;
    }
    let host = Host::without_monitor(Route::Crosslane);
    let mode = PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(host.folder(), mode).expect("the folder is ours");
    Some(host)
}

#[test]
fn a_program_that_gives_up_roots_rights_is_accelerated() {
    let Some(host) = host() else { return };
    let mut talk = Talk::with_server_under(&host, "setpriv", &BECOME_NOBODY);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    let server = talk.server.pid();
    let status = std::fs::read_to_string(format!("/proc/{server}/status"));
    let status = status.expect("the server runs");
    assert!(
        status.contains("Uid:\t65534\t65534\t65534\t65534"),
        "{status}"
    );
    talk.close();
    talk.end();
}

#[test]
fn others_are_not_served_by_roots_private_monitor() {
    let Some(host) = host() else { return };
    // What a stranger can guess: where the monitor is, not its secret.
    let forget = [&BECOME_NOBODY[..3], &["env", "-u", "CROSSLANE_SECRET"]].concat();
    let mut talk = Talk::with_server_under(&host, "setpriv", &forget);
    talk.go();
    talk.open();
    crosslane_testkit::wait_until("the server to be turned away", || {
        (host.stats().monitor_count("protocol_errors") > 0).then_some(())
    });
    assert_eq!(talk.accelerated_ends(&host), 0);
    talk.close();
    talk.end();
}
