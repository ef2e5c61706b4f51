//! The operations on a lane that the other tests run too.

#[path = "../lane/support/scatter.rs"]
pub mod scatter;
#[path = "../lane/support/sides.rs"]
#[expect(
    dead_code,
    reason = "the scenarios are smaller than what the sides can do"
)]
pub mod sides;
