//! Machines and devices as numbers: what the simulator and the latency model need to know.
//!
//! Every number is either public (cache sizes, link), or fitted on published measurements; the
//! comments on the ready profiles say which. A profile is also a JSON document, so that a machine
//! that is not here needs no recompilation; [`crate::fit`] makes one from measurements.

mod device;
mod error;
mod fields;
mod machines;
mod number;

use serde::{Deserialize, Serialize};

use crate::model::config::{AddressWidth, ConfigError, Generation, LinkConfig, LinkSpec};

pub use device::{Device, MAX_CONTEXTS};
pub use error::ProfileError;
use fields::FIELDS;
pub use machines::{DEVICES, HOSTS, host_names, ideal, nfp6000};

/// The link of a machine, as its configuration registers show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Generation, 1 to 7.
    pub generation: u32,
    /// Lanes.
    pub lanes: u32,
    /// Maximum payload size.
    pub mps_bytes: u32,
    /// Maximum read request size.
    pub mrrs_bytes: u32,
    /// Read completion boundary.
    pub rcb_bytes: u32,
    /// Share of the raw rate that carries TLPs, up to generation 5. The specification's recommended limits
    /// give 0.9186 for gen3 x8; real links acknowledge less often. Of flits, the share is known.
    pub tlp_share: f64,
    /// Bytes on the way down that the acknowledgement and the credits of a posted write take, up to
    /// generation 5: flits have bytes for that.
    pub write_dllp_bytes: u32,
    /// Address width in request headers: 32 or 64 bits.
    #[serde(default = "bits_64")]
    pub address_bits: u32,
    /// End-to-end CRC on every TLP.
    #[serde(default)]
    pub ecrc: bool,
    /// Completions are cut at the read completion boundary.
    #[serde(default)]
    pub split_at_rcb: bool,
}

fn bits_64() -> u32 {
    64
}

impl Link {
    /// The checked configuration.
    ///
    /// # Errors
    /// [`ConfigError`] as for any link.
    pub fn config(&self) -> Result<LinkConfig, ConfigError> {
        LinkConfig::new(LinkSpec {
            generation: Generation::from_number(self.generation)?,
            lanes: self.lanes,
            mps_bytes: self.mps_bytes,
            mrrs_bytes: self.mrrs_bytes,
            rcb_bytes: self.rcb_bytes,
            address: AddressWidth::from_bits(self.address_bits)?,
            ecrc: self.ecrc,
            split_at_rcb: self.split_at_rcb,
        })
    }
}

/// Address translation: a small first table, a second one behind the walker's port, page walks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iommu {
    /// Entries of the IO-TLB proper.
    pub entries: usize,
    /// Entries of the translation cache that the walker looks into first.
    pub walker_entries: usize,
    /// Page size.
    pub page_bytes: u64,
    /// A page walk on an idle system.
    pub walk_ns: f64,
    /// Mean time that a read which misses the IO-TLB keeps the port behind it; exponential.
    pub read_port_ns: f64,
    /// Time from the start of a read's walk to that of the next one: `walk_ns` and what it takes to
    /// begin another, over the number of walks that can be under way.
    pub read_walk_slot_ns: f64,
    /// What each further lookup for a request that is served line by line, one per 128 bytes, adds
    /// to both on a miss.
    pub again_ns: f64,
    /// As `read_port_ns`, for writes.
    pub write_port_ns: f64,
    /// As `read_walk_slot_ns`, for writes.
    pub write_walk_slot_ns: f64,
}

/// A root complex that falls asleep between transactions, and wakes in whole periods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sleep {
    /// Time after the last read's data, or the last write, at which it sleeps.
    pub after_idle_ns: f64,
    /// Share of wake-ups that find it still awake.
    pub awake_share: f64,
    /// Length of one wake-up period.
    pub period_ns: f64,
    /// Spread of a period, uniform.
    pub spread_ns: f64,
    /// Probability that the first period is enough.
    pub first_success: f64,
    /// Probability that each later one is.
    pub later_success: f64,
    /// Probability that a read interrupts a wake-up that a write has just begun.
    pub interrupted_share: f64,
    /// What is added to it for each microsecond that the wake-up has lasted.
    pub interrupted_per_us: f64,
    /// Mean time for which both ways of the link are idle until it sleeps deeply.
    pub deep_every_ns: f64,
    /// How much that differs from one run to the next: standard deviation of its logarithm.
    pub deep_every_spread: f64,
    /// Length of a deep wake-up.
    pub deep_ns: f64,
    /// Mean of what comes on top, exponential.
    pub deep_mean_extra_ns: f64,
    /// Share of deep wake-ups that are themselves interrupted, for up to half a deep time more.
    pub deep_again_share: f64,
}

