//! Windows that are there, are mapped, and carry nothing. Each host writes a number into the window's header now
//! and then, and says in the session that it stands there. What has been said and does not show is not in the
//! window; a host that is slow or stopped says nothing.
//!
//! A program whose peer's stream has ended may have to know at once whether all has come that stood before the end, and one
//! that gives a socket away whether the peer can see that. Then the other host is sent a beat and asked for one, which it
//! writes when ours shows: what either has written before is seen by the other then.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::{Phase, Rack, State, window_id};
use crate::backing::Memories;
use crate::connection::Member;
use crate::rack::matching::HostId;
use crate::rack::message::HostMessage;
use crate::registry::{ClientId, Registry};
use crate::server::Monitor;

/// What has been said and does not show after so long is lost.
const OVERDUE: Duration = Duration::from_millis(500);

/// A monitor that talks, and answers no question about a window for so long, has it no more. One that is stopped loses its
/// session before.
const UNANSWERED: Duration = Duration::from_secs(20);

/// Between two looks for a beat behind which ours is wanted.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Ends that may wait for a beat in one window; they ask again.
const MOST_DOUBTS: usize = 1 << 12;

/// The beats of one window, while it is open.
#[derive(Default)]
pub(super) struct Beats {
    /// Ours so far.
    sent: u64,
    /// The first of the other host's that does not show, and when it is overdue.
    missing: Option<(u64, Instant)>,
    /// The last that the other host has said stands there.
    heard: u64,
    /// The last beat that the other host has wanted of us.
    wanted: u64,
    /// When to look whether what it has said shows, behind which the beat comes that it has wanted.
    owed: Option<Instant>,
    /// The last that we have wanted of it, and whether its answer is yet to show.
    asked: u64,
    is_asking: bool,
    /// While it is: when that takes too long.
    unanswered: Option<Instant>,
    /// Who waits for one.
    doubts: Vec<Doubt>,
}

/// An end that wants to know whether all has come.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Doubt {
    client: ClientId,
    token: u64,
    pair: u64,
    /// Which beat settles it.
    number: u64,
    /// What [`Rack::all_open`] was, if it may be in any window.
    all: Option<u64>,
}

impl Beats {
    /// When to look again.
    pub(super) fn due(&self) -> Option<Instant> {
        let missing = self.missing.map(|(_, due)| due);
        let all = [missing, self.owed, self.unanswered];
        all.into_iter().flatten().min()
    }

    /// What is missing is not looked for any more.
    pub(super) fn forget_missing(&mut self) {
        (self.missing, self.owed, self.unanswered) = (None, None, None);
    }

    /// An end wants to know. Of its questions the first counts.
    fn note_doubt(&mut self, client: ClientId, (token, pair): (u64, u64), all: Option<u64>) {
        if !self.is_full() && !self.is_doubted(client, (token, pair)) {
            self.doubts.push(Doubt {
                client,
                token,
                pair,
                number: self.asked + 1,
                all,
            });
        }
    }

    fn is_full(&self) -> bool {
        self.doubts.len() >= MOST_DOUBTS
    }

    /// Whether the end waits for a beat here.
    fn is_doubted(&self, client: ClientId, (token, pair): (u64, u64)) -> bool {
        let is_it =
            |doubt: &Doubt| (doubt.client, doubt.token, doubt.pair) == (client, token, pair);
        self.doubts.iter().any(is_it)
    }

    /// The number of the beat to ask for, if it is time.
    fn next_question(&mut self) -> Option<u64> {
        let is_due = self.doubts.iter().any(|doubt| doubt.number > self.asked);
        if self.is_asking || !is_due {
            return None;
        }
        self.asked += 1;
        self.is_asking = true;
        self.unanswered = Some(Instant::now() + UNANSWERED);
        Some(self.asked)
    }

    /// A beat shows that answers all questions up to this one. Returns whose.
    fn take_settled(&mut self, answers: u64) -> Vec<Doubt> {
        let answered = answers.min(self.asked);
        self.is_asking &= answered < self.asked;
        self.unanswered = self.unanswered.filter(|_| self.is_asking);
        self.doubts
            .extract_if(.., |doubt| doubt.number <= answered)
            .collect()
    }
}

impl Rack {
    /// Write a beat into an open window, and say so.
    pub(super) fn beat(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        let Some(beat) = self.write_beat(index, registry) else {
            return;
        };
        let state = &self.windows[index];
        let message = HostMessage::Beat {
            epoch: state.epoch,
            beat,
            answers: state.beats.wanted,
        };
        self.links.say(state.host, &message, epoll);
    }

