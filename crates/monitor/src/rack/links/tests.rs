use std::path::Path;

use rustix::event::epoll::CreateFlags;

use super::*;
use crate::rack::identity::Identity;

const WATCHDOG: Duration = Duration::from_secs(20);

fn identity(name: &str) -> Identity {
    let folder = tempfile::tempdir().unwrap();
    let [crt, key] = ["crt", "key"].map(|file| folder.path().join(file));
    Identity::create(name, &crt, &key).unwrap();
    Identity::read(&crt, &key).unwrap()
}

/// The links of a host with one other.
fn links(
    (name, own): (&str, Identity),
    (other, print): (&str, Fingerprint),
    at: SocketAddr,
) -> Links {
    let text = format!(
        "name = {name:?}\nlisten = \"127.0.0.1:0\"\n[[host]]\nname = {other:?}\naddress = \"{at}\"\n\
         addresses = [\"10.0.0.2\"]\nfingerprint = \"{print}\"\n"
    );
    let config = RackConfig::parse(Path::new("/nowhere/rack.toml"), &text).unwrap();
    let tls = Tls::new(own, pins(&config)).unwrap();
    Links::new(Arc::new(config), tls).unwrap()
}

/// Alpha's links with a beta that is not there.
fn alone() -> Links {
    let print = identity("beta").fingerprint();
    let nowhere = ([127, 0, 0, 1], 1).into();
    links(("alpha", identity("alpha")), ("beta", print), nowhere)
}

/// The links of one host, and the other host, which the test plays by what it says.
struct Talk {
    links: Links,
    epoll: OwnedFd,
    next_id: u64,
    other: Session,
    /// What the other host has heard, while the session lasts.
    heard: Vec<HostMessage>,
    is_over: bool,
    events: Vec<Event>,
    began: Instant,
}