impl Sleep {
    /// What it is like in a run of which this quantile of runs sleeps deeply less often, given as a
    /// standard score (1.645 for 95 %).
    #[must_use]
    pub fn in_run(&self, score: f64) -> Self {
        let every = self.deep_every_ns * (-score * self.deep_every_spread).exp();
        Self {
            deep_every_ns: every.clamp(1.0, 1e9),
            ..self.clone()
        }
    }

    /// Median time of a wake-up that a read interrupts with this probability.
    #[must_use]
    pub fn median_wake_ns(&self, interrupted: f64) -> f64 {
        if self.awake_share >= 0.5 {
            return 0.0;
        }
        let asleep = 1.0 - self.awake_share;
        let mut next = asleep * self.first_success * (1.0 - interrupted.clamp(0.0, 1.0));
        let (mut awake, mut periods) = (self.awake_share, 1.0);
        while awake + next < 0.5 {
            awake += next;
            next = (1.0 - awake) * self.later_success;
            periods += 1.0;
        }
        // The median lies where half of all are awake within the spread of the last period.
        let of_spread = (0.5 - awake) / next + (periods - 1.0) / 2.0;
        periods * self.period_ns + of_spread * self.spread_ns
    }

    /// Mean length of a deep sleep.
    #[must_use]
    pub fn mean_deep_ns(&self) -> f64 {
        let interrupted = self.deep_again_share / (1.0 - self.deep_again_share);
        self.deep_ns * (1.0 + interrupted / 4.0) + self.deep_mean_extra_ns
    }
}

/// Buffers for posted writes that the root complex advertises, in the units of flow control.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credits {
    /// Headers.
    pub headers: u32,
    /// Data, in units of 16 bytes.
    pub data_units: u32,
}

/// A host: everything between the end of the link and memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name on the command line.
    pub name: String,
    /// Where its numbers come from.
    pub source: String,
    /// Its link.
    pub link: Link,
    /// Read request received to completion ready, data in the last-level cache.
    pub read_ns: f64,
    /// Time that one line of a posted write takes to commit; lines commit one after another.
    pub write_line_ns: f64,
    /// Time that one line of a read takes from where posted writes commit.
    pub read_line_ns: f64,
    /// Largest payload that it puts into a completion, where the link allows more.
    pub completion_bytes: u32,
    /// Idle time on the link after the completions of one request.
    pub completion_gap_ns: f64,
    /// Posted write committed to visible.
    pub write_ns: f64,
    /// More if the line is in memory, and the memory is not being refreshed.
    pub cold_ns: f64,
    /// Time that one refresh of the memory takes (JEDEC's tRFC); reads of it wait for the end.
    pub refresh_ns: f64,
    /// Time from one refresh to the next (tREFI).
    pub refresh_every_ns: f64,
    /// NUMA nodes: 1 or 2.
    #[serde(default = "two")]
    pub nodes: u32,
    /// More if the memory belongs to the other socket.
    pub remote_node_ns: f64,
    /// Spread of the read time, triangular, in both directions.
    pub jitter_ns: f64,
    /// Last-level cache, as far as it serves devices.
    pub llc_bytes: u64,
    /// Part of it that device writes may fill (DDIO: two ways of twenty).
    pub ddio_bytes: u64,
    /// Read requests up to this size are served line by line and answered in chunks of the completion
    /// boundary; larger ones are answered in full payloads.
    pub line_by_line_bytes: u32,
    /// Whether a request that continues the one before it is exempt from that.
    pub streams: bool,
    /// How many requests after one served line by line are served so too, while any is under way.
    pub line_mode_lasts: u32,
    /// Idle time on the link after a request served line by line that came right after another
    /// read, unless both are of one pair of lines at most.
    pub line_gap_ns: f64,
    /// Idle time on the link where one short read follows another and ends in half a pair of lines.
    pub half_pair_gap_ns: f64,
    /// Posted write credits.
    pub posted: Credits,
    /// Read request credits.
    pub nonposted_headers: u32,
    /// Translation.
    pub iommu: Iommu,
    /// Power management of the root complex.
    pub sleep: Option<Sleep>,
}

