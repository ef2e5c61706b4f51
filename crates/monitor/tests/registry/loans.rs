//! Ends whose sockets go to other processes.

use crosslane_ctl::message::{Loan, MonitorMessage};
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::FOREIGN_SLABS;
use crosslane_monitor::registry::{Beside, ClientId, FamilyId, Violation};

use crate::support::{Bench, socket};

/// A pair with rings; the first one's end has token 1 and cookie 10.
fn pair(bench: &mut Bench) -> (ClientId, ClientId) {
    let (a, b) = (bench.member(FamilyId(1)), bench.member(FamilyId(2)));
    bench.register(a, 1, socket(0, 0, 10));
    bench.register(b, 2, socket(0, 1, 11));
    assert_eq!(bench.grants().len(), 2);
    (a, b)
}

fn adopt(bench: &mut Bench, client: ClientId, token: u64) -> Option<Loan> {
    let socket = socket(0, 0, 10);
    bench.registry.adopt(client, token, Ok(socket)).unwrap();
    let said = bench.said();
    assert!(said.iter().all(|(to, _)| *to == client));
    match said.as_slice() {
        [
            (_, MonitorMessage::Lent(loan)),
            (_, MonitorMessage::Grant(grant)),
        ] => {
            assert_eq!((loan.token, grant.token), (token, token));
            assert_eq!((grant.slot, grant.role), (0, 0));
            Some(*loan)
        }
        [(_, MonitorMessage::Refused { reason, .. })] => {
            assert_eq!(*reason, Reason::Passed as u32);
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_lent_is_adopted_once() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let (c, d) = (bench.process(), bench.process());
    assert_eq!(adopt(&mut bench, c, 5), None, "nothing is lent");
    assert!(bench.registry.lend(a, 1, 7, true));
    assert_eq!(bench.said(), [(a, MonitorMessage::Lendable { token: 1 })]);
    let loan = adopt(&mut bench, c, 6).unwrap();
    assert_eq!((loan.original, loan.member), (1, 7));
    assert_eq!(adopt(&mut bench, d, 5), None, "it is taken");
}

#[test]
fn the_slab_goes_along_with_the_first_loan_only() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let c = bench.process();
    for (token, member) in [(5, 7), (6, 8)] {
        bench.registry.lend(a, 1, member, true);
        bench.said();
        let socket = socket(0, 0, 10);
        bench.registry.adopt(c, token, Ok(socket)).unwrap();
        let actions = bench.registry.take_actions();
        let slab = (token == 5).then_some(Beside::Slab(FamilyId(1)));
        assert_eq!(actions[0].beside, slab);
    }
}

/// It could not map it.
#[test]
fn who_has_ends_in_as_many_slabs_as_it_may_is_lent_none_in_another() {
    let mut bench = Bench::new();
    let c = bench.process();
    let lenders: Vec<_> = (0..=FOREIGN_SLABS).map(|_| bench.process()).collect();
    let mut adopted = Vec::new();
    for (number, lender) in (0..).zip(&lenders) {
        let socket = socket(number, 0, 20 + u64::from(number));
        bench.register(*lender, 1, socket);
        assert!(bench.registry.lend(*lender, 1, 7, false));
        bench.said();
        let token = u64::from(number);
        bench.registry.adopt(c, token, Ok(socket)).unwrap();
        adopted.push(matches!(bench.said()[0].1, MonitorMessage::Lent(_)));
    }
    assert_eq!(adopted.pop(), Some(false));
    assert_eq!(adopted, [true; FOREIGN_SLABS]);
    let last = u16::try_from(FOREIGN_SLABS).unwrap();
    let d = bench.process();
    let socket = socket(last, 0, 20 + u64::from(last));
    bench.registry.adopt(d, 1, Ok(socket)).unwrap();
    let first = bench.said().swap_remove(0).1;
    assert!(matches!(first, MonitorMessage::Lent(_)), "it is there yet");
}

#[test]
fn a_loan_outlives_its_lender_and_its_slot_too() {
    let mut bench = Bench::new();
    let (a, b) = pair(&mut bench);
    bench.registry.lend(a, 1, 7, true);
    bench.registry.gone(a);
    bench.registry.release(b, 2, 0);
    assert_eq!(bench.registry.arenas().slots_in_use(), 1);
    bench.said();
    let c = bench.process();
    assert!(bench.registry.is_lender(FamilyId(1)));
    assert!(adopt(&mut bench, c, 5).is_some());
    assert_eq!(bench.registry.arenas().slots_in_use(), 1);
    bench.registry.release(c, 5, 0);
    assert_eq!(bench.registry.arenas().slots_in_use(), 0);
    assert!(!bench.registry.is_lender(FamilyId(1)));
    bench.registry.gone(b);
    bench.registry.gone(c);
    assert!(bench.registry.is_empty());
}

#[test]
fn lender_and_adopter_both_hold_the_side() {
    for lender_first in [true, false] {
        let mut bench = Bench::new();
        let (a, b) = pair(&mut bench);
        let c = bench.process();
        bench.registry.lend(a, 1, 7, true);
        bench.said();
        adopt(&mut bench, c, 5).unwrap();
        bench.registry.release(b, 2, 0);
        let (first, second) = if lender_first {
            ((a, 1), (c, 5))
        } else {
            ((c, 5), (a, 1))
        };
        bench.registry.release(first.0, first.1, 0);
        assert_eq!(bench.registry.arenas().slots_in_use(), 1);
        bench.registry.release(second.0, second.1, 0);
        assert_eq!(bench.registry.arenas().slots_in_use(), 0);
    }
}

#[test]
fn an_adopter_may_lend_in_turn() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let (c, d) = (bench.process(), bench.process());
    bench.registry.lend(a, 1, 7, true);
    bench.said();
    adopt(&mut bench, c, 5).unwrap();
    assert!(bench.registry.lend(c, 5, 8, true));
    bench.said();
    bench.registry.gone(c);
    let loan = adopt(&mut bench, d, 6).unwrap();
    assert_eq!(
        (loan.original, loan.member),
        (1, 8),
        "the cursors are where they were"
    );
}

