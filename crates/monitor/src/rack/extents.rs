//! Which parts of a window are free, in use, or in quarantine: used before, and perhaps still
//! mapped by somebody on either host. No system call is made here.
//!
//! A part leaves quarantine when nobody on this host maps it *and* the other host says the same of
//! itself about a time after it went in. Then it is cleared, and free.

/// What a part of a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Cleared, and mapped by nobody.
    Free,
    /// Dealt out.
    Used,
    /// To be looked at on both hosts; `asked` when the other host has been asked since.
    Quarantine { asked: bool },
}

/// All parts of one window.
#[derive(Clone, Debug)]
pub struct Extents {
    states: Vec<State>,
    free: usize,
}

/// Numbers for `crosslane rack status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cleared, and mapped by nobody.
    pub free: usize,
    /// Dealt out.
    pub used: usize,
    /// Used before, and not known to be unmapped everywhere.
    pub quarantined: usize,
}

impl Extents {
    /// Nothing is known of any part: all are in quarantine.
    pub fn unknown(count: usize) -> Self {
        Self {
            states: vec![State::Quarantine { asked: false }; count],
            free: 0,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether a part is free.
    pub fn has_free(&self) -> bool {
        self.free > 0
    }

    /// Deal out a free part.
    pub fn take(&mut self) -> Option<usize> {
        if !self.has_free() {
            return None;
        }
        let index = self.states.iter().position(|state| *state == State::Free)?;
        self.states[index] = State::Used;
        self.free -= 1;
        Some(index)
    }

    /// A part that was taken has not been dealt out: nobody has seen it.
    pub fn spare(&mut self, index: usize) {
        if let Some(state @ State::Used) = self.states.get_mut(index) {
            *state = State::Free;
            self.free += 1;
        }
    }

    /// A part is not dealt out any more.
    pub fn put_back(&mut self, index: usize) {
        if let Some(state @ State::Used) = self.states.get_mut(index) {
            *state = State::Quarantine { asked: false };
        }
    }

    /// The other host is being asked now, about those that `may` be asked about.
    pub fn ask(&mut self, may: impl Fn(usize) -> bool) {
        for (part, state) in self.states.iter_mut().enumerate() {
            if let State::Quarantine { asked } = state {
                *asked = may(part);
            }
        }
    }

    /// One bit for each part that the other host is being asked about, lowest first.
    pub fn asked(&self) -> Vec<u8> {
        let mut bits = vec![0; self.states.len().div_ceil(8)];
        for (part, state) in self.states.iter().enumerate() {
            if *state == (State::Quarantine { asked: true }) {
                bits[part / 8] |= 1 << (part % 8);
            }
        }
        bits
    }

    /// What was asked will not be answered.
    pub fn forget_question(&mut self) {
        for state in &mut self.states {
            if let State::Quarantine { asked } = state {
                *asked = false;
            }
        }
    }

    /// What was cleared may not be so for the other host: nothing is free.
    pub fn doubt(&mut self) {
        self.free = 0;
        for state in &mut self.states {
            if *state != State::Used {
                *state = State::Quarantine { asked: false };
            }
        }
    }

    /// The other host has answered: it maps the parts for which `theirs` is true. What is in no
    /// use here either (`ours`) and can be cleared (`clear`) is free.
    pub fn answer(
        &mut self,
        theirs: impl Fn(usize) -> bool,
        mut ours: impl FnMut(usize) -> bool,
        mut clear: impl FnMut(usize) -> bool,
    ) {
        for (index, state) in self.states.iter_mut().enumerate() {
            if *state != (State::Quarantine { asked: true }) {
                continue;
            }
            *state = match !theirs(index) && !ours(index) && clear(index) {
                true => State::Free,
                false => State::Quarantine { asked: false },
            };
            self.free += usize::from(*state == State::Free);
        }
    }

    /// How many are what.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for state in &self.states {
            match state {
                State::Free => tally.free += 1,
                State::Used => tally.used += 1,
                State::Quarantine { .. } => tally.quarantined += 1,
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_free(count: usize) -> Extents {
        let mut extents = Extents::unknown(count);
        extents.ask(|_| true);
        extents.answer(|_| false, |_| false, |_| true);
        extents
    }

    #[test]
    fn nothing_is_dealt_out_before_both_hosts_have_let_go() {
        let mut extents = Extents::unknown(3);
        assert_eq!(extents.take(), None);
        extents.ask(|_| true);
        extents.answer(|index| index == 0, |index| index == 1, |_| true);
        assert_eq!((extents.take(), extents.take()), (Some(2), None));
        assert_eq!(extents.asked(), [0], "both are to be asked about again");
        extents.ask(|_| true);
        assert_eq!(extents.asked(), [0b011]);
    }

    #[test]
    fn what_nobody_has_seen_is_free_again() {
        let mut extents = all_free(2);
        assert_eq!((extents.take(), extents.take()), (Some(0), Some(1)));
        assert!(!extents.has_free());
        extents.spare(1);
        assert_eq!((extents.has_free(), extents.tally().quarantined), (true, 0));
        assert_eq!((extents.take(), extents.take()), (Some(1), None));
        extents.put_back(0);
        extents.doubt();
        assert!(!extents.has_free(), "nobody has looked");
    }

    #[test]
    fn what_may_not_be_asked_about_stays() {
        let mut extents = Extents::unknown(2);
        extents.ask(|part| part == 1);
        assert_eq!(extents.asked(), [0b10]);
        extents.answer(|_| false, |_| false, |_| true);
        assert_eq!((extents.take(), extents.take()), (Some(1), None));
    }

    #[test]
    fn an_answer_counts_only_for_what_was_asked_about() {
        let mut extents = all_free(2);
        let index = extents.take().unwrap();
        extents.ask(|_| true);
        extents.put_back(index);
        extents.answer(|_| false, |_| false, |_| true);
        assert_eq!(
            extents.tally().quarantined,
            1,
            "put back after the question"
        );
        extents.ask(|_| true);
        extents.forget_question();
        extents.answer(|_| false, |_| false, |_| true);
        assert_eq!(
            extents.tally().quarantined,
            1,
            "asked in an earlier session"
        );
        extents.ask(|_| true);
        extents.answer(|_| false, |_| false, |_| true);
        assert_eq!(extents.tally().free, 2);
    }

    #[test]
    fn nothing_is_free_that_may_have_been_cleared_in_vain() {
        let mut extents = all_free(3);
        extents.take().unwrap();
        extents.ask(|_| true);
        extents.doubt();
        extents.answer(|_| false, |_| false, |_| true);
        let tally = extents.tally();
        assert_eq!((tally.free, tally.used, tally.quarantined), (0, 1, 2));
    }

    #[test]
    fn what_cannot_be_cleared_stays() {
        let mut extents = Extents::unknown(1);
        extents.ask(|_| true);
        extents.answer(|_| false, |_| false, |_| false);
        assert_eq!(extents.tally().quarantined, 1);
    }

    #[test]
    fn what_is_in_use_is_not_put_back_twice() {
        let mut extents = all_free(1);
        extents.put_back(0);
        assert_eq!(extents.tally().free, 1);
    }
}
