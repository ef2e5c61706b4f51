//! What the tests of the ring, the fuzz targets and the loom scenarios share: one model of the
//! operations on a lane.
//!
//! [`op`] are the operations, [`reference`] says what they should do, [`sides`] does them on a
//! lane, [`pair`] compares the two. [`memory`] has guard pages around a lane, [`hostile`] writes
//! over it.

pub mod hostile;
pub mod memory;
pub mod op;
pub mod pair;
pub mod reference;
pub mod scatter;
pub mod sides;
