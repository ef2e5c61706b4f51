//! A server behind a pair of pipes: a process of this program that answers on its standard streams.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::pipe::fcntl_setpipe_size;

/// Room in each pipe: as much as a user may have by default, where a new one has 64 KiB.
pub const PIPE_BYTES: usize = 1 << 20;

/// A pipe to a process and one from it, without buffers.
pub struct Pipes {
    /// What is written here arrives there.
    pub to: File,
    /// What is written there arrives here.
    pub from: File,
    /// The process, where it is ours; it ends when `to` is closed.
    server: Option<Child>,
}

impl Pipes {
    /// Starts a server.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn to_new_process() -> io::Result<Self> {
        let mut server = Command::new(std::env::current_exe()?)
            .args(["--die-with-parent", "answer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (to, from) = (server.stdin.take(), server.stdout.take());
        let (Some(to), Some(from)) = (to, from) else {
            return Err(io::Error::other("a piped stream is missing"));
        };
        for pipe in [to.as_fd(), from.as_fd()] {
            // A user whose limit is lower keeps what there is.
            let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        Ok(Self {
            to: OwnedFd::from(to).into(),
            from: OwnedFd::from(from).into(),
            server: Some(server),
        })
    }

    /// The other side: the standard streams of this process.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn of_this_process() -> io::Result<Self> {
        Ok(Self {
            to: io::stdout().as_fd().try_clone_to_owned()?.into(),
            from: io::stdin().as_fd().try_clone_to_owned()?.into(),
            server: None,
        })
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // It may have ended by itself; either way it is gone and reaped afterwards.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
