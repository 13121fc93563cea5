use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// RFC 4303 section 3.4.3 said slowly: remember every number ever accepted.
struct Model {
    size: u64,
    floor: u64,
    seen: BTreeSet<u64>,
}

impl Model {
    fn edge(&self) -> u64 {
        self.seen.last().copied().unwrap_or(self.floor).max(self.floor)
    }

    fn check(&self, seq: u64) -> Result<(), Stale> {
        if seq <= self.floor || seq + self.size <= self.edge() {
            return Err(Stale::TooOld);
        }
        if self.seen.contains(&seq) { Err(Stale::Replayed) } else { Ok(()) }
    }

    fn commit(&mut self, seq: u64) -> Result<(), Stale> {
        self.check(seq)?;
        self.seen.insert(seq);
        Ok(())
    }

    fn missing(&self) -> u64 {
        match (self.seen.first(), self.seen.last()) {
            (Some(first), Some(last)) => last - first + 1 - self.seen.len() as u64,
            _ => 0,
        }
    }
}

fn window(size: u32, esn: bool, floor: u64) -> ReplayWindow {
    ReplayWindow::new(size, esn, SeqNum::new(floor)).unwrap()
}

fn accept(window: &mut ReplayWindow, seq: u64) -> Result<(), Stale> {
    window.check(SeqNum::new(seq)).and_then(|ok| window.commit(ok)).map(|committed| {
        assert_eq!(committed.seq(), SeqNum::new(seq));
    })
}

#[test]
fn sizes_other_than_0_and_32_to_65536_are_refused() {
    for size in [0, 32, 33, 64, 65_535, 65_536] {
        assert!(ReplayWindow::new(size, false, SeqNum::new(0)).is_ok(), "{size}");
    }
    for size in [1, 31, 65_537, u32::MAX] {
        let refused = ReplayWindow::new(size, false, SeqNum::new(0)).unwrap_err();
        assert_eq!(refused, WindowError::Size(size));
    }
    let refused = ReplayWindow::new(0, true, SeqNum::new(0)).unwrap_err();
    assert_eq!(refused, WindowError::EsnWithoutWindow);
}

#[test]
fn rejects_replayed_seq_at_left_edge_and_too_old_beyond_it() {
    for size in [32, 33, 64, 100, 4096, 65_536] {
        let mut window = window(size, false, 0);
        let edge = u64::from(size) + 1000;
        accept(&mut window, edge).unwrap();
        let left = edge - u64::from(size) + 1;
        assert_eq!(accept(&mut window, left - 1), Err(Stale::TooOld), "size {size}");
        assert_eq!(accept(&mut window, left), Ok(()), "size {size}");
        assert_eq!(accept(&mut window, left), Err(Stale::Replayed), "size {size}");
        assert_eq!(accept(&mut window, edge), Err(Stale::Replayed), "size {size}");
    }
}

#[test]
fn checking_changes_nothing_and_the_commit_checks_again() {
    let mut window = window(64, false, 0);
    let first = window.check(SeqNum::new(5)).unwrap();
    let twin = window.check(SeqNum::new(5)).unwrap();
    let far = window.check(SeqNum::new(1000)).unwrap();
    assert_eq!(window.right_edge(), SeqNum::new(0));
    assert!(window.commit(first).is_ok());
    assert_eq!(window.commit(twin), Err(Stale::Replayed));
    let overtaken = window.check(SeqNum::new(6)).unwrap();
    assert!(window.commit(far).is_ok());
    assert_eq!(window.commit(overtaken), Err(Stale::TooOld));
    assert_eq!(DropReason::from(Stale::Replayed), DropReason::Replayed);
    assert_eq!(DropReason::from(Stale::TooOld), DropReason::TooOld);
}

#[test]
fn number_zero_is_never_new_without_esn() {
    let mut window = window(64, false, 0);
    assert_eq!(accept(&mut window, 0), Err(Stale::TooOld));
}

#[test]
fn nothing_at_or_below_the_floor_is_accepted() {
    let mut window = window(1024, false, 500);
    assert_eq!(accept(&mut window, 500), Err(Stale::TooOld));
    assert_eq!(accept(&mut window, 501), Ok(()));
    assert_eq!(accept(&mut window, 499), Err(Stale::TooOld));
    assert_eq!(window.right_edge(), SeqNum::new(501));
}

#[test]
fn a_floor_only_rises_and_hands_a_window_on_to_its_successor() {
    let floor = ReplayFloor::default();
    let mut first = ReplayWindow::new(64, false, floor.get()).unwrap();
    accept(&mut first, 70).unwrap();
    floor.raise(first.right_edge());
    floor.raise(SeqNum::new(3));
    assert_eq!(floor.get(), SeqNum::new(70));
    let mut second = ReplayWindow::new(64, false, floor.get()).unwrap();
    assert_eq!(accept(&mut second, 70), Err(Stale::TooOld));
    assert_eq!(accept(&mut second, 71), Ok(()));
}

#[test]
fn without_a_window_everything_passes() {
    let mut window = window(0, false, 0);
    for seq in [9, 9, 1, 0, 9] {
        assert_eq!(accept(&mut window, seq), Ok(()));
    }
    assert_eq!((window.missing(), window.right_edge()), (0, SeqNum::new(9)));
}

