use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use crosslane_sys::socket::PeerCredentials;
use crosslane_window::slab::SlabMap;
use rustix::event::epoll::EventFlags;
use tempfile::TempDir;

use super::super::tests::{GEOMETRY, TestRack, config};
use super::*;
use crate::config::{Config, Quotas, Service};
use crate::connection::{Connection, Member};
use crate::rack::identity::Identity;
use crate::rack::lost::Lost;
use crate::report::Process;
use crate::server::watch;

const HOST: HostId = HostId(0);

fn position(pair: u64) -> Position {
    Position {
        token: 0,
        pair,
        flags: 0,
        consumed: 0,
        tcp_taken: 0,
    }
}

/// What the other host says of its end with this address, which is connected to our port 7000.
fn said_of(address: &str, pair: u64) -> HostMessage {
    let tuple = Tuple {
        local: address.parse().unwrap(),
        remote: "10.0.0.1:7000".parse().unwrap(),
    };
    let position = position(pair);
    HostMessage::Position { tuple, position }
}

#[test]
fn what_is_said_of_an_end_with_an_address_that_is_not_listed_is_not_heard() {
    let mut test = TestRack::new(1);
    let said = said_of("10.0.0.3:40000", 9);
    assert_eq!(test.hear(&said), Ok(()));
    assert_eq!(test.rack.lost.take_words(), []);
    assert_eq!(test.rack.lost.due(), None);
}

/// `rack.toml` gives the other host another address, while a connection to the old one is in a window.
#[test]
fn an_end_in_a_window_is_known_whatever_address_its_host_has_by_now() {
    let mut test = TestRack::new(1);
    let (owner, key, pair) = test.deal(0);
    let tuple = Tuple {
        local: "10.0.0.1:7000".parse().unwrap(),
        remote: "10.0.0.2:40000".parse().unwrap(),
    };
    let host = HOST;
    let place = Place { host, tuple, pair };
    let mut config = (*test.rack.config).clone();
    config.hosts[0].addresses = vec!["10.0.0.9".parse().unwrap()];
    let matching = &mut test.rack.matching;
    matching.renew(&mut test.registry, Arc::new(config), |_| String::new());
    assert_eq!(matching.host_of(&key), None);
    let found = test
        .rack
        .place_of((Some(key), pair), &[owner], &test.registry);
    assert_eq!(found, Some(place));
    // Nobody else's.
    let nobodys = test
        .rack
        .place_of((Some(key), pair + 1), &[owner], &test.registry);
    assert_eq!(nobodys, None);
    assert_eq!(test.hear(&said_of("10.0.0.2:40000", pair)), Ok(()));
    let words = test.rack.lost.take_words();
    assert!(words.contains(&Word::Look { place, owner }), "{words:?}");
}

/// A whole monitor, and a program that has a connection to the other host.
pub(in super::super) struct Served {
    pub(in super::super) monitor: Monitor,
    client: ClientId,
    pub(in super::super) slab: SlabMap,
    connection: (TcpStream, TcpStream),
    control: UnixStream,
    /// Kept open.
    _stop: UnixStream,
    _folder: TempDir,
}

impl Served {
    fn new() -> Self {
        Self::with_windows(0)
    }

    /// None of which is open.
    pub(in super::super) fn with_windows(windows: usize) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut rack = config(folder.path(), ["alpha", "beta"], windows);
        Identity::create("alpha", &rack.certificate, &rack.key).unwrap();
        rack.hosts[0].addresses = vec!["127.0.0.1".parse().unwrap()];
        let config = Config {
            directory: folder.path().join("run"),
            service: Service::System,
            geometry: GEOMETRY,
            memory_floor_bytes: 0,
            quotas: Quotas::default(),
            rack: Some(rack),
        };
        let (stop, kept) = UnixStream::pair().unwrap();
        let mut monitor = Monitor::start(&config, stop.into()).unwrap();
        let (control, other) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let (client, slab) = join(&mut monitor, control.into());
        Self {
            monitor,
            client,
            slab,
            connection: (near, far),
            control: other,
            _stop: kept,
            _folder: folder,
        }
    }

    /// The number of the program's connection.
    pub(in super::super) fn id(&self) -> u64 {
        self.monitor.clients[&self.client]
    }

    /// What it has been told since, message after message.
    pub(in super::super) fn told(&mut self) -> Vec<u8> {
        let mut told = Vec::new();
        self.control.set_nonblocking(true).unwrap();
        let nothing_more = self.control.read_to_end(&mut told).unwrap_err();
        assert_eq!(nothing_more.kind(), ErrorKind::WouldBlock);
        told
    }

    fn lost(&mut self) -> &mut Lost {
        &mut self.monitor.rack.as_mut().unwrap().lost
    }

    /// Its end says that it has read so far in these lanes. As what that is passed on, if it is.
    fn tell(&mut self, token: u64, pair: u64) -> Option<Place> {
        let position = Position {
            token,
            ..position(pair)
        };
        let socket = self.connection.0.try_clone().unwrap();
        self.monitor
            .told_position(self.client, position, socket.into());
        let words = self.lost().take_words();
        words.into_iter().find_map(|word| match word {
            Word::ToHost(host, HostMessage::Position { tuple, .. }) => {
                Some(Place { host, tuple, pair })
            }
            _ => None,
        })
    }
}

