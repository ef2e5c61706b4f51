//! Was acceleration on? What the monitor of a run has counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a monitor has counted up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    ends: u64,
    paired: u64,
    reasons: BTreeMap<String, u64>,
}

/// Ends of connections by what became of them; a connection inside the suite has two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceleration {
    /// All that were opened or accepted.
    pub ends: u64,
    /// Those of connections that ended before both sides had taken part in an upgrade.
    pub short_lived: u64,
    /// Those that travelled in rings to their end.
    pub accelerated: u64,
    /// Pairs of ends that were given rings.
    pub paired: u64,
    /// Those that were not, although they lived long enough, by reason.
    pub others: BTreeMap<String, u64>,
}

/// A connection that closed in one of these states ended before it could be upgraded.
const SHORT_LIVED: [&str; 3] = ["too-young", "half-closed", "switching"];
/// The other end of one that closed too young waited for it in vain.
const WAITED: &str = "no-peer";

impl Counts {
    /// Understand what `crosslane stats --json` says after all programs have ended.
    pub fn of(stats: &Value) -> Self {
        let mut all = reasons(&stats["reasons"]);
        // Ends that are still open here belong to a program that could not be ended.
        for (reason, open) in reasons(&stats["open_reasons"]) {
            *all.entry(reason).or_default() += open;
        }
        Self {
            ends: count(&stats["connections"]),
            paired: count(&stats["monitor"]["paired"]),
            reasons: all,
        }
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |reason| before.reasons.get(reason).copied().unwrap_or(0);
        let reasons = self.reasons.iter();
        let reasons =
            reasons.map(|(reason, all)| (reason.clone(), all.saturating_sub(earlier(reason))));
        Self {
            ends: self.ends.saturating_sub(before.ends),
            paired: self.paired.saturating_sub(before.paired),
            reasons: reasons.collect(),
        }
    }
}

impl Acceleration {
    pub fn of(counts: &Counts) -> Self {
        let (ends, mut others) = (counts.ends, counts.reasons.clone());
        let waited = others.get(WAITED).copied().unwrap_or(0);
        let too_young = others.get(SHORT_LIVED[0]).copied().unwrap_or(0);
        let in_vain = waited.min(too_young);
        let mut short_lived = in_vain;
        for reason in SHORT_LIVED {
            short_lived += others.remove(reason).unwrap_or(0);
        }
        others.entry(WAITED.into()).and_modify(|n| *n -= in_vain);
        others.retain(|_, count| *count > 0);
        let not: u64 = others.values().sum();
        Self {
            ends,
            short_lived,
            accelerated: ends.saturating_sub(short_lived + not),
            paired: counts.paired,
            others,
        }
    }

    /// Ends of connections that lived long enough to be upgraded.
    pub fn long_lived(&self) -> u64 {
        self.ends.saturating_sub(self.short_lived)
    }

    /// Whether any travelled in rings: by subtraction of all that did not, and by the monitor's own count.
    pub fn is_proven(&self) -> bool {
        self.accelerated > 0 && self.paired > 0
    }

    /// The share of these that were accelerated, in percent.
    pub fn percent(&self) -> u64 {
        match self.long_lived() {
            0 => 0,
            long_lived => self.accelerated * 100 / long_lived,
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let others: Vec<_> = self
            .others
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        format!(
            "{} ends of connections, {} of them long-lived, {} of these accelerated ({} %); others: {}",
            self.ends,
            self.long_lived(),
            self.accelerated,
            self.percent(),
            if others.is_empty() {
                "none".into()
            } else {
                others.join(", ")
            }
        )
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn reasons(value: &Value) -> BTreeMap<String, u64> {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .map(|(reason, value)| (reason.clone(), count(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn acceleration(stats: &Value) -> Acceleration {
        Acceleration::of(&Counts::of(stats))
    }

    #[test]
    fn a_part_has_what_was_counted_since_the_one_before() {
        let before = json!({"connections": 4, "reasons": {"option": 1}, "monitor": {"paired": 1}});
        let after = json!({"connections": 10, "reasons": {"option": 3, "passed": 1}, "monitor": {"paired": 2}});
        let part = Acceleration::of(&Counts::of(&after).since(&Counts::of(&before)));
        assert_eq!(
            (part.long_lived(), part.accelerated, part.paired),
            (6, 3, 1)
        );
        assert_eq!(
            part.others,
            BTreeMap::from([("option".into(), 2), ("passed".into(), 1)])
        );
    }

    #[test]
    fn an_end_without_a_reason_was_accelerated() {
        let stats = json!({"connections": 10, "reasons": {"too-young": 0, "option": 2},
            "open_reasons": {}, "monitor": {"paired": 4}});
        let found = acceleration(&stats);
        assert_eq!((found.long_lived(), found.accelerated), (10, 8));
        assert_eq!((found.percent(), found.paired), (80, 4));
        assert!(found.is_proven());
        assert_eq!(found.others, BTreeMap::from([("option".into(), 2)]));
    }

    #[test]
    fn who_waited_for_a_short_lived_end_is_as_short_lived() {
        let stats = json!({"connections": 10, "reasons": {"too-young": 3, "no-peer": 3}});
        let found = acceleration(&stats);
        assert_eq!((found.short_lived, found.accelerated), (6, 4));
        assert!(found.others.is_empty());
    }

    #[test]
    fn who_waited_for_anybody_else_was_not_accelerated() {
        let stats = json!({"connections": 10, "reasons": {"too-young": 1, "no-peer": 3}});
        let found = acceleration(&stats);
        assert_eq!((found.long_lived(), found.accelerated), (8, 6));
        assert_eq!(found.others, BTreeMap::from([("no-peer".into(), 2)]));
    }

    #[test]
    fn ends_whose_reason_nobody_has_counted_prove_nothing() {
        let found = acceleration(&json!({"connections": 10, "monitor": {"paired": 0}}));
        assert_eq!((found.accelerated, found.is_proven()), (10, false));
    }

    #[test]
    fn nothing_long_lived_is_not_accelerated() {
        assert_eq!(acceleration(&json!({})).percent(), 0);
    }
}
