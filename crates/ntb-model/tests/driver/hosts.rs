//! Hosts in threads of the test.

use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use crosslane_ntb_model::attach::{Setup, attach};
use crosslane_ntb_model::serve::Model;
use crosslane_window::ntb::bridge::Device;
use crosslane_window::ntb::{Aperture, Bridge, Lent, NtbError, Parts};

/// Bytes of the regions.
pub const REGION: u64 = 1 << 18;
/// What hosts lend unless they say otherwise.
pub const LENT: usize = 1 << 16;
/// Long enough for what is to come.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for what is not.
pub const MOMENT: Duration = Duration::from_millis(100);

const WATCHDOG: Duration = Duration::from_secs(120);

/// The parts of a host's bridge.
pub fn parts(model: &Model, setup: Setup) -> Parts {
    let (ours, theirs) = UnixStream::pair().unwrap();
    model.serve(theirs);
    attach(ours, setup).unwrap()
}

/// Those of a host that lends the usual.
pub fn usual(model: &Model, side: usize) -> Parts {
    parts(model, Setup::of(side, LENT))
}

/// A bridge without a window over it, and what it has to keep.
pub fn bridge(parts: Parts) -> Result<(Bridge, Lent, Aperture), NtbError> {
    let device = Device {
        address: parts.address,
        id: parts.id,
        registers: parts.registers,
        bar: parts.aperture.bar,
        start: parts.aperture.start,
        bytes: parts.aperture.mapping.bytes() as u64,
        doorbell: parts.doorbell,
        link: parts.link,
    };
    Ok((Bridge::open(device)?, parts.lent, parts.aperture))
}

/// Run a test, but not for ever; and no driver may have done what drivers may not.
pub fn watched(test: impl FnOnce(&Model) + Send + 'static) {
    let model = Model::new(REGION);
    let (done, is_done) = mpsc::channel();
    let own = model.clone();
    let thread = std::thread::spawn(move || {
        test(&own);
        // Nobody waits after the watchdog.
        let _ = done.send(());
    });
    let waited = is_done.recv_timeout(WATCHDOG);
    assert!(
        waited != Err(mpsc::RecvTimeoutError::Timeout),
        "still not done after {WATCHDOG:?}"
    );
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    let faults = model.faults();
    assert!(faults.is_empty(), "{faults:?}");
}
