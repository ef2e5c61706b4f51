//! Ends that are alike, in one row: those of a program in one state for one reason that have one of
//! their names in common, as all connections to a server have.

use std::collections::{BTreeMap, HashMap};

use crosslane_monitor::client::RunEnd;

pub const HEADER: [&str; 11] = [
    "Program",
    "Pid",
    "Ends",
    "Local",
    "Peer",
    "State",
    "Reason",
    "Ring sent",
    "Ring received",
    "TCP sent",
    "TCP received",
];

/// Leading columns that are words.
pub const WORDS: usize = 7;

/// Rows up to which every end has its own.
const MOST_ROWS: usize = 20;

/// Ends that are alike.
pub struct Group<'a> {
    ends: Vec<&'a RunEnd>,
}

/// What the ends of a group have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    program: &'a str,
    state: &'a str,
    reason: Option<&'a str>,
    name: &'a str,
    is_local: bool,
}

/// The groups of `ends`; each end by itself if they are few.
pub fn of(ends: &[RunEnd]) -> Vec<Group<'_>> {
    if ends.len() <= MOST_ROWS {
        return ends.iter().map(|end| Group { ends: vec![end] }).collect();
    }
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for end in ends {
        *uses.entry(&end.connection.local).or_default() += 1;
        *uses.entry(&end.connection.peer).or_default() += 1;
    }
    let mut groups: BTreeMap<Key<'_>, Vec<&RunEnd>> = BTreeMap::new();
    for end in ends {
        let c = &end.connection;
        // The server's name is that which more connections have.
        let is_local = uses.get(c.local.as_str()) > uses.get(c.peer.as_str());
        let key = Key {
            program: &c.program,
            state: &c.state,
            reason: c.reason.as_deref(),
            name: if is_local { &c.local } else { &c.peer },
            is_local,
        };
        groups.entry(key).or_default().push(end);
    }
    groups.into_values().map(|ends| Group { ends }).collect()
}

impl Group<'_> {
    /// Its row below [`HEADER`].
    pub fn row(&self) -> Vec<String> {
        let one = &self.ends[0].connection;
        let sum = |bytes: fn(&RunEnd) -> u64| -> String {
            let each = self.ends.iter().map(|end| bytes(end));
            each.fold(0_u64, u64::saturating_add).to_string()
        };
        vec![
            or_dash(&one.program),
            self.pids(),
            self.ends.len().to_string(),
            self.name(|end| &end.connection.local),
            self.name(|end| &end.connection.peer),
            one.state.clone(),
            or_dash(one.reason.as_deref().unwrap_or_default()),
            sum(|end| end.connection.ring_bytes_sent),
            sum(|end| end.connection.ring_bytes_received),
            sum(|end| end.connection.tcp_bytes_sent),
            sum(|end| end.connection.tcp_bytes_received),
        ]
    }

    fn pids(&self) -> String {
        let mut pids: Vec<u32> = self.ends.iter().map(|end| end.connection.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        match pids[..] {
            [one] => one.to_string(),
            _ => format!("{} processes", pids.len()),
        }
    }

    /// The name that all have on one side, or the host of all with a star for the port.
    fn name(&self, of: fn(&RunEnd) -> &str) -> String {
        let mut names = self.ends.iter().map(|end| of(end));
        let first = names.next().unwrap_or_default();
        if names.all(|name| name == first) {
            return or_dash(first);
        }
        let host = |name: &str| name.rsplit_once(':').map(|(host, _)| host.to_owned());
        let of_first = host(first);
        match of_first {
            Some(one)
                if self
                    .ends
                    .iter()
                    .all(|end| host(of(end)).as_ref() == Some(&one)) =>
            {
                format!("{one}:*")
            }
            _ => "*".to_owned(),
        }
    }
}

fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => crate::output::printable(text),
    }
}

#[cfg(test)]
mod tests {
    use crosslane_ctl::reason::Reason;

    use super::super::tests::end;
    use super::*;

    #[test]
    fn few_ends_have_a_row_each() {
        let ends = vec![end(1, "a:1", "b:80", None); MOST_ROWS];
        assert_eq!(of(&ends).len(), MOST_ROWS);
    }

    #[test]
    fn alike_ends_share_a_row_with_their_number_and_sums() {
        let mut ends: Vec<_> = (0..1000)
            .map(|port| end(port % 3, &format!("a:{port}"), "b:80", None))
            .collect();
        ends.extend((0..50).map(|port| {
            let peer = format!("a:{port}");
            end(9, "b:80", &peer, Some(Reason::TooYoung))
        }));
        let rows: Vec<_> = of(&ends).iter().map(Group::row).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][1..5], ["3 processes", "1000", "a:*", "b:80"]);
        assert_eq!(rows[0][7..9], ["10000", "20000"]);
        assert_eq!(
            rows[1][1..7],
            ["9", "50", "b:80", "a:*", "tcp", "too-young"]
        );
    }
}
