//! Closing what strangers have passed: the last close of a descriptor may wait, for unsent data
//! of a socket with SO_LINGER or for the server of a network file system. The event loop must not.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_domain, socket_linger};

/// Threads that may be closing at a time; further descriptors are closed by the caller.
const THREADS: usize = 64;

/// Closes slow descriptors aside and tells when it is done.
#[derive(Debug)]
pub struct Closer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Readable when something has been closed.
    bell: OwnedFd,
    closed: Mutex<Vec<u64>>,
    threads: AtomicUsize,
}

impl Closer {
    /// Without threads yet.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Shared {
            bell: eventfd(0, flags)?,
            closed: Mutex::default(),
            threads: AtomicUsize::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Readable when [`Closer::take_closed`] has something to say.
    pub fn bell(&self) -> &OwnedFd {
        &self.shared.bell
    }

    /// Close `fd`. True if that is done; else it will be, and `name` told then.
    pub fn close(&self, fd: OwnedFd, name: Option<u64>) -> bool {
        if is_quick(&fd) || self.shared.threads.load(Ordering::Relaxed) >= THREADS {
            return true;
        }
        self.shared.threads.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new()
            .name("close".to_owned())
            .stack_size(64 << 10)
            .spawn(move || shared.close(fd, name));
        // A thread that cannot be made has closed it here.
        if spawned.is_err() {
            self.shared.threads.fetch_sub(1, Ordering::Relaxed);
        }
        spawned.is_err()
    }

    /// Names of what has been closed since the last call.
    pub fn take_closed(&self) -> Vec<u64> {
        let mut count = [0; 8];
        // Nothing to read is nothing closed, which the list will say, too.
        let _ = rustix::io::read(self.bell(), &mut count);
        std::mem::take(&mut *self.shared.lock())
    }
}

impl Shared {
    fn close(&self, fd: OwnedFd, name: Option<u64>) {
        drop(fd);
        self.threads.fetch_sub(1, Ordering::Relaxed);
        let Some(name) = name else {
            return;
        };
        self.lock().push(name);
        // A full counter is readable already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sockets that do not linger close at once; of other descriptors nobody knows.
fn is_quick(fd: impl AsFd) -> bool {
    match socket_domain(&fd) {
        Ok(family) if family == AddressFamily::UNIX => true,
        Ok(_) => matches!(socket_linger(&fd), Ok(None | Some(Duration::ZERO))),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    fn tcp() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn what_cannot_wait_is_closed_at_once() {
        let closer = Closer::new().unwrap();
        let abrupt = tcp().0;
        set_socket_linger(&abrupt, Some(Duration::ZERO)).unwrap();
        assert!(closer.close(tcp().0.into(), Some(1)));
        assert!(closer.close(abrupt.into(), Some(2)));
        assert!(closer.close(UnixStream::pair().unwrap().0.into(), Some(3)));
        assert!(closer.take_closed().is_empty());
    }

    #[test]
    fn what_may_wait_is_closed_aside_and_told() {
        use std::io::Write;
        let closer = Closer::new().unwrap();
        let (mut slow, unread) = tcp();
        slow.set_nonblocking(true).unwrap();
        while slow.write(&[0; 65536]).is_ok() {}
        set_socket_linger(&slow, Some(Duration::from_secs(3600))).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!closer.close(slow.into(), Some(7)));
        assert!(!closer.close(file.into(), Some(8)));
        assert_eq!(wait(&closer), [8], "the file does not wait for the socket");
        drop(unread);
        assert_eq!(wait(&closer), [7]);
    }

    fn wait(closer: &Closer) -> Vec<u64> {
        let watchdog = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(closer.bell(), PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&watchdog)), Ok(1), "nothing is closed");
        closer.take_closed()
    }
}
