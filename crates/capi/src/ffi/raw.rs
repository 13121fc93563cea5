//! From pointers to references, and from results to numbers.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

use convoy_crypto::{Cpu, KeyError, OutOfMemory, Tier};

use crate::types::{
    AeadKey, CONVOY_ERR_ARGS, CONVOY_ERR_ENVIRONMENT, CONVOY_ERR_FORGED, CONVOY_ERR_INTERNAL,
    CONVOY_ERR_LENGTH, CONVOY_ERR_MEMORY, CONVOY_ERR_NULL, CONVOY_ERR_OVERLAP, CONVOY_ERR_STATE,
    CONVOY_ERR_TIER, CONVOY_MAX_BYTES, CONVOY_OK, CONVOY_TIER_AUTO,
};

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    Null,
    Length,
    Args,
    Overlap,
    Tier,
    Environment,
    Forged,
    State,
    Memory,
    /// What a job's error says.
    Job(c_int),
}

impl Error {
    pub(super) fn code(self) -> c_int {
        match self {
            Self::Job(code) => code,
            Self::Null => CONVOY_ERR_NULL,
            Self::Length => CONVOY_ERR_LENGTH,
            Self::Args => CONVOY_ERR_ARGS,
            Self::Overlap => CONVOY_ERR_OVERLAP,
            Self::Tier => CONVOY_ERR_TIER,
            Self::Environment => CONVOY_ERR_ENVIRONMENT,
            Self::Forged => CONVOY_ERR_FORGED,
            Self::State => CONVOY_ERR_STATE,
            Self::Memory => CONVOY_ERR_MEMORY,
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::Memory
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Length { .. } => Self::Length,
            KeyError::TierUnavailable(_) => Self::Tier,
            KeyError::OutOfMemory => Self::Memory,
            _ => Self::Args,
        }
    }
}

/// Does the work of a function; a panic, which would be a defect, ends here as a number.
pub(super) fn guard(work: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => CONVOY_OK,
        Ok(Err(error)) => error.code(),
        Err(_) => CONVOY_ERR_INTERNAL,
    }
}

pub(super) fn cpu() -> Result<Cpu, Error> {
    Cpu::detect().map_err(|_| Error::Environment)
}

/// The tier of a number of the header.
pub(super) fn tier(cpu: &Cpu, number: c_int) -> Result<Tier, Error> {
    if number == CONVOY_TIER_AUTO {
        return Ok(cpu.best());
    }
    let place = usize::try_from(number.wrapping_sub(1)).map_err(|_| Error::Args)?;
    let tier = Tier::ALL.get(place).copied().ok_or(Error::Args)?;
    if cpu.has(tier) { Ok(tier) } else { Err(Error::Tier) }
}

/// The addresses of some memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    start: usize,
    end: usize,
}

impl Region {
    /// No memory.
    pub(super) const NONE: Self = Self { start: 0, end: 0 };

    /// `len` bytes behind a pointer, which may be null only if there are none.
    #[inline]
    pub(super) fn new<T>(pointer: *const T, len: usize) -> Result<Self, Error> {
        if len > CONVOY_MAX_BYTES {
            return Err(Error::Length);
        }
        if pointer.is_null() && len > 0 {
            return Err(Error::Null);
        }
        let start = pointer.addr();
        let end = start.checked_add(len).ok_or(Error::Length)?;
        Ok(Self { start, end })
    }

    /// The same where it need only be told from others: as far as it goes.
    pub(super) fn near(pointer: *const u8, len: usize) -> Self {
        let start = pointer.addr();
        Self { start, end: start.saturating_add(len) }
    }

    /// The object behind a pointer, which is not null and suitably aligned.
    #[inline]
    pub(super) fn of<T>(pointer: *const T) -> Result<Self, Error> {
        if pointer.is_null() {
            return Err(Error::Null);
        }
        if !pointer.is_aligned() {
            return Err(Error::Args);
        }
        Self::new(pointer, size_of::<T>())
    }