#[test]
fn high_half_is_inferred_as_in_appendix_a2_2() {
    const BLOCK: u64 = 1 << 32;
    let inferred = |edge: u64, low: u32| {
        let mut window = window(64, true, 0);
        accept(&mut window, edge).unwrap();
        window.infer(low).get()
    };
    // Case A: the window lies within one block.
    assert_eq!(inferred(BLOCK + 1000, 937), BLOCK + 937); // left edge
    assert_eq!(inferred(BLOCK + 1000, 936), 2 * BLOCK + 936); // left of it: the next block
    assert_eq!(inferred(BLOCK + 1000, u32::MAX), 2 * BLOCK - 1);
    assert_eq!(inferred(BLOCK + 63, 0), BLOCK);
    // Case B: the window spans two blocks.
    assert_eq!(inferred(BLOCK + 62, u32::MAX), BLOCK - 1);
    assert_eq!(inferred(BLOCK + 62, u32::MAX - 1), 2 * BLOCK - 2);
    assert_eq!(inferred(BLOCK, u32::MAX - 62), BLOCK - 63);
    assert_eq!(inferred(BLOCK, 1), BLOCK + 1);
    assert_eq!(inferred(BLOCK - 1, 0), BLOCK);
    // There is no block before the first and none after the last.
    assert_eq!(inferred(1, u32::MAX), BLOCK - 1);
    let last = u64::MAX - 10;
    assert_eq!(inferred(last, 5), last - (last % BLOCK) + 5);
}

#[test]
fn without_esn_the_high_half_is_zero() {
    let mut window = window(64, false, 0);
    accept(&mut window, u64::from(u32::MAX)).unwrap();
    assert_eq!(window.infer(3), SeqNum::new(3));
    assert_eq!(window.check(window.infer(3)), Err(Stale::TooOld));
}

#[test]
fn esn_traffic_crosses_the_32_bit_boundary_without_a_gap() {
    let start = u64::from(u32::MAX) - 100;
    let mut window = window(64, true, start);
    for seq in start + 1..start + 300 {
        let inferred = window.infer(seq as u32);
        assert_eq!(inferred, SeqNum::new(seq));
        accept(&mut window, seq).unwrap();
        assert_eq!(accept(&mut window, seq), Err(Stale::Replayed));
    }
    assert_eq!(window.missing(), 0);
}

#[test]
fn a_first_packet_far_from_the_start_is_accepted_and_counts_no_loss() {
    let mut window = window(64, false, 0);
    accept(&mut window, u64::from(u32::MAX) - 3).unwrap();
    assert_eq!(window.missing(), 0);
    accept(&mut window, u64::from(u32::MAX)).unwrap();
    assert_eq!(window.missing(), 2);
    accept(&mut window, u64::from(u32::MAX) - 2).unwrap();
    assert_eq!(window.missing(), 1);
}

#[test]
fn the_last_number_of_all_is_accepted_once() {
    let mut window = window(32, true, u64::MAX - 5);
    accept(&mut window, u64::MAX).unwrap();
    assert_eq!(accept(&mut window, u64::MAX), Err(Stale::Replayed));
    assert_eq!(accept(&mut window, u64::MAX - 1), Ok(()));
}

fn any_size() -> impl Strategy<Value = u32> {
    prop_oneof![32u32..200, Just(32), Just(64), Just(65_536), 1000u32..=65_536]
}

proptest! {
    #[test]
    fn agrees_with_a_model_that_forgets_nothing(
        size in any_size(), floor in prop_oneof![Just(0u64), 0u64..1 << 40],
        moves in prop::collection::vec((-200i64..300, 0u8..12), 1..400),
    ) {
        let mut window = window(size, true, floor);
        let mut model = Model { size: u64::from(size), floor, seen: BTreeSet::new() };
        for (delta, kind) in moves {
            // Mostly near the edge; at times around the left edge, or far ahead.
            let delta = match kind {
                0 => delta * 70,
                1 => delta - i64::from(size),
                2 => delta * i64::from(size) / 64,
                _ => delta / 4,
            };
            let seq = model.edge().saturating_add_signed(delta);
            let checked = window.check(SeqNum::new(seq)).map(|ok| ok.seq().get());
            prop_assert_eq!(checked, model.check(seq).map(|()| seq));
            prop_assert_eq!(accept(&mut window, seq), model.commit(seq));
            prop_assert_eq!(window.right_edge().get(), model.edge());
            prop_assert_eq!(window.missing(), model.missing());
        }
    }

    #[test]
    fn inference_finds_every_number_in_the_window_and_ahead_of_it(
        size in any_size(), edge in prop_oneof![any::<u64>(), (1u64 << 32) - 70_000..(1 << 32) + 70_000],
        back in 0u64..65_536, ahead in 1u64..(1 << 32) - 65_536,
    ) {
        let mut window = window(size, true, 0);
        let edge = edge.max(1);
        accept(&mut window, edge).unwrap();
        let inside = edge.saturating_sub(back % u64::from(size)).max(1);
        prop_assert_eq!(window.infer(inside as u32).get(), inside);
        if let Some(ahead) = edge.checked_add(ahead) {
            prop_assert_eq!(window.infer(ahead as u32).get(), ahead);
        }
    }
}