#[test]
fn a_child_lends_what_its_parent_has_closed() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let lease = bench.registry.lease(a).unwrap().unwrap();
    bench.registry.release(a, 1, 0);
    let child = bench.member(FamilyId(1));
    assert!(bench.registry.lend(child, 1, 7, true));
    assert!(bench.registry.lend(child, 1, 8, true));
    bench.said();
    bench.registry.lease_ended(lease);
    let (c, d) = (bench.process(), bench.process());
    assert!(adopt(&mut bench, c, 5).is_some());
    assert!(adopt(&mut bench, d, 5).is_some());
    assert!(
        !bench.registry.lend(child, 1, 9, true),
        "it is not parked any more"
    );
}

#[test]
fn nobody_else_s_user_adopts() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let stranger = ClientId(999);
    bench.registry.hello(stranger, FamilyId(77), 2);
    bench.registry.lend(a, 1, 7, true);
    bench.said();
    assert_eq!(adopt(&mut bench, stranger, 5), None);
    bench.registry.gone(a);
    bench.said();
    assert_eq!(adopt(&mut bench, stranger, 5), None);
}

#[test]
fn what_is_taken_back_is_not_adopted() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let c = bench.process();
    for member in [7, 8] {
        bench.registry.lend(a, 1, member, true);
    }
    bench.said();
    bench.registry.take_back(a, 1, 8);
    bench.registry.take_back(c, 1, 7);
    assert_eq!(adopt(&mut bench, c, 5).map(|loan| loan.member), Some(7));
    bench.registry.lend(a, 1, 9, true);
    bench.registry.take_back(a, 1, 9);
    bench.said();
    assert_eq!(adopt(&mut bench, c, 6), None);
}

#[test]
fn another_socket_of_the_same_names_is_not_the_lent_one() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let c = bench.process();
    bench.registry.lend(a, 1, 7, true);
    bench.said();
    bench.registry.adopt(c, 5, Ok(socket(0, 0, 12))).unwrap();
    assert!(matches!(
        bench.said().as_slice(),
        [(_, MonitorMessage::Refused { .. })]
    ));
}

#[test]
fn a_loan_that_nobody_wants_is_given_up() {
    let mut bench = Bench::new();
    let (a, b) = pair(&mut bench);
    bench.registry.lend(a, 1, 7, true);
    bench.registry.gone(a);
    bench.registry.gone(b);
    bench.registry.age_loans();
    assert_eq!(bench.registry.arenas().slots_in_use(), 1);
    bench.registry.age_loans();
    bench.registry.age_loans();
    assert_eq!(bench.registry.arenas().slots_in_use(), 0);
    assert!(bench.registry.is_empty());
}

