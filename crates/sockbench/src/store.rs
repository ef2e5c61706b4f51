//! A client of Redis or memcached: several connections in one thread, one request at a time on each,
//! in a mix of reads and writes like YCSB's. Every answer is compared with what it must be.

mod protocol;

use std::io::{Read, Write};

use fastrand::Rng;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::address::Address;
use crate::client::{CaseError, at, histogram, per_second};
use crate::connection::Connection;
use crate::outcome::{Line, Outcome};
use crate::span::{Span, Stopwatch};
pub use protocol::Protocol;
use protocol::Talk;

/// Keys that are there before anything is measured.
const KEYS: u64 = 10_000;
/// Values that are written at a time before anything is measured.
const BATCH: u64 = 50;
const EVENTS: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// Reads only.
    R100,
    /// 95 % reads, 5 % new keys.
    R95i5,
    /// 90 % reads, 10 % writes of keys that are there.
    R90u10,
    /// Half reads, half writes of keys that are there.
    R50u50,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How the server talks.
    pub protocol: Protocol,
    /// Connections with a request each.
    pub clients: u64,
    /// What is asked for.
    pub mix: Mix,
    /// The size of values.
    pub value_bytes: usize,
    /// Decides on keys and on reads or writes.
    pub seed: u64,
    /// How long.
    pub span: Span,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Insert,
}

impl Mix {
    fn draw(self, rng: &mut Rng) -> Kind {
        let percent = rng.u32(0..100);
        match self {
            Self::R95i5 if percent >= 95 => Kind::Insert,
            Self::R90u10 if percent >= 90 => Kind::Write,
            Self::R50u50 if percent >= 50 => Kind::Write,
            _ => Kind::Read,
        }
    }
}

/// Asks for as long as the load says. Also returns the connections, still open.
///
/// # Errors
/// [`CaseError`].
pub fn run(address: &Address, load: Load) -> Result<(Line, Vec<Connection>), CaseError> {
    let mut clients = Vec::new();
    for number in 0..load.clients {
        clients.push(Client::open(address, load).map_err(at(number))?);
    }
    if let Some(first) = clients.first_mut() {
        first.fill()?;
    }
    let (outcome, clients) = Crowd::new(clients, load)?.measure()?;
    let line = Line {
        outcome,
        local: String::new(),
        peer: String::new(),
    };
    let connections = clients.into_iter().map(|client| client.connection);
    Ok((line, connections.collect()))
}

/// One connection and its request.
struct Client {
    connection: Connection,
    talk: Talk,
    asked: u64,
    answer: Vec<u8>,
    received: usize,
}

impl Client {
    fn open(address: &Address, load: Load) -> std::io::Result<Self> {
        let talk = Talk::new(load.protocol, load.value_bytes);
        Ok(Self {
            connection: Connection::open(address)?,
            answer: vec![0; talk.longest_answer()],
            talk,
            asked: 0,
            received: 0,
        })
    }

