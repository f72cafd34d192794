//! The CRDTs: a replica's growing part ([`Net`]), the part of one counter that one object owns
//! ([`Slot`]), and the counter that all slots make ([`Counter`]).

mod epoch;
mod net;
mod slot;

pub use epoch::Epoch;
pub use net::{Net, Total};
pub use slot::{Slot, SlotId};

use crate::merge::Merge;
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

/// A PN-Counter with reset (a G-Counter where nothing steps down): a slot for every replica.
///
/// Its value is Σp − Σn over the slots of its epoch. Slots of older epochs stay until their owner
/// has heard of the new one; they count for nothing. After Shapiro et al., "A comprehensive study
/// of Convergent and Commutative Replicated Data Types", 2011, specifications 6 and 7.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    epoch: Epoch,
    slots: BTreeMap<SlotId, Slot>,
}

impl Counter {
    /// The epoch that counts.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Every slot, also those of older epochs.
    pub fn slots(&self) -> impl Iterator<Item = (&SlotId, &Slot)> {
        self.slots.iter()
    }

    /// One slot, when it counts in the present epoch.
    pub fn slot(&self, id: &SlotId) -> Option<&Slot> {
        self.slots.get(id).filter(|slot| slot.epoch == self.epoch)
    }

    /// Joins one slot; returns whether anything changed. A slot of a newer epoch begins it here.
    pub fn join(&mut self, id: SlotId, slot: &Slot) -> bool {
        let before = self.slots.get(&id).copied();
        let epoch = self.epoch;
        self.epoch = self.epoch.max(slot.epoch);
        let mine = self.slots.entry(id).or_insert(*slot);
        mine.merge(slot);
        before != Some(*mine) || epoch != self.epoch
    }

    /// Begins a new epoch: whatever was counted in older ones counts no more.
    pub fn reset(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Σp and Σn over the slots of the epoch.
    pub fn total(&self) -> Total {
        let counted = self.slots.values().filter(|slot| slot.epoch == self.epoch);
        counted.fold(Total::default(), |total, slot| total.plus(&slot.net))
    }

    /// The owners that have not heard of the present epoch.
    pub fn behind(&self) -> impl Iterator<Item = &SlotId> {
        self.slots.iter().filter(|(_, slot)| slot.epoch < self.epoch).map(|(id, _)| id)
    }
}

impl Merge for Counter {
    fn merge(&mut self, other: &Self) {
        self.epoch = self.epoch.max(other.epoch);
        for (id, slot) in &other.slots {
            self.join(*id, slot);
        }
    }
}
