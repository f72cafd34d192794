//! What it means to join two states, and its laws.

/// Joins two states that were reached on different ways.
///
/// The laws (Shapiro et al., "Conflict-free Replicated Data Types", 2011), checked for every
/// implementation in `tests/laws.rs`: commutative, associative, idempotent, and monotone (a join
/// never takes away what was counted).
pub trait Merge {
    /// Joins `other` into `self`.
    fn merge(&mut self, other: &Self);
}