    /// Writes every key. What an earlier client has inserted would be no new key: the server forgets it first.
    fn fill(&mut self) -> Result<(), CaseError> {
        let (request, due) = self.talk.clear();
        self.connection.write_all(request).map_err(at(0))?;
        let answer = &mut self.answer[..due.len()];
        self.connection.read_exact(answer).map_err(at(0))?;
        protocol::check(answer, due).map_err(at(0))?;
        for first in (0..KEYS / BATCH).map(|batch| batch * BATCH) {
            let mut requests = Vec::new();
            for key in first..first + BATCH {
                requests.extend_from_slice(self.talk.write(key));
            }
            self.connection.write_all(&requests).map_err(at(first))?;
            for number in first..first + BATCH {
                let due = self.talk.answer();
                let answer = &mut self.answer[..due.len()];
                self.connection.read_exact(answer).map_err(at(number))?;
                protocol::check(answer, due).map_err(at(number))?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, kind: Kind, key: u64) -> std::io::Result<()> {
        let request = match kind {
            Kind::Read => self.talk.read(key),
            Kind::Write | Kind::Insert => self.talk.write(key),
        };
        self.received = 0;
        self.connection.write_all(request)
    }

    /// Takes what has come. Whether the answer is whole.
    fn take(&mut self) -> std::io::Result<bool> {
        let got = self.connection.read(&mut self.answer[self.received..])?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.received += got;
        protocol::check(&self.answer[..self.received], self.talk.answer())
    }
}

/// All of them.
struct Crowd {
    clients: Vec<Client>,
    load: Load,
    rng: Rng,
    /// The next new key.
    fresh: u64,
    epoll: Epoll,
}

impl Crowd {
    fn new(clients: Vec<Client>, load: Load) -> Result<Self, CaseError> {
        let refused = |errno: nix::errno::Errno| at(0)(errno.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(refused)?;
        for (number, client) in clients.iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
            let added = epoll.add(&client.connection, event);
            added.map_err(refused)?;
        }
        Ok(Self {
            rng: Rng::with_seed(load.seed),
            fresh: KEYS,
            clients,
            load,
            epoll,
        })
    }

    fn measure(mut self) -> Result<(Outcome, Vec<Client>), CaseError> {
        let mut times = histogram();
        let watch = Stopwatch::start(self.load.span);
        for index in 0..self.clients.len() {
            self.ask(index, watch.now()).map_err(at(0))?;
        }
        let (mut answers, mut asking) = (0, self.clients.len());
        let mut last = watch.now();
        let mut events = [EpollEvent::empty(); EVENTS];
        while asking > 0 {
            let waited = self.epoll.wait(&mut events, EpollTimeout::NONE);
            let count = match waited {
                Err(nix::errno::Errno::EINTR) => continue,
                waited => waited.map_err(|errno| at(answers)(errno.into()))?,
            };
            for event in &events[..count] {
                let index = usize::try_from(event.data()).unwrap_or(0);
                if !self.clients[index].take().map_err(at(answers))? {
                    continue;
                }
                let now = watch.now();
                answers += 1;
                let asked = self.clients[index].asked;
                if watch.is_over(now) {
                    asking -= 1;
                    continue;
                }
                if watch.is_warm(asked) {
                    times.saturating_record(watch.between_ns(asked, now));
                    last = now;
                }
                self.ask(index, now).map_err(at(answers))?;
            }
        }
        let measured = watch.since_start_ns(last);
        let warmup = u64::try_from(self.load.span.warmup.as_nanos()).unwrap_or(0);
        if times.is_empty() {
            return Err(CaseError::Nothing(self.load.span.measure));
        }
        let outcome = Outcome::Store {
            clients: self.load.clients,
            bytes: self.load.value_bytes as u64,
            requests: times.len(),
            per_s: per_second(times.len(), measured.saturating_sub(warmup).max(1)),
            p50_ns: times.value_at_quantile(0.5),
            p99_ns: times.value_at_quantile(0.99),
            p999_ns: times.value_at_quantile(0.999),
        };
        Ok((outcome, self.clients))
    }

    fn ask(&mut self, index: usize, now: u64) -> std::io::Result<()> {
        let kind = self.load.mix.draw(&mut self.rng);
        let key = match kind {
            Kind::Read | Kind::Write => self.rng.u64(0..KEYS),
            Kind::Insert => {
                self.fresh += 1;
                self.fresh
            }
        };
        let client = &mut self.clients[index];
        client.asked = now;
        client.ask(kind, key)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_inserted_before_is_forgotten_first() {
        for (protocol, expected) in [
            (Protocol::Redis, "*1\r\n$8\r\nFLUSHALL\r\n"),
            (Protocol::Memcached, "flush_all\r\n"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = Address::Tcp(listener.local_addr().expect("bound"));
            let server = std::thread::spawn(move || {
                let mut first = vec![0; expected.len()];
                let (mut connection, _) = listener.accept().expect("a client");
                connection.read_exact(&mut first).expect("a request");
                first
            });
            let span = Span {
                warmup: Duration::ZERO,
                measure: Duration::ZERO,
            };
            let load = Load {
                protocol,
                clients: 1,
                mix: Mix::R95i5,
                value_bytes: 16,
                seed: 1,
                span,
            };
            assert!(run(&address, load).is_err(), "it is no store");
            let first = server.join().expect("it does not panic");
            assert_eq!(String::from_utf8_lossy(&first), expected);
        }
    }

    #[test]
    fn a_mix_draws_what_its_name_says() {
        let mut rng = Rng::with_seed(1);
        let mut share = |mix: Mix, kind: Kind| {
            let drawn = (0..10_000).filter(|_| mix.draw(&mut rng) == kind).count();
            drawn / 100
        };
        assert_eq!(share(Mix::R100, Kind::Read), 100);
        assert!((4..=6).contains(&share(Mix::R95i5, Kind::Insert)));
        assert!((8..=12).contains(&share(Mix::R90u10, Kind::Write)));
        assert!((47..=53).contains(&share(Mix::R50u50, Kind::Write)));
    }
}
