//! The laws of joining, for every state that merges (Shapiro et al., 2011): whatever the order and
//! however often, the same state comes out, and nothing that was counted goes.
#![cfg(not(target_arch = "wasm32"))]

use poptally::counter::{Counter, Epoch, Net, Slot, SlotId, Total};
use poptally::error::Kind;
use poptally::key::Place;
use poptally::merge::Merge;
use poptally::wire::encode;
use proptest::prelude::*;

fn merged<T: Merge + Clone>(a: &T, b: &T) -> T {
    let mut joined = a.clone();
    joined.merge(b);
    joined
}

fn net() -> impl Strategy<Value = Net> {
    (0..9u64, 0..9u64).prop_map(|(p, n)| Net { p, n })
}

fn total() -> impl Strategy<Value = Total> {
    (0..9u128, 0..9u128).prop_map(|(p, n)| Total { p, n })
}

fn slot() -> impl Strategy<Value = Slot> {
    (0..3u64, net()).prop_map(|(epoch, net)| Slot { epoch: Epoch(epoch), net })
}

fn id() -> impl Strategy<Value = SlotId> {
    (0..3u16, 0..2u64).prop_map(|(shard, incarnation)| SlotId {
        place: Place::parse(&format!("LHR/{shard}")).unwrap(),
        incarnation,
    })
}

fn counter() -> impl Strategy<Value = Counter> {
    let steps = prop::collection::vec((id(), slot()), 0..8);
    (steps, 0..3u64).prop_map(|(slots, epoch)| {
        let mut counter = Counter::default();
        counter.reset(Epoch(epoch));
        for (id, slot) in slots {
            counter.join(id, &slot);
        }
        counter
    })
}

/// The laws of one type; `reaches(a, b)` says that `b` has all that `a` has.
macro_rules! laws {
    ($name:ident, $any:expr, $reaches:expr) => {
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn merge_is_commutative(a in $any, b in $any) {
                    prop_assert_eq!(merged(&a, &b), merged(&b, &a));
                }

                #[test]
                fn merge_is_associative(a in $any, b in $any, c in $any) {
                    prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
                }

                #[test]
                fn merge_is_idempotent(a in $any, b in $any) {
                    prop_assert_eq!(merged(&a, &a), a.clone());
                    let once = merged(&a, &b);
                    prop_assert_eq!(merged(&once, &b), once);
                }

                #[test]
                fn merge_is_monotone(a in $any, b in $any) {
                    let joined = merged(&a, &b);
                    prop_assert!($reaches(&a, &joined));
                    prop_assert!($reaches(&b, &joined));
                }
            }
        }
    };
}

fn net_reaches(a: &Net, b: &Net) -> bool {
    !a.exceeds(*b)
}

fn slot_reaches(a: &Slot, b: &Slot) -> bool {
    b.epoch > a.epoch || (b.epoch == a.epoch && net_reaches(&a.net, &b.net))
}

fn counter_reaches(a: &Counter, b: &Counter) -> bool {
    let of = |id: &SlotId| b.slots().find(|(known, _)| *known == id).map(|(_, slot)| *slot);
    a.epoch() <= b.epoch()
        && a.slots().all(|(id, slot)| of(id).is_some_and(|b| slot_reaches(slot, &b)))
}

laws!(net, super::net(), net_reaches);
laws!(total, super::total(), |a: &Total, b: &Total| a.p <= b.p && a.n <= b.n);
laws!(slot, super::slot(), slot_reaches);
laws!(counter, super::counter(), counter_reaches);

proptest! {
    #[test]
    fn replicas_that_saw_the_same_slots_are_equal_byte_by_byte(
        slots in prop::collection::vec((id(), slot()), 0..12),
        repeats in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        seed in any::<u64>(),
    ) {
        let mut one = Counter::default();
        for (id, slot) in &slots {
            one.join(*id, slot);
        }
        let mut shuffled = slots.clone();
        if !slots.is_empty() {
            shuffled.extend(repeats.iter().map(|at| slots[at.index(slots.len())]));
        }
        shuffled.sort_by_key(|(id, slot)| {
            poptally::key::hash(format!("{seed} {id} {slot:?}").as_bytes())
        });
        let mut two = Counter::default();
        for (id, slot) in &shuffled {
            two.join(*id, slot);
        }
        prop_assert_eq!(encode(&one).unwrap(), encode(&two).unwrap());
        prop_assert_eq!(one.total(), two.total());
    }
}

#[test]
fn a_step_past_two_to_the_64_is_refused() {
    let full = Net { p: u64::MAX, n: 0 };
    assert_eq!(full.plus(Net::step(1)).unwrap_err().kind, Kind::Overflow);
    assert_eq!(full.plus(Net::step(-1)).unwrap(), Net { p: u64::MAX, n: 1 });
    assert_eq!(Net::step(i64::MIN), Net { p: 0, n: 1 << 63 });
}

#[test]
fn a_counter_of_full_slots_still_has_an_exact_value() {
    let mut counter = Counter::default();
    for shard in 0..3 {
        let id = SlotId { place: Place::parse(&format!("LHR/{shard}")).unwrap(), incarnation: 1 };
        counter.join(id, &Slot { epoch: Epoch(0), net: Net { p: u64::MAX, n: 1 } });
    }
    assert_eq!(counter.total().value(), 3 * (i128::from(u64::MAX) - 1));
}

#[test]
fn a_reset_takes_what_older_epochs_counted_and_nothing_else() {
    let id =
        |shard| SlotId { place: Place::parse(&format!("LHR/{shard}")).unwrap(), incarnation: 1 };
    let slot = |epoch, p| Slot { epoch: Epoch(epoch), net: Net { p, n: 0 } };
    let mut counter = Counter::default();
    counter.join(id(0), &slot(0, 5));
    counter.reset(Epoch(7));
    assert_eq!(counter.total().value(), 0);
    counter.join(id(0), &slot(0, 9));
    counter.join(id(1), &slot(7, 2));
    assert_eq!(counter.total().value(), 2);
    assert_eq!(counter.behind().count(), 1, "LHR/0 has not heard of it");
}
