//! The share of ends of connections that has to be accelerated, of those that live long enough for it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::acceleration::Acceleration;

/// Of fewer ends that live long, a share says nothing.
const ENOUGH: u64 = 20;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// Of this part; of the whole suite if none is named.
    pub part: Option<Cow<'static, str>>,
    pub percent: u64,
}

impl Floor {
    pub const fn of_suite(percent: u64) -> Self {
        Self {
            part: None,
            percent,
        }
    }

    pub const fn of_part(part: &'static str, percent: u64) -> Self {
        Self {
            part: Some(Cow::Borrowed(part)),
            percent,
        }
    }

    /// What is wrong with what was found, if anything is. A `whole` run has enough ends to say.
    pub fn fault(&self, found: &Acceleration, whole: bool) -> Option<String> {
        let (name, long_lived) = (self.name(), found.long_lived());
        let Self { percent, .. } = self;
        if long_lived < ENOUGH {
            let few = format!(
                "only {long_lived} ends lived long in {name}: too few to tell {percent} % of"
            );
            return whole.then_some(few);
        }
        let is_below = found.accelerated * 100 < long_lived * percent;
        is_below.then(|| {
            let (accelerated, share) = (found.accelerated, found.percent());
            format!(
                "{accelerated} of {long_lived} long-lived ends were accelerated in {name}: {share} %, not {percent} %"
            )
        })
    }

    /// It, and what was found, for a table.
    pub fn cell(&self, found: Option<&Acceleration>) -> String {
        match (&self.part, found) {
            (None, _) => format!("{} %", self.percent),
            (Some(part), None) => format!("{} % in {part}", self.percent),
            (Some(part), Some(of)) => {
                format!("{} % in {part}, which has {} %", self.percent, of.percent())
            }
        }
    }

    fn name(&self) -> &str {
        self.part.as_deref().unwrap_or("the suite")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(accelerated: u64, not: u64) -> Acceleration {
        Acceleration {
            accelerated,
            others: [("option".to_owned(), not)].into(),
            ..Acceleration::default()
        }
    }

    #[test]
    fn less_than_the_floor_is_a_fault() {
        let floor = Floor::of_part("a", 90);
        for whole in [true, false] {
            assert_eq!(floor.fault(&found(90, 10), whole), None);
            let fault = floor.fault(&found(899, 101), whole).unwrap();
            assert!(fault.ends_with("in a: 89 %, not 90 %"), "{fault}");
        }
    }

    #[test]
    fn few_ends_are_a_fault_of_the_whole_only() {
        let floor = Floor::of_suite(90);
        assert_eq!(floor.fault(&found(1, 18), false), None);
        assert!(floor.fault(&found(19, 0), true).is_some());
        assert!(floor.fault(&found(1, 19), false).is_some());
    }
}
