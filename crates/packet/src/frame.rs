//! The arena and its frames: the one place of this crate that handles raw memory.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use crate::Pool;

/// Bytes left free in front of a packet when a frame is reset.
///
/// Enough for the largest header ESP can add (IPv6 40, UDP 8, ESP 8, IV 16) with a link header in
/// front, in whole cache lines.
pub const HEADROOM: usize = 128;

/// Room kept behind the packet for the ESP trailer and ICV (255 + 2 + 32 bytes, rounded up).
const TAILROOM: usize = 320;

/// Bytes of the largest chunk.
const LARGEST: u32 = 1 << 17;

/// Size of one frame: a power of two from 2 KiB to 128 KiB.
///
/// 2 KiB and 4 KiB are the sizes that AF_XDP accepts without huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize(u8);

impl FrameSize {
    /// The smallest frame that holds a packet of `bytes` with headroom and trailer room.
    ///
    /// Packets above 65,535 bytes do not exist in IP; larger values are treated as 65,535.
    #[must_use]
    pub fn for_packet(bytes: usize) -> Self {
        let need = bytes.min(65_535) + HEADROOM + TAILROOM;
        let log2 = need.next_power_of_two().trailing_zeros().clamp(11, LARGEST.ilog2());
        Self(log2 as u8)
    }

    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        1 << self.0
    }

    /// Bytes of the largest packet that it holds with headroom and trailer room.
    #[must_use]
    pub fn largest_packet(self) -> usize {
        (self.bytes() - HEADROOM - TAILROOM).min(65_535)
    }
}

/// Error of an arena that could not be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The request was for no frames, or for more than 2^24.
    #[error("an arena holds between 1 and 16777216 frames, not {0}")]
    FrameCount(u32),
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes for frames: {source}")]
    Map {
        /// Size of the mapping asked for.
        bytes: usize,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// The frame has no room for the bytes asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame has no room for {0} more bytes")]
pub struct NoRoom(pub usize);

/// One anonymous mapping, divided into equal frames.
///
/// An arena lives as long as the process: frames point into it from workers, rings and devices,
/// and a mapping that is never removed cannot be removed too early.
pub struct Arena {
    base: NonNull<u8>,
    size: FrameSize,
    frames: u32,
    /// Free frames that no pool holds. Taken only when a pool runs empty or over-full.
    depot: Mutex<Vec<u32>>,
    leaked: AtomicU64,
}

// SAFETY: `base` is the address of a mapping that lives for ever; bytes behind it are reached only
// through `Frame`s, of which there is at most one per chunk (see `Frame`).
unsafe impl Send for Arena {}
// SAFETY: as above; the fields that change are a `Mutex` and an atomic.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps room for `frames` frames of `size` each; the memory is zero and is not given back
    /// before the process ends.
    ///
    /// # Errors
    /// [`ArenaError`] when the count is out of range or the kernel has no room.
    pub fn map(frames: u32, size: FrameSize) -> Result<&'static Self, ArenaError> {
        if frames == 0 || frames > 1 << 24 {
            return Err(ArenaError::FrameCount(frames));
        }
        let base = map_pages(frames as usize * size.bytes())?;
        // Highest index first, so that a pool hands out low addresses first.
        let depot = Mutex::new((0..frames).rev().collect());
        Ok(Box::leak(Box::new(Self { base, size, frames, depot, leaked: AtomicU64::new(0) })))
    }

    /// A pool for one worker, empty at first: it draws on the arena in batches.
    #[must_use]
    pub fn pool(&'static self) -> Pool {
        Pool::new(self)
    }

    /// Number of frames in the arena.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Size of each frame.
    #[must_use]
    pub fn frame_size(&self) -> FrameSize {
        self.size
    }

    /// The mapping's address and length in bytes, for registration with a device or a UMEM.
    #[must_use]
    pub fn mapping(&self) -> (NonNull<u8>, usize) {
        (self.base, self.frames as usize * self.size.bytes())
    }

    /// Frames that were dropped instead of being given back to a pool.
    ///
    /// Such frames are recovered, but a value above 0 is a defect in the program.
    #[must_use]
    pub fn leaked(&self) -> u64 {
        self.leaked.load(Ordering::Relaxed)
    }

    /// Frames that neither a pool nor a packet holds.
    #[must_use]
    pub fn in_depot(&self) -> usize {
        self.depot().len()
    }

    /// Moves up to `n` free frames into `into`.
    pub(crate) fn draw(&self, into: &mut Vec<u32>, n: usize) {
        let mut depot = self.depot();
        let keep = depot.len().saturating_sub(n);
        into.extend(depot.drain(keep..));
    }

    /// Takes the last `n` of the free frames in `from` back.
    pub(crate) fn store(&self, from: &mut Vec<u32>, n: usize) {
        let keep = from.len().saturating_sub(n);
        self.depot().extend(from.drain(keep..));
    }

    /// Makes the frame for a free index.
    ///
    /// The caller passes an index that came from [`Self::draw`] or [`Frame::into_index`] and gives
    /// it away: this is what keeps frames unique, so it is open to this crate's pool only.
    pub(crate) fn frame(&'static self, index: u32) -> Frame {
        assert!(index < self.frames, "frame index out of range");
        let at = index as usize * self.size.bytes();
        // SAFETY: the index is in range (checked above), so the address is inside the mapping.
        let base = unsafe { self.base.add(at) };
        Frame { base, arena: self, place: HEADROOM as u32, len: 0 }
    }

    fn depot(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // A panic while the list was held leaves it a list of free frames all the same.
        self.depot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("frames", &self.frames)
            .field("frame_bytes", &self.size.bytes())
            .field("leaked", &self.leaked())
            .finish_non_exhaustive()
    }
}

