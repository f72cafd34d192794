//! The session's face to JavaScript. It passes bytes, numbers and BigInts, and decides nothing:
//! time, chance, network and disk are the page's to lend.

use crate::error::Error;
use crate::key::Key;
use crate::session::{Call, Notice, Session};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use js_sys::{Array, BigInt, Uint8Array};
use lol_alloc::{FreeListAllocator, LockedAllocator};
use wasm_bindgen::prelude::{JsError, JsValue, wasm_bindgen};

/// A page allocates little and in one thread: a small allocator saves 3 KB of download.
#[global_allocator]
static ALLOCATOR: LockedAllocator<FreeListAllocator> =
    LockedAllocator::new(FreeListAllocator::new());

/// All that a page has counted. Times are in ms since 1970, `random` is 64 random bits.
#[wasm_bindgen]
pub struct Tally {
    // Behind `&self` only: a call from within a call must not find it taken.
    session: RefCell<Session>,
}

#[wasm_bindgen]
impl Tally {
    /// Begins a page's ledger under a random name.
    #[wasm_bindgen(constructor)]
    pub fn new(id: u64, poll_ms: f64) -> Tally {
        Tally { session: RefCell::new(Session::new(id, poll_ms as u64)) }
    }

    /// Takes over a record of a page that is closed. Throws where it does not read back.
    pub fn adopt(&self, record: &[u8], now_ms: f64) -> Result<(), JsError> {
        self.session.borrow_mut().adopt(record, now_ms as u64).map_err(thrown)
    }

    /// Checks a key, `namespace/name`. Throws where it is not allowed.
    pub fn check(key: &str) -> Result<(), JsError> {
        Key::parse(key).map(|_| ()).map_err(thrown)
    }

    /// Counts one step.
    pub fn add(&self, key: &str, by: i64, now_ms: f64) -> Result<(), JsError> {
        let key = Key::parse(key).map_err(thrown)?;
        self.session.borrow_mut().add(&key, by, now_ms as u64).map_err(thrown)
    }

    /// What a counter shows: `[value, pending, waiting, known]`.
    pub fn view(&self, key: &str) -> Array {
        let Ok(key) = Key::parse(key) else { return Array::new() };
        let view = self.session.borrow().view(&key);
        let known = JsValue::from_bool(view.known);
        Array::of4(&big(view.value), &big(view.pending), &big(view.waiting), &known)
    }

    /// Keeps a counter's reading fresh.
    pub fn watch(&self, key: &str, now_ms: f64) {
        if let Ok(key) = Key::parse(key) {
            self.session.borrow_mut().watch(&key, now_ms as u64);
        }
    }

    /// No longer does.
    pub fn unwatch(&self, key: &str) {
        if let Ok(key) = Key::parse(key) {
            self.session.borrow_mut().unwatch(&key);
        }
    }

    /// Sends what there is without waiting for more.
    pub fn hurry(&self, now_ms: f64) {
        self.session.borrow_mut().hurry(now_ms as u64);
    }

    /// When something is to be done next; undefined when nothing is.
    pub fn wake(&self) -> Option<f64> {
        self.session.borrow().wake_ms().map(|at| at as f64)
    }

    /// The next message, `[path, body]`, if one is due. Store `unsaved` before sending it.
    pub fn outgoing(&self, now_ms: f64, random: u64) -> Option<Array> {
        let outgoing = self.session.borrow_mut().outgoing(now_ms as u64, random)?;
        let path = match outgoing.call {
            Call::Open => "/v1/session",
            Call::Sync => "/v1/sync",
        };
        Some(Array::of2(&path.into(), &bytes(&outgoing.body)))
    }

    /// The server answered.
    pub fn answered(&self, status: u16, body: &[u8], now_ms: f64, random: u64) {
        self.session.borrow_mut().answered(status, body, now_ms as u64, random);
    }

    /// No answer came.
    pub fn failed(&self, now_ms: f64, random: u64) {
        self.session.borrow_mut().failed(now_ms as u64, random);
    }

    /// Whether the last attempt failed.
    pub fn failing(&self) -> bool {
        self.session.borrow().failing()
    }

    /// The records to store, `[id, bytes]`, or to delete, `[id, undefined]`; each once.
    pub fn unsaved(&self) -> Array {
        let records = self.session.borrow_mut().unsaved();
        let pair = |(id, record): (u64, Option<Vec<u8>>)| {
            let record = record.map_or(JsValue::UNDEFINED, |record| bytes(&record));
            JsValue::from(Array::of2(&BigInt::from(id).into(), &record))
        };
        records.into_iter().map(pair).collect()
    }

    /// What the application should hear, `[kind, key, p, n, detail]`; each once.
    pub fn notices(&self) -> Array {
        let show = |notice: Notice| {
            let (kind, key, net, detail) = match notice {
                Notice::Indeterminate(key, net) => ("indeterminate", key, net, String::new()),
                Notice::Refused(key, net, error) => (error.kind.slug(), key, net, error.detail),
            };
            let parts: [JsValue; 5] = [
                kind.into(),
                key.as_str().into(),
                BigInt::from(net.p).into(),
                BigInt::from(net.n).into(),
                detail.into(),
            ];
            JsValue::from(parts.into_iter().collect::<Array>())
        };
        self.session.borrow_mut().notices().into_iter().map(show).collect()
    }
}

fn bytes(bytes: &[u8]) -> JsValue {
    Uint8Array::from(bytes).into()
}

fn big(value: impl Into<BigInt>) -> JsValue {
    value.into().into()
}

fn thrown(error: Error) -> JsError {
    JsError::new(&[error.kind.slug(), ": ", &error.detail].concat())
}

/// The core never panics; should it all the same, the module ends with a trap.
#[cfg(feature = "lean")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