    /// Write a beat into a window, behind all that this host has written there.
    pub(super) fn write_beat(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
    ) -> Option<u64> {
        let state = &mut self.windows[index];
        let is_owner = self.matching.is_owner(state.host);
        let beat = state.beats.sent + 1;
        let open = registry.backing().open(window_id(index))?;
        open.window.beat(is_owner, state.epoch, beat).ok()?;
        state.beats.sent = beat;
        Some(beat)
    }

    /// What another host says of beats; false if it is about something else.
    pub(super) fn hear_of_beats(
        &mut self,
        host: HostId,
        message: &HostMessage,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) -> bool {
        let (epoch, is_wish, numbers) = match *message {
            HostMessage::Beat {
                epoch,
                beat,
                answers,
            } => (epoch, false, (beat, answers)),
            HostMessage::BeatWanted { epoch, number } => (epoch, true, (number, 0)),
            _ => return false,
        };
        let Some(index) = self.epoch_of(epoch, host) else {
            return true;
        };
        match self.windows[index].phase {
            // The guest has it open before the owner knows what is in use there, and asks once.
            Phase::Open | Phase::Probing if is_wish => {
                self.beat_wanted(index, numbers.0, registry, epoll);
            }
            Phase::Open => self.heard_beat(index, numbers, registry, epoll),
            _ => {}
        }
        true
    }

    /// The other host wants one.
    fn beat_wanted(
        &mut self,
        index: usize,
        number: u64,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        let wanted = &mut self.windows[index].beats.wanted;
        *wanted = number.max(*wanted);
        self.answer_wish(index, registry, epoll, Instant::now());
    }

    /// Write the beat that is wanted, unless something of the other host's is on its way.
    fn answer_wish(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
        now: Instant,
    ) {
        let heard = self.windows[index].beats.heard;
        let is_there = heard == 0 || self.shows(index, heard, registry);
        self.windows[index].beats.owed = (!is_there).then_some(now + LOOK_AGAIN);
        if is_there {
            self.beat(index, registry, epoll);
        }
    }

    /// The other host says that a beat stands in the window.
    fn heard_beat(
        &mut self,
        index: usize,
        (beat, answers): (u64, u64),
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        let heard = &mut self.windows[index].beats.heard;
        *heard = beat.max(*heard);
        if !self.shows(index, beat, registry) {
            let missing = &mut self.windows[index].beats.missing;
            missing.get_or_insert((beat, Instant::now() + OVERDUE));
            return;
        }
        for doubt in self.windows[index].beats.take_settled(answers) {
            if self.is_settled(&doubt) {
                registry.tell_of_carriage(doubt.client, doubt.token, doubt.pair);
            }
        }
        self.ask_for_beat(index, registry, epoll);
    }

    /// Whether the windows have answered in which the end may be.
    fn is_settled(&self, doubt: &Doubt) -> bool {
        let lanes = (doubt.token, doubt.pair);
        let waits = |state: &State| state.beats.is_doubted(doubt.client, lanes);
        let all_have = || doubt.all == self.all_open() && !self.windows.iter().any(waits);
        doubt.all.is_none() || all_have()
    }

    /// A number for all windows of `rack.toml` while each is open: it is another one if one was lost meanwhile.
    fn all_open(&self) -> Option<u64> {
        let windows = self.config.windows.iter().zip(&self.windows);
        let mut windows = windows.filter(|(config, _)| !config.is_gone);
        windows.try_fold(0, |sum: u64, (_, state)| {
            let is_open = state.phase == Phase::Open;
            is_open.then(|| sum.wrapping_add(state.epoch))
        })
    }

    /// An end wants to know whether all has come. The lanes that an earlier monitor has dealt out may be in any window,
    /// so all have to answer; and of one that is not open nobody can say anything.
    pub(super) fn note_doubt(
        &mut self,
        window: Option<usize>,
        (client, lanes): (ClientId, (u64, u64)),
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        let all = self.all_open().filter(|_| window.is_none());
        let is_full = || self.windows.iter().any(|state| state.beats.is_full());
        let meant = match window {
            Some(index) => index..index + 1,
            None if all.is_none() || is_full() => return,
            // Asked again before all have answered, it would wait for those that have once more.
            None if self.is_doubted_in_all(client, lanes, all) => return,
            None => 0..self.windows.len(),
        };
        for index in meant {
            if let Some(state) = self.windows.get_mut(index)
                && state.phase == Phase::Open
            {
                state.beats.note_doubt(client, lanes, all);
                self.ask_for_beat(index, registry, epoll);
            }
        }
    }

