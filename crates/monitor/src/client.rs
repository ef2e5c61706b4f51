//! The command's side of a control connection: ask the monitor, with a limit on waiting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crosslane_ctl::ABI_VERSION;
use crosslane_ctl::message::{
    ClientMessage, HEADER_BYTES, MessageError, MonitorMessage, Query, TEXT_BYTES,
};
use crosslane_ctl::paths::{MOST_PATH_BYTES, RUNTIME_DIR_VARIABLE, has_room_for_socket, socket_in};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use thiserror::Error;

pub use crate::report::{
    ConnectionReport, CountersReport, Counts, HostReport, MonitorReport, RackReport, RunEnd,
    RunLine, RunRest, WindowReport,
};

/// Why a monitor could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody can listen there.
    #[error(
        "the path {path} has more than {MOST_PATH_BYTES} bytes, too many for a socket; name a \
         shorter directory in {RUNTIME_DIR_VARIABLE}"
    )]
    TooLong {
        /// The socket.
        path: PathBuf,
    },
    /// Nobody listens.
    #[error(
        "no monitor answers at {path}: {error}; `crosslane run` starts one, or `crosslane monitor`"
    )]
    NoMonitor {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Somebody may listen, but not for us.
    #[error(
        "cannot reach a monitor at {path}: its directory does not let you in; ask as its user or as \
         root, or name another directory in {RUNTIME_DIR_VARIABLE}"
    )]
    Forbidden {
        /// The socket.
        path: PathBuf,
    },
    /// The monitor is another user's.
    #[error("the monitor at {path} belongs to user {owner}, neither root nor you")]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It is there and does not answer.
    #[error(
        "the monitor at {path} does not answer; end it, or name another directory in \
         {RUNTIME_DIR_VARIABLE}"
    )]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// It has closed the connection.
    #[error("the monitor at {path} has closed the connection")]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// It is of another version.
    #[error(
        "the monitor at {path} speaks version {found} of the protocol, and this is version {ABI_VERSION}: install one \
         version for all parts, and start the monitor anew"
    )]
    Version {
        /// The socket.
        path: PathBuf,
        /// The monitor's version.
        found: u16,
    },
    /// It says what this version does not understand.
    #[error("cannot understand the monitor: {0}")]
    Message(#[from] MessageError),
    /// The answer is not what was asked for.
    #[error("the monitor's answer makes no sense: {0}")]
    Answer(#[from] serde_json::Error),
}

/// A connection to a monitor.
#[derive(Debug)]
pub struct MonitorClient {
    socket: OwnedFd,
    path: PathBuf,
}

impl MonitorClient {
    /// Connect to the monitor in a runtime directory.
    ///
    /// # Errors
    /// When nobody listens there, or somebody who is neither root nor we.
    pub fn connect(runtime_dir: &Path) -> Result<Self, ClientError> {
        let path = socket_in(runtime_dir);
        if !has_room_for_socket(runtime_dir) {
            return Err(ClientError::TooLong { path });
        }
        let failed = |error| match error {
            Errno::ACCESS => ClientError::Forbidden { path: path.clone() },
            error => ClientError::NoMonitor {
                path: path.clone(),
                error: error.into(),
            },
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        let owner = crosslane_sys::socket::peer_credentials(socket.as_fd())
            .map_err(|error| ClientError::NoMonitor {
                path: path.clone(),
                error: error.into(),
            })?
            .uid;
        if owner != 0 && owner != crosslane_sys::process::uid() {
            return Err(ClientError::Stranger { path, owner });
        }
        Ok(Self { socket, path })
    }

    /// Have the ends of a run remembered for as long as this lives.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn watch(&self, run: u64) -> Result<(), ClientError> {
        let packet = ClientMessage::Watch { run }.encode();
        send(&self.socket, packet.as_bytes(), SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|_| self.closed())
    }

    /// What became of the connections of a run.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn run(&self, run: u64, patience: Duration) -> Result<(Vec<RunEnd>, RunRest), ClientError> {
        let text = self.ask(Query::Run { run }, patience)?;
        let mut ends = Vec::new();
        let mut rest = RunRest::default();
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match serde_json::from_slice(line)? {
                RunLine::End(end) => ends.push(*end),
                RunLine::Rest(last) => rest = last,
            }
        }
        Ok((ends, rest))
    }

    /// Every connection that we may see.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn connections(&self, patience: Duration) -> Result<Vec<ConnectionReport>, ClientError> {
        let text = self.ask(Query::Connections, patience)?;
        text.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| Ok(serde_json::from_slice(line)?))
            .collect()
    }

    /// This host and its rack; `None` where the monitor is in none.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn rack(&self, patience: Duration) -> Result<Option<RackReport>, ClientError> {
        let text = self.ask(Query::Rack, patience)?;
        match text.is_empty() {
            true => Ok(None),
            false => Ok(Some(serde_json::from_slice(&text)?)),
        }
    }

    /// Counters.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn counters(&self, patience: Duration) -> Result<CountersReport, ClientError> {
        Ok(serde_json::from_slice(
            &self.ask(Query::Counters, patience)?,
        )?)
    }

    /// Send a query and collect the answer; `patience` is the longest wait for a piece of it.
    fn ask(&self, query: Query, patience: Duration) -> Result<Vec<u8>, ClientError> {
        let packet = ClientMessage::Query(query).encode();
        send(&self.socket, packet.as_bytes(), SendFlags::NOSIGNAL).map_err(|_| self.closed())?;
        let mut text = Vec::new();
        let mut buffer = vec![0; HEADER_BYTES + TEXT_BYTES];
        loop {
            self.wait(patience)?;
            let bytes = match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(self.closed()),
                Ok((bytes, _)) => bytes,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
                Err(_) => return Err(self.closed()),
            };
            match MonitorMessage::decode(buffer.get(..bytes).unwrap_or_default()) {
                Ok(MonitorMessage::Text(piece)) if piece.is_empty() => return Ok(text),
                Ok(MonitorMessage::Text(piece)) => text.extend_from_slice(&piece),
                Ok(_) => {}
                Err(error) => return Err(self.misunderstood(error)),
            }
        }
    }

    fn wait(&self, patience: Duration) -> Result<(), ClientError> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => {
                    return Err(ClientError::Silent {
                        path: self.path.clone(),
                    });
                }
                Ok(_) => return Ok(()),
                Err(_) => {}
            }
        }
    }

    fn misunderstood(&self, error: MessageError) -> ClientError {
        match error {
            MessageError::Version { found } => ClientError::Version {
                path: self.path.clone(),
                found,
            },
            error => error.into(),
        }
    }

    fn closed(&self) -> ClientError {
        ClientError::Closed {
            path: self.path.clone(),
        }
    }
}
