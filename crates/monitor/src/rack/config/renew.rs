//! A configuration that is read again while the monitor runs. Hosts and windows are known by their places in the
//! lists, so those that are gone keep theirs, and new ones come behind them.

use super::{HostConfig, RackConfig, WindowConfig};

/// What is different, and what is not for a running monitor to change.
#[derive(Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Keys of `rack.toml` that a monitor looks at when it starts.
    pub waits_for_restart: Vec<&'static str>,
    /// The places of hosts that are gone, or are elsewhere or others by now.
    pub hosts: Vec<usize>,
    /// The places of windows that are gone or others by now.
    pub windows: Vec<usize>,
}

impl RackConfig {
    /// Take over what a file says that has been read again.
    pub fn renew(&mut self, new: Self) -> Renewed {
        let Self {
            name,
            listen,
            certificate,
            key,
            ..
        } = &new;
        let fixed = [
            ("name", *name != self.name),
            ("listen", *listen != self.listen),
            ("certificate", *certificate != self.certificate),
            ("key", *key != self.key),
        ];
        let waits = fixed.iter().filter(|(_, differs)| *differs);
        let waits_for_restart = waits.map(|(key, _)| *key).collect();
        self.connections_per_user = new.connections_per_user;
        self.allow = new.allow;
        let own = &self.name;
        // Until it has its new name, it must not meet itself.
        let others = new.hosts.into_iter().filter(|host| host.name != *own);
        Renewed {
            waits_for_restart,
            hosts: renew(&mut self.hosts, others.collect()),
            windows: renew(&mut self.windows, new.windows),
        }
    }
}

/// What has a name in a list of the configuration.
trait Named: PartialEq {
    fn name(&self) -> &str;
    /// Something that a session or its memory depends on.
    fn is_other(&self, new: &Self) -> bool;
    fn is_gone(&mut self) -> &mut bool;
}

impl Named for HostConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_other(&self, new: &Self) -> bool {
        (self.address, self.fingerprint) != (new.address, new.fingerprint)
    }

    fn is_gone(&mut self) -> &mut bool {
        &mut self.is_gone
    }
}

impl Named for WindowConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_other(&self, new: &Self) -> bool {
        self != new
    }

    fn is_gone(&mut self) -> &mut bool {
        &mut self.is_gone
    }
}

/// Returns the places of those that have changed.
fn renew<T: Named>(old: &mut Vec<T>, new: Vec<T>) -> Vec<usize> {
    let mut changed = Vec::new();
    for (place, one) in old.iter_mut().enumerate() {
        let is_there = new.iter().any(|other| other.name() == one.name());
        if !is_there && !std::mem::replace(one.is_gone(), true) {
            changed.push(place);
        }
    }
    for one in new {
        match old.iter().position(|other| other.name() == one.name()) {
            Some(place) => {
                if *old[place].is_gone() || old[place].is_other(&one) {
                    changed.push(place);
                }
                old[place] = one;
            }
            None => old.push(one),
        }
    }
    changed.sort_unstable();
    changed
}
