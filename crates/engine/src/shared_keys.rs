//! Keys that requests take along to other cores.

use std::sync::Arc;

use crate::{EngineKey, KeyId};

/// Keys of one part of the table.
const PART: usize = 64;

/// Keys by number, as they are at one time.
///
/// A clone keeps them while the original changes: what a change needs is copied then, one part of the table.
/// Keys are freed, and with that wiped, when no clone has them any more.
#[derive(Clone, Debug, Default)]
pub struct SharedKeys(Arc<Vec<Arc<Part>>>);

#[derive(Clone, Debug)]
struct Part([Option<EngineKey>; PART]);

impl SharedKeys {
    /// Keeps `key` under `id`, in place of one that was there; `None` keeps nothing there.
    pub fn put(&mut self, id: KeyId, key: Option<EngineKey>) {
        let (part, at) = (id.0 as usize / PART, id.0 as usize % PART);
        if key.is_none() && self.get(id).is_none() {
            return;
        }
        let parts = Arc::make_mut(&mut self.0);
        if parts.len() <= part {
            parts.resize_with(part + 1, || Arc::new(Part([const { None }; PART])));
        }
        if let Some(place) = parts.get_mut(part).and_then(|part| Arc::make_mut(part).0.get_mut(at))
        {
            *place = key;
        }
    }

    /// The key under `id`.
    #[inline]
    #[must_use]
    pub fn get(&self, id: KeyId) -> Option<&EngineKey> {
        let (part, at) = (id.0 as usize / PART, id.0 as usize % PART);
        self.0.get(part)?.0.get(at)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_crypto::{Cpu, KeyMaterial, SealKey, SecretBytes};

    fn key() -> (Arc<SealKey>, EngineKey) {
        let material = KeyMaterial {
            cipher: SecretBytes::copy_from(&[1; 16]),
            integrity: SecretBytes::copy_from(&[]),
        };
        let suite: convoy_crypto::Suite = "aes-128-gcm-16".parse().unwrap();
        let key = Arc::new(SealKey::new(&Cpu::detect().unwrap(), suite, material).unwrap());
        (Arc::clone(&key), EngineKey::Seal(key))
    }

    fn is(found: Option<&EngineKey>, wanted: &Arc<SealKey>) -> bool {
        matches!(found, Some(EngineKey::Seal(key)) if Arc::ptr_eq(key, wanted))
    }

    #[test]
    fn a_clone_keeps_the_keys_it_was_made_with_and_the_last_one_frees_them() {
        let (old, old_key) = key();
        let (new, new_key) = key();
        let mut keys = SharedKeys::default();
        assert!(keys.get(KeyId(200)).is_none());
        keys.put(KeyId(200), Some(old_key));
        let before = keys.clone();
        keys.put(KeyId(200), Some(new_key.clone()));
        keys.put(KeyId(3), Some(new_key));
        assert!(is(before.get(KeyId(200)), &old) && before.get(KeyId(3)).is_none());
        assert!(is(keys.get(KeyId(200)), &new) && is(keys.get(KeyId(3)), &new));
        drop(before);
        assert_eq!(Arc::strong_count(&old), 1);
        keys.put(KeyId(200), None);
        keys.put(KeyId(3), None);
        keys.put(KeyId(100_000), None);
        assert!(keys.get(KeyId(200)).is_none() && keys.get(KeyId(100_000)).is_none());
        assert_eq!(Arc::strong_count(&new), 1);
    }
}