fn map_pages(bytes: usize) -> Result<NonNull<u8>, ArenaError> {
    // SAFETY: a fresh anonymous private mapping at an address of the kernel's choice touches
    // nothing that exists.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(ArenaError::Map { bytes, source: std::io::Error::last_os_error() });
    }
    // SAFETY: the range is the mapping just made. The call is a hint; its failure changes nothing.
    unsafe { libc::madvise(at, bytes, libc::MADV_HUGEPAGE) };
    // SAFETY: the range is the mapping just made. Packets may hold plaintext, which does not
    // belong in a core dump; failure leaves the default.
    unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
    NonNull::new(at.cast()).ok_or_else(|| ArenaError::Map {
        bytes,
        source: std::io::Error::from(std::io::ErrorKind::AddrNotAvailable),
    })
}

/// Number of the gateway's plain interface that a packet came from or goes to. 0 is the one that a gateway
/// always has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u8);

/// Bits of [`Frame::place`] that say where the packet starts.
const OFFSET: u32 = (1 << 24) - 1;
const _: () = assert!(LARGEST <= OFFSET, "what is added to an offset stays within its bits");

/// One packet in its chunk of the arena.
///
/// There is at most one `Frame` per chunk, so it owns the bytes exclusively. Give it back with
/// [`Pool::free`]; a frame that is merely dropped is counted in [`Arena::leaked`] and recovered.
pub struct Frame {
    /// Start of the chunk.
    base: NonNull<u8>,
    arena: &'static Arena,
    /// Start of the packet in the chunk, and above [`OFFSET`] its interface: one word, because
    /// frames are to stay as small as they are.
    place: u32,
    /// `offset + len` never exceeds the frame size.
    len: u32,
}

const _: () = assert!(size_of::<Frame>() == 24, "frames are moved by the hundred; keep them small");

// SAFETY: a frame is the only handle to its chunk, so moving it moves the bytes' only owner.
unsafe impl Send for Frame {}
// SAFETY: `&Frame` only gives shared reads.
unsafe impl Sync for Frame {}

impl Frame {
    /// Start of the packet in the chunk, bytes.
    #[inline(always)]
    const fn offset(&self) -> u32 {
        self.place & OFFSET
    }

    /// The plain interface that the packet came from or goes to.
    #[inline]
    #[must_use]
    pub const fn interface(&self) -> InterfaceId {
        InterfaceId((self.place >> OFFSET.count_ones()) as u8)
    }

    /// Says which plain interface the packet came from or goes to. It stays so when the content changes,
    /// until the frame is [reset](Self::reset) or [placed](Self::place).
    #[inline]
    pub const fn set_interface(&mut self, interface: InterfaceId) {
        self.place = self.place & OFFSET | (interface.0 as u32) << OFFSET.count_ones();
    }

