//! Each broken order must be found by the schedules, and again by the seed that has found it.

use super::host::Wrong;
use super::run::{Failure, Run};
use super::wire::Fault;

/// Seeds within which it must be found.
const SEEDS: u64 = 200;

fn find(fault: Fault) -> Failure {
    let found = (0..SEEDS).find_map(|seed| Run::play(seed, fault).err());
    let found = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
    println!("{fault:?}: {found}");
    let again = Run::play(found.seed, fault).expect_err("it was found before");
    assert_eq!(again, found, "a seed repeats itself");
    found
}

macro_rules! found {
    ($($name:ident: $fault:ident,)*) => {
        $(#[test]
        fn $name() {
            find(Fault::$fault);
        })*
    };
}

found! {
    a_header_before_its_payload_is_found: HeaderFirst,
    a_header_that_no_fence_holds_back_is_found: HeaderUnfenced,
    a_window_that_keeps_no_order_is_found: Unordered,
    totals_that_are_not_told_are_found: NoTotal,
    credit_that_is_lost_is_found: CreditLost,
    a_receiver_that_returns_no_credit_is_found: NoCredit,
}

#[test]
fn a_doorbell_before_its_start_is_found() {
    let found = find(Fault::BellBeforeFound);
    assert!(matches!(found.wrong, Wrong::Byte(_)), "{found}");
}

/// Who rests goes back when the peer has heard so.
#[test]
fn requests_that_are_not_echoed_are_found_by_who_stays_on_tcp() {
    let entered = |fault| -> u64 {
        let told = (0..3).map(|seed| Run::play(seed, fault).expect("no byte is lost"));
        told.map(|told| told.starts).sum()
    };
    let (echoed, not_echoed) = (entered(Fault::None), entered(Fault::NoEcho));
    println!("{echoed} directions entered their lane; without echoes, {not_echoed}");
    assert!(not_echoed < echoed / 4);
}

#[test]
fn requests_that_are_lost_are_found() {
    let found = find(Fault::RequestLost);
    assert!(matches!(found.wrong, Wrong::Asleep), "{found}");
}

#[test]
fn a_thread_that_does_not_look_is_found() {
    let found = find(Fault::NoThread);
    assert!(matches!(found.wrong, Wrong::Asleep), "{found}");
}