fn two() -> u32 {
    2
}

const KIND: &str = "host";

impl Host {
    /// The ready profile of this name, or the profile in the file of this name.
    ///
    /// # Errors
    /// [`ProfileError`] if there is neither, or the file is not a profile.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some((_, make)) = HOSTS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
            return Ok(make());
        }
        let mut host: Self = error::read(KIND, name, &host_names(), FIELDS)?;
        host.check_in(&|| name.to_owned())?;
        let ready = HOSTS.iter().find(|(known, _)| *known == host.name);
        if ready.is_some_and(|(_, make)| make() != host) {
            // What somebody has changed is no longer what its name and source say.
            host.source = format!("{name}, which changes {}", host.name);
            host.name = error::stem(name);
        }
        Ok(host)
    }

    /// Mean time that a line from memory takes more than one from the cache: refreshes included.
    #[must_use]
    pub fn memory_ns(&self) -> f64 {
        self.cold_ns + self.mean_refresh_ns()
    }

    /// Mean wait for the end of a refresh, over all reads of memory.
    #[must_use]
    pub fn mean_refresh_ns(&self) -> f64 {
        if self.refresh_ns == 0.0 {
            return 0.0;
        }
        self.refresh_ns * self.refresh_ns / (2.0 * self.refresh_every_ns)
    }

    /// Checks that every number can be simulated.
    ///
    /// # Errors
    /// The first field found outside its range.
    pub fn check(&self) -> Result<(), ProfileError> {
        let place = || format!("{KIND} profile {}", self.name);
        self.check_in(&place)
    }

    fn check_in(&self, place: &dyn Fn() -> String) -> Result<(), ProfileError> {
        number::check(self, place, FIELDS)?;
        self.link.config().map_err(|cause| ProfileError::Link {
            place: place(),
            cause,
        })?;
        let (busy, every) = (self.refresh_ns, self.refresh_every_ns);
        if busy != 0.0 && busy >= every {
            let legal = format!("less than refresh_every_ns, {every}");
            return Err(error::wrong(place, "refresh_ns", busy, legal));
        }
        let (units, least) = (self.posted.data_units, self.link.mps_bytes / 16);
        if units < least {
            let legal = format!("at least one payload of link.mps_bytes in units of 16 B, {least}");
            return Err(error::wrong(place, "posted.data_units", units, legal));
        }
        let (most, boundary) = (self.completion_bytes, self.link.rcb_bytes);
        if most < boundary || !most.is_multiple_of(boundary) {
            let legal = format!("a multiple of link.rcb_bytes, {boundary}");
            return Err(error::wrong(place, "completion_bytes", most, legal));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_profiles_are_legal_and_survive_json() {
        for (name, make) in HOSTS {
            let host = make();
            assert_eq!(host.name, *name);
            host.check().unwrap();
            let again: Host = serde_json::from_str(&serde_json::to_string(&host).unwrap()).unwrap();
            assert_eq!(again, host);
        }
    }

    #[test]
    fn a_ready_profile_with_a_change_goes_by_the_name_of_its_file() {
        let path =
            std::env::temp_dir().join(format!("crosslane-edited-{}.json", std::process::id()));
        let load = |host: &Host| {
            std::fs::write(&path, serde_json::to_string(host).unwrap()).unwrap();
            Host::load(path.to_str().unwrap()).unwrap()
        };
        let mut host = Host::load("e5-2630v4").unwrap();
        assert_eq!(load(&host), host);
        host.read_ns += 1.0;
        let loaded = load(&host);
        std::fs::remove_file(&path).unwrap();
        assert!(
            loaded.name.starts_with("crosslane-edited-"),
            "{}",
            loaded.name
        );
        assert!(
            loaded.source.ends_with("which changes e5-2630v4"),
            "{}",
            loaded.source
        );
    }

    #[test]
    fn fields_outside_their_range_are_named() {
        let refused = |change: fn(&mut Host)| {
            let mut host = Host::load("e3-1226v3").unwrap();
            change(&mut host);
            host.check().unwrap_err().to_string()
        };
        assert!(refused(|h| h.read_ns = -1.0).contains("read_ns is -1"));
        assert!(refused(|h| h.iommu.walker_entries = 0).contains("iommu.walker_entries is 0"));
        assert!(refused(|h| h.iommu.page_bytes = 5000).contains("power of two"));
        assert!(refused(|h| h.link.lanes = 3).contains("link.lanes is 3, but must be 1, 2, 4"));
        assert!(refused(|h| h.posted.data_units = 1).contains("posted.data_units is 1"));
        assert!(refused(|h| h.completion_bytes = 0).contains("completion_bytes is 0"));
        assert!(refused(|h| h.completion_bytes = 100).contains("multiple of link.rcb_bytes"));
        assert!(refused(|h| h.link.write_dllp_bytes = 5000).contains("write_dllp_bytes is 5000"));
        let restless: fn(&mut Host) = |h| h.sleep.as_mut().unwrap().deep_every_ns = 0.0;
        assert!(refused(restless).contains("sleep.deep_every_ns is 0"));
        let endless: fn(&mut Host) = |h| h.sleep.as_mut().unwrap().later_success = 0.0;
        assert!(refused(endless).contains("sleep.later_success is 0"));
    }

    #[test]
    fn errors_of_a_file_name_it_and_the_very_number() {
        let path =
            std::env::temp_dir().join(format!("crosslane-wrong-{}.json", std::process::id()));
        let file = path.to_str().unwrap();
        let profile = serde_json::to_string_pretty(&e3()).unwrap();
        let refused = |from: &str, to: &str| {
            assert!(profile.contains(from), "{from}");
            std::fs::write(&path, profile.replace(from, to)).unwrap();
            Host::load(file).unwrap_err().to_string()
        };
        for (from, to, wrong) in [
            (
                "\"lanes\": 8",
                "\"lanes\": -1",
                "link.lanes is -1, but must be 1, 2, 4, 8, 16 or 32",
            ),
            (
                "\"lanes\": 8",
                "\"lanes\": 3",
                "link.lanes is 3, but must be 1, 2, 4, 8, 16 or 32",
            ),
            (
                "\"mps_bytes\": 256",
                "\"mps_bytes\": 1.5",
                "link.mps_bytes is 1.5, but must be 128, 256",
            ),
            (
                "\"entries\": 64",
                "\"entries\": 1000000000000",
                "iommu.entries is 1000000000000, but must be a whole number from 1 to 65536",
            ),
            (
                "\"deep_again_share\": 0.11",
                "\"deep_again_share\": 2",
                "sleep.deep_again_share is 2, but must be 0 to 0.99",
            ),
            (
                "\"jitter_ns\": 12.0",
                "\"jitter_ns\": \"abc\"",
                "jitter_ns is \"abc\", but must be 0 to 1000000000 ns",
            ),
            (
                "\"mps_bytes\": 256",
                "\"mps_bytes\": 1024",
                "legal here: --mps 128 to 512",
            ),
        ] {
            let error = refused(from, to);
            assert!(error.starts_with(file) && error.contains(wrong), "{error}");
        }
        for wrong in ["NaN", "1e999", "0x10"] {
            let error = refused("\"jitter_ns\": 12.0", &format!("\"jitter_ns\": {wrong}"));
            let shown =
                error.contains("line 27") && error.contains(&format!("\"jitter_ns\": {wrong}"));
            let legal = error.contains("; jitter_ns must be 0 to 1000000000 ns;");
            assert!(shown && legal, "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_text_or_never_ends_is_no_profile() {
        let path = std::env::temp_dir().join(format!("crosslane-bytes-{}", std::process::id()));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        for (file, why) in [(path.to_str().unwrap(), "UTF-8"), ("/dev/zero", "1 MiB")] {
            let error = Host::load(file).unwrap_err().to_string();
            let named = error.starts_with(&format!("{file}: not a host profile"));
            assert!(named && error.contains(why), "{error}");
        }
        std::fs::write(
            &path,
            serde_json::to_string(&e3()).unwrap().replace("12.0", "NaN"),
        )
        .unwrap();
        let error = Host::load(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("; jitter_ns must be 0 to"),
            "on one line: {error}"
        );
        std::fs::remove_file(&path).unwrap();
    }

    fn e3() -> Host {
        Host::load("e3-1226v3").unwrap()
    }
}
