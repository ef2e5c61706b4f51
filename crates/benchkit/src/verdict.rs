//! Whether a workload was accelerated, from what the monitor said about its connections.

use std::collections::BTreeMap;

use crate::End;

/// An end that carries less than this share of what its workload's average end carries, such as
/// that of a control connection, does not decide.
const CARRYING_SHARE: f64 = 0.01;

/// With less than this share of its bytes in rings, a workload was not measured accelerated, whatever
/// state its connections have come to in the end: more on TCP would be in its 99th percentile, and in its mean.
const RING_SHARE: f64 = 0.95;

/// The same where the calls before a connection is known, and its way into the rings, are counted, too.
const RING_SHARE_FROM_THE_START: f64 = 0.5;

/// What became of a workload's connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether every end that carries a share worth naming is accelerated, and nearly all bytes
    /// went through rings.
    pub accelerated: bool,
    /// When not: how many ends are in which state for which reason.
    pub reason: Option<String>,
    /// The share of the workload's bytes so far that went through rings, when any went.
    pub ring_share: Option<f64>,
}

impl Verdict {
    /// Judges the given ends, which must be all those of one workload.
    #[must_use]
    pub fn of(ends: &[End]) -> Self {
        Self::by(ends, RING_SHARE)
    }

    /// The same of many short-lived connections, most of whose bytes on TCP are those before they were upgraded.
    #[must_use]
    pub fn from_the_start(ends: &[End]) -> Self {
        Self::by(ends, RING_SHARE_FROM_THE_START)
    }

    fn by(ends: &[End], least: f64) -> Self {
        if ends.is_empty() {
            let reason = Some("`crosslane ss` knows no connection of it".to_owned());
            return Self {
                accelerated: false,
                reason,
                ring_share: None,
            };
        }
        let total: u64 = ends
            .iter()
            .map(|end| ring_bytes(end) + tcp_bytes(end))
            .sum();
        let ring_share = share(ends.iter().map(ring_bytes).sum(), total);
        let reason = not_accelerated(ends, total).or_else(|| too_little(ring_share, least));
        Self {
            accelerated: reason.is_none(),
            reason,
            ring_share,
        }
    }

    /// Judges the ends by what they have carried since they were as in `before`.
    #[must_use]
    pub fn since(before: &[End], ends: &[End]) -> Self {
        let change = |end: &End| {
            let same = |other: &&End| {
                (other.pid, &other.local, &other.peer) == (end.pid, &end.local, &end.peer)
            };
            before
                .iter()
                .find(same)
                .map_or_else(|| end.clone(), |before| end.since(before))
        };
        Self::of(&ends.iter().map(change).collect::<Vec<_>>())
    }
}

/// The ends that carry something and are not accelerated, if there are any, by their states.
fn not_accelerated(ends: &[End], total: u64) -> Option<String> {
    let least = CARRYING_SHARE / as_f64(ends.len() as u64);
    let carries = |end: &&End| {
        share(ring_bytes(end) + tcp_bytes(end), total).is_none_or(|part| part >= least)
    };
    let mut others = BTreeMap::<String, usize>::new();
    for end in ends.iter().filter(carries).filter(|end| !rides_ring(end)) {
        *others.entry(describe(end)).or_default() += 1;
    }
    let list: Vec<_> = others
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    (!list.is_empty()).then(|| format!("of {} ends: {}", ends.len(), list.join(", ")))
}

fn too_little(ring_share: Option<f64>, least: f64) -> Option<String> {
    let share = ring_share.filter(|share| *share < least)?;
    Some(format!(
        "only {:.1} % of its bytes went through rings",
        share * 100.0
    ))
}

/// A direction that never sends never switches, so an end may have all its traffic in the ring and
/// be only partly accelerated.
fn rides_ring(end: &End) -> bool {
    end.is_accelerated() || (end.state == "partly" && ring_bytes(end) > tcp_bytes(end))
}

