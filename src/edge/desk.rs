//! Group commit: an object's events wait in a queue, are folded in one turn, and are answered
//! after its one write. A lone event does not wait; beside others it waits for 2 ms at most.

use super::dev::Op;
use crate::error::{Error, Kind, Result};
use crate::limit::QUEUE_MAX;
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wasm_bindgen_futures::spawn_local;
use worker::{Date, Delay, ScheduledTime, Storage};

/// A core object that takes turns.
pub trait Machine: 'static {
    /// What may happen.
    type Event;
    /// What came of it.
    type Answer;
    /// Takes one turn.
    fn turn(
        &mut self,
        now_ms: u64,
        random: u64,
        events: &[Self::Event],
    ) -> Vec<Result<Self::Answer>>;
    /// When the alarm has to ring.
    fn wake_ms(&self, now_ms: u64, random: u64) -> Result<Option<u64>>;
}

type Waiting<M> = (<M as Machine>::Event, oneshot::Sender<Result<<M as Machine>::Answer>>);

/// The queue before a machine, and the machine's alarm.
pub struct Desk<M: Machine> {
    machine: RefCell<M>,
    storage: Storage,
    queue: RefCell<Vec<Waiting<M>>>,
    /// Somebody will take the next turn.
    gathering: Cell<bool>,
    guests: Cell<u32>,
    committed_ms: Cell<u64>,
    /// When the alarm rings: not read yet, or none, or at a time.
    alarm: Cell<Option<Option<u64>>>,
}

/// Counts as long as it lives: who is alone need not gather.
pub struct Guest<'a>(&'a Cell<u32>);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl<M: Machine> Desk<M> {
    /// Puts a desk before a machine.
    pub fn new(machine: M, storage: Storage) -> Rc<Self> {
        Rc::new(Self {
            machine: RefCell::new(machine),
            storage,
            queue: RefCell::default(),
            gathering: Cell::new(false),
            guests: Cell::new(0),
            committed_ms: Cell::new(0),
            alarm: Cell::new(None),
        })
    }

    /// A request is here until the guest is dropped.
    pub fn guest(&self) -> Guest<'_> {
        self.guests.set(self.guests.get().saturating_add(1));
        Guest(&self.guests)
    }

    /// Folds one event; returns when it is on disk.
    pub async fn fold(self: &Rc<Self>, event: M::Event) -> Result<M::Answer> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = self.queue.borrow_mut();
            if queue.len() >= QUEUE_MAX {
                let detail = "too many requests wait for this object; try again in a second";
                return Err(Error::new(Kind::Overloaded, detail));
            }
            queue.push((event, sender));
        }
        if !self.gathering.replace(true) {
            let desk = self.clone();
            // On its own feet: the request that started it may be cut off while others wait.
            spawn_local(async move { desk.commit().await });
        }
        receiver
            .await
            .map_err(|_| Error::new(Kind::Storage, "the object was restarted; try again"))?
    }

    /// Looks at the machine without an event.
    pub fn with<T>(&self, look: impl FnOnce(&mut M) -> T) -> T {
        look(&mut self.machine.borrow_mut())
    }

    async fn commit(&self) {
        self.know_alarm().await;
        // Others that were just answered may still wait for the disk: they count as company.
        let lately = now_ms() < self.committed_ms.get().saturating_add(GATHER_MS);
        if lately || self.guests.get() > 1 {
            Delay::from(Duration::from_millis(GATHER_MS)).await;
        }
        self.gathering.set(false);
        let (events, senders): (Vec<_>, Vec<_>) = self.queue.take().into_iter().unzip();
        Op::Turn.count(1);
        let answers = self.machine.borrow_mut().turn(now_ms(), random(), &events);
        self.committed_ms.set(now_ms());
        // No wait since the write: the rows and their alarm are one write on disk.
        self.arm().await;
        for (sender, answer) in senders.into_iter().zip(answers) {
            // Who has left meanwhile needs no answer.
            let _ = sender.send(answer);
        }
    }

    /// Sets the alarm if it would ring too late.
    pub async fn arm(&self) {
        let now_ms = now_ms();
        // An alarm that should have rung long ago was lost: set it again.
        let armed = self.alarm.get().flatten().filter(|at| now_ms < at.saturating_add(LOST_MS));
        if armed.is_some_and(|at| at <= now_ms.saturating_add(SOON_MS)) {
            return;
        }
        let wish = self.machine.borrow().wake_ms(now_ms, random()).ok().flatten();
        if let Some(at) = wish.filter(|at| armed.is_none_or(|armed| *at < armed)) {
            self.set(at).await;
        }
    }

    /// The alarm rang: sets the next one before anything can go wrong.
    pub async fn rang(&self) {
        Op::AlarmRang.count(1);
        self.alarm.set(Some(None));
        self.arm().await;
    }

    /// The alarm's work is done: no alarm stays that nothing needs.
    pub async fn settle(&self) {
        let armed = self.alarm.get().flatten();
        let wish = self.machine.borrow().wake_ms(now_ms(), random()).ok().flatten();
        match (armed, wish) {
            (Some(_), None) => {
                let _ = self.storage.delete_alarm().await;
                self.alarm.set(Some(None));
            }
            // An alarm that rings a little early does no harm; setting it costs a row.
            (Some(armed), Some(at)) if at <= armed.saturating_add(SOON_MS) => {}
            (_, Some(at)) => self.set(at).await,
            (None, None) => {}
        }
    }

    async fn set(&self, at_ms: u64) {
        Op::AlarmSet.count(1);
        let wait = at_ms.saturating_sub(now_ms()).max(1);
        let at = ScheduledTime::from(Duration::from_millis(wait));
        match self.storage.set_alarm(at).await {
            Ok(()) => self.alarm.set(Some(Some(at_ms))),
            Err(error) => worker::console_error!("alarm: {error}"),
        }
    }

    async fn know_alarm(&self) {
        if self.alarm.get().is_none() {
            let alarm = self.storage.get_alarm().await.ok().flatten();
            self.alarm.set(Some(alarm.and_then(|at| u64::try_from(at).ok())));
        }
    }
}

/// The clock, in ms since 1970. It stands still while code runs.
pub fn now_ms() -> u64 {
    Date::now().as_millis()
}

/// 64 random bits.
pub fn random() -> u64 {
    // The platform's generator cannot fail inside a request.
    getrandom::u64().unwrap_or_else(|_| now_ms())
}

/// How long concurrent events gather for one write, in ms.
const GATHER_MS: u64 = 2;

/// An alarm this near, in ms, is near enough.
const SOON_MS: u64 = 1_000;

/// An alarm this late, in ms, does not come: the platform may be a minute late in a failover.
const LOST_MS: u64 = 120_000;
