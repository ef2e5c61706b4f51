//! The runtime directory: whose it is, the lock that makes the monitor the only one in it, and
//! the socket.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crosslane_ctl::paths::{MOST_PATH_BYTES, RUNTIME_DIR_VARIABLE, has_room_for_socket, socket_in};
use rustix::fs::{FlockOperation, Mode, OFlags, chmod, flock, open};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use thiserror::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Name of the socket before it listens; no longer than its later one, as there is a limit.
const UNREADY_NAME: &str = "monitor.new";

/// Name of the lock in the runtime directory.
const LOCK_NAME: &str = "monitor.lock";

/// Why a runtime directory cannot be used.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The kernel has no room for its name.
    #[error(
        "the path of the socket in the directory {path} has more than {MOST_PATH_BYTES} bytes; \
         name a shorter one in {RUNTIME_DIR_VARIABLE}"
    )]
    TooLong {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be made or opened.
    #[error("cannot use the directory {path}: {error}; name another one in {RUNTIME_DIR_VARIABLE}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Somebody else could tamper with what is in it.
    #[error(
        "the directory {path} belongs to user {owner} with mode {mode:o}; it must belong to \
         user {wanted} or root and be writable by nobody else; remove it or name another one"
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// Who asked.
        wanted: u32,
    },
    /// Another monitor has the lock, or answers on the socket.
    #[error("another monitor runs in {path}")]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {error}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
}

/// Open a runtime directory, made with `mode` if it is not there, after checking that nobody but
/// us and root can change what is in it.
///
/// # Errors
/// See [`DirectoryError`].
pub fn open_directory(path: &Path, mode: u32) -> Result<OwnedFd, DirectoryError> {
    let failed = |error: io::Error| DirectoryError::Open {
        path: path.to_owned(),
        error,
    };
    if !has_room_for_socket(path) {
        return Err(DirectoryError::TooLong {
            path: path.to_owned(),
        });
    }
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let found = rustix::fs::fstat(&directory).map_err(|error| failed(error.into()))?;
    let wanted = rustix::process::geteuid().as_raw();
    if (found.st_uid != wanted && found.st_uid != 0) || found.st_mode & 0o022 != 0 {
        return Err(DirectoryError::Unsafe {
            path: path.to_owned(),
            owner: found.st_uid,
            mode: found.st_mode & 0o7777,
            wanted,
        });
    }
    Ok(directory)
}

/// Mode of the directory of this user's private monitor. Root's programs may become other users and
/// must reach the socket then.
pub fn private_mode() -> u32 {
    match rustix::process::geteuid().is_root() {
        true => 0o711,
        false => 0o700,
    }
}

/// A socket to listen on, with the lock that makes it ours; both are given back when dropped.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    path: PathBuf,
    identity: (u64, u64),
    _lock: File,
}

impl Door {
    /// Listen in `directory`, made with `mode` if it is not there. `open_to_all` lets other users
    /// connect.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open(directory: &Path, mode: u32, open_to_all: bool) -> Result<Self, DirectoryError> {
        open_directory(directory, mode)?;
        let lock = lock(directory)?;
        let path = socket_in(directory);
        let failed = |error: io::Error| DirectoryError::Listen {
            path: path.clone(),
            error,
        };
        if answers(&path) {
            return Err(DirectoryError::Taken {
                path: directory.to_owned(),
            });
        }
        let socket = listen_at(directory, &path, open_to_all).map_err(failed)?;
        let found = std::fs::symlink_metadata(&path).map_err(failed)?;
        Ok(Self {
            socket,
            identity: (found.dev(), found.ino()),
            path,
            _lock: lock,
        })
    }

    /// The listening socket.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            // What cannot be removed is replaced by the next monitor.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn lock(directory: &Path) -> Result<File, DirectoryError> {
    let path = directory.join(LOCK_NAME);
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(&path)
        .map_err(|error| DirectoryError::Open {
            path: path.clone(),
            error,
        })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(DirectoryError::Taken {
            path: directory.to_owned(),
        }),
    }
}

/// Whether somebody listens there, be it a monitor without a lock.
fn answers(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) else {
        return false;
    };
    let Ok(address) = SocketAddrUnix::new(path) else {
        return false;
    };
    // A full backlog is an answer, too.
    matches!(
        connect(socket.as_fd(), &address),
        Ok(()) | Err(rustix::io::Errno::AGAIN)
    )
}

/// Listen under another name first, so that whoever sees the socket can connect to it; what a dead
/// monitor left there is replaced.
fn listen_at(directory: &Path, path: &Path, open_to_all: bool) -> io::Result<OwnedFd> {
    let unready = directory.join(UNREADY_NAME);
    match std::fs::remove_file(&unready) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(&unready)?)?;
    let mode = if open_to_all { 0o666 } else { 0o600 };
    chmod(&unready, Mode::from_raw_mode(mode))?;
    listen(&socket, BACKLOG)?;
    std::fs::rename(&unready, path)?;
    Ok(socket)
}