    /// Whether an end waits in some window for what is asked in all of them.
    fn is_doubted_in_all(
        &self,
        client: ClientId,
        (token, pair): (u64, u64),
        all: Option<u64>,
    ) -> bool {
        let is_it = |doubt: &Doubt| {
            let of = (doubt.client, doubt.token, doubt.pair);
            of == (client, token, pair) && doubt.all == all
        };
        let mut windows = self.windows.iter();
        windows.any(|state| state.beats.doubts.iter().any(is_it))
    }

    /// Whether an end waits for a beat of a host with whom there is a session, or is about to, where many wait.
    fn looks_into(&self, client: ClientId, lanes: (u64, u64)) -> bool {
        let is_asked = |state: &State| {
            (state.beats.is_doubted(client, lanes) || state.beats.is_full())
                && state.phase == Phase::Open
                && self.links.is_up(state.host)
        };
        self.windows.iter().any(is_asked)
    }

    fn ask_for_beat(&mut self, index: usize, registry: &mut Registry<Memories>, epoll: &OwnedFd) {
        let Some(number) = self.windows[index].beats.next_question() else {
            return;
        };
        self.beat(index, registry, epoll);
        let state = &self.windows[index];
        let epoch = state.epoch;
        let message = HostMessage::BeatWanted { epoch, number };
        self.links.say(state.host, &message, epoll);
    }

    /// Look again for a beat that is missing.
    pub(super) fn look_for_beat(
        &mut self,
        index: usize,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
        now: Instant,
    ) {
        let state = &self.windows[index];
        let is_owed = state.beats.owed.is_some_and(|due| due <= now);
        if is_owed && state.phase == Phase::Open {
            self.answer_wish(index, registry, epoll, now);
        }
        let state = &self.windows[index];
        let unanswered = state.beats.unanswered.filter(|due| *due <= now);
        if unanswered.is_some() && state.phase == Phase::Open {
            let trouble =
                "the other host's monitor answers no question about it; connections go back to TCP";
            return self.lose_window(index, trouble, registry, epoll);
        }
        let missing = state.beats.missing.filter(|(_, due)| *due <= now);
        let Some((beat, _)) = missing.filter(|_| state.phase == Phase::Open) else {
            return;
        };
        if self.shows(index, beat, registry) {
            self.windows[index].beats.missing = None;
            return;
        }
        let trouble = "it carries nothing any more: what the other host has written does not show here; \
                       connections go back to TCP";
        self.lose_window(index, trouble, registry, epoll);
    }

    /// Whether this beat of the other host's stands in a window, or a later one.
    pub(super) fn shows(&self, index: usize, beat: u64, registry: &mut Registry<Memories>) -> bool {
        let state = &self.windows[index];
        let is_owner = self.matching.is_owner(state.host);
        let open = registry.backing().open(window_id(index));
        open.is_some_and(|open| open.window.shows_beat(!is_owner, state.epoch, beat))
    }
}