    /// The same for a pointer and a length whose sum is known to be an address.
    #[inline(always)]
    pub(super) fn within_reach<T>(pointer: *const T, len: usize) -> Self {
        let start = pointer.addr();
        Self { start, end: start.wrapping_add(len) }
    }

    /// From the first byte of either to the last.
    #[inline(always)]
    pub(super) fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    #[inline(always)]
    pub(super) fn overlaps(self, other: Self) -> bool {
        // What is empty shares nothing, also when it lies within the other.
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// Whether this one shares no byte with any of the others.
    #[inline]
    pub(super) fn apart(self, others: &[Self]) -> Result<(), Error> {
        // No shortcut: most jobs are good, and nothing here is worth a branch.
        let overlaps = others.iter().fold(false, |any, other| any | self.overlaps(*other));
        if overlaps { Err(Error::Overlap) } else { Ok(()) }
    }
}

/// Bytes to read.
///
/// # Safety
///
/// If not null, `pointer` points to `len` bytes that nobody writes while the slice is used.
#[inline]
pub(super) unsafe fn input<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Error> {
    Region::new(pointer, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the pointer is not null, the length is small, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Bytes to write.
///
/// # Safety
///
/// If not null, `pointer` points to `len` bytes that nobody else reads or writes while the slice is
/// used.
#[inline]
pub(super) unsafe fn output<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Error> {
    Region::new(pointer, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the pointer is not null, the length is small, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
}

/// Where `len` bytes begin, less one: null becomes the highest address, but where there are no bytes. A few of these,
/// combined by "or", tell in one comparison whether all are [`IN_REACH`].
#[inline(always)]
pub(super) fn reach<T>(pointer: *const T, len: usize) -> usize {
    (pointer.addr() | usize::from(len == 0)).wrapping_sub(1)
}

/// Below it no pointer is null, or so near the end of memory that a sum with a length might be wrong.
pub(super) const IN_REACH: usize = isize::MAX.cast_unsigned();

/// Bytes of a whole tag of an AEAD.
pub(super) const TAG_BYTES: usize = 16;

/// Bytes to read, of a caller who answers for pointer and length.
///
/// # Safety
///
/// `pointer` points to `len` bytes that nobody writes while the slice is used; null, too, if there are none.
#[inline(always)]
pub(super) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> &'a [u8] {
    let pointer = if len == 0 { std::ptr::dangling() } else { pointer };
    // SAFETY: the caller's promise; nothing is everywhere.
    unsafe { slice::from_raw_parts(pointer, len) }
}

/// Bytes to write, of a caller who answers for pointer and length.
///
/// # Safety
///
/// `pointer` points to `len` bytes that nobody else reads or writes while the slice is used; null, too, if there
/// are none.
#[inline(always)]
pub(super) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> &'a mut [u8] {
    let pointer = if len == 0 { std::ptr::dangling_mut() } else { pointer };
    // SAFETY: the caller's promise; nothing is everywhere.
    unsafe { slice::from_raw_parts_mut(pointer, len) }
}

/// The key of an AEAD. Keys of other kinds are refused.
///
/// # Safety
///
/// If not null, `pointer` points to a key of any kind that nobody writes while the reference is used.
#[inline(always)]
pub(super) unsafe fn aead_key<'a>(pointer: *const AeadKey) -> Result<&'a AeadKey, Error> {
    if pointer.is_null() {
        return Err(Error::Null);
    }
    if !pointer.is_aligned() {
        return Err(Error::Args);
    }
    let label = pointer.wrapping_byte_add(AeadKey::LABEL_AT).cast::<u64>();
    // SAFETY: the pointer is aligned and not null, and no kind of key is shorter; its words are integers.
    if unsafe { label.read() } != AeadKey::LABEL {
        return Err(Error::Args);
    }
    // SAFETY: as above, and the label says which kind of key it is.
    Ok(unsafe { &*pointer })
}

/// An object to read.
///
/// # Safety
///
/// If not null, `pointer` points to a `T` that nobody writes while the reference is used.
#[inline]
pub(super) unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T, Error> {
    Region::of(pointer)?;
    // SAFETY: the pointer is aligned and not null, and the caller promises the rest.
    Ok(unsafe { &*pointer })
}

/// An object to write.
///
/// # Safety
///
/// If not null, `pointer` points to a `T` that nobody else reads or writes while the reference is
/// used.
#[inline]
pub(super) unsafe fn object_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    Region::of(pointer)?;
    // SAFETY: the pointer is aligned and not null, and the caller promises the rest.
    Ok(unsafe { &mut *pointer })
}

/// Fills memory for an object with zeros.
///
/// # Safety
///
/// If not null, `pointer` points to room for a `T`, which nobody else reads or writes during the call.
pub(super) unsafe fn clear<T>(pointer: *mut T) -> Result<(), Error> {
    Region::of(pointer)?;
    // SAFETY: the pointer is aligned and not null, and the caller promises the rest.
    unsafe { pointer.write_bytes(0, 1) };
    Ok(())
}

/// Memory for an object, filled with zeros first, for C need not have written anything there.
///
/// # Safety
///
/// If not null, `pointer` points to room for a `T`, which zeros are a value of, and which nobody
/// else reads or writes while the reference is used.
pub(super) unsafe fn fresh<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's promise.
    unsafe { clear(pointer) }?;
    // SAFETY: the pointer is aligned and not null, and the caller promises the rest.
    Ok(unsafe { &mut *pointer })
}

