//! Posted lanes: random schedules in a simulated world, mutants that they must find, a model, a hostile
//! peer.

mod hostile;
mod model;
mod mutants;
mod schedules;
mod support;

#[path = "../lane/support/memory.rs"]
#[expect(dead_code, reason = "the lane's own tests do more with it")]
mod lane_memory;
