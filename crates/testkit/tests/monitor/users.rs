//! Programs that root runs and that become another user, or lock themselves into a folder: before they open a socket, or with
//! connections.

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

/// Echoes on each connection; for a line on standard input it changes itself.
const CHANGING_SERVER: &str = r#"
import os, socket, sys, threading

def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()

def serve():
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
threading.Thread(target=serve, daemon=True).start()
sys.stdin.readline()
{CHANGE}
print("changed", flush=True)
sys.stdin.readline()
"#;

const LOCK_IN: &str = r#"os.mkdir("empty"), os.chroot("empty"), os.chdir("/")"#;
const GIVE_UP_RIGHTS: &str = "os.setgroups([]), os.setgid(65534), os.setuid(65534)";

fn is_locked_in(host: &Host, pid: u32) -> bool {
    let root = std::fs::read_link(format!("/proc/{pid}/root")).expect("the server runs");
    root == host.folder().join("empty")
}

fn is_nobody(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let ids = "65534\t65534\t65534\t65534";
    status.contains(&format!("Uid:\t{ids}\nGid:\t{ids}\n"))
}

/// What the ends of its connections have moved by TCP.
fn tcp_bytes(host: &Host, talk: &Talk) -> u64 {
    let ends = host.ends();
    let of_it = ends.iter().filter(|end| end.has_port(talk.port));
    of_it
        .map(|end| end.tcp_bytes_sent + end.tcp_bytes_received)
        .sum()
}

/// The server changes itself so, and `has_changed` then; the connection that it has stays in its rings, and the next one gets some.
fn goes_on_by_rings_after(change: &str, has_changed: fn(&Host, u32) -> bool) {
    let Some(host) = host() else { return };
    let mut talk = Talk::with_server(&host, &CHANGING_SERVER.replace("{CHANGE}", change));
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    let before = tcp_bytes(&host, &talk);
    talk.server.write_line("change");
    assert_eq!(talk.server.next_line().as_deref(), Some("changed"));
    assert!(has_changed(&host, talk.server.pid()), "{change}");
    talk.wait_for_words(3000);
    assert_eq!(talk.accelerated_ends(&host), 2, "{change}");
    assert_eq!(tcp_bytes(&host, &talk), before, "{change}");
    talk.open();
    talk.wait_for_accelerated(&host, 4);
    talk.close();
    talk.close();
    talk.end();
}

#[test]
fn a_program_that_gives_up_roots_rights_meanwhile_is_accelerated() {
    goes_on_by_rings_after(GIVE_UP_RIGHTS, |_, pid| is_nobody(pid));
}

#[test]
fn a_program_that_locks_itself_in_meanwhile_is_accelerated() {
    goes_on_by_rings_after(LOCK_IN, is_locked_in);
}

#[test]
fn a_program_that_locks_itself_in_without_rights_is_accelerated() {
    let change = format!("{LOCK_IN}, {GIVE_UP_RIGHTS}");
    goes_on_by_rings_after(&change, |host, pid| {
        is_locked_in(host, pid) && is_nobody(pid)
    });
}