    /// The packet's bytes.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `offset <= size` (type invariant), so the address is inside the chunk.
        let start = unsafe { self.base.add(self.offset() as usize) };
        // SAFETY: `offset + len <= size`; the mapping is zero-initialised and lives for ever, and
        // `self` is the only handle to it.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), self.len as usize) }
    }

    /// The packet's bytes, to be changed.
    #[inline]
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: `offset <= size` (type invariant), so the address is inside the chunk.
        let start = unsafe { self.base.add(self.offset() as usize) };
        // SAFETY: `offset + len <= size`; the mapping is zero-initialised and lives for ever, and
        // `&mut self` is the only handle to it.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), self.len as usize) }
    }

    /// The chunk behind the packet's last byte: where a receive call may write before
    /// [`Self::set_len`].
    #[inline]
    #[must_use]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let end = (self.offset() + self.len) as usize;
        self.chunk_mut().get_mut(end..).unwrap_or_default()
    }

    /// Length of the packet in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if the packet is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Free bytes in front of the packet.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.offset() as usize
    }

    /// Free bytes behind the packet.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.arena.size.bytes() - (self.offset() + self.len) as usize
    }

    /// Empties the frame, leaving [`HEADROOM`] in front; it is of no interface but the first.
    #[inline]
    pub fn reset(&mut self) {
        self.place = HEADROOM as u32;
        self.len = 0;
    }

    /// Sets the length, keeping the start; bytes added have the value they last had.
    ///
    /// # Errors
    /// [`NoRoom`] when the frame is too small; the frame is unchanged.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), NoRoom> {
        let extra = len.saturating_sub(self.len());
        if extra > self.tailroom() {
            return Err(NoRoom(extra));
        }
        self.len = len as u32;
        Ok(())
    }

    /// Replaces the content by `bytes`, with fresh [`HEADROOM`].
    ///
    /// # Errors
    /// [`NoRoom`] when the frame is too small; the frame is then empty.
    #[inline]
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.reset();
        self.grow_back(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Takes `n` bytes of headroom into the packet and returns them.
    ///
    /// # Errors
    /// [`NoRoom`] when the headroom is smaller; the frame is unchanged.
    #[inline]
    pub fn grow_front(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        if n > self.headroom() {
            return Err(NoRoom(n));
        }
        self.place -= n as u32;
        self.len += n as u32;
        self.data_mut().get_mut(..n).ok_or(NoRoom(n))
    }

    /// Takes `n` bytes of tailroom into the packet and returns them.
    ///
    /// # Errors
    /// [`NoRoom`] when the tailroom is smaller; the frame is unchanged.
    #[inline]
    pub fn grow_back(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        if n > self.tailroom() {
            return Err(NoRoom(n));
        }
        let from = self.len();
        self.len += n as u32;
        self.data_mut().get_mut(from..).ok_or(NoRoom(n))
    }

    /// Takes `front` bytes of headroom and `behind` bytes of tailroom into the packet and returns all
    /// of it; bytes added have the value they last had.
    ///
    /// # Errors
    /// [`NoRoom`] when there is less room at one end; the frame is unchanged.
    #[inline]
    pub fn enclose(&mut self, front: usize, behind: usize) -> Result<&mut [u8], NoRoom> {
        if front > self.headroom() {
            return Err(NoRoom(front));
        }
        if behind > self.tailroom() {
            return Err(NoRoom(behind));
        }
        self.place -= front as u32;
        self.len += (front + behind) as u32;
        Ok(self.data_mut())
    }

    /// Gives the packet's first `n` bytes (all of them, if it has fewer) back to the headroom.
    #[inline]
    pub fn shrink_front(&mut self, n: usize) {
        let n = (n as u64).min(u64::from(self.len)) as u32;
        self.place += n;
        self.len -= n;
    }

    /// Makes the `len` bytes from `at` on the whole packet, and returns them. The others go back to
    /// headroom and tailroom.
    ///
    /// # Errors
    /// [`NoRoom`] when the packet has not so many; the frame is unchanged.
    #[inline]
    pub fn narrow(&mut self, at: usize, len: usize) -> Result<&mut [u8], NoRoom> {
        if at > self.len() || len > self.len() - at {
            return Err(NoRoom(len));
        }
        self.place += at as u32;
        self.len = len as u32;
        Ok(self.data_mut())
    }

    /// Shortens the packet to `len` bytes; a longer `len` changes nothing.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.len = len as u32;
        }
    }

    /// Says that the packet lies at `offset` in the chunk and has `len` bytes; whoever wrote it there,
    /// such as the kernel through a UMEM, knows.
    ///
    /// # Errors
    /// [`NoRoom`] when that goes beyond the chunk; the frame is unchanged.
    #[inline]
    pub fn place(&mut self, offset: usize, len: usize) -> Result<(), NoRoom> {
        let size = self.arena.size.bytes();
        if offset > size || len > size - offset {
            return Err(NoRoom(len));
        }
        (self.place, self.len) = (offset as u32, len as u32);
        Ok(())
    }

    /// Says that the packet lies in this chunk as `other`'s does in its own, and is of the same interface:
    /// for whoever then writes all of its bytes.
    ///
    /// # Errors
    /// [`NoRoom`] when that goes beyond the chunk; the frame is unchanged.
    #[inline]
    pub fn place_like(&mut self, other: &Self) -> Result<(), NoRoom> {
        if (other.offset() + other.len) as usize > self.arena.size.bytes() {
            return Err(NoRoom(other.len()));
        }
        (self.place, self.len) = (other.place, other.len);
        Ok(())
    }

    /// True if the packet lies where `other`'s does, with as many bytes and of the same interface.
    #[inline]
    #[must_use]
    pub const fn is_placed_like(&self, other: &Self) -> bool {
        self.place == other.place && self.len == other.len
    }

    /// The arena that the frame belongs to.
    #[inline]
    #[must_use]
    pub fn arena(&self) -> &'static Arena {
        self.arena
    }

    /// The frame's number in its arena, which is also its address in a UMEM divided by the size.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u32 {
        let at = self.base.as_ptr() as usize - self.arena.base.as_ptr() as usize;
        (at >> self.arena.size.0) as u32
    }

    /// Gives up the frame for its index, without counting a leak.
    pub(crate) fn into_index(self, arena: &'static Arena) -> u32 {
        assert!(core::ptr::eq(self.arena, arena), "frame given back to another arena's pool");
        let index = self.index();
        core::mem::forget(self);
        index
    }

    #[inline]
    fn chunk_mut(&mut self) -> &mut [u8] {
        // SAFETY: `base` is the start of a chunk of `size` bytes inside a mapping that lives for
        // ever and is initialised (zero at first); `&mut self` is the only handle to it.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.arena.size.bytes()) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.arena.leaked.fetch_add(1, Ordering::Relaxed);
        let index = self.index();
        self.arena.depot().push(index);
    }
}

