//! Histories of the monitor's registry, compared with the model.
#![no_main]

use crosslane_fuzz::registry::model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| model::replay(bytes));
