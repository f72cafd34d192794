//! The core's storage on a durable object's SQLite: one table of blobs for each [`Table`].
//!
//! Blobs, since SQL integers pass through JavaScript numbers and lose what is above 2^53.

use super::dev::Op;
use crate::error::{Error, Kind, Result};
use crate::store::{Row, Store, Table, Write};
use wasm_bindgen::prelude::{JsCast, JsValue, wasm_bindgen};
use worker::{SqlStorage, SqlStorageValue, State};

#[wasm_bindgen]
extern "C" {
    /// `ctx.storage`, for the one call that the crate `worker` does not bind.
    type RawStorage;

    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    fn transaction_sync(
        this: &RawStorage,
        closure: &mut dyn FnMut() -> core::result::Result<JsValue, JsValue>,
    ) -> core::result::Result<JsValue, JsValue>;
}

/// The SQLite database of one object.
pub struct Sql {
    sql: SqlStorage,
    raw: RawStorage,
    /// The tables exist. They are made by the first write: who only reads writes nothing.
    ready: bool,
}

impl Sql {
    /// Opens the object's database.
    pub fn new(state: &State) -> Self {
        let storage = state.storage();
        let raw: RawStorage = JsValue::from(storage.as_raw()).unchecked_into();
        let sql = storage.sql();
        let found = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'meta'";
        let ready = sql.exec(found, None).is_ok_and(|cursor| cursor.raw().next().is_some());
        Self { sql, raw, ready }
    }

    fn rows(&self, query: &str, bindings: Vec<SqlStorageValue>) -> Result<Vec<Vec<Vec<u8>>>> {
        let cursor = self.sql.exec(query, bindings).map_err(failed)?;
        cursor.raw().map(|row| row.map_err(failed)?.into_iter().map(blob).collect()).collect()
    }

    fn write(sql: &SqlStorage, write: &Write) -> worker::Result<()> {
        let id = SqlStorageValue::Blob(write.id.clone());
        match &write.value {
            Some(value) => {
                let bindings = vec![id, SqlStorageValue::Blob(value.clone())];
                sql.exec(put(write.table), bindings)?;
            }
            None => {
                sql.exec(delete(write.table), vec![id])?;
            }
        }
        Ok(())
    }
}

impl Store for Sql {
    fn get(&self, table: Table, id: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.ready {
            return Ok(None);
        }
        let rows = self.rows(get(table), vec![SqlStorageValue::Blob(id.to_vec())])?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()))
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Row>> {
        if !self.ready {
            return Ok(Vec::new());
        }
        let limit = SqlStorageValue::Float(limit.min(u32::MAX as usize) as f64);
        let mut bindings = vec![SqlStorageValue::Blob(from.to_vec())];
        let query = if to.is_empty() {
            scan_from(table)
        } else {
            bindings.push(SqlStorageValue::Blob(to.to_vec()));
            scan_to(table)
        };
        bindings.push(limit);
        let pair = |row: Vec<Vec<u8>>| {
            let mut columns = row.into_iter();
            Some((columns.next()?, columns.next()?))
        };
        Ok(self.rows(query, bindings)?.into_iter().filter_map(pair).collect())
    }

    fn commit(&mut self, writes: &[Write]) -> Result<()> {
        let make_tables = !self.ready;
        let sql = &self.sql;
        let mut all = || {
            if make_tables {
                for table in Table::ALL {
                    sql.exec(create(table), None).map_err(JsValue::from)?;
                }
            }
            for write in writes {
                Self::write(sql, write).map_err(JsValue::from)?;
            }
            Ok(JsValue::UNDEFINED)
        };
        self.raw.transaction_sync(&mut all).map_err(|error| failed(error.into()))?;
        self.ready = true;
        Op::RowWritten.count(writes.len() as u64);
        Ok(())
    }
}

/// Makes one statement text for each table, so that the database can keep it prepared.
macro_rules! statement {
    ($name:ident, $before:literal, $after:literal) => {
        fn $name(table: Table) -> &'static str {
            match table {
                Table::Meta => concat!($before, "meta", $after),
                Table::Keys => concat!($before, "keys", $after),
                Table::Dirty => concat!($before, "dirty", $after),
                Table::Sessions => concat!($before, "sessions", $after),
                Table::Answers => concat!($before, "answers", $after),
            }
        }
    };
}

statement!(
    create,
    "CREATE TABLE IF NOT EXISTS ",
    " (id BLOB PRIMARY KEY, row BLOB NOT NULL) STRICT, WITHOUT ROWID"
);
statement!(get, "SELECT row FROM ", " WHERE id = ?");
statement!(scan_from, "SELECT id, row FROM ", " WHERE id >= ? ORDER BY id LIMIT ?");
statement!(scan_to, "SELECT id, row FROM ", " WHERE id >= ? AND id < ? ORDER BY id LIMIT ?");
statement!(put, "INSERT OR REPLACE INTO ", " (id, row) VALUES (?, ?)");
statement!(delete, "DELETE FROM ", " WHERE id = ?");

fn blob(value: SqlStorageValue) -> Result<Vec<u8>> {
    match value {
        SqlStorageValue::Blob(bytes) => Ok(bytes),
        _ => Err(Error::new(Kind::Storage, "a stored row is not a blob")),
    }
}

fn failed(error: worker::Error) -> Error {
    worker::console_error!("storage: {error}");
    Error::new(Kind::Storage, "the storage refused, and nothing was changed; try again")
}
