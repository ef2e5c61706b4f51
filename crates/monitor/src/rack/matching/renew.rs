//! What changes for the ends that are known when `rack.toml` is read again.

use super::*;

impl Matching {
    /// Go on with what `rack.toml` says by now. Ends that have lanes keep them; those that wait for some wait by the
    /// new rules.
    pub fn renew<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        config: Arc<RackConfig>,
        program: impl Fn(FamilyId) -> String,
    ) {
        self.hosts.extend(hosts(&config, self.hosts.len()));
        self.by_address = by_address(&config);
        self.config = config;
        for id in registry.seekers() {
            match self.ends.contains_key(&id) {
                true => self.judge_again(registry, id, &program),
                // It may have a host from now on.
                false => self.seek(registry, id, &program),
            }
        }
    }

    /// An end that waits may have another host by now, or not be allowed to any more.
    fn judge_again<B: Backing>(
        &mut self,
        registry: &mut Registry<B>,
        id: EndId,
        program: impl Fn(FamilyId) -> String,
    ) {
        let host = self.ends.get(&id).map(|(host, _)| *host);
        let (Some(host), Some(seeker)) = (host, registry.seeker(id)) else {
            return;
        };
        match self.host_of(&seeker.key) {
            // Its address is no host's: if it is one's again, it is looked for there.
            None => self.settled(id),
            Some((now, _)) if now != host => {
                self.settled(id);
                self.seek(registry, id, program);
            }
            Some((_, tuple)) if !self.permits(host, &seeker, &tuple, program) => {
                self.deny(registry, id, Reason::RackPolicy);
            }
            Some(_) => {}
        }
    }
}
