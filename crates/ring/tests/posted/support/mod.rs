//! What the tests of posted lanes and their fuzz target share.
//!
//! [`world`] is the checker: two hosts, their write buffers and the wires between them, all by a seed.
//! [`programs`] are a sender and a receiver that use the lane in it, [`schedule`] runs them and says
//! what went wrong. [`hostile`] is a peer that writes over everything.

pub mod dice;
pub mod direct;
pub mod hostile;
pub mod programs;
pub mod schedule;
pub mod world;
