//! A map by key for a page's few counters: a vector, since a tree costs a browser more to load
//! (about 10 KB gzipped) than it could ever save it in looking up.

use crate::key::Key;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Maps keys to values, in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyed<V>(Vec<(Key, V)>);

impl<V> Default for Keyed<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> Keyed<V> {
    /// The value of a key.
    pub fn get(&self, key: &Key) -> Option<&V> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The value of a key, to change it.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Whether the key has a value.
    pub fn contains_key(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: &Key, value: V) {
        match self.get_mut(key) {
            Some(known) => *known = value,
            None => self.0.push((key.clone(), value)),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &Key) {
        self.0.retain(|(known, _)| known != key);
    }

    /// Keeps only what `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(&Key, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// All keys with their values, to change these.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key, made where there is none.
    pub fn or_default(&mut self, key: &Key) -> &mut V
    where
        V: Default,
    {
        let at = self.0.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            self.0.push((key.clone(), V::default()));
            self.0.len().saturating_sub(1)
        });
        // `at` is the place that was found or just made.
        #[expect(clippy::indexing_slicing)]
        &mut self.0[at].1
    }
}

impl<V> IntoIterator for Keyed<V> {
    type Item = (Key, V);
    type IntoIter = alloc::vec::IntoIter<(Key, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
