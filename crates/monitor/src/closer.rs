//! Closing what strangers have passed: the last close of a descriptor may wait, for unsent data
//! of a socket with SO_LINGER or for the server of a network file system. So may that of a socket in which such descriptors
//! stand. The event loop must not.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::ioctl_fionread;
use rustix::net::sockopt::{socket_domain, socket_linger, socket_type};
use rustix::net::{AddressFamily, SocketType};

/// Threads that may be closing at a time; further descriptors wait for one.
const THREADS: usize = 64;

/// As many of them may be closing what one user has passed, so that others' need not wait for it.
const THREADS_OF_USER: usize = 16;

/// So long a thread waits for more to do.
const IDLE: Duration = Duration::from_secs(1);

/// On whose account a descriptor is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// A client's, by its number: no more of it is read meanwhile.
    Client(u64),
    /// That of a user whose client is gone.
    User(u32),
}

/// Closes slow descriptors aside and tells when it is done. How many wait is up to the caller.
#[derive(Debug)]
pub struct Closer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Readable when something has been closed.
    bell: OwnedFd,
    closed: Mutex<Vec<Account>>,
    queue: Mutex<Queue>,
    /// Something has been put into the queue.
    more: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Threads that are closing what each user has passed.
    busy: HashMap<u32, usize>,
    threads: usize,
    idle: usize,
}

#[derive(Debug)]
struct Waiting {
    fd: OwnedFd,
    account: Account,
    uid: u32,
}

impl Queue {
    /// Whether as many threads are closing for a user as may.
    fn is_sated(&self, uid: u32) -> bool {
        self.busy
            .get(&uid)
            .is_some_and(|busy| *busy >= THREADS_OF_USER)
    }

    /// The place of what may be closed next.
    fn next(&self) -> Option<usize> {
        self.waiting
            .iter()
            .position(|next| !self.is_sated(next.uid))
    }

    /// How many may be closed now.
    fn takeable(&self) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|next| !self.is_sated(next.uid)).count()
    }
}

impl Closer {
    /// Without threads yet.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Shared {
            bell: eventfd(0, flags)?,
            closed: Mutex::default(),
            queue: Mutex::default(),
            more: Condvar::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Readable when [`Closer::take_closed`] has something to say.
    pub fn bell(&self) -> &OwnedFd {
        &self.shared.bell
    }

    /// Close `fd`, which the user has passed. True if that is done; else it will be, and the account told then.
    pub fn close(&self, fd: OwnedFd, account: Account, uid: u32) -> bool {
        is_quick(&fd) || self.close_aside(fd, account, uid)
    }

