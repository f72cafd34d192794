//! A disk that outlives its object, and may refuse a write.

use poptally::error::{Error, Kind, Result};
use poptally::store::{Row, Store, Table, Write};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub type Image = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

#[derive(Clone, Default)]
pub struct Disk(Rc<Inner>);

#[derive(Default)]
struct Inner {
    image: RefCell<Image>,
    fails: Cell<bool>,
    written: Cell<u64>,
}

impl Disk {
    /// The next commit fails and writes nothing.
    pub fn fail_next(&self) {
        self.0.fails.set(true);
    }

    /// No commit fails any more.
    pub fn work(&self) {
        self.0.fails.set(false);
    }

    pub fn copy(&self) -> Image {
        self.0.image.borrow().clone()
    }

    /// Another disk that holds this image.
    pub fn holding(image: Image) -> Disk {
        let disk = Disk::default();
        disk.0.image.replace(image);
        disk
    }

    /// How many rows were ever written.
    pub fn written(&self) -> u64 {
        self.0.written.get()
    }
}

impl Store for Disk {
    fn get(&self, table: Table, id: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.image.borrow().get(&(table, id.to_vec())).cloned())
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Row>> {
        let image = self.0.image.borrow();
        let rows = image.range((table, from.to_vec())..);
        let within =
            rows.take_while(|((at, id), _)| *at == table && (to.is_empty() || id.as_slice() < to));
        Ok(within.take(limit).map(|((_, id), row)| (id.clone(), row.clone())).collect())
    }

    fn commit(&mut self, writes: &[Write]) -> Result<()> {
        if self.0.fails.take() {
            return Err(Error::new(Kind::Storage, "the disk refused"));
        }
        let mut image = self.0.image.borrow_mut();
        for write in writes {
            let at = (write.table, write.id.clone());
            match &write.value {
                Some(value) => image.insert(at, value.clone()),
                None => image.remove(&at),
            };
        }
        self.0.written.set(self.0.written.get() + writes.len() as u64);
        Ok(())
    }
}
