//! The rack as answers to queries show it.

use crosslane_ctl::reason::Reason;

use super::reload::Reloads;
use super::{Phase, Rack, window_id};
use crate::arenas::WindowId;
use crate::backing::Memories;
use crate::endpoint::EndKey;
use crate::rack::config::HostConfig;
use crate::rack::matching::HostId;
use crate::registry::Registry;
use crate::report::{HostReport, OtherHosts, RackReport, WindowReport};

/// A rack and the registry beside it.
pub struct Seen<'a> {
    pub(super) rack: &'a Rack,
    pub(super) registry: &'a Registry<Memories>,
    pub(super) reloads: &'a Reloads,
}

impl Phase {
    fn slug(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Offered => "offered",
            Self::Probing => "probing",
            Self::Open => "open",
            Self::Lost => "lost",
        }
    }
}

impl OtherHosts for Seen<'_> {
    fn window_name(&self, id: WindowId) -> Option<&str> {
        let windows = &self.rack.config.windows;
        Some(&windows.get(usize::try_from(id.0).ok()?)?.name)
    }

    fn standing(&self, key: &EndKey) -> Option<Reason> {
        self.rack.matching.standing(key)
    }

    fn report(&self) -> RackReport {
        let config = &self.rack.config;
        let hosts = config.hosts.iter().enumerate();
        RackReport {
            name: config.name.clone(),
            listen: config.listen.to_string(),
            fingerprint: self.rack.fingerprint.to_string(),
            reloads: self.reloads.count,
            reload_trouble: self.reloads.trouble.clone(),
            hosts: hosts
                .filter(|(_, host)| !host.is_gone)
                .map(|(at, host)| self.host(HostId(at), host))
                .collect(),
        }
    }
}

impl Seen<'_> {
    fn host(&self, id: HostId, config: &HostConfig) -> HostReport {
        let link = self.rack.links.link(id);
        let up_since = link.and_then(|link| link.up_since);
        let windows = &self.rack.windows;
        let is_gone = |at: usize| self.rack.config.windows[at].is_gone;
        let of_host = |at: &usize| windows[*at].host == id && !is_gone(*at);
        HostReport {
            name: config.name.clone(),
            address: config.address.to_string(),
            connected: up_since.is_some(),
            connected_seconds: up_since.map(|since| since.elapsed().as_secs()),
            trouble: link.and_then(|link| link.trouble.clone()),
            connections: self.rack.matching.connections(id),
            windows: (0..windows.len())
                .filter(of_host)
                .map(|at| self.window(at))
                .collect(),
        }
    }

    fn window(&self, at: usize) -> WindowReport {
        let (state, config) = (&self.rack.windows[at], &self.rack.config.windows[at]);
        let open = self.registry.arenas().memories().open(window_id(at));
        let tally = open.and_then(|open| Some(open.extents.as_ref()?.tally()));
        WindowReport {
            name: config.name.clone(),
            path: config.path.display().to_string(),
            bytes: config.bytes,
            state: state.phase.slug().to_owned(),
            trouble: state.trouble.clone(),
            arenas_free: tally.map(|tally| tally.free),
            arenas_used: tally.map(|tally| tally.used),
            arenas_quarantined: tally.map(|tally| tally.quarantined),
        }
    }
}
