//! Keys by their numbers.

use crate::KeyId;

/// Values that an engine keeps under the numbers of its keys.
#[derive(Debug)]
pub struct KeyTable<T>(Vec<Option<T>>);

impl<T> KeyTable<T> {
    /// A table without keys.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Keeps `key` under `id`, in place of one that was there; `None` keeps nothing there.
    pub fn put(&mut self, id: KeyId, key: Option<T>) {
        let at = id.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = key;
        }
    }

    /// Takes the key under `id` out.
    pub fn remove(&mut self, id: KeyId) -> Option<T> {
        self.0.get_mut(id.0 as usize).and_then(Option::take)
    }

    /// The key under `id`.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, id: KeyId) -> Option<&T> {
        self.0.get(id.0 as usize)?.as_ref()
    }

    /// One more than the highest number that ever had a key.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no number had a key since the table was made or cleared.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T> Default for KeyTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_unknown_ones_have_nothing() {
        let mut table = KeyTable::new();
        assert!(
            table.is_empty() && table.get(KeyId(3)).is_none() && table.remove(KeyId(3)).is_none()
        );
        table.put(KeyId(3), Some("old"));
        table.put(KeyId(3), Some("new"));
        assert_eq!(
            (table.len(), table.get(KeyId(3)), table.get(KeyId(2))),
            (4, Some(&"new"), None)
        );
        assert_eq!((table.remove(KeyId(3)), table.get(KeyId(3))), (Some("new"), None));
        table.put(KeyId(0), Some("other"));
        table.clear();
        assert!(table.get(KeyId(0)).is_none());
    }
}
