//! Parameters (`OSSL_PARAM`): read in one pass, checked for type and size, as `OSSL_PARAM_get_*` and
//! `OSSL_PARAM_set_*` do.

use std::{
    ffi::{CStr, c_char, c_uint, c_void},
    marker::PhantomData,
    ptr, slice,
};

/// `OSSL_PARAM`. A list ends with a null key.
#[repr(C)]
pub(super) struct Param {
    key: *const c_char,
    kind: c_uint,
    data: *mut c_void,
    size: usize,
    returned: usize,
}

// SAFETY: what is shared are constants that describe parameters: their data is null, and nobody writes them.
unsafe impl Sync for Param {}

const INTEGER: c_uint = 1;
const UNSIGNED: c_uint = 2;
const OCTETS: c_uint = 5;
const TEXT_POINTER: c_uint = 6;
const OCTET_POINTER: c_uint = 7;

const UNMODIFIED: usize = usize::MAX;

impl Param {
    pub(super) const END: Self = Self::describe_as(ptr::null(), 0, 0);

    const fn describe_as(key: *const c_char, kind: c_uint, size: usize) -> Self {
        Self { key, kind, data: ptr::null_mut(), size, returned: UNMODIFIED }
    }

    /// Describes a `size_t`.
    pub(super) const fn size(key: &'static CStr) -> Self {
        Self::describe_as(key.as_ptr(), UNSIGNED, size_of::<usize>())
    }

    /// Describes an `unsigned int`.
    pub(super) const fn unsigned(key: &'static CStr) -> Self {
        Self::describe_as(key.as_ptr(), UNSIGNED, size_of::<c_uint>())
    }

    /// Describes an `int`, as flags are.
    pub(super) const fn flag(key: &'static CStr) -> Self {
        Self::describe_as(key.as_ptr(), INTEGER, size_of::<c_uint>())
    }

    /// Describes bytes.
    pub(super) const fn octets(key: &'static CStr) -> Self {
        Self::describe_as(key.as_ptr(), OCTETS, 0)
    }

    /// Describes a pointer to a text.
    pub(super) const fn text(key: &'static CStr) -> Self {
        Self::describe_as(key.as_ptr(), TEXT_POINTER, 0)
    }

    /// Asks for a pointer to a text.
    pub(super) fn text_pointer(key: &'static CStr, place: *mut *const c_char) -> Self {
        let mut param = Self::text(key);
        param.data = place.cast();
        param
    }
}

/// A key of at most 15 bytes as a number, its first byte lowest: keys are compared at once then, and read
/// once however many they are compared with.
pub(super) const fn word(key: &CStr) -> u128 {
    let bytes = key.to_bytes();
    assert!(bytes.len() < size_of::<u128>(), "too long a key");
    let (mut word, mut place) = (0, bytes.len());
    while place > 0 {
        place -= 1;
        word = word << 8 | bytes[place] as u128;
    }
    word
}

/// A word that no key of at most 15 bytes has.
const NO_WORD: u128 = u128::MAX;

/// Names keys, to be matched by what [`Given::word`] gives.
macro_rules! keys {
    ($($name:ident = $key:literal;)*) => {
        $(const $name: u128 = $crate::ffi::param::word($key);)*
    };
}
pub(super) use keys;

/// A parameter that libcrypto lets a function read, or fill, during a call.
///
/// Whoever makes one vouches for what the methods rely on: the key ends with 0, and the data is null or
/// as many bytes as the size says, but for sizes that no memory has.
pub(super) struct Given<'a> {
    param: *mut Param,
    life: PhantomData<&'a mut Param>,
}

