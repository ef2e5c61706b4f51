//! A rack without a monitor around it, whose only other host never answers.

use std::path::Path;

use crosslane_ctl::lane::Geometry;
use crosslane_ctl::message::MonitorMessage;
use tempfile::TempDir;

use super::*;
use crate::backing::SealedMemory;
use crate::config::Quotas;
use crate::endpoint::{EndKey, Endpoint};
use crate::rack::lost::Owner;
use crate::rack::message::{Offer, Tuple};
use crate::registry::ClientId;

/// Host alpha and its windows to beta, which count as open from the beginning.
pub(super) struct TestRack {
    pub(super) rack: Rack,
    pub(super) registry: Registry<Memories>,
    pub(super) epoll: OwnedFd,
    /// With the windows, and what else the configuration names.
    folder: TempDir,
}

pub(super) const GEOMETRY: Geometry = Geometry {
    ring_lines: 512,
    slots: 2,
};

/// What `name`'s rack.toml says.
pub(super) fn config(folder: &Path, names: [&str; 2], windows: usize) -> RackConfig {
    let [own, other] = names;
    let print = format!("sha256:{}", "ab".repeat(32));
    let mut text = format!(
        "name = {own:?}\nlisten = \"127.0.0.1:0\"\n[[host]]\nname = {other:?}\naddress = \"127.0.0.1:1\"\n\
         addresses = [\"10.0.0.2\"]\nfingerprint = {print:?}\n[[allow]]\nusers = [1]\n"
    );
    for window in 0..windows {
        let path = folder.join(format!("window-{window}"));
        text += &format!(
            "[[window]]\nname = \"{window}\"\nkind = \"file\"\npath = {path:?}\nbytes = 1048576\n\
             host = {other:?}\n"
        );
    }
    RackConfig::parse(&folder.join("rack.toml"), &text).unwrap()
}

impl TestRack {
    pub(super) fn new(windows: usize) -> Self {
        Self::of(["alpha", "beta"], windows)
    }

    pub(super) fn of(names: [&str; 2], windows: usize) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let config = config(folder.path(), names, windows);
        Identity::create(names[0], &config.certificate, &config.key).unwrap();
        let mut test = Self {
            rack: Rack::start(config).unwrap(),
            registry: Registry::new(
                Memories::new(SealedMemory::new(0)),
                GEOMETRY,
                Quotas::default(),
            ),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
            folder,
        };
        for index in 0..windows {
            test.open(index);
        }
        test
    }

    /// All parts of a window can be dealt out, and an end of ours has been dealt lanes there. Returns whose it is,
    /// what it is, and which lanes.
    pub(super) fn deal(&mut self, index: usize) -> (Owner, EndKey, u64) {
        let open = self.registry.backing().window(window_id(index)).unwrap();
        let extents = open.extents.as_mut().unwrap();
        extents.ask(|_| true);
        extents.answer(|_| false, |_| false, |_| true);
        self.registry.join_rack();
        let owner = (ClientId(1), 7);
        let netns = netns_cookie(self.rack.links.listener().as_fd()).unwrap();
        let names = ["10.0.0.1:7000", "10.0.0.2:40000"].map(|name| name.parse().unwrap());
        let key = EndKey::new(netns, names[0], names[1]);
        let endpoint = Endpoint {
            key,
            cookie: 1,
            device: 0,
        };
        self.registry.hello(owner.0, FamilyId(1), 1);
        self.registry
            .register(owner.0, owner.1, Ok(endpoint))
            .unwrap();
        self.rack.open(index, &mut self.registry);
        self.settle();
        let tuple = Tuple {
            local: names[1],
            remote: names[0],
        };
        let offer = HostMessage::Offer(Offer {
            offer: 1,
            family: 1,
            tuple,
            allowed: true,
        });
        self.hear(&offer).unwrap();
        let said = self.rack.matching.take_messages();
        match said[..] {
            [(_, HostMessage::Deal(deal))] => (owner, key, deal.pair),
            _ => panic!("{said:?}"),
        }
    }

    /// The registry's news.
    pub(super) fn settle(&mut self) {
        for notice in self.registry.take_notices() {
            let matching = &mut self.rack.matching;
            matching.notice(&mut self.registry, notice, |_| "program".to_owned());
        }
    }

    /// The other host says something.
    pub(super) fn hear(&mut self, message: &HostMessage) -> Result<(), Lie> {
        self.rack
            .obey(HostId(0), message, &mut self.registry, &self.epoll)
    }

    fn open(&mut self, index: usize) {
        let is_owner = self.rack.matching.is_owner(HostId(0));
        let opened = self.rack.open_window(index, &mut self.registry, is_owner);
        opened.unwrap();
        let state = &mut self.rack.windows[index];
        state.phase = Phase::Open;
        state.epoch = 100 + index as u64;
    }

    /// An end wants to know whether a window carries what has been written.
    pub(super) fn doubt(&mut self, window: Option<usize>, end: (ClientId, (u64, u64))) {
        self.rack
            .note_doubt(window, end, &mut self.registry, &self.epoll);
    }

    /// A beat of the other host's stands in a window.
    pub(super) fn show(&mut self, index: usize, beat: u64) {
        let epoch = self.rack.windows[index].epoch;
        let is_owner = self.rack.matching.is_owner(HostId(0));
        let open = self.registry.backing().open(window_id(index)).unwrap();
        open.window.beat(!is_owner, epoch, beat).unwrap();
    }

    /// The same, which answers these of our questions.
    pub(super) fn answer(&mut self, index: usize, answers: u64) {
        self.show(index, answers);
        let epoch = self.rack.windows[index].epoch;
        let beat = HostMessage::Beat {
            epoch,
            beat: answers,
            answers,
        };
        let is_heard = self
            .rack
            .hear_of_beats(HostId(0), &beat, &mut self.registry, &self.epoll);
        assert!(is_heard);
    }
}