#[test]
fn a_token_in_use_is_a_violation() {
    let mut bench = Bench::new();
    let (a, _) = pair(&mut bench);
    let socket = socket(0, 0, 10);
    assert_eq!(
        bench.registry.adopt(a, 1, Ok(socket)),
        Err(Violation::TokenInUse(1))
    );
}

#[test]
fn rings_that_are_not_there_and_too_many_loans_are_not_lent() {
    let mut bench = Bench::new();
    let a = bench.process();
    bench.register(a, 1, socket(0, 0, 10));
    bench.said();
    assert!(!bench.registry.lend(a, 1, 7, true));
    assert!(!bench.registry.lend(a, 2, 7, true), "no such end");
    let refused = |(_, message): &(_, _)| matches!(message, MonitorMessage::Refused { .. });
    assert!(bench.said().iter().all(refused));
    let b = bench.process();
    bench.register(b, 2, socket(0, 1, 11));
    for member in 1..=16 {
        assert!(bench.registry.lend(a, 1, member, true));
    }
    assert!(!bench.registry.lend(a, 1, 17, true));
}

/// Adopt the socket of an end that is lent without rings.
fn adopt_without_rings(bench: &mut Bench, client: ClientId, token: u64) -> Loan {
    let socket = socket(0, 0, 10);
    bench.registry.adopt(client, token, Ok(socket)).unwrap();
    let said = bench.said();
    let [
        (_, MonitorMessage::Lent(loan)),
        (_, MonitorMessage::Registered { token: told }),
    ] = said.as_slice()
    else {
        panic!("{said:?}")
    };
    assert_eq!(*told, token);
    *loan
}

#[test]
fn an_end_without_rings_is_lent_and_its_adopter_finds_the_partner() {
    for lender_goes in [true, false] {
        let mut bench = Bench::new();
        let a = bench.process();
        bench.register(a, 1, socket(0, 0, 10));
        assert!(bench.registry.lend(a, 1, 7, false));
        bench.said();
        if lender_goes {
            bench.registry.gone(a);
        }
        let (b, c) = (bench.process(), bench.process());
        assert_eq!(adopt_without_rings(&mut bench, c, 5).member, 7);
        bench.register(c, 5, socket(0, 0, 10));
        assert_eq!(bench.said(), [(c, MonitorMessage::Registered { token: 5 })]);
        bench.register(b, 2, socket(0, 1, 11));
        let to: Vec<ClientId> = bench.grants().iter().map(|grant| grant.0).collect();
        assert_eq!(to, [c, b]);
        for client in [a, b, c] {
            bench.registry.gone(client);
        }
        assert!(bench.registry.is_empty());
    }
}

#[test]
fn rings_that_came_too_late_do_not_go_along() {
    let mut bench = Bench::new();
    let a = bench.process();
    let (b, c) = (bench.process(), bench.process());
    bench.register(a, 1, socket(0, 0, 10));
    assert!(bench.registry.lend(a, 1, 7, false));
    bench.register(b, 2, socket(0, 1, 11));
    bench.registry.release(a, 1, 0);
    bench.said();
    adopt_without_rings(&mut bench, c, 5);
    bench.register(c, 5, socket(0, 0, 10));
    let to: Vec<ClientId> = bench.grants().iter().map(|grant| grant.0).collect();
    assert_eq!(to, [b, c], "the partner gets new ones");
}

#[test]
fn a_lender_is_looked_for_again_when_its_adopter_is_gone() {
    let mut bench = Bench::new();
    let [a, b, c] = std::array::from_fn(|_| bench.process());
    bench.register(a, 1, socket(0, 0, 10));
    bench.registry.lend(a, 1, 7, false);
    bench.said();
    adopt_without_rings(&mut bench, c, 5);
    bench.register(c, 5, socket(0, 0, 10));
    bench.registry.gone(c);
    bench.register(a, 1, socket(0, 0, 10));
    bench.register(b, 2, socket(0, 1, 11));
    let to: Vec<ClientId> = bench.grants().iter().map(|grant| grant.0).collect();
    assert_eq!(to, [a, b]);
}
