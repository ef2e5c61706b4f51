//! In which order a program hears of several connections: in that in which their peers wrote, as far as these tell.

use core::cmp::Reverse;
use core::mem::MaybeUninit;

use crosslane_ring::Moment;
use libc::epoll_event;

/// When what a wait has found was written, in the order in which it was found.
#[derive(Default)]
pub struct Order {
    moments: Vec<Moment>,
    /// Room to sort in, kept so that a wait allocates nothing.
    told: Vec<(u32, epoll_event)>,
}

impl Order {
    /// The event at `place`, behind those that are known, was written then.
    #[inline]
    pub fn note(&mut self, place: usize, moment: Moment) {
        self.moments.truncate(place);
        self.moments.push(moment);
    }

    /// When the last of those that tell was written.
    #[inline]
    pub fn newest(&self) -> Option<Moment> {
        let told = self
            .moments
            .iter()
            .copied()
            .filter(|moment| moment.is_told());
        told.reduce(|newest, moment| match newest.is_before(moment) {
            true => moment,
            false => newest,
        })
    }

    /// Sort the events, for each of which a moment has been noted. Of which none is told, those stay where they are.
    #[inline]
    pub fn sort(&mut self, events: &mut [MaybeUninit<epoll_event>]) {
        if events.len() > 1 && !self.is_sorted() {
            self.sort_now(events);
        }
    }

    fn is_sorted(&self) -> bool {
        let told = self.moments.iter().filter(|moment| moment.is_told());
        told.is_sorted_by(|one, next| !next.is_before(**one))
    }

    #[cold]
    fn sort_now(&mut self, events: &mut [MaybeUninit<epoll_event>]) {
        let Self { moments, told } = self;
        let now = Moment::now();
        let is_told = |(_, moment): &(_, &Moment)| moment.is_told();
        told.clear();
        told.extend(
            events
                .iter()
                .zip(&*moments)
                .filter(is_told)
                .map(|(event, moment)| {
                    // SAFETY: those for which moments were noted have been written.
                    (moment.age_at(now), unsafe { event.assume_init() })
                }),
        );
        told.sort_unstable_by_key(|(age, _)| Reverse(*age));
        let places = events.iter_mut().zip(&*moments);
        let places = places.filter(|(_, moment)| moment.is_told());
        for ((place, _), (_, event)) in places.zip(&*told) {
            place.write(*event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(moments: &[Moment]) -> Vec<u64> {
        let mut order = Order::default();
        let numbered = |u64| MaybeUninit::new(epoll_event { events: 1, u64 });
        let mut events: Vec<_> = (0..moments.len() as u64).map(numbered).collect();
        for (place, moment) in moments.iter().enumerate() {
            order.note(place, *moment);
        }
        order.sort(&mut events);
        // SAFETY: all were written above.
        events
            .iter()
            .map(|event| unsafe { event.assume_init() }.u64)
            .collect()
    }

    fn moments<const COUNT: usize>() -> [Moment; COUNT] {
        core::array::from_fn(|_| {
            let moment = Moment::now();
            std::thread::sleep(core::time::Duration::from_micros(10));
            moment
        })
    }

    #[test]
    fn what_was_written_first_is_told_first() {
        let of = moments::<40>();
        let backwards: Vec<Moment> = of.iter().rev().copied().collect();
        assert_eq!(sorted(&backwards), (0..40).rev().collect::<Vec<u64>>());
        assert_eq!(sorted(&of), (0..40).collect::<Vec<u64>>());
    }

    #[test]
    fn what_does_not_tell_stays_where_it_is() {
        let ([first, second, third], none) = (moments(), Moment::default());
        assert_eq!(sorted(&[third, none, first, none, second]), [2, 1, 4, 3, 0]);
    }

    #[test]
    fn a_wait_begins_anew() {
        let [first, second] = moments();
        let mut order = Order::default();
        order.note(0, second);
        order.note(0, first);
        assert_eq!(order.newest(), Some(first));
        order.note(1, second);
        assert_eq!(order.newest(), Some(second));
    }
}
