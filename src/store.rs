//! The one trait behind which a disk stands: rows in tables, written all or none.

use crate::error::Result;
use alloc::vec::Vec;

/// The tables of both kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// What the object knows of itself: its incarnation or lineage, its floor.
    Meta,
    /// A row for every key.
    Keys,
    /// The keys that still have to be told to somebody.
    Dirty,
    /// Pop: what was applied, by session. Ordered by the session's end.
    Sessions,
    /// Hub: answers to idempotent writes. Ordered by day.
    Answers,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 5] =
        [Table::Meta, Table::Keys, Table::Dirty, Table::Sessions, Table::Answers];
}

/// A row to write, or to delete where `value` is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: Table,
    /// The row's id; ids order the rows of a table bytewise.
    pub id: Vec<u8>,
    /// The row's bytes.
    pub value: Option<Vec<u8>>,
}

/// A row that was read: its id and its bytes.
pub type Row = (Vec<u8>, Vec<u8>);

/// A disk that answers at once, as a durable object's SQLite does.
pub trait Store {
    /// Reads one row.
    fn get(&self, table: Table, id: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Reads rows with `from <= id < to` (`to` empty: to the end), in order, `limit` at most.
    fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Row>>;

    /// Writes all rows or, failing, none.
    fn commit(&mut self, writes: &[Write]) -> Result<()>;
}