impl Given<'_> {
    /// The parameter as it stands.
    fn look(&self) -> &Param {
        // SAFETY: the promise by which it was made.
        unsafe { &*self.param }
    }

    pub(super) fn key(&self) -> &[u8] {
        // SAFETY: the promise by which it was made; a key is not null.
        unsafe { CStr::from_ptr(self.look().key) }.to_bytes()
    }

    /// The key as a [`word`].
    #[inline]
    pub(super) fn word(&self) -> u128 {
        let key = self.look().key.cast::<u8>();
        let mut word = 0;
        for place in 0..size_of::<u128>() {
            // SAFETY: the promise by which it was made: the key ends with 0, which was not passed.
            let byte = unsafe { *key.wrapping_add(place) };
            if byte == 0 {
                return word;
            }
            word |= u128::from(byte) << (8 * place);
        }
        NO_WORD
    }

    fn returned(&mut self, size: usize) {
        // SAFETY: the promise by which it was made.
        unsafe { (*self.param).returned = size };
    }

    /// The bytes of a number of whatever size, and whether it is signed.
    fn number_bytes(&self) -> Option<(&[u8], bool)> {
        let param = self.look();
        if !matches!(param.kind, INTEGER | UNSIGNED) || param.data.is_null() {
            return None;
        }
        if param.size > 64 {
            return None;
        }
        // SAFETY: the promise by which it was made.
        let bytes = unsafe { slice::from_raw_parts(param.data.cast::<u8>(), param.size) };
        Some((bytes, param.kind == INTEGER))
    }

    /// A number that fits a `size_t`.
    pub(super) fn number(&self) -> Option<usize> {
        let (bytes, is_signed) = self.number_bytes()?;
        let mut value = [0; size_of::<usize>()];
        let common = bytes.len().min(value.len());
        let (low, high, top) = if cfg!(target_endian = "little") {
            let (low, high) = bytes.split_at(common);
            value[..common].copy_from_slice(low);
            (usize::from_le_bytes(value), high, bytes.last())
        } else {
            let (high, low) = bytes.split_at(bytes.len() - common);
            let at = value.len() - common;
            value[at..].copy_from_slice(low);
            (usize::from_be_bytes(value), high, bytes.first())
        };
        let is_negative = is_signed && top.is_some_and(|byte| byte & 0x80 != 0);
        (high.iter().all(|byte| *byte == 0) && !is_negative).then_some(low)
    }

    /// True if its type is bytes.
    pub(super) fn is_octets(&self) -> bool {
        self.look().kind == OCTETS
    }

    /// Its size, as the other side said it.
    pub(super) fn size(&self) -> usize {
        self.look().size
    }

    pub(super) fn has_data(&self) -> bool {
        !self.look().data.is_null()
    }

    /// Bytes; `None` if the type is another, there are none, or there are more than `most`.
    pub(super) fn octets(&self, most: usize) -> Option<&[u8]> {
        let size = self.look().size;
        if size > most { None } else { self.octets_of(size) }
    }

    /// So many bytes, whatever the size says: a size of -1 stands for as many as the IV has.
    pub(super) fn octets_of(&self, size: usize) -> Option<&[u8]> {
        let param = self.look();
        let is_there = param.kind == OCTETS && !param.data.is_null();
        // SAFETY: the promise by which it was made, or the caller's knowledge of what -1 stands for.
        is_there.then(|| unsafe { slice::from_raw_parts(param.data.cast::<u8>(), size) })
    }

    /// So many bytes to be written, whatever the size says, for those of whom the size speaks of something
    /// else; false if the type is another, there are none, or they overlap with what is read.
    pub(super) fn fill(
        &mut self,
        size: usize,
        read: &[u8],
        work: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let &Param { kind, data, .. } = self.look();
        if kind != OCTETS || data.is_null() || isize::try_from(size).is_err() {
            return false;
        }
        let (to, from) = (data.addr(), read.as_ptr().addr());
        if to < from.saturating_add(read.len()) && from < to.saturating_add(size) {
            return false;
        }
        // SAFETY: who writes more than the size says was told how much that is; nobody else uses the bytes.
        work(unsafe { slice::from_raw_parts_mut(data.cast::<u8>(), size) })
    }

    /// Gives a number; false if the type is none of numbers, or the size too small for the value.
    pub(super) fn put_number(&mut self, value: usize) -> bool {
        let &Param { kind, data, size, .. } = self.look();
        let is_signed = kind == INTEGER;
        if !matches!(kind, INTEGER | UNSIGNED) {
            self.returned(0);
            return false;
        }
        self.returned(size_of::<usize>());
        if data.is_null() {
            return true;
        }
        // What everybody asks with.
        if size == size_of::<usize>() && value <= isize::MAX.cast_unsigned() {
            // SAFETY: the promise by which it was made; the size was looked at.
            unsafe { data.cast::<usize>().write_unaligned(value) };
            self.returned(size);
            return true;
        }
        if size > 64 {
            return false;
        }
        let value = value.to_le_bytes();
        let mut bytes = [0; 64];
        bytes[..value.len()].copy_from_slice(&value);
        let (front, behind) = bytes.split_at(size);
        let has_sign = is_signed && front.last().is_some_and(|byte| byte & 0x80 != 0);
        if has_sign || behind.iter().any(|byte| *byte != 0) {
            return false;
        }
        if cfg!(target_endian = "big") {
            bytes[..size].reverse();
        }
        // SAFETY: the promise by which it was made; the size was looked at.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast::<u8>(), size) };
        self.returned(size);
        true
    }

    /// Gives bytes; false if the type is another, or the size too small. How many there are is told in any
    /// case.
    pub(super) fn put_octets(&mut self, value: &[u8]) -> bool {
        let &Param { kind, data, size, .. } = self.look();
        self.returned(value.len());
        if data.is_null() {
            return true;
        }
        if kind != OCTETS || size < value.len() {
            return false;
        }
        if let Ok(tag) = <[u8; 16]>::try_from(value) {
            // SAFETY: the promise by which it was made; the size was looked at.
            unsafe { data.cast::<[u8; 16]>().write_unaligned(tag) };
            return true;
        }
        // SAFETY: the promise by which it was made; the size was looked at.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), data.cast::<u8>(), value.len()) };
        true
    }

    /// Says that there are as many bytes as were asked for.
    pub(super) fn put_size(&mut self) -> bool {
        self.returned(self.size());
        true
    }

    /// Gives bytes where the size counts for nothing: a generated IV is asked for with a size of 0.
    pub(super) fn put_octets_unsized(&mut self, value: &[u8]) {
        let data = self.look().data;
        if self.is_octets() && !data.is_null() {
            // SAFETY: whoever asks for a generated IV with a size of 0 has room for a whole one.
            unsafe { ptr::copy_nonoverlapping(value.as_ptr(), data.cast::<u8>(), value.len()) };
        }
    }

    /// Gives a pointer to bytes that stay where they are; false if the type is another.
    pub(super) fn put_octet_pointer(&mut self, value: &[u8]) -> bool {
        self.put_pointer(OCTET_POINTER, value.as_ptr(), value.len())
    }

    /// Gives a pointer to a text; false if the type is another.
    pub(super) fn put_text(&mut self, value: &'static CStr) -> bool {
        self.put_pointer(TEXT_POINTER, value.as_ptr().cast(), value.count_bytes())
    }

    fn put_pointer(&mut self, wanted: c_uint, value: *const u8, len: usize) -> bool {
        let &Param { kind, data, .. } = self.look();
        self.returned(len);
        if kind != wanted {
            return false;
        }
        if !data.is_null() {
            // SAFETY: by its type the data is a place for a pointer.
            unsafe { data.cast::<*const u8>().write_unaligned(value) };
        }
        true
    }
}

