//! Operations on a lane, compared with the reference.
#![no_main]

use crosslane_fuzz::lane::pair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| pair::replay(bytes));