/// A program says Hello.
fn join(monitor: &mut Monitor, control: OwnedFd) -> (ClientId, SlabMap) {
    let (slab, fd) = SlabMap::create(42).unwrap();
    let shown = SlabMap::open(fd.as_fd()).unwrap();
    let found = rustix::fs::fstat(&fd).unwrap();
    let (id, client) = (1000, ClientId(1000));
    let process = Process {
        pid: 42,
        uid: 1,
        program: String::new(),
    };
    let identity = (found.st_dev, found.st_ino);
    let family = monitor.families.join(client, process, identity, shown);
    watch(&monitor.epoll, &control, id, EventFlags::IN).unwrap();
    let mut connection = Connection::new(control, PeerCredentials { pid: 42, uid: 1 }, false);
    connection.member = Some(Member { client, family });
    let source = Source::Connection(Box::new(connection));
    monitor.sources.insert(id, source);
    monitor.clients.insert(client, id);
    monitor.registry.hello(client, family, 1);
    (client, slab)
}

#[test]
fn a_position_is_taken_from_who_was_in_the_lanes_only() {
    let mut served = Served::new();
    let is_heard = |served: &mut Served, token, pair| served.tell(token, pair).is_some();
    assert!(!is_heard(&mut served, 7, 9), "an end that has no lanes");
    served.slab.entry(7).unwrap().wait.pair.store(9, SeqCst);
    assert!(!is_heard(&mut served, 7, 10), "other lanes");
    assert!(
        !is_heard(&mut served, 1 << 32 | 7, 9),
        "another end's place"
    );
    assert!(!is_heard(&mut served, 0xffff_ffff, 9), "no place");
    assert!(is_heard(&mut served, 7, 9));
    // It may have left them since.
    served.slab.entry(7).unwrap().wait.pair.store(0, SeqCst);
    assert!(is_heard(&mut served, 7, 9));
}

/// An end that was adopted: its state is in the lender's table, and the program's own shows its lanes.
#[test]
fn an_adopted_end_is_in_its_lanes_until_nobody_holds_it() {
    let served = Served::new();
    served.slab.header().entries_used.store(8, SeqCst);
    let entry = served.slab.entry(7).unwrap();
    entry.wait.pair.store(9, SeqCst);
    entry.id.holders.store(1, SeqCst);
    let found = || served.monitor.absence_of((served.client, 7), 9);
    let sought = || served.monitor.families.in_lanes(|pair, _| pair == 9);
    assert!(matches!(found(), Found::There));
    assert_eq!(sought(), [(served.client, 7, 9)]);
    entry.id.holders.store(0, SeqCst);
    assert!(matches!(found(), Found::Absent(Absence::Left)));
    assert_eq!(sought(), []);
}

/// The first piece of a remainder.
fn first_of(pair: u64, lines: u64) -> HostMessage {
    let tuple = Tuple {
        local: "10.0.0.2:40000".parse().unwrap(),
        remote: "10.0.0.1:7000".parse().unwrap(),
    };
    HostMessage::Remainder {
        tuple,
        remainder: remainder(pair, lines),
        at: 0,
        lines: vec![0; LINE_BYTES],
    }
}

fn remainder(pair: u64, lines: u64) -> Remainder {
    Remainder {
        token: 0,
        pair,
        first: 70,
        end: 70 + lines,
        replay_seq: 0,
        replay_at: 0,
        replay_end: 0,
    }
}

#[test]
fn a_remainder_of_more_lines_than_the_lanes_have_is_a_lie() {
    let mut test = TestRack::new(1);
    let (_, _, pair) = test.deal(0);
    let most = u64::from(test.registry.lines_of(pair).unwrap());
    assert_eq!(test.hear(&first_of(pair, most)), Ok(()));
    assert!(test.hear(&first_of(pair, most + 1)).is_err());
}

#[test]
fn a_program_that_does_not_read_is_passed_nothing_and_keeps_it_coming() {
    for is_behind in [false, true] {
        let mut served = Served::new();
        served.slab.entry(7).unwrap().wait.pair.store(9, SeqCst);
        let place = served.tell(7, 9).unwrap();
        let connection = served.monitor.connection(1000).unwrap();
        while is_behind && !connection.is_behind() {
            connection.say(vec![0; 4096], None);
        }
        let (whole, now) = ((0, &[0; LINE_BYTES][..]), Instant::now());
        let heard = served
            .lost()
            .heard_remainder(place, remainder(9, 1), whole, now);
        assert_eq!(heard, Ok(()));
        assert!(served.monitor.speak_of_lost());
        let has_arrived = !served.lost().take_words().is_empty();
        assert_eq!(has_arrived, !is_behind);
        // Not one word more waits for it.
        let absent = |token| MonitorMessage::Alone { token, pair: 9 };
        (0..10_000).for_each(|_| served.lost().heard_absence(place, absent));
        served.monitor.speak_of_lost();
        let connection = served.monitor.connection(1000).unwrap();
        assert!(!connection.is_expelled());
    }
}
