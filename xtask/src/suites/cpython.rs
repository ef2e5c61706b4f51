//! CPython's own tests of everything that has to do with sockets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::setup::{PYTHON, PYTHON_TESTS, Program};

use super::floor::Floor;
use super::junit;
use super::side::{Ended, Job};
use super::suite::{Extent, Place, Suite};
use super::verdict::Verdicts;

/// Debian's `libpython3.11-testsuite`, run by the Python that it belongs to.
pub struct Cpython;

const CORE: [&str; 9] = [
    "test_socket",
    "test_select",
    "test_poll",
    "test_epoll",
    "test_selectors",
    "test_socketserver",
    "test_httplib",
    "test_httpservers",
    "test_ftplib",
];
const REST: [&str; 7] = [
    "test_asyncio",
    "test_ssl",
    "test_eintr",
    "test_subprocess",
    "test_multiprocessing_fork",
    "test_multiprocessing_forkserver",
    "test_multiprocessing_spawn",
];

/// It asks for a network, and uses the loopback. Others that ask for one reach for the internet.
const LOOPBACK_ONLY: &str = "test_socketserver";

/// The longest module takes two minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);
/// Before that, Python itself ends the module, with the traceback of what stands still.
const OWN_LIMIT: &str = "570";

impl Suite for Cpython {
    fn name(&self) -> &'static str {
        "cpython"
    }

    fn needs(&self) -> &'static [Program] {
        &[PYTHON, PYTHON_TESTS]
    }

    fn version(&self) -> anyhow::Result<String> {
        let output = Command::new(PYTHON.name).arg("--version").output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(format!("C{}", said.trim()))
    }

    fn parts(&self, _: &Path, extent: Extent) -> anyhow::Result<Vec<String>> {
        let rest = REST.iter().filter(|_| extent == Extent::Whole);
        let parts = CORE.iter().chain(rest);
        Ok(parts.map(|part| (*part).to_owned()).collect())
    }

    fn floors(&self) -> &'static [Floor] {
        const { &[Floor::of_part("test_asyncio", 90)] }
    }

    fn is_patient(&self) -> bool {
        true
    }

    fn uses_unix(&self) -> bool {
        true
    }

    fn job(&self, part: &str, place: &Place) -> anyhow::Result<Job> {
        // Some tests leave files where they run.
        let folder = place.side.join(part);
        std::fs::create_dir_all(&folder)?;
        let fixed = [PYTHON.name, "-m", "test", "-v", "--timeout", OWN_LIMIT];
        let mut words: Vec<OsString> = fixed.map(OsString::from).to_vec();
        if part == LOOPBACK_ONLY {
            words.extend(["-u", "network"].map(OsString::from));
        }
        for exclusion in place.exclusions {
            words.extend(["-i".into(), OsString::from(&exclusion.test)]);
        }
        words.extend(["--junit-xml".into(), results(part, place).into()]);
        words.push(part.into());
        Ok(Job {
            name: part.into(),
            words,
            folder,
            limit: LIMIT,
        })
    }

    fn read(&self, part: &str, place: &Place, _: &Ended) -> anyhow::Result<Verdicts> {
        junit::read(&results(part, place))
    }
}

fn results(part: &str, place: &Place) -> PathBuf {
    place.side.join(format!("{part}.xml"))
}
