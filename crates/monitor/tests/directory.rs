//! One monitor per directory, and directories that nobody else can tamper with.

mod common;

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::{config, monitor, monitor_with, start_in};
use crosslane_ctl::paths::socket_in;
use crosslane_monitor::config::Service;
use crosslane_monitor::directory::DirectoryError;
use crosslane_monitor::server::{Monitor, StartError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

fn start_error(directory: &Path) -> DirectoryError {
    let (read, _write) = UnixStream::pair().unwrap();
    match Monitor::start(&config(directory), read.into()) {
        Err(StartError::Directory(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

#[test]
fn a_second_monitor_is_refused() {
    let monitor = monitor();
    let error = start_error(monitor.directory.path());
    assert!(matches!(error, DirectoryError::Taken { .. }));
    monitor.client();
}

#[test]
fn a_socket_that_answers_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let other = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let path = socket_in(directory.path());
    bind(&other, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&other, 1).unwrap();
    let error = start_error(directory.path());
    assert!(matches!(error, DirectoryError::Taken { .. }));
}

#[test]
fn a_socket_that_nobody_answers_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let dead = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let path = socket_in(directory.path());
    bind(&dead, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    drop(dead);
    start_in(directory, |_| {}).client();
}

#[test]
fn the_socket_goes_with_the_monitor() {
    let directory = monitor().stop();
    assert!(!socket_in(directory.path()).exists());
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = start_error(directory.path());
    assert!(matches!(error, DirectoryError::Unsafe { mode: 0o777, .. }));
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: only root can give directories away"
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(12345), None).unwrap();
    let error = start_error(directory.path());
    assert!(matches!(error, DirectoryError::Unsafe { owner: 12345, .. }));
}

#[test]
fn a_link_in_place_of_the_directory_or_the_lock_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let link = directory.path().join("link");
    symlink(&target, &link).unwrap();
    assert!(matches!(start_error(&link), DirectoryError::Open { .. }));
    let victim = directory.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    symlink(&victim, target.join("monitor.lock")).unwrap();
    assert!(matches!(start_error(&target), DirectoryError::Open { .. }));
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn a_missing_directory_is_made_for_us_alone() {
    let parent = tempfile::tempdir().unwrap();
    let monitor = start_in(parent, |config| {
        config.directory = config.directory.join("runtime");
        config.service = Service::Private {
            linger: Duration::from_secs(3600),
        };
    });
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let directory = monitor.directory.path().join("runtime");
    // Root's programs may become other users; these pass, and need the secret then.
    let wanted = match rustix::process::geteuid().is_root() {
        true => [0o711, 0o666],
        false => [0o700, 0o600],
    };
    assert_eq!([mode(&directory), mode(&socket_in(&directory))], wanted);
}

#[test]
fn a_private_monitor_without_programs_ends() {
    let mut monitor = monitor_with(|config| {
        config.service = Service::Private {
            linger: Duration::from_millis(20),
        };
    });
    monitor.wait_for_end();
    assert!(!socket_in(monitor.directory.path()).exists());
}

#[test]
fn a_private_monitor_stays_as_long_as_a_program_that_has_used_it() {
    let monitor = monitor_with(|config| {
        config.service = Service::Private {
            linger: Duration::from_millis(20),
        };
    });
    // We are a program that has used it, and do not end with our connection.
    drop(monitor.client());
    std::thread::sleep(Duration::from_millis(200));
    monitor.client();
}
