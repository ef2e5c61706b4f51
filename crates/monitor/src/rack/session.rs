//! TLS 1.3 over one connection between two monitors, without waiting: each proves that it has the
//! key of the certificate that the other one expects. Certificates' contents do not matter.

mod pins;

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustls::{CertificateError, ClientConfig, Connection, ServerConfig};
use thiserror::Error;

use super::identity::{Fingerprint, Identity};
use super::message::{FrameError, HostMessage};

/// What the other host has not read yet may be this much; one that lets more pile up is cut off.
const BACKLOG_BYTES: usize = 8 << 20;

/// Bytes taken from the other host before others have their turn.
const BYTES_PER_TURN: usize = 64 << 10;

/// Why a session has ended.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The connection has.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The other host has hung up.
    #[error(
        "the other host has hung up; where it goes on to do so, its log and `crosslane rack status` there say why"
    )]
    HungUp,
    /// It has not proved who it is, or does not believe who we are.
    #[error("{}", told(.0))]
    Tls(rustls::Error),
    /// It talks nonsense.
    #[error("the other host talks nonsense: {0}")]
    Frame(#[from] FrameError),
    /// It does not read.
    #[error("the other host does not read what it is told")]
    Deaf,
}

/// What is wrong with the keys, which are the likeliest to be wrong, in the words of rack.toml.
fn told(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "it has another key than rack.toml says: enter the fingerprint that `crosslane rack \
             init` printed on that host"
                .to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!(
            "it does not take this host for one of its rack ({alert:?}): is the fingerprint \
             that `crosslane rack status` says here in its rack.toml?"
        ),
        other => other.to_string(),
    }
}

/// What both kinds of sessions need.
pub struct Tls {
    identity: Identity,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Sessions of this host with any of those.
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn new(identity: Identity, hosts: Vec<Fingerprint>) -> Result<Self, rustls::Error> {
        Ok(Self {
            server: Arc::new(pins::server(&identity, hosts)?),
            identity,
        })
    }

    /// Believe those hosts from now on.
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn renew(&mut self, hosts: Vec<Fingerprint>) -> Result<(), rustls::Error> {
        self.server = Arc::new(pins::server(&self.identity, hosts)?);
        Ok(())
    }

    /// A session with a host that has connected.
    ///
    /// # Errors
    /// Those of rustls.
    pub fn accept(&self, socket: TcpStream) -> Result<Session, rustls::Error> {
        let tls = rustls::ServerConnection::new(Arc::clone(&self.server))?;
        Ok(Session::new(socket, tls.into()))
    }

    /// A session with the host of this certificate, over a connection that may be under way yet.
    ///
    /// # Errors
    /// Those of rustls.
    pub fn connect(&self, socket: TcpStream, host: Fingerprint) -> Result<Session, rustls::Error> {
        let config: ClientConfig = pins::client(&self.identity, host)?;
        let name = pins::server_name();
        let tls = rustls::ClientConnection::new(Arc::new(config), name)?;
        Ok(Session::new(socket, tls.into()))
    }
}

/// One session.
pub struct Session {
    socket: TcpStream,
    tls: Connection,
    received: Vec<u8>,
    /// What epoll has been asked for.
    pub interest: EventFlags,
}

impl Session {
    fn new(socket: TcpStream, mut tls: Connection) -> Self {
        tls.set_buffer_limit(Some(BACKLOG_BYTES));
        Self {
            socket,
            tls,
            received: Vec::new(),
            interest: EventFlags::empty(),
        }
    }

    /// Whether both have proved who they are.
    pub fn is_proved(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// By what the other host has proved itself.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let certificate = self.tls.peer_certificates()?.first()?;
        self.is_proved().then(|| Fingerprint::of(certificate))
    }

    /// What has to be waited for.
    pub fn wanted(&self) -> EventFlags {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, self.tls.wants_write());
        flags
    }

    /// Whether nothing waits to be sent.
    pub fn is_drained(&self) -> bool {
        !self.tls.wants_write()
    }

    /// Say something, as soon as the other host reads.
    ///
    /// # Errors
    /// When it has not read for too long.
    pub fn say(&mut self, message: &HostMessage) -> Result<(), SessionError> {
        let frame = message.encode();
        match self.tls.writer().write(&frame) {
            Ok(bytes) if bytes == frame.len() => self.flush(),
            _ => Err(SessionError::Deaf),
        }
    }

    /// Send what waits, as far as the other host reads.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> Result<(), SessionError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if is_nothing_yet(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Take what has come.
    ///
    /// # Errors
    /// When the session has ended; what came before its end is lost.
    pub fn receive(&mut self) -> Result<Vec<HostMessage>, SessionError> {
        // Why a connection has not come about is told once, and by nothing else as clearly.
        if let Some(error) = self.socket.take_error()? {
            return Err(error.into());
        }
        let mut messages = Vec::new();
        let mut taken = 0;
        while taken < BYTES_PER_TURN {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(SessionError::HungUp),
                Ok(bytes) => taken += bytes,
                Err(error) if is_nothing_yet(&error) => break,
                Err(error) => return Err(error.into()),
            }
            let state = self.tls.process_new_packets().map_err(|error| {
                // It is told what was wrong with it; whether it reads that is its business.
                let _ = self.flush();
                SessionError::Tls(error)
            })?;
            let start = self.received.len();
            self.received
                .resize(start + state.plaintext_bytes_to_read(), 0);
            let got = self.tls.reader().read(&mut self.received[start..]);
            self.received.truncate(start + got.unwrap_or(0));
            while let Some(message) = HostMessage::take(&mut self.received)? {
                messages.push(message);
            }
        }
        self.flush()?;
        Ok(messages)
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection that is under way is not connected yet.
fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests;
