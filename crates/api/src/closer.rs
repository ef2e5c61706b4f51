//! Shutting a connection down from any thread.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::{Arc, Weak};

use crate::socket::Socket;

/// Shuts a connection down from any thread, also while others wait in calls on its halves. It keeps no connection open.
#[derive(Clone, Debug)]
pub struct Closer(Weak<Socket>);

impl Closer {
    pub(crate) fn of(socket: &Arc<Socket>) -> Self {
        Self(Arc::downgrade(socket))
    }

    /// Shut down a direction, as shutdown(2). Calls that wait in it end: to receive, with the end of the stream; to
    /// send, with `BrokenPipe`. What a commit has kept back is not sent before, as by [`Sender::shutdown`].
    ///
    /// [`Sender::shutdown`]: crate::Sender::shutdown
    ///
    /// # Errors
    /// As shutdown(2); `NotConnected` when the connection has been closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let socket = self.0.upgrade().ok_or(ErrorKind::NotConnected)?;
        socket.shutdown(how)
    }
}