impl fmt::Debug for Frame {
    /// Shows where the packet lies, not what it says: it may be plaintext.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.index())
            .field("offset", &self.offset())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arena() -> &'static Arena {
        Arena::map(8, FrameSize::for_packet(1500)).unwrap()
    }

    #[test]
    fn sizes_leave_room_for_headers_and_trailer() {
        assert_eq!(FrameSize::for_packet(0).bytes(), 2048);
        assert_eq!(FrameSize::for_packet(1500).bytes(), 2048);
        assert_eq!(FrameSize::for_packet(1601).bytes(), 4096);
        assert_eq!(FrameSize::for_packet(9000).bytes(), 16384);
        assert_eq!(FrameSize::for_packet(usize::MAX).bytes(), 131_072);
    }

    #[test]
    fn refuses_an_arena_of_no_frames() {
        let error = Arena::map(0, FrameSize::for_packet(1500)).unwrap_err();
        assert_eq!(error.to_string(), "an arena holds between 1 and 16777216 frames, not 0");
    }

    #[test]
    fn grows_and_shrinks_at_both_ends() {
        let arena = arena();
        let mut pool = arena.pool();
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(b"payload").unwrap();
        frame.grow_front(2).unwrap().copy_from_slice(b"<<");
        frame.grow_back(2).unwrap().copy_from_slice(b">>");
        assert_eq!(frame.data(), b"<<payload>>");
        frame.shrink_front(1);
        frame.truncate(9);
        assert_eq!(frame.data(), b"<payload>");
        assert_eq!(frame.narrow(1, 8).unwrap(), b"payload>");
        assert_eq!(frame.narrow(1, 8), Err(NoRoom(8)));
        frame.grow_front(1).unwrap().copy_from_slice(b"<");
        assert_eq!(frame.grow_front(HEADROOM), Err(NoRoom(HEADROOM)));
        let tail = frame.tailroom();
        assert_eq!(frame.grow_back(tail + 1), Err(NoRoom(tail + 1)));
        assert_eq!(frame.set_len(9 + tail + 1), Err(NoRoom(tail + 1)));
        assert_eq!(frame.data(), b"<payload>");
        frame.shrink_front(1000);
        assert!(frame.is_empty());
        pool.free(frame);
        assert_eq!(arena.leaked(), 0);
    }

    #[test]
    fn a_frame_lies_in_its_chunk_as_another_in_its_own() {
        let mut pool = arena().pool();
        let (mut one, mut other) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        one.place(77, 1000).unwrap();
        one.set_interface(InterfaceId(3));
        assert!(!other.is_placed_like(&one));
        other.place_like(&one).unwrap();
        assert!(other.is_placed_like(&one));
        assert_eq!((other.headroom(), other.len(), other.interface().0), (77, 1000, 3));
        other.set_interface(InterfaceId(0));
        assert!(!other.is_placed_like(&one));

        let mut large = Arena::map(1, FrameSize::for_packet(9000)).unwrap().pool();
        let mut wide = large.alloc().unwrap();
        wide.place(2000, 100).unwrap();
        assert_eq!(one.place_like(&wide), Err(NoRoom(100)));
        assert_eq!((one.headroom(), one.len()), (77, 1000), "unchanged");
        [one, other].into_iter().for_each(|frame| pool.free(frame));
        large.free(wide);
    }

    #[test]
    fn a_dropped_frame_is_counted_and_recovered() {
        let arena = arena();
        let mut pool = arena.pool();
        drop(pool.alloc().unwrap());
        assert_eq!(arena.leaked(), 1);
        drop(pool);
        assert_eq!(arena.in_depot(), 8);
    }

    #[test]
    fn frames_do_not_overlap() {
        let arena = arena();
        let mut pool = arena.pool();
        let mut frames: Vec<_> = core::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(frames.len(), 8);
        for (i, frame) in frames.iter_mut().enumerate() {
            while frame.grow_front(1).is_ok() {}
            let spare = frame.tailroom();
            frame.grow_back(spare).unwrap();
            frame.data_mut().fill(i as u8);
        }
        for (i, frame) in frames.iter().enumerate() {
            assert_eq!(frame.len(), 2048);
            assert!(frame.data().iter().all(|&b| b == i as u8));
        }
        frames.into_iter().for_each(|f| pool.free(f));
    }

    #[test]
    fn debug_shows_no_content() {
        let mut pool = arena().pool();
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(b"secret").unwrap();
        let text = format!("{frame:?}");
        assert!(text.contains("len: 6") && !text.contains("115"), "{text}");
        pool.free(frame);
    }

    proptest! {
        #[test]
        fn any_sequence_of_changes_stays_inside_the_chunk(
            steps in proptest::collection::vec((0_u8..7, 0_usize..3000), 0..40),
            interface: u8,
        ) {
            let arena = arena();
            let mut pool = arena.pool();
            let mut frame = pool.alloc().unwrap();
            prop_assert_eq!(frame.interface(), InterfaceId(0));
            for (what, n) in steps {
                let before = frame.len();
                frame.set_interface(InterfaceId(interface));
                let placed = what == 4 && n + 700 <= 2048;
                match what {
                    0 => { if frame.grow_front(n).is_ok() { prop_assert_eq!(frame.len(), before + n); } }
                    1 => { if frame.grow_back(n).is_ok() { prop_assert_eq!(frame.len(), before + n); } }
                    2 => frame.shrink_front(n),
                    3 => frame.truncate(n),
                    4 => { prop_assert_eq!(frame.place(n, 700).is_ok(), n + 700 <= 2048); }
                    5 => {
                        let narrowed = frame.narrow(n / 8, n % 8).map(|packet| packet.len());
                        let fits = n / 8 + n % 8 <= before;
                        prop_assert_eq!(narrowed, if fits { Ok(n % 8) } else { Err(NoRoom(n % 8)) });
                        prop_assert_eq!(frame.len(), if fits { n % 8 } else { before });
                    }
                    _ => { let _ = frame.set_len(n); }
                }
                prop_assert_eq!(frame.interface(), InterfaceId(if placed { 0 } else { interface }));
                frame.data_mut().fill(7);
                prop_assert_eq!(frame.headroom() + frame.len() + frame.tailroom(), 2048);
                prop_assert_eq!(frame.spare_mut().len(), frame.tailroom());
            }
            frame.set_interface(InterfaceId(interface));
            pool.free(frame);
            let again = pool.alloc().unwrap();
            prop_assert_eq!(again.interface(), InterfaceId(0));
            pool.free(again);
        }
    }
}