impl Talk {
    /// Alpha, which connects, and a beta that has proved who it is and says this.
    fn of_alpha(says: &[HostMessage]) -> Self {
        let (alpha, beta) = (identity("alpha"), identity("beta"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (prints, at) = (
            [alpha.fingerprint(), beta.fingerprint()],
            listener.local_addr().unwrap(),
        );
        let mut links = links(("alpha", alpha), ("beta", prints[1]), at);
        let (epoll, mut next_id) = (epoll::create(CreateFlags::CLOEXEC).unwrap(), 5);
        links.tick(&epoll, &mut next_id, Instant::now());
        let socket = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        let other = Tls::new(beta, vec![prints[0]]).unwrap().accept(socket);
        let talk = Self::new(links, (epoll, next_id), other.unwrap());
        talk.after(says)
    }

    /// Beta, which is connected to, and an alpha that has proved who it is and says this.
    fn of_beta(says: &[HostMessage]) -> Self {
        let (alpha, beta) = (identity("alpha"), identity("beta"));
        let prints = [alpha.fingerprint(), beta.fingerprint()];
        let nowhere = ([127, 0, 0, 1], 1).into();
        let mut links = links(("beta", beta), ("alpha", prints[0]), nowhere);
        let (epoll, mut next_id) = (epoll::create(CreateFlags::CLOEXEC).unwrap(), 5);
        let socket = TcpStream::connect(links.listener().local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while links.sessions.is_empty() {
            links.accept(&epoll, &mut next_id).unwrap();
        }
        let other = Tls::new(alpha, vec![]).unwrap().connect(socket, prints[1]);
        let talk = Self::new(links, (epoll, next_id), other.unwrap());
        talk.after(says)
    }

    fn new(links: Links, (epoll, next_id): (OwnedFd, u64), other: Session) -> Self {
        Self {
            links,
            epoll,
            next_id,
            other,
            heard: Vec::new(),
            is_over: false,
            events: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Both have proved who they are, the one has said Hello, and the other this.
    fn after(mut self, says: &[HostMessage]) -> Self {
        self.go_on("Hello", |talk| !talk.heard.is_empty());
        assert!(matches!(self.heard[..], [HostMessage::Hello { .. }]));
        for message in says {
            self.other.say(message).unwrap();
        }
        self
    }

    /// Let both go on until something has come about.
    fn go_on(&mut self, what: &str, mut is_there: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + WATCHDOG;
        while !is_there(self) {
            assert!(Instant::now() < end, "waited in vain for {what}");
            let ids: Vec<u64> = self.links.sessions.keys().copied().collect();
            ids.iter().for_each(|id| self.links.serve(*id, &self.epoll));
            self.events.extend(self.links.take_events());
            match self.other.receive() {
                Ok(heard) => self.heard.extend(heard),
                Err(_) => self.is_over = true,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Have the links believe that it is this late.
    fn tick_at(&mut self, now: Instant) {
        self.links.tick(&self.epoll, &mut self.next_id, now);
        self.events.extend(self.links.take_events());
    }

    /// The session, which is there.
    fn open(&self) -> &Open {
        self.links.sessions.values().next().expect("a session")
    }

    fn link(&self) -> &Link {
        self.links.link(HostId(0)).unwrap()
    }

    fn is_up(&self) -> bool {
        self.links.is_up(HostId(0))
    }

    /// See that the session has ended, and that the other host's link tells this trouble and is tried again.
    fn assert_ended(&self, why: &LinkError) {
        assert!(!self.is_up() && self.links.sessions.is_empty());
        assert_eq!(self.link().trouble, Some(why.to_string()));
        let due = self.links.due().expect("another attempt");
        assert!(due > self.began && due < Instant::now() + LONGEST_WAIT);
    }
}

fn hello(version: u16, abi: u16, name: &str) -> HostMessage {
    HostMessage::Hello {
        version,
        abi,
        name: name.to_owned(),
    }
}

/// The kernel has no memory for it, say.
#[test]
fn a_session_that_cannot_be_watched_is_tried_again() {
    let mut links = alone();
    let no_epoll = std::fs::File::open("/dev/null").unwrap().into();
    let (now, mut next_id) = (Instant::now(), 5);
    links.tick(&no_epoll, &mut next_id, now);
    let link = links.link(HostId(0)).unwrap();
    assert!(link.trouble.is_some());
    assert!(links.due().is_some_and(|due| due > now));
    // One that has come in is dropped, and the next one is taken.
    let here = links.listener().local_addr().unwrap();
    let _waiting = TcpStream::connect(here).unwrap();
    assert!(links.accept(&no_epoll, &mut next_id).is_ok());
    assert!(links.sessions.is_empty());
}

#[test]
fn a_host_of_another_version_is_told_of_by_both_versions() {
    for (rack, abi) in [
        (RACK_VERSION + 1, ABI_VERSION),
        (RACK_VERSION - 1, ABI_VERSION),
        (RACK_VERSION, ABI_VERSION + 1),
    ] {
        let mut talk = Talk::of_alpha(&[hello(rack, abi, "beta")]);
        talk.go_on("the end of the session", |talk| talk.is_over);
        let why = LinkError::Version { rack, abi };
        talk.assert_ended(&why);
        let said = why.to_string();
        for number in [rack, abi, RACK_VERSION, ABI_VERSION] {
            assert!(said.contains(&number.to_string()), "{said}");
        }
        assert!(talk.events.is_empty(), "{:?}", talk.events);
    }
}

#[test]
fn a_host_that_calls_itself_otherwise_is_told_of_by_both_names() {
    let mut talk = Talk::of_alpha(&[hello(RACK_VERSION, ABI_VERSION, "gamma")]);
    talk.go_on("the end of the session", |talk| talk.is_over);
    let why = LinkError::Name {
        found: "gamma".to_owned(),
        wanted: "beta".to_owned(),
    };
    talk.assert_ended(&why);
    let said = why.to_string();
    assert!(said.contains("gamma") && said.contains("beta"), "{said}");
    assert!(talk.events.is_empty(), "{:?}", talk.events);
}

/// The host that is connected to knows by the key alone who has connected; it has nobody to tell the trouble of before.
#[test]
fn who_connects_with_another_version_or_name_is_not_up() {
    for wrong in [
        hello(RACK_VERSION + 1, ABI_VERSION, "alpha"),
        hello(RACK_VERSION, ABI_VERSION, "gamma"),
    ] {
        let mut talk = Talk::of_beta(&[wrong]);
        talk.go_on("the end of the session", |talk| talk.is_over);
        assert!(!talk.is_up() && talk.links.sessions.is_empty());
        assert!(talk.events.is_empty(), "{:?}", talk.events);
    }
}

#[test]
fn a_silent_host_is_asked_and_then_taken_for_dead() {
    const MOMENT: Duration = Duration::from_millis(1);
    let mut talk = Talk::of_alpha(&[hello(RACK_VERSION, ABI_VERSION, "beta")]);
    talk.go_on("the session", Talk::is_up);
    assert!(matches!(talk.events[..], [Event::Up(HostId(0))]));
    let (said, heard) = (talk.open().said, talk.open().heard);
    assert_eq!(talk.links.due(), Some(said + PING_AFTER));

    talk.tick_at(said + PING_AFTER - MOMENT);
    assert_eq!(talk.open().said, said, "it is asked nothing yet");
    talk.tick_at(said + PING_AFTER);
    talk.go_on("a question", |talk| talk.heard.len() == 2);
    assert_eq!(talk.heard[1], HostMessage::Ping);

    talk.tick_at(heard + DEAD_AFTER - MOMENT);
    assert!(talk.is_up());
    talk.tick_at(heard + DEAD_AFTER);
    talk.assert_ended(&LinkError::Silent);
    assert!(matches!(talk.events[..], [_, Event::Down(HostId(0))]));
    talk.go_on("the end of the session", |talk| talk.is_over);
}

#[test]
fn a_word_puts_a_hosts_death_off() {
    let mut talk = Talk::of_alpha(&[hello(RACK_VERSION, ABI_VERSION, "beta")]);
    talk.go_on("the session", Talk::is_up);
    let before = talk.open().heard;
    talk.other.say(&HostMessage::Ping).unwrap();
    talk.go_on("the word", |talk| talk.open().heard > before);
    talk.tick_at(before + DEAD_AFTER);
    assert!(talk.is_up());
    assert_eq!(talk.events.len(), 1, "nobody else needs to know");
}

/// The port may be anybody's.
#[test]
fn who_proves_who_it_is_and_says_no_hello_is_given_up() {
    let mut talk = Talk::of_alpha(&[]);
    let since = talk.open().heard;
    talk.tick_at(since + HANDSHAKE / 2);
    assert!(!talk.is_up() && talk.links.sessions.len() == 1);
    talk.tick_at(since + HANDSHAKE);
    let address = talk.links.config.hosts[0].address;
    let why = LinkError::Unanswered(address);
    talk.assert_ended(&why);
    assert!(why.to_string().contains(&address.to_string()), "{why}");

    let mut talk = Talk::of_beta(&[]);
    talk.tick_at(talk.open().heard + HANDSHAKE);
    assert!(talk.links.sessions.is_empty());
    talk.go_on("the end of the session", |talk| talk.is_over);
    assert!(talk.events.is_empty(), "{:?}", talk.events);
}

#[test]
fn who_says_no_more_than_there_is_room_for_is_not_cut_off() {
    let hello = HostMessage::Hello {
        version: RACK_VERSION,
        abi: ABI_VERSION,
        name: "beta".to_owned(),
    };
    let mut talk = Talk::of_alpha(&[hello]);
    let host = HostId(0);
    assert!(!talk.links.has_room(host));
    talk.go_on("the session", |talk| talk.links.is_up(host));
    let long = HostMessage::InUse {
        epoch: 0,
        beat: 0,
        parts: vec![0; 512],
    };
    let mut said = 0;
    // The other host does not read meanwhile.
    while talk.links.has_room(host) {
        talk.links.say(host, &long, &talk.epoll);
        said += 1;
        assert!(said < 1 << 20, "there is room without end");
    }
    assert!(talk.links.is_up(host));
    let is_heard = |talk: &Talk| talk.heard.iter().filter(|heard| **heard == long).count();
    talk.go_on("all of it", |talk| is_heard(talk) == said);
    assert!(talk.links.has_room(host));
}

/// As one does that expects another name than ours.
#[test]
fn of_a_host_that_hangs_up_it_is_said_where_the_reason_is() {
    let mut talk = Talk::of_alpha(&[hello(RACK_VERSION, ABI_VERSION, "beta")]);
    talk.go_on("the session", Talk::is_up);
    let (socket, _) = sockets();
    let tls = Tls::new(identity("beta"), vec![]).unwrap();
    talk.other = tls.accept(socket).unwrap();
    talk.go_on("the end of the session", |talk| !talk.is_up());
    let trouble = talk.link().trouble.as_deref().unwrap_or_default();
    assert!(trouble.contains("crosslane rack status"), "{trouble}");
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    (near, listener.accept().unwrap().0)
}