/// Who has been told since that the window carries what stood there.
pub(super) fn carried(test: &mut TestRack) -> Vec<(ClientId, u64, u64)> {
    let actions = test.registry.take_actions().into_iter();
    let told = actions.filter_map(|action| match action.message {
        MonitorMessage::Carried { token, pair } => Some((action.client, token, pair)),
        _ => None,
    });
    told.collect()
}

/// The first host has found that a window carries nothing, and offers it again.
#[test]
fn a_guest_has_nothing_to_do_while_a_window_is_offered_in_vain() {
    let mut test = TestRack::of(["beta", "alpha"], 1);
    let now = Instant::now();
    let missing = HostMessage::Beat {
        epoch: test.rack.windows[0].epoch,
        beat: 9,
        answers: 0,
    };
    let TestRack {
        rack,
        registry,
        epoll,
        folder,
    } = &mut test;
    assert!(rack.hear_of_beats(HostId(0), &missing, registry, epoll));
    assert!(rack.windows_due().is_some());
    let elsewhere = config(folder.path(), ["alpha", "beta"], 2);
    let other = Window::open(&elsewhere.windows[1]).unwrap();
    let offer = WindowOffer {
        name: "0".to_owned(),
        ..other.offer(5).unwrap()
    };
    assert!(!rack.accept_window(HostId(0), &offer, registry));
    let later = now + std::time::Duration::from_secs(60);
    rack.tend_windows(registry, epoll, later);
    assert_eq!(rack.windows_due(), None);
}

#[test]
fn a_window_that_is_lost_is_not_lost_again() {
    let mut test = TestRack::new(1);
    let epoch = test.rack.windows[0].epoch;
    let lost = HostMessage::WindowLost { epoch };
    test.hear(&lost).unwrap();
    assert!(test.rack.windows[0].due.take().is_some());
    test.hear(&lost).unwrap();
    assert_eq!(test.rack.windows[0].due, None);
}

#[test]
fn offers_of_unknown_windows_do_not_fill_the_log() {
    let mut test = TestRack::of(["beta", "alpha"], 1);
    let open = test.registry.backing().open(window_id(0)).unwrap();
    let offer = HostMessage::WindowOffer(WindowOffer {
        name: "elsewhere".to_owned(),
        ..open.window.offer(5).unwrap()
    });
    (0..3).for_each(|_| test.hear(&offer).unwrap());
    let complaints = format!("{:?}", test.rack.complaints);
    assert!(complaints.contains("unsaid: 2"), "{complaints}");
}

#[test]
fn a_window_that_the_guest_cannot_use_is_complained_of_until_it_opens() {
    let mut test = TestRack::new(1);
    let mut last = None;
    for _ in 0..2 {
        let offer = test.rack.offer_window(0, &mut test.registry).unwrap();
        test.rack.say_offer(0, offer, &test.epoll);
        assert_eq!(test.rack.windows[0].trouble, last);
        let epoch = test.rack.windows[0].epoch;
        let works = false;
        let answer = HostMessage::WindowAnswer { epoch, works };
        test.hear(&answer).unwrap();
        last.clone_from(&test.rack.windows[0].trouble);
        assert!(last.is_some());
    }
    test.rack.open(0, &mut test.registry);
    assert_eq!(test.rack.windows[0].trouble, None);
}
