//! Each broken order, and each lapse of a program, must be found by the schedules; so must a window that
//! breaks PCIe's own order.

use crate::support::programs::{Failure, Lapse};
use crate::support::schedule::{Story, run};
use crate::support::world::Fault;

/// Schedules within which a mutant must be found.
const SCHEDULES: u64 = 20_000;

fn find(fault: Fault, lapse: Lapse) -> Failure {
    let found =
        (0..SCHEDULES).find_map(|seed| run(seed, fault, lapse).err().map(|found| (seed, found)));
    let (seed, found) = found.unwrap_or_else(|| panic!("{fault:?} {lapse:?} was not found"));
    println!("{fault:?} {lapse:?}: seed {seed}: {found:?}");
    found
}

macro_rules! found {
    ($($name:ident: $fault:ident $lapse:ident,)*) => {
        $(#[test]
        fn $name() {
            find(Fault::$fault, Lapse::$lapse);
        })*
    };
}

found! {
    a_header_before_its_payload_is_found: HeaderBeforePayload Nothing,
    a_header_that_no_fence_holds_back_is_found: HeaderUnfenced Nothing,
    a_header_that_stays_in_a_buffer_is_found: HeaderNotPushed Nothing,
    lines_that_are_not_cleared_are_found: NoClear Nothing,
    lines_that_are_cleared_after_their_credit_are_found: ClearAfterCredit Nothing,
    credit_that_no_fence_holds_back_is_found: CreditUnfenced Nothing,
    credit_that_stays_in_a_buffer_is_found: CreditNotPushed Nothing,
    answers_that_overtake_records_are_found: AnswerOvertakes Nothing,
    caches_that_are_not_refreshed_are_found: NoRefresh Nothing,
    a_window_that_breaks_the_order_is_found: UnorderedWire Nothing,
    a_doorbell_that_uses_no_request_up_is_found: None BellKeepsRequest,
}

/// The safety timer makes good for it; doorbells would be in vain.
#[test]
fn requests_that_stay_in_a_buffer_are_found_by_the_timers() {
    let timers = |fault| {
        let stories =
            (0..2_000).map(|seed| run(seed, fault, Lapse::Nothing).expect("no byte is lost"));
        stories.fold((0, 0), |(timers, bells), story: Story| {
            (timers + story.timers, bells + story.bells)
        })
    };
    let ((timers, bells), (more_timers, fewer_bells)) =
        (timers(Fault::None), timers(Fault::RequestNotPushed));
    println!("{timers} timers and {bells} doorbells; not pushed, {more_timers} and {fewer_bells}");
    assert!(more_timers > timers && fewer_bells < bells);
}

#[test]
fn arm_look_sleep_loses_wake_ups() {
    let found = find(Fault::None, Lapse::SleepsUnacknowledged);
    assert!(matches!(found, Failure::LostWakeUp(_)), "{found:?}");
}

#[test]
fn an_acknowledged_sleeper_that_is_not_rung_is_found() {
    let found = find(Fault::None, Lapse::ForgetsBell);
    assert!(matches!(found, Failure::LostWakeUp(_)), "{found:?}");
}
