//! The private monitor of a user: where it lives, and how it is started quietly.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crosslane_ctl::paths::{RUNTIME_DIR_VARIABLE, SYSTEM_RUNTIME_DIR, private_runtime_dir};
use crosslane_monitor::client::{ClientError, MonitorClient};
use crosslane_monitor::directory::{open_directory, private_mode};

use crate::commands::monitor::notify;

/// How long a monitor may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// How long another's may take that came up while ours failed.
const AFTER_FAILURE: Duration = Duration::from_millis(300);

/// Name of the log in the runtime directory.
const LOG_NAME: &str = "monitor.log";

/// The directory of this user's private monitor.
pub fn directory() -> PathBuf {
    if let Some(dir) = named_directory() {
        return dir;
    }
    let xdg = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    private_runtime_dir(xdg.as_deref(), rustix::process::geteuid().as_raw())
}

/// The directory that the environment names, in a form that survives a change of directory.
pub fn named_directory() -> Option<PathBuf> {
    let dir = std::env::var_os(RUNTIME_DIR_VARIABLE).filter(|dir| !dir.is_empty())?;
    Some(std::path::absolute(&dir).unwrap_or_else(|_| dir.into()))
}

/// The directory of the monitor that programs of this environment use.
pub fn current_directory() -> PathBuf {
    let system = Path::new(SYSTEM_RUNTIME_DIR);
    match named_directory() {
        None if serves(system) => system.to_owned(),
        _ => directory(),
    }
}

/// Whether a monitor in this directory is the one to use. Also of another version: programs that run have it, and with a
/// second one beside it those of today would never meet them, even once it is replaced.
fn serves(directory: &Path) -> bool {
    matches!(ask(directory), Ok(()) | Err(ClientError::Version { .. }))
}

fn ask(directory: &Path) -> Result<(), ClientError> {
    MonitorClient::connect(directory)?
        .counters(PATIENCE)
        .map(drop)
}

/// Whether a monitor answers in this directory.
fn answers(directory: &Path) -> bool {
    ask(directory).is_ok()
}

/// See to it that a monitor answers in this directory.
pub fn ensure(directory: &Path) -> anyhow::Result<()> {
    match ask(directory) {
        Ok(()) => return Ok(()),
        // Where one is, no other can be.
        Err(is_there @ (ClientError::Silent { .. } | ClientError::Version { .. })) => {
            return Err(is_there.into());
        }
        Err(_) => {}
    }
    open_directory(directory, private_mode())?;
    let mut starter = Command::new(own_path()?)
        .args(["monitor", "--private", "--detach", "--runtime-dir"])
        .arg(directory)
        .env_remove("LD_PRELOAD")
        // It is the program's, whose service is not ready yet.
        .env_remove(notify::VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a private monitor")?;
    // Another program may start one at the same moment: then ours gives up, and theirs answers.
    let mut end = Instant::now() + PATIENCE;
    let mut ended = None;
    while Instant::now() < end {
        if ended.is_none() {
            ended = starter.try_wait()?;
            if ended.is_some_and(|status| !status.success()) {
                end = end.min(Instant::now() + AFTER_FAILURE);
            }
        }
        if answers(directory) {
            reap(starter);
            return Ok(());
        }
        if ended.is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let complaint = starter.stderr.take();
    reap(starter);
    bail!(
        "no monitor answers in {}, and a private one does not come up: {}",
        directory.display(),
        last_line(complaint).unwrap_or_else(|| format!("see {LOG_NAME} there"))
    )
}

/// What an ended child has said last.
fn last_line(said: Option<ChildStderr>) -> Option<String> {
    let mut text = String::new();
    // Nobody holds the other end any more, so this does not wait.
    said?.read_to_string(&mut text).ok()?;
    let line = text.lines().last()?.trim_start_matches("crosslane: ");
    (!line.is_empty()).then(|| line.to_owned())
}

/// Leave no child behind for the program that we become.
fn reap(mut starter: Child) {
    // It ends when the monitor listens, or is of no use.
    let _ = starter.kill();
    let _ = starter.wait();
}

/// Start a monitor in the background: nobody's child, in a session of its own, with no
/// descriptor of ours but its log. Returns when it listens.
pub fn detach(directory: &Path, linger: u64) -> anyhow::Result<()> {
    crosslane_sys::process::close_on_exec_from(3);
    // Fails only for the leader of a process group, which needs no session to be left alone.
    let _ = rustix::process::setsid();
    open_directory(directory, private_mode())?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc_no_follow())
        .open(directory.join(LOG_NAME))
        .context("cannot open the log")?;
    let mut child = Command::new(own_path()?)
        .args(["monitor", "--private", "--announce"])
        .arg("--linger")
        .arg(linger.to_string())
        .arg("--runtime-dir")
        .arg(directory)
        .env_remove("LD_PRELOAD")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start a monitor")?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim() != "listening" {
        bail!("it has ended, {}; see {LOG_NAME} there", child.wait()?);
    }
    Ok(())
}

fn libc_no_follow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

fn own_path() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find the crosslane command itself")
}
