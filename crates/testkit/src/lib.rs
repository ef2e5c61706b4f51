//! Runs real programs natively and under Crosslane, so that tests can compare the two.
//!
//! A test owns a [`Host`]: a folder, a monitor of its own, and a watchdog. On it, it starts
//! programs along a [`Route`], plain TCP or `crosslane run`; every program leads its own process
//! group, logs into the folder, and ends with the test. [`on_both_routes!`] makes two tests of one
//! function. Over Crosslane a [`Witness`] proves that connections were accelerated while the test
//! ran; a test that only passes because everything stayed on TCP fails.
//!
//! [`rack::Rack`] is two hosts on this machine with a window between them; [`guest::Rack`] two
//! virtual machines.
//!
//! Nothing here sleeps for luck: [`wait_until`] looks for the very thing that is waited for.
//! Failures are panics, as this is for tests only.
#![forbid(unsafe_code)]

mod binaries;
mod cast;
pub mod guest;
mod host;
mod observe;
mod ports;
mod process;
mod program;
pub mod rack;
pub mod redis;
mod sides;
mod skip;
mod wait;
mod watchdog;

pub use binaries::{binary, test_binary};
pub use crosslane_benchkit::End;
pub use host::{Host, Route};
pub use observe::{Stats, Witness};
pub use ports::free_port;
pub use process::{Output, Process};
pub use program::{Program, TALK};
pub use sides::{Sides, Witnesses};
pub use skip::{forgiven, skipped, tell};
pub use wait::{wait_or_tell, wait_until};

/// Whether this test runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes two tests of each named function: `tcp::NAME` and `crosslane::NAME`. The functions take
/// a `&Host`.
#[macro_export]
macro_rules! on_both_routes {
    ($($name:ident),+ $(,)?) => {
        mod tcp {
            $(#[test] fn $name() { super::$name(&$crate::Host::new($crate::Route::Tcp)); })+
        }
        mod crosslane {
            $(#[test] fn $name() { super::$name(&$crate::Host::new($crate::Route::Crosslane)); })+
        }
    };
}

/// Makes four tests of each named function: `tcp::NAME`, `crosslane::NAME`, `two_hosts::NAME`, and `posted::NAME`, where each
/// of two hosts has a memory that the other one only writes. The functions take `&Sides`. Another list of routes than
/// these four stands in brackets first.
#[macro_export]
macro_rules! on_all_routes {
    ([$($route:ident),+] $names:tt) => { $($crate::on_all_routes!(@$route $names);)+ };
    (@tcp ($($name:ident),+ $(,)?)) => {
        mod tcp {
            use $crate::{Route, Sides};
            $(#[test] fn $name() { super::$name(&Sides::on_one_host(Route::Tcp)); })+
        }
    };
    (@crosslane ($($name:ident),+ $(,)?)) => {
        mod crosslane {
            use $crate::{Route, Sides};
            $(#[test] fn $name() { super::$name(&Sides::on_one_host(Route::Crosslane)); })+
        }
    };
    (@two_hosts ($($name:ident),+ $(,)?)) => {
        mod two_hosts {
            use $crate::{Sides, rack};
            $(#[test] fn $name() {
                if rack::can_run() {
                    super::$name(&Sides::on_two_hosts());
                }
            })+
        }
    };
    (@posted ($($name:ident),+ $(,)?)) => {
        mod posted {
            use $crate::{Sides, rack};
            $(#[test] fn $name() {
                if rack::can_run() {
                    super::$name(&Sides::over_posted_writes());
                }
            })+
        }
    };
    ($($name:ident),+ $(,)?) => {
        $crate::on_all_routes!([tcp, crosslane, two_hosts, posted] ($($name),+));
    };
}
