//! Who may use windows.

use std::ops::RangeInclusive;

/// One `[[allow]]`: what it does not name, it does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Users, by number.
    pub users: Option<Vec<u32>>,
    /// Names of programs.
    pub programs: Option<Vec<String>>,
    /// Ports, at either end.
    pub ports: Option<Vec<RangeInclusive<u16>>>,
    /// Names of hosts at the other end.
    pub hosts: Option<Vec<String>>,
}

/// An end that seeks its partner on another host.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its user.
    pub uid: u32,
    /// Its program's name, which the program can choose: for order, not for security.
    pub program: &'a str,
    /// Its port and its partner's.
    pub ports: [u16; 2],
    /// Its partner's host.
    pub host: &'a str,
}

impl Allow {
    /// Whether this entry lets the end use a window.
    pub fn permits(&self, subject: &Subject<'_>) -> bool {
        let Self {
            users,
            programs,
            ports,
            hosts,
        } = self;
        let in_range =
            |range: &RangeInclusive<u16>| subject.ports.iter().any(|p| range.contains(p));
        users
            .as_ref()
            .is_none_or(|users| users.contains(&subject.uid))
            && programs
                .as_ref()
                .is_none_or(|names| names.iter().any(|name| name == subject.program))
            && ports
                .as_ref()
                .is_none_or(|ports| ports.iter().any(in_range))
            && hosts
                .as_ref()
                .is_none_or(|names| names.iter().any(|name| name == subject.host))
    }
}
