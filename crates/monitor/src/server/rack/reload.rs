//! `rack.toml` read again while the monitor runs.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use super::{Phase, Rack, State, window_id};
use crate::backing::Memories;
use crate::rack::config::{RackConfig, Renewed};
use crate::rack::matching::HostId;
use crate::registry::{FamilyId, Registry};
use crate::server::{Monitor, RELOAD, watch};

/// Where the configuration is, and how reading it again has gone.
#[derive(Debug, Default)]
pub(in crate::server) struct Reloads {
    path: PathBuf,
    bell: Option<OwnedFd>,
    /// How often it has been read again, or tried to be.
    pub count: u64,
    /// Why the last attempt has changed nothing, or not all.
    pub trouble: Option<String>,
}

impl Monitor {
    /// Read the configuration of the rack again whenever `bell` becomes readable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reload_at(&mut self, bell: OwnedFd, path: PathBuf) -> std::io::Result<()> {
        rustix::io::ioctl_fionbio(&bell, true)?;
        watch(&self.epoll, &bell, RELOAD, EventFlags::IN)?;
        self.reloads.path = path;
        self.reloads.bell = Some(bell);
        Ok(())
    }

    /// The bell rings.
    pub(in crate::server) fn reload(&mut self) {
        let mut bytes = [0; 64];
        while let Some(bell) = &self.reloads.bell
            && rustix::io::read(bell.as_fd(), &mut bytes).is_ok_and(|read| read == bytes.len())
        {
        }
        let trouble = self.read_again();
        if let Some(trouble) = &trouble {
            tracing::error!("{trouble}");
        }
        self.reloads.count += 1;
        self.reloads.trouble = trouble;
    }

    /// Returns what has not been taken over, and why.
    fn read_again(&mut self) -> Option<String> {
        let Some(rack) = &mut self.rack else {
            return Some("this monitor is in no rack: start it anew with --rack FILE, or as the system's with /etc/crosslane/rack.toml".to_owned());
        };
        let new = match RackConfig::read(&self.reloads.path) {
            Ok(new) => new,
            Err(error) => return Some(format!("{error}; all stays as it was")),
        };
        let families = &self.families;
        let program = |family: FamilyId| families.program_of(family);
        let renewed = rack.renew(new, &mut self.registry, &self.epoll, program);
        let path = self.reloads.path.display();
        match renewed {
            Ok(waits) if waits.is_empty() => {
                tracing::info!("{path} has been read again");
                None
            }
            Ok(waits) => Some(format!(
                "{path}: {} is read when the monitor starts; all else has been taken over",
                waits.join(", ")
            )),
            Err(error) => Some(format!("{path}: {error}; all stays as it was")),
        }
    }
}

impl Rack {
    /// Go on with another configuration. Returns what a running monitor does not change.
    fn renew(
        &mut self,
        new: RackConfig,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
        program: impl Fn(FamilyId) -> String,
    ) -> Result<Vec<&'static str>, rustls::Error> {
        let mut config = (*self.config).clone();
        let Renewed {
            waits_for_restart,
            hosts,
            windows,
        } = config.renew(new);
        let config = Arc::new(config);
        // While there is a session in which the other host can be told.
        for index in windows {
            self.forget_window(index, &config, registry, epoll);
        }
        self.links.renew(Arc::clone(&config), &hosts)?;
        self.config = Arc::clone(&config);
        for (index, window) in config.windows.iter().enumerate() {
            let host = HostId(config.host_named(&window.host).unwrap_or(usize::MAX));
            match self.windows.get_mut(index) {
                // Its old host is gone, or it has been let go of above.
                Some(state) if !window.is_gone && state.host != host => {
                    *state = State::new(host);
                    registry.backing().close_window(window_id(index));
                }
                Some(_) => {}
                None => self.windows.push(State::new(host)),
            }
        }
        self.matching.renew(registry, config, program);
        for host in 0..self.config.hosts.len() {
            self.offer_windows(HostId(host), registry, epoll);
        }
        Ok(waits_for_restart)
    }

    /// A window is not in the configuration any more, or is other memory from now on. Its connections go on by TCP,
    /// unless the host is gone, too: then nobody could tell what stands in it, and they stay where they are.
    fn forget_window(
        &mut self,
        index: usize,
        config: &RackConfig,
        registry: &mut Registry<Memories>,
        epoll: &OwnedFd,
    ) {
        let trouble = "rack.toml says something else of it by now; connections go back to TCP";
        let state = &self.windows[index];
        let host = config.hosts.get(state.host.0);
        if host.is_none_or(|host| host.is_gone) {
            return;
        }
        if state.phase.is_usable() {
            self.lose_window(index, trouble, registry, epoll);
        }
        let state = &mut self.windows[index];
        (state.phase, state.due, state.trouble) = (Phase::Closed, None, None);
        let open = registry.backing().open(window_id(index));
        // Its host may have been gone for a while.
        if open.is_some_and(|open| !open.window.is_of(&config.windows[index])) {
            registry.backing().close_window(window_id(index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestRack;
    use super::*;
    use crate::rack::message::HostMessage;

    #[test]
    fn an_answer_that_a_reload_has_overtaken_is_nobodys_fault() {
        let mut test = TestRack::new(1);
        test.rack.windows[0].phase = Phase::Offered;
        let epoch = test.rack.windows[0].epoch;
        let mut new = (*test.rack.config).clone();
        new.windows[0].bytes *= 2;
        let renewed = test
            .rack
            .renew(new, &mut test.registry, &test.epoll, |_| String::new());
        assert!(renewed.unwrap().is_empty());
        let works = true;
        let answer = HostMessage::WindowAnswer { epoch, works };
        assert_eq!(test.hear(&answer), Ok(()));
        assert_eq!(test.rack.windows[0].phase, Phase::Closed);
    }
}
