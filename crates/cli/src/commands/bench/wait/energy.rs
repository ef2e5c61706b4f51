//! Energy of the processor packages, where the kernel shows it (RAPL, by powercap).

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::super::output::number;

const POWERCAP: &str = "/sys/class/powercap";

/// The packages' counters.
pub struct Meter(Vec<Package>);

struct Package {
    counter: PathBuf,
    /// Where the counter begins again at 0.
    range_uj: u64,
}

/// The counters at a moment.
pub struct Reading {
    at: Instant,
    energies_uj: Vec<u64>,
}

impl Meter {
    /// The packages of this machine.
    ///
    /// # Errors
    /// Why energy cannot be told, in a sentence.
    pub fn find() -> Result<Self, String> {
        Self::find_in(Path::new(POWERCAP))
    }

    fn find_in(folder: &Path) -> Result<Self, String> {
        let zones = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let zones = zones.map(|entry| entry.path()).filter(|zone| {
            std::fs::read_to_string(zone.join("name")).is_ok_and(|name| name.starts_with("package"))
        });
        let packages: Vec<_> = zones.filter_map(|zone| Package::at(&zone)).collect();
        if packages.is_empty() {
            let folder = folder.display();
            return Err(format!(
                "no energy is shown: {folder} has no package (RAPL), as in most virtual machines"
            ));
        }
        if let Some(package) = packages.iter().find(|package| package.read().is_none()) {
            let counter = package.counter.display();
            return Err(format!(
                "no energy is shown: {counter} cannot be read; run as root"
            ));
        }
        Ok(Self(packages))
    }

    /// The counters now; none if one cannot be read any more.
    pub fn read(&self) -> Option<Reading> {
        let energies_uj = self.0.iter().map(Package::read).collect::<Option<_>>()?;
        Some(Reading {
            at: Instant::now(),
            energies_uj,
        })
    }

    /// Average power of all packages between two readings.
    pub fn watts(&self, from: &Reading, to: &Reading) -> f64 {
        let used_uj: u64 = (self.0.iter())
            .zip(from.energies_uj.iter().zip(&to.energies_uj))
            .map(|(package, (&from, &to))| package.used_uj(from, to))
            .sum();
        number(used_uj) / 1e6 / to.at.duration_since(from.at).as_secs_f64()
    }
}

impl Package {
    fn at(zone: &Path) -> Option<Self> {
        let range_uj = read_number(&zone.join("max_energy_range_uj"))?;
        let counter = zone.join("energy_uj");
        Some(Self { counter, range_uj })
    }

    fn read(&self) -> Option<u64> {
        read_number(&self.counter)
    }

    fn used_uj(&self, from: u64, to: u64) -> u64 {
        if to >= from {
            return to - from;
        }
        self.range_uj.saturating_sub(from) + to
    }
}

fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn zone(folder: &Path, name: &str, energy_uj: &str) {
        let zone = folder.join(name);
        std::fs::create_dir(&zone).expect("a new folder");
        let write =
            |file: &str, text: &str| std::fs::write(zone.join(file), text).expect("written");
        write(
            "name",
            if name.ends_with(":0:0") {
                "core\n"
            } else {
                "package-0\n"
            },
        );
        write("max_energy_range_uj", "1000000\n");
        write("energy_uj", energy_uj);
    }

    #[test]
    fn packages_are_found_and_parts_of_them_are_not_counted_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        zone(folder.path(), "intel-rapl:0", "5\n");
        zone(folder.path(), "intel-rapl:0:0", "3\n");
        zone(folder.path(), "intel-rapl:1", "7\n");
        let meter = Meter::find_in(folder.path()).expect("two packages");
        let mut energies = meter.read().expect("readable").energies_uj;
        energies.sort_unstable();
        assert_eq!(energies, [5, 7]);
    }

    #[test]
    fn power_is_energy_over_time_even_where_the_counter_begins_again() {
        let package = || Package {
            counter: PathBuf::new(),
            range_uj: 1_000_000,
        };
        let meter = Meter(vec![package(), package()]);
        let at = Instant::now();
        let reading = |seconds, energies_uj: [u64; 2]| Reading {
            at: at + Duration::from_secs(seconds),
            energies_uj: energies_uj.into(),
        };
        let (from, to) = (
            reading(0, [100_000, 900_000]),
            reading(2, [600_000, 400_000]),
        );
        assert_eq!(meter.watts(&from, &to), 0.5);
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let reason = Meter::find_in(folder.path()).err().expect("nothing there");
        assert!(reason.contains("no package"), "{reason}");
        zone(folder.path(), "intel-rapl:0", "");
        let reason = Meter::find_in(folder.path()).err().expect("not readable");
        assert!(reason.contains("run as root"), "{reason}");
    }
}