/// Walks a list of parameters.
pub(super) struct Params<'a> {
    next: *mut Param,
    life: PhantomData<&'a mut Param>,
}

impl Params<'_> {
    /// # Safety
    ///
    /// `list` is null, or a list of parameters that ends with a null key and is as [`Given`] wants them,
    /// for the life that the caller chooses. Given as constants, they are only read.
    pub(super) unsafe fn new(list: *const Param) -> Self {
        Self { next: list.cast_mut(), life: PhantomData }
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = Given<'a>;

    fn next(&mut self) -> Option<Given<'a>> {
        // SAFETY: the promise of whoever made the list; its end is not passed.
        unsafe { self.next.as_ref() }.filter(|param| !param.key.is_null())?;
        let given = Given { param: self.next, life: PhantomData };
        self.next = self.next.wrapping_add(1);
        Some(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<R>(
        kind: c_uint,
        data: &mut [u8],
        size: usize,
        test: impl FnOnce(&mut Given<'_>) -> R,
    ) -> (R, usize) {
        let data: *mut u8 = if data.is_empty() { ptr::null_mut() } else { data.as_mut_ptr() };
        let key = c"key".as_ptr();
        let mut list =
            [Param { key, kind, data: data.cast(), size, returned: UNMODIFIED }, Param::END];
        // SAFETY: the list has an end, and its data is as long as its size or longer.
        let mut params = unsafe { Params::new(list.as_mut_ptr()) };
        let mut given = params.next().unwrap();
        let result = test(&mut given);
        assert!(params.next().is_none());
        (result, list[0].returned)
    }

    #[test]
    fn numbers_of_every_size_are_read_if_they_fit() {
        let read =
            |kind, bytes: &[u8]| with(kind, &mut bytes.to_vec(), bytes.len(), |g| g.number()).0;
        assert_eq!(read(UNSIGNED, &12u32.to_ne_bytes()), Some(12));
        assert_eq!(read(INTEGER, &12u64.to_ne_bytes()), Some(12));
        assert_eq!(read(UNSIGNED, &u64::MAX.to_ne_bytes()), Some(usize::MAX));
        assert_eq!(read(INTEGER, &(-12i32).to_ne_bytes()), None);
        assert_eq!(read(UNSIGNED, &(1u128 << 64).to_ne_bytes()), None);
        assert_eq!(read(UNSIGNED, &7u128.to_ne_bytes()), Some(7));
        assert_eq!(read(OCTETS, &12u32.to_ne_bytes()), None);
        assert_eq!(with(UNSIGNED, &mut [], 8, |g| g.number()).0, None);
        assert_eq!(with(UNSIGNED, &mut [1], 0, |g| g.number()).0, Some(0));
    }

    #[test]
    fn numbers_are_given_where_they_fit() {
        let mut four = [0xff; 4];
        assert_eq!(with(UNSIGNED, &mut four, 4, |g| g.put_number(16)), (true, 4));
        assert_eq!(u32::from_ne_bytes(four), 16);
        let mut one = [0; 1];
        assert_eq!(with(UNSIGNED, &mut one, 1, |g| g.put_number(200)), (true, 1));
        assert!(!with(INTEGER, &mut one, 1, |g| g.put_number(200)).0);
        assert!(!with(UNSIGNED, &mut one, 1, |g| g.put_number(300)).0);
        assert_eq!(with(UNSIGNED, &mut [], 0, |g| g.put_number(300)), (true, 8));
        assert!(!with(OCTETS, &mut one, 1, |g| g.put_number(1)).0);
        assert!(!with(UNSIGNED, &mut [0; 64], usize::MAX, |g| g.put_number(1)).0);
    }

    #[test]
    fn octets_want_their_type_and_room() {
        let mut room = [0; 4];
        assert_eq!(with(OCTETS, &mut room, 4, |g| g.put_octets(b"abc")), (true, 3));
        assert_eq!(&room, b"abc\0");
        assert!(!with(OCTETS, &mut room, 2, |g| g.put_octets(b"abc")).0);
        assert!(!with(UNSIGNED, &mut room, 4, |g| g.put_octets(b"abc")).0);
        assert_eq!(with(OCTETS, &mut [], 0, |g| g.put_octets(b"abc")), (true, 3));
        let read =
            |size, most| with(OCTETS, &mut [7; 8], size, |g| g.octets(most).map(<[u8]>::len)).0;
        assert_eq!((read(8, 8), read(8, 7), read(0, 8)), (Some(8), None, Some(0)));
        assert_eq!(read(usize::MAX, 16), None, "no memory has that size");
        assert!(!with(UNSIGNED, &mut [7; 8], 8, |g| g.octets(16).is_some()).0);
        let mut place = [0; size_of::<usize>()];
        assert!(with(OCTET_POINTER, &mut place, 8, |g| g.put_octet_pointer(b"abc")).0);
        assert_ne!(place, [0; size_of::<usize>()]);
        assert!(!with(OCTETS, &mut place, 8, |g| g.put_octet_pointer(b"abc")).0);
    }

    #[test]
    fn keys_are_told_apart_by_their_words() {
        let word_of = |key: &CStr| {
            let list = [Param::size(c"x"), Param::END];
            let mut list = list;
            list[0].key = key.as_ptr();
            // SAFETY: the list has an end, and no data.
            unsafe { Params::new(list.as_mut_ptr()) }.next().unwrap().word()
        };
        let keys = [
            c"",
            c"t",
            c"tag",
            c"tagl",
            c"gat",
            c"tlsaad",
            c"tlsaadpad",
            c"fifteen bytes..",
            c"\xff",
        ];
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(word_of(key), word(key), "{key:?}");
            assert!(keys[..i].iter().all(|other| word(other) != word(key)), "{key:?}");
        }
        assert_eq!(word_of(c"sixteen bytes..."), NO_WORD);
        assert_eq!(word_of(c"fifteen bytes.. and more"), NO_WORD);
    }

    #[test]
    fn no_list_is_an_empty_one() {
        // SAFETY: null is allowed.
        assert!(unsafe { Params::new(ptr::null()) }.next().is_none());
    }
}
