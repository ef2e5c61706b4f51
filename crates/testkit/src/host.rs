//! A host for one test: a folder, a monitor, a watchdog, and the programs that run on it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::cast::Cast;
use crate::observe::{Observer, Stats, Witness};
use crate::process::Process;
use crate::program::Program;
use crate::watchdog::Watchdog;
use crate::{End, wait_until};

const LIMIT: Duration = Duration::from_secs(150);

/// The variable that tells the library and the command where the monitor's socket is.
const RUNTIME_DIR: &str = "CROSSLANE_RUNTIME_DIR";

/// How programs reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Natively, over the kernel's TCP.
    Tcp,
    /// Under `crosslane run`.
    Crosslane,
}

/// See the [module](self).
pub struct Host {
    route: Route,
    // Dropped in this order: the watchdog before the folder whose logs it would quote.
    _watchdog: Watchdog,
    monitor: Mutex<Option<Process>>,
    cast: Cast,
    folder: Option<TempDir>,
    /// The network namespace that its programs run in, if not the test's.
    namespace: Option<String>,
    /// What its monitor is told beside the usual.
    monitor_options: Vec<OsString>,
}

impl Host {
    /// A host whose programs reach each other by `route`, with a monitor if it is Crosslane, and
    /// two and a half minutes to live.
    pub fn new(route: Route) -> Self {
        let host = Self::without_monitor(route);
        if route == Route::Crosslane {
            host.start_monitor();
        }
        host
    }

    /// The same without a monitor, for tests of what happens then.
    pub fn without_monitor(route: Route) -> Self {
        // Below the system's folder, as the name of a socket may have 107 bytes only.
        let folder = tempfile::Builder::new().prefix("crosslane-test-").tempdir();
        let cast = Cast::default();
        Self {
            route,
            _watchdog: Watchdog::watch(cast.clone(), LIMIT),
            monitor: Mutex::new(None),
            cast,
            folder: Some(folder.expect("the system's folder for temporary files is writable")),
            namespace: None,
            monitor_options: Vec::new(),
        }
    }

    /// The same with all programs in this network namespace, of those that ip-netns(8) names.
    #[must_use]
    pub fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// The same with an option for monitors that are started from now on.
    #[must_use]
    pub fn with_monitor_option(mut self, option: &str, value: impl AsRef<OsStr>) -> Self {
        self.monitor_options
            .extend([option.into(), value.as_ref().to_owned()]);
        self
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// How its programs reach each other.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Where its programs log and work.
    pub fn folder(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("the folder lives as long as the host")
            .path()
    }

    /// A file in its folder with these bytes.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder().join(name);
        std::fs::write(&path, bytes).expect("a file in the test's own folder can be written");
        path
    }

    /// A program that will run along the host's route.
    pub fn program(&self, path: impl AsRef<Path>) -> Program<'_> {
        Program::new(self, path.as_ref(), self.route)
    }

    /// A program that will run natively whatever the route.
    pub fn plain(&self, path: impl AsRef<Path>) -> Program<'_> {
        Program::new(self, path.as_ref(), Route::Tcp)
    }

    /// Start the monitor and wait until its socket is there.
    pub fn start_monitor(&self) {
        let socket = self.folder().join("monitor.sock");
        // One that was killed has left its socket behind.
        let _ = std::fs::remove_file(&socket);
        let monitor = self
            .plain(crate::binary("crosslane"))
            .arg("monitor")
            .arg("--runtime-dir")
            .arg(self.folder())
            .args(&self.monitor_options)
            .start();
        wait_until("the monitor's socket", || {
            monitor.assert_running();
            socket.exists().then_some(())
        });
        *self.monitor.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitor);
    }

    /// Kill the monitor with -9.
    pub fn kill_monitor(&self) {
        let monitor = self
            .monitor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        monitor.expect("the monitor runs").kill();
    }

    /// Have the monitor stand still until [`Self::resume_monitor`].
    pub fn pause_monitor(&self) {
        self.signal_monitor(Signal::STOP);
    }

    /// Let it go on.
    pub fn resume_monitor(&self) {
        self.signal_monitor(Signal::CONT);
    }

    /// Send a signal to the monitor.
    pub fn signal_monitor(&self, signal: Signal) {
        let monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.as_ref().expect("the monitor runs").signal(signal);
    }

    /// What the monitor has logged so far.
    pub fn monitor_log(&self) -> String {
        let monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.as_ref().expect("the monitor runs").log()
    }

    /// All connection ends of the host's programs, as `crosslane ss` tells.
    pub fn ends(&self) -> Vec<End> {
        self.observer().ends().expect("crosslane ss answers")
    }

    /// What `crosslane stats` counts.
    pub fn stats(&self) -> Stats {
        self.observer().stats().expect("crosslane stats answers")
    }

    /// Watch the connections to and from `port` from now on.
    pub fn witness(&self, port: u16) -> Witness {
        match self.route {
            Route::Tcp => Witness::idle(),
            Route::Crosslane => Witness::begin(self.observer(), port),
        }
    }

    pub(crate) fn cast(&self) -> &Cast {
        &self.cast
    }

    pub(crate) fn runtime_dir(&self) -> (&'static str, &Path) {
        (RUNTIME_DIR, self.folder())
    }

    fn observer(&self) -> Observer {
        Observer::new(self.runtime_dir())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let folder = self.folder.take().map(TempDir::keep).unwrap_or_default();
            eprintln!(
                "the logs are kept in {}\n{}",
                folder.display(),
                self.cast.tails()
            );
        }
        self.cast.kill();
    }
}
