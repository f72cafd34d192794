//! The part of one counter that one object owns.

use super::{Epoch, Net};
use crate::key::Place;
use crate::merge::Merge;
use core::cmp::Ordering;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Names a slot: the object that owns it, and the incarnation in which it does.
///
/// The incarnation is drawn at random whenever the object's storage is new or restored, so that
/// new counts never hide under an older, larger slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotId {
    /// The owner.
    pub place: Place,
    /// The owner's incarnation.
    pub incarnation: u64,
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:x}", self.place, self.incarnation)
    }
}

/// What a slot holds. Within an epoch it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The epoch in which it was counted.
    pub epoch: Epoch,
    /// What was counted.
    pub net: Net,
}

impl Merge for Slot {
    /// The higher epoch wins; within one, the larger parts do.
    fn merge(&mut self, other: &Self) {
        match self.epoch.cmp(&other.epoch) {
            Ordering::Less => *self = *other,
            Ordering::Equal => self.net.merge(&other.net),
            Ordering::Greater => {}
        }
    }
}
