//! Tests of the memory that the library takes from the heap, and of the contents of blocks that it gives back.
//!
//! The allocator of this program looks at blocks as they are freed. It watches one thread at a
//! time, so nothing else disturbs the count. And it counts what is taken, which during a burst must
//! be nothing.

mod manager;
mod zeroing;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Inspector;

/// Counts of the inspector while it watched: blocks freed, and bytes in them that were not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    blocks: usize,
    bytes: usize,
    left: usize,
    /// Number of blocks that held the secret that is looked for.
    secret: usize,
}

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    static WATCH: Cell<Option<Seen>> = const { Cell::new(None) };
    /// Bytes that none of the blocks may hold.
    static SECRET: Cell<[u8; 8]> = const { Cell::new([0; 8]) };
}

// SAFETY: every call is passed to the system's allocator; freed blocks are only read first.
unsafe impl GlobalAlloc for Inspector {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Fails only while a thread ends, when nobody counts.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's promise is passed on. Zeroed, because padding that nobody writes is
        // read on freeing.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Ok(Some(mut seen)) = WATCH.try_with(Cell::get) {
            // SAFETY: the block is still allocated, has this size, and was zeroed or written
            // throughout.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            seen.blocks += 1;
            seen.bytes += bytes.len();
            seen.left += bytes.iter().filter(|&&byte| byte != 0).count();
            let secret = SECRET.get();
            let held = secret != [0; 8] && bytes.windows(8).any(|window| window == secret);
            seen.secret += usize::from(held);
            WATCH.set(Some(seen));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Inspector = Inspector;

/// Counts what was left in the blocks that `work` freed.
fn watch(work: impl FnOnce()) -> Seen {
    WATCH.set(Some(Seen::default()));
    work();
    WATCH.take().expect("set above")
}

#[test]
fn the_inspector_sees_what_is_left() {
    let secret = vec![0xa5u8; 100];
    assert_eq!(watch(|| drop(secret)), Seen { blocks: 1, bytes: 100, left: 100, secret: 0 });
}
