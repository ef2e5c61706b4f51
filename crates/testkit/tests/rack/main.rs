//! Two hosts on one machine, as [`crosslane_testkit::rack`] makes them.

mod bridge;
mod counters;
mod crash;
mod dax;
mod endings;
mod handed_on;
mod huge;
mod limits;
mod losses;
mod monitors;
mod pauses;
mod posted;
mod programs;
mod puppets;
mod reads;
mod reload;
mod sandbox;
mod stalls;
mod talk;