impl Monitor {
    /// An end wants to know whether the window carries what it, and its peer, have written.
    pub(in crate::server) fn doubted(&mut self, member: Member, lanes: (u64, u64)) {
        if self.tell_doubter(member, lanes) {
            return;
        }
        let window = self.registry.window_of(lanes.1);
        let window = window.and_then(|window| usize::try_from(window.0).ok());
        if let Some(rack) = &mut self.rack {
            let asker = (member.client, lanes);
            rack.note_doubt(window, asker, &mut self.registry, &self.epoll);
            if rack.looks_into(member.client, lanes) {
                let (token, pair) = lanes;
                self.registry.tell_of_look(member.client, token, pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TestRack, carried};
    use super::*;

    const ONE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    fn settled(beats: &mut Beats, answers: u64) -> Vec<u64> {
        let doubts = beats.take_settled(answers);
        doubts.into_iter().map(|doubt| doubt.token).collect()
    }

    #[test]
    fn a_beat_settles_what_was_asked_before_it() {
        let mut beats = Beats::default();
        beats.note_doubt(ONE, (7, 70), None);
        assert_eq!(beats.next_question(), Some(1));
        // One is under way that says nothing of what ends from now on.
        beats.note_doubt(OTHER, (8, 80), None);
        assert_eq!(beats.next_question(), None);
        assert!(settled(&mut beats, 0).is_empty());
        assert_eq!(settled(&mut beats, 1), [7]);
        assert_eq!(beats.next_question(), Some(2));
        assert!(settled(&mut beats, 1).is_empty());
        assert_eq!(settled(&mut beats, 2), [8]);
        assert_eq!(beats.next_question(), None);
    }

    /// The other host has found out first, and offers it anew in vain.
    #[test]
    fn a_beat_that_is_missing_wakes_nobody_once_its_window_is_closed() {
        let mut state = State::new(HostId(0));
        state.phase = Phase::Open;
        state.beats.missing = Some((3, Instant::now()));
        assert!(state.beats.due().is_some());
        state.close();
        assert_eq!((state.phase, state.beats.due()), (Phase::Closed, None));
    }

    #[test]
    fn answers_to_what_was_never_asked_settle_nothing() {
        let mut beats = Beats::default();
        assert!(settled(&mut beats, u64::MAX).is_empty());
        beats.note_doubt(ONE, (7, 70), None);
        assert!(settled(&mut beats, u64::MAX).is_empty());
        assert_eq!(beats.next_question(), Some(1));
    }

    #[test]
    fn an_end_that_asks_again_is_told_once() {
        let mut beats = Beats::default();
        beats.note_doubt(ONE, (7, 70), None);
        beats.note_doubt(ONE, (7, 70), None);
        beats.note_doubt(ONE, (7, 71), None);
        assert_eq!(beats.next_question(), Some(1));
        beats.note_doubt(ONE, (7, 70), None);
        assert_eq!(settled(&mut beats, 1), [7, 7]);
        assert_eq!(beats.next_question(), None);
    }

    #[test]
    fn a_guest_is_answered_while_the_owner_asks_what_is_in_use() {
        for phase in [Phase::Probing, Phase::Open] {
            let mut test = TestRack::new(1);
            test.rack.windows[0].phase = phase;
            let epoch = test.rack.windows[0].epoch;
            let wish = HostMessage::BeatWanted { epoch, number: 3 };
            assert_eq!(test.hear(&wish), Ok(()));
            let beats = &test.rack.windows[0].beats;
            assert_eq!((beats.wanted, beats.sent), (3, 1));
        }
    }

    /// What the other host has said stands there may be what it asks about.
    #[test]
    fn a_beat_is_wanted_in_vain_before_what_was_said_shows() {
        let mut test = TestRack::new(1);
        let epoch = test.rack.windows[0].epoch;
        let said = HostMessage::Beat {
            epoch,
            beat: 1,
            answers: 0,
        };
        test.hear(&said).unwrap();
        let wish = HostMessage::BeatWanted { epoch, number: 1 };
        test.hear(&wish).unwrap();
        let state = |test: &TestRack| {
            let beats = &test.rack.windows[0].beats;
            (beats.wanted, beats.sent, beats.owed.is_some())
        };
        assert_eq!(state(&test), (1, 0, true));
        test.show(0, 1);
        let later = Instant::now() + LOOK_AGAIN;
        test.rack
            .look_for_beat(0, &mut test.registry, &test.epoll, later);
        assert_eq!(state(&test), (1, 1, false));
    }

    /// Its lanes were dealt out by an earlier monitor.
    #[test]
    fn who_may_be_in_any_window_is_told_when_all_have_answered() {
        let mut test = TestRack::new(2);
        let doubt = (ONE, (7, 70));
        test.doubt(None, doubt);
        test.doubt(None, doubt);
        test.answer(0, 1);
        assert_eq!(carried(&mut test), []);
        test.answer(1, 1);
        assert_eq!(carried(&mut test), [(ONE, 7, 70)]);
    }

    #[test]
    fn a_window_of_which_the_other_monitor_knows_nothing_is_lost() {
        let mut test = TestRack::new(1);
        test.doubt(Some(0), (ONE, (7, 70)));
        let due = test.rack.windows[0].beats.due().unwrap();
        let TestRack {
            rack,
            registry,
            epoll,
            ..
        } = &mut test;
        rack.look_for_beat(0, registry, epoll, due - LOOK_AGAIN);
        assert_eq!(rack.windows[0].phase, Phase::Open);
        rack.look_for_beat(0, registry, epoll, due);
        assert_eq!(rack.windows[0].phase, Phase::Lost);
    }

    #[test]
    fn of_a_window_that_was_lost_meanwhile_nobody_is_told_that_it_has_carried_all() {
        let mut test = TestRack::new(2);
        let doubt = (ONE, (7, 70));
        test.doubt(None, doubt);
        // It is open again, before the other one has answered.
        test.rack.windows[0].beats = Beats::default();
        test.rack.windows[0].epoch += 1000;
        test.answer(1, 1);
        assert_eq!(carried(&mut test), []);
        test.rack.windows[0].phase = Phase::Lost;
        test.doubt(None, doubt);
        test.answer(1, 2);
        assert_eq!(carried(&mut test), []);
        // Whose window is known waits for none but that.
        test.doubt(Some(1), doubt);
        test.answer(1, 2);
        assert_eq!(carried(&mut test), [(ONE, 7, 70)]);
    }
}
