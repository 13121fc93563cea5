//! Memory for a worker's hot SAs.

use convoy_crypto::prefetch_front;

/// Bytes of a value that are loaded early: three cache lines.
pub(super) const HOT: usize = 192;
/// Distance, in records, at which memory is loaded ahead while SAs are taken over.
pub(super) const AHEAD: u32 = 8;
/// Places of a page.
const PAGE: usize = 32;

type Page<T> = [Option<T>; PAGE];

/// Values by number, in pages that never move: adding one costs the same however many there are.
#[derive(Debug)]
pub(super) struct Slab<T> {
    pages: Vec<Option<Box<Page<T>>>>,
}

const fn split(at: u32) -> (usize, usize) {
    (at as usize / PAGE, at as usize % PAGE)
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        let (page, place) = split(at);
        self.pages.get(page)?.as_ref()?[place].as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let (page, place) = split(at);
        self.pages.get_mut(page)?.as_mut()?[place].as_mut()
    }

    /// All values with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let places = self.pages.iter().flat_map(|page| match page {
            Some(page) => &page[..],
            None => &[const { None }; PAGE],
        });
        (0..).zip(places).filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }

    /// Starts loading a value that will be used soon.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        let (page, place) = split(at);
        if let Some(Some(page)) = self.pages.get(page) {
            prefetch_front::<HOT, _>(&page[place]);
        }
    }

    pub(super) fn insert(&mut self, at: u32, value: T) {
        let (page, place) = split(at);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        if let Some(page) = self.pages.get_mut(page) {
            page.get_or_insert_with(|| Box::new([const { None }; PAGE]))[place] = Some(value);
        }
    }

    /// Drops a value where it lies: moved out of its place, it would leave its key material there.
    pub(super) fn remove(&mut self, at: u32) {
        let (page, place) = split(at);
        if let Some(Some(page)) = self.pages.get_mut(page) {
            page[place] = None;
        }
    }
}