/// A place where C keeps a pointer, emptied. It must lie apart from what the call reads, or nothing
/// is written at all: what lies there may be a key.
///
/// # Safety
///
/// If not null, `place` points to a pointer that may be written.
pub(super) unsafe fn place<'a, T>(
    place: *mut *mut T,
    inputs: &[Region],
) -> Result<&'a mut *mut T, Error> {
    let region = Region::of(place)?;
    region.apart(inputs)?;
    // SAFETY: the pointer is aligned and not null, and the caller promises the rest. Writing does
    // not read what was there, which may be nothing yet.
    unsafe { place.write(std::ptr::null_mut()) };
    // SAFETY: as above.
    Ok(unsafe { &mut *place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_touch_do_not_overlap() {
        let bytes = [0u8; 64];
        let part = |from: usize, to: usize| Region::new(&raw const bytes[from], to - from).unwrap();
        assert_eq!(part(0, 16).apart(&[part(16, 32), part(40, 40)]), Ok(()));
        assert_eq!(part(0, 17).apart(&[part(16, 32)]), Err(Error::Overlap));
        assert_eq!(part(20, 21).apart(&[part(32, 40), part(16, 32)]), Err(Error::Overlap));
        assert_eq!(part(20, 20).apart(&[part(20, 20)]), Ok(()), "nothing overlaps nothing");
    }

    #[test]
    fn absurd_memory_is_refused() {
        let null = std::ptr::null::<u8>();
        assert_eq!(Region::new(null, 1).unwrap_err(), Error::Null);
        assert!(Region::new(null, 0).is_ok());
        for len in [CONVOY_MAX_BYTES + 1, usize::MAX / 2, usize::MAX] {
            assert_eq!(Region::new([0u8; 1].as_ptr(), len).unwrap_err(), Error::Length);
        }
        let last = std::ptr::without_provenance::<u8>(usize::MAX - 3);
        assert_eq!(Region::new(last, 100).unwrap_err(), Error::Length);
        let odd = std::ptr::without_provenance::<u64>(12);
        assert_eq!(Region::of(odd).unwrap_err(), Error::Args);
    }

    #[test]
    fn a_panic_becomes_a_number() {
        assert_eq!(guard(|| panic!("a defect")), CONVOY_ERR_INTERNAL);
        assert_eq!(guard(|| Err(Error::Forged)), CONVOY_ERR_FORGED);
        assert_eq!(guard(|| Ok(())), CONVOY_OK);
    }
}
