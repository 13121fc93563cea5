//! Memory that may be refused. Rust's own `Box` and `Arc` end the process where there is none; a library in
//! somebody else's program gives an error.

use std::{
    alloc::{Layout, alloc},
    fmt,
    mem::{MaybeUninit, needs_drop},
    ops::{Deref, DerefMut},
    process,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicUsize, Ordering, fence},
};

/// There is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

/// A box with `value` in it. Of a large value a copy is left on the stack, so secrets are written afterwards.
///
/// # Errors
///
/// [`OutOfMemory`]; the value is dropped.
#[inline]
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    const { assert!(size_of::<T>() > 0, "nothing needs no memory") };
    // SAFETY: the layout is not empty.
    let place = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: the place has the type's size and alignment, and nobody else knows it.
    unsafe { place.write(value) };
    // SAFETY: the global allocator gave it for this layout, and it holds a value.
    Ok(unsafe { Box::from_raw(place) })
}

/// A value with several owners, the last of whom drops it: an `Arc` without weak references whose memory may
/// be refused.
pub struct Shared<T>(NonNull<Counted<T>>);

/// The value begins a cache line, so that what is used of it together is there together.
#[repr(C, align(64))]
struct Counted<T> {
    value: T,
    owners: AtomicUsize,
}

// SAFETY: owners only read the value, and whichever thread is last drops it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// A value with one owner.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; the value is dropped.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        let counted = try_box(Counted { value, owners: AtomicUsize::new(1) })?;
        Ok(Self(NonNull::from(Box::leak(counted))))
    }

    /// The value, for its only owner to change.
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // With the last of the other owners, who let go with `Release`.
        if self.counted().owners.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: it is there as long as this owner is; there is no other, and this one is borrowed.
        Some(&mut unsafe { self.0.as_mut() }.value)
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: it is there as long as an owner is; only the sole owner has it changed.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        let owners = self.counted().owners.fetch_add(1, Ordering::Relaxed);
        // So many were leaked; one round more, and the value would be dropped under its owners.
        if owners > isize::MAX.cast_unsigned() {
            process::abort();
        }
        Self(self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        if self.counted().owners.fetch_sub(1, Ordering::Release) == 1 {
            // What others did with the value comes before it is dropped.
            fence(Ordering::Acquire);
            // SAFETY: it came from a box, and the last owner is gone.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A value that begins a cache line, wherever its type may be otherwise.
#[repr(C, align(64))]
pub(crate) struct Lined<T>(pub(crate) T);

/// A value in a box of its own, where it begins a cache line, or one that somebody else holds.
pub(crate) struct Held<T> {
    place: NonNull<T>,
    is_owned: bool,
}

// SAFETY: an owned value goes along; of one that is lent, only a reference does.
unsafe impl<T: Send + Sync> Send for Held<T> {}

// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Held<T> {}

impl<T> Held<T> {
    /// One that somebody else holds.
    ///
    /// # Safety
    ///
    /// The value is there, and nobody writes it, as long as this is.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) unsafe fn lent(value: &T) -> Self {
        Self { place: NonNull::from(value), is_owned: false }
    }

    /// The value, for its owner to change.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if !self.is_owned {
            return None;
        }
        // SAFETY: it came from a box, which nobody else knows of.
        Some(unsafe { self.place.as_mut() })
    }
}

impl<T> From<Box<Lined<T>>> for Held<T> {
    #[inline]
    fn from(value: Box<Lined<T>>) -> Self {
        // The value is at the front.
        Self { place: NonNull::from(Box::leak(value)).cast(), is_owned: true }
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it came from a box, or whoever lent it promised that it is there.
        unsafe { self.place.as_ref() }
    }
}

impl<T> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: it came from such a box.
            drop(unsafe { Box::from_raw(self.place.cast::<Lined<T>>().as_ptr()) });
        }
    }
}

/// Up to `N` values where this is. Its [`push`](Self::push) is always inlined; whether that of an `ArrayVec` is a call depends
/// on what else a crate has, and in the sorting of bursts a call costs as much as a third of a packet.
pub(crate) struct Room<T, const N: usize> {
    places: [MaybeUninit<T>; N],
    used: usize,
}

impl<T, const N: usize> Room<T, N> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        const { assert!(!needs_drop::<T>(), "values are not dropped") };
        Self { places: [const { MaybeUninit::uninit() }; N], used: 0 }
    }

    /// Adds a value; there must be room for it.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        self.places[self.used].write(value);
        self.used += 1;
    }
}

impl<T, const N: usize> Deref for Room<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many were written, and there are no more places.
        unsafe { slice::from_raw_parts(self.places.as_ptr().cast(), self.used) }
    }
}

impl<T, const N: usize> DerefMut for Room<T, N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.places.as_mut_ptr().cast(), self.used) }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn the_last_owner_drops_the_value() {
        let watched = Arc::new(7);
        let mut one = Shared::try_new(Arc::clone(&watched)).unwrap();
        assert!(one.get_mut().is_some());
        let two = one.clone();
        assert!(one.get_mut().is_none());
        assert_eq!((**two, Arc::strong_count(&watched)), (7, 2));
        drop(two);
        assert!(one.get_mut().is_some());
        drop(one);
        assert_eq!(Arc::strong_count(&watched), 1);
    }

    #[test]
    fn owners_of_many_threads_come_and_go() {
        let shared = Shared::try_new([3u64; 4]).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                let mine = shared.clone();
                scope.spawn(move || (0..1000).for_each(|_| assert_eq!(mine.clone()[3], 3)));
            }
        });
        let mut shared = shared;
        assert!(shared.get_mut().is_some());
    }

    #[test]
    fn an_owned_value_is_dropped_and_may_be_changed() {
        let watched = Arc::new(7);
        let mut held = Held::from(Box::new(Lined(Arc::clone(&watched))));
        assert_eq!(std::ptr::from_ref(&*held).addr() % 64, 0);
        assert_eq!((**held, held.get_mut().is_some(), Arc::strong_count(&watched)), (7, true, 2));
        drop(held);
        assert_eq!(Arc::strong_count(&watched), 1);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_lent_value_stays_with_its_holder() {
        let watched = Arc::new(7);
        // SAFETY: it is there until the end.
        let mut held = unsafe { Held::lent(&watched) };
        assert_eq!((**held, held.get_mut().is_none()), (7, true));
        drop(held);
        assert_eq!(Arc::strong_count(&watched), 1);
    }

    #[test]
    fn a_room_holds_what_was_pushed() {
        let (mut a, mut b) = (1, 2);
        let mut room = Room::<Option<&mut i32>, 2>::new();
        assert!(room.is_empty());
        room.push(Some(&mut a));
        room.push(Some(&mut b));
        assert_eq!((room.len(), room[0].take(), room[0].is_none()), (2, Some(&mut 1), true));
        *room[1].take().unwrap() += 5;
        assert_eq!((a, b), (1, 7));
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_full_room_takes_nothing() {
        let mut room = Room::<u8, 1>::new();
        room.push(1);
        room.push(2);
    }

    #[test]
    fn what_no_memory_holds_is_refused() {
        assert_eq!(try_box(5).map(|boxed| *boxed), Ok(5));
        assert_eq!(OutOfMemory.to_string(), "out of memory");
    }
}