fn describe(end: &End) -> String {
    match &end.reason {
        Some(reason) => format!("{} ({reason})", end.state),
        None => end.state.clone(),
    }
}

fn ring_bytes(end: &End) -> u64 {
    end.ring_bytes_sent + end.ring_bytes_received
}

fn tcp_bytes(end: &End) -> u64 {
    end.tcp_bytes_sent + end.tcp_bytes_received
}

fn share(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| as_f64(part) / as_f64(total))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share needs no more than 53 bits"
)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(state: &str, reason: Option<&str>, ring: u64, tcp: u64) -> End {
        End {
            program: "redis-server".into(),
            pid: 1,
            local: "127.0.0.1:6379".into(),
            peer: "127.0.0.1:40000".into(),
            state: state.into(),
            reason: reason.map(Into::into),
            ring_bytes_sent: ring,
            ring_bytes_received: 0,
            tcp_bytes_sent: tcp,
            tcp_bytes_received: 0,
            window: None,
        }
    }

    #[test]
    fn a_workload_without_connections_was_not_accelerated() {
        assert!(!Verdict::of(&[]).accelerated);
    }

    #[test]
    fn one_end_on_tcp_spoils_the_workload_and_is_named() {
        let verdict = Verdict::of(&[
            end("accelerated", None, 900, 0),
            end("tcp", Some("peer-plain"), 0, 100),
        ]);
        assert!(!verdict.accelerated);
        assert_eq!(
            verdict.reason.as_deref(),
            Some("of 2 ends: 1 tcp (peer-plain)")
        );
        assert_eq!(verdict.ring_share, Some(0.9));
    }

    #[test]
    fn an_upgrade_that_comes_when_most_is_over_does_not_count() {
        assert!(!Verdict::of(&[end("accelerated", None, 51, 49)]).accelerated);
        let verdict = Verdict::of(&[end("accelerated", None, 60, 940)]);
        assert!(!verdict.accelerated);
        assert_eq!(
            verdict.reason.as_deref(),
            Some("only 6.0 % of its bytes went through rings")
        );
    }

    #[test]
    fn a_control_connection_does_not_decide() {
        let verdict = Verdict::of(&[
            end("accelerated", None, 1_000_000, 0),
            end("tcp", Some("idle"), 0, 300),
        ]);
        assert!(verdict.accelerated, "{verdict:?}");
    }

    #[test]
    fn one_way_traffic_in_the_ring_counts() {
        assert!(Verdict::of(&[end("partly", None, 1_000_000, 4096)]).accelerated);
        assert!(!Verdict::of(&[end("partly", Some("idle"), 100, 4096)]).accelerated);
        assert!(!Verdict::of(&[end("switching", None, 0, 4096)]).accelerated);
    }

    #[test]
    fn what_was_carried_before_does_not_decide() {
        let before = [end("accelerated", None, 10_000, 0)];
        let fell_back_in_between = [end("accelerated", None, 10_000, 400)];
        assert!(Verdict::of(&fell_back_in_between).accelerated);
        let verdict = Verdict::since(&before, &fell_back_in_between);
        assert_eq!(verdict.ring_share, Some(0.0));
        assert!(!verdict.accelerated);
        let idle = Verdict::since(&before, &before);
        assert!(idle.accelerated, "{idle:?}");
        assert_eq!(idle.ring_share, None);
    }

    #[test]
    fn without_byte_counts_every_end_decides() {
        assert!(Verdict::of(&[end("accelerated", None, 0, 0)]).accelerated);
        assert!(
            !Verdict::of(&[end("accelerated", None, 0, 0), end("tcp", None, 0, 0)]).accelerated
        );
    }

    #[test]
    fn ends_are_found_by_port_and_by_pair() {
        let end = end("accelerated", None, 0, 0);
        assert!(end.has_port(6379) && end.has_port(40000) && !end.has_port(637));
        assert!(end.is_between("127.0.0.1:40000", "127.0.0.1:6379"));
        assert!(!end.is_between("127.0.0.1:40001", "127.0.0.1:6379"));
    }
}