    /// The same for one that may be slow though it does not look like it.
    pub fn close_aside(&self, fd: OwnedFd, account: Account, uid: u32) -> bool {
        let mut queue = lock(&self.shared.queue);
        queue.waiting.push_back(Waiting { fd, account, uid });
        // The threads that are closing for a user come to what he has too much of.
        if queue.is_sated(uid) {
            return false;
        }
        let idle = queue.idle;
        if idle > 0 {
            self.shared.more.notify_one();
        }
        if idle >= queue.takeable() || queue.threads >= THREADS {
            return false;
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new()
            .name("close".to_owned())
            .stack_size(64 << 10)
            .spawn(move || shared.work());
        if spawned.is_ok() {
            return false;
        }
        let mut queue = lock(&self.shared.queue);
        queue.threads -= 1;
        // Without any thread there is nobody else to do it.
        let own = match queue.threads {
            0 => queue.waiting.pop_back(),
            _ => None,
        };
        drop(queue);
        own.is_some()
    }

    /// On whose accounts something has been closed since the last call.
    pub fn take_closed(&self) -> Vec<Account> {
        let mut count = [0; 8];
        // Nothing to read is nothing closed, which the list will say, too.
        let _ = rustix::io::read(self.bell(), &mut count);
        std::mem::take(&mut *lock(&self.shared.closed))
    }
}

impl Shared {
    fn work(&self) {
        while let Some(Waiting { fd, account, uid }) = self.next() {
            drop(fd);
            if let Some(busy) = lock(&self.queue).busy.get_mut(&uid) {
                *busy -= 1;
            }
            lock(&self.closed).push(account);
            // A full counter is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// What is to be closed next; `None` if nothing has come for a while.
    fn next(&self) -> Option<Waiting> {
        let mut queue = lock(&self.queue);
        if queue.next().is_none() {
            queue.idle += 1;
            let has_none = |queue: &mut Queue| queue.next().is_none();
            let waited = self.more.wait_timeout_while(queue, IDLE, has_none);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.idle -= 1;
        }
        // What a user has too much of is left to the threads that are closing for him.
        let place = queue.next();
        let next = place.and_then(|place| queue.waiting.remove(place));
        match &next {
            Some(next) => *queue.busy.entry(next.uid).or_default() += 1,
            None => queue.threads -= 1,
        }
        next
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sockets that do not linger close at once, and so do AF_UNIX streams in which nothing stands; of other descriptors nobody
/// knows.
fn is_quick(fd: impl AsFd) -> bool {
    match socket_domain(&fd) {
        Ok(family) if family == AddressFamily::UNIX => {
            socket_type(&fd) == Ok(SocketType::STREAM) && ioctl_fionread(&fd) == Ok(0)
        }
        Ok(_) => matches!(socket_linger(&fd), Ok(None | Some(Duration::ZERO))),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
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
        let (unix, _other) = UnixStream::pair().unwrap();
        assert!(closer.close(tcp().0.into(), Account::Client(1), 1));
        assert!(closer.close(abrupt.into(), Account::Client(2), 1));
        assert!(closer.close(unix.into(), Account::Client(3), 1));
        assert!(closer.take_closed().is_empty());
    }

    /// A socket whose close waits until the other is closed.
    fn slow() -> (TcpStream, TcpStream) {
        let (mut slow, unread) = tcp();
        slow.set_nonblocking(true).unwrap();
        while slow.write(&[0; 65536]).is_ok() {}
        set_socket_linger(&slow, Some(Duration::from_secs(3600))).unwrap();
        (slow, unread)
    }

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn what_may_wait_is_closed_aside_and_told() {
        let closer = Closer::new().unwrap();
        let (slow, unread) = slow();
        assert!(!closer.close(slow.into(), Account::Client(7), 1));
        assert!(!closer.close(null(), Account::User(8), 8));
        let first = wait(&closer);
        assert_eq!(
            first,
            [Account::User(8)],
            "the file does not wait for the socket"
        );
        drop(unread);
        assert_eq!(wait(&closer), [Account::Client(7)]);
    }

    #[test]
    fn where_all_threads_of_a_user_wait_nobody_else_does() {
        let closer = Closer::new().unwrap();
        let (slow, mut unread): (Vec<_>, Vec<_>) = (0..THREADS_OF_USER).map(|_| slow()).unzip();
        for slow in slow {
            assert!(!closer.close(slow.into(), Account::Client(7), 1));
        }
        assert!(!closer.close(null(), Account::Client(8), 1));
        assert!(closer.take_closed().is_empty());
        assert!(!closer.close(null(), Account::User(9), 9));
        assert_eq!(wait(&closer), [Account::User(9)], "another user's");
        unread.pop();
        let mut closed = wait(&closer);
        while closed.len() < 2 {
            closed.extend(wait(&closer));
        }
        assert_eq!(closed, [Account::Client(7), Account::Client(8)]);
    }

    #[test]
    fn what_stands_in_a_socket_may_wait_when_that_is_closed() {
        let closer = Closer::new().unwrap();
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"x").unwrap();
        assert!(!closer.close(other.into(), Account::Client(1), 1));
        assert_eq!(wait(&closer), [Account::Client(1)]);
    }

    fn wait(closer: &Closer) -> Vec<Account> {
        let watchdog = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(closer.bell(), PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&watchdog)), Ok(1), "nothing is closed");
        closer.take_closed()
    }
}
