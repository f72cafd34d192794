//! What only a development server has: counts of platform operations, by isolate.

use std::cell::Cell;

/// An operation of the platform that is billed or limited.
#[derive(Clone, Copy)]
pub enum Op {
    /// A request to the Worker.
    Request,
    /// A request to a Pop.
    PopCall,
    /// A request to a Hub.
    HubCall,
    /// A turn of an object, with its one commit.
    Turn,
    /// A row written.
    RowWritten,
    /// An alarm set.
    AlarmSet,
    /// An alarm that rang.
    AlarmRang,
}

const NAMES: [&str; 7] =
    ["requests", "pop_calls", "hub_calls", "turns", "rows_written", "alarms_set", "alarms_rang"];

thread_local! {
    static OPS: [Cell<u64>; NAMES.len()] = const { [const { Cell::new(0) }; NAMES.len()] };
}

impl Op {
    /// Counts it.
    pub fn count(self, more: u64) {
        OPS.with(|ops| {
            if let Some(op) = ops.get(self as usize) {
                op.set(op.get().saturating_add(more));
            }
        });
    }
}

/// All operations of this isolate so far, by name.
pub fn ops() -> serde_json::Value {
    let pair = |(name, op): (&&str, &Cell<u64>)| ((*name).to_owned(), op.get().into());
    OPS.with(|ops| NAMES.iter().zip(ops).map(pair).collect::<serde_json::Map<_, _>>().into())
}
