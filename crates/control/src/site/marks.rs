//! The section `[marks]`: bits of marks that leak protection uses.

use convoy_host::Mark;

use super::model::Marks;
use super::reader::{Field, Place, Report, Table, quote};

/// Number of bits that answers take, of packets' marks and of flows'.
const OF_PACKETS: u32 = 4;
const OF_FLOWS: u32 = 12;

/// Bits that a key took, and where it stands; none where it was left out.
struct Taken {
    name: &'static str,
    mask: u32,
    place: Option<Place>,
}

/// Reads the section; what is left out has its default.
pub(super) fn read(root: &mut Table<'_>, report: &mut Report<'_>) -> Option<Marks> {
    let Some(field) = root.take("marks") else { return Some(Marks::default()) };
    let section = field.place.clone();
    let mut table = field.table(report, "a [marks] section")?;
    let mut marks = Marks::default();
    let mut taken = Vec::new();
    let mut is_sound = true;
    let mut note = |name, mask, place| taken.push(Taken { name, mask, place });
    match table.take("exempt").map(|field| (field.place.clone(), exempt(field, report))) {
        Some((place, Some(exempt))) => {
            marks.exempt = exempt;
            note("exempt", exempt.mask, Some(place));
        }
        Some((_, None)) => is_sound = false,
        None => note("exempt", marks.exempt.mask, None),
    }
    for (name, width, mask) in
        [("packets", OF_PACKETS, &mut marks.packets), ("flows", OF_FLOWS, &mut marks.flows)]
    {
        match table.take(name).map(|field| (field.place.clone(), bits(field, report, width))) {
            Some((place, Some(bits))) => {
                *mask = bits;
                note(name, bits, Some(place));
            }
            Some((_, None)) => is_sound = false,
            None => note(name, *mask, None),
        }
    }
    table.finish(report);
    // One that was not understood may be what another one meets.
    is_sound &= is_sound && are_apart(&taken, &section, report);
    is_sound.then_some(marks)
}

/// True if no two have a bit in common; reports the first two that have.
fn are_apart(taken: &[Taken], section: &Place, report: &mut Report<'_>) -> bool {
    for (at, own) in taken.iter().enumerate() {
        let before = taken.iter().take(at).find(|other| other.mask & own.mask != 0);
        let Some(other) = before else { continue };
        // Who stands in the file is to blame, not a default.
        let (own, other) = if own.place.is_some() { (own, other) } else { (other, own) };
        let is_default = if other.place.is_some() { "" } else { ", which has its default" };
        let others = taken.iter().filter(|it| it.name != own.name);
        let used = others.fold(0, |used, it| used | it.mask);
        let help = match free(own.mask.count_ones(), used) {
            Some(free) => format!("use bits that no other has, such as 0x{free:08x}"),
            None => {
                "use bits that no other has; another one may have fewer, or lie elsewhere".into()
            }
        };
        let what = format!(
            "bits 0x{:08x} are those of marks.{}, too (0x{:08x}{is_default})",
            own.mask & other.mask,
            other.name,
            other.mask
        );
        report.error(own.place.as_ref().unwrap_or(section), what, help);
        return false;
    }
    true
}

/// The highest bits beside each other, so many, that are not used.
fn free(width: u32, used: u32) -> Option<u32> {
    let bits = u32::MAX.checked_shr(u32::BITS.checked_sub(width)?)?;
    let places = (0..=u32::BITS - width).rev();
    places.filter_map(|place| bits.checked_shl(place)).find(|mask| mask & used == 0)
}

/// A value and a mask, such as `0xc5000000/0xff000000`.
fn exempt(field: Field<'_>, report: &mut Report<'_>) -> Option<Mark> {
    let text = field.string(report, "a mark and its mask, such as \"0xc5000000/0xff000000\"")?;
    let parts = text.value.split_once('/');
    let numbers = parts.and_then(|(value, mask)| Some((number(value)?, number(mask)?)));
    let shown = quote(&text.value);
    let (what, help) = match numbers {
        None => (
            format!("{shown} is not a mark and its mask"),
            "write both as hexadecimal numbers of 32 bits, such as \"0xc5000000/0xff000000\"",
        ),
        Some((_, mask)) if !is_run(mask) => (
            format!("the mask of {shown} has no bits beside each other"),
            "use a mask whose bits lie together, such as 0xff000000",
        ),
        Some((value, mask)) if value & !mask != 0 => (
            format!("the mark of {shown} has bits that its mask lacks"),
            "use a mark within the mask, such as \"0xc5000000/0xff000000\"",
        ),
        Some((0, _)) => (
            format!("the mark of {shown} is what all packets bear"),
            "use a mark that has a bit within the mask, such as \"0xc5000000/0xff000000\"",
        ),
        Some((value, mask)) => return Some(Mark { value, mask }),
    };
    report.error(&text.place, what, help);
    None
}

/// Some bits beside each other, such as `0x00f00000`.
fn bits(field: Field<'_>, report: &mut Report<'_>, width: u32) -> Option<u32> {
    let example = u32::MAX.checked_shr(u32::BITS.saturating_sub(width)).unwrap_or_default() << 8;
    let expected = format!("{width} bits of a mark, such as \"0x{example:08x}\"");
    let text = field.string(report, &expected)?;
    let mask = number(&text.value);
    if let Some(mask) = mask.filter(|mask| is_run(*mask) && mask.count_ones() == width) {
        return Some(mask);
    }
    let what = match mask {
        None => format!("{} is no hexadecimal number of 32 bits", quote(&text.value)),
        Some(mask) if is_run(mask) => {
            format!("{} has {} bits", quote(&text.value), mask.count_ones())
        }
        Some(_) => format!("{} has no bits beside each other", quote(&text.value)),
    };
    report.error(&text.place, what, format!("use {expected}, all beside each other"));
    None
}

/// True if a mask has bits, and they lie together.
const fn is_run(mask: u32) -> bool {
    mask != 0 && (mask >> mask.trailing_zeros()).trailing_ones() == mask.count_ones()
}

fn number(text: &str) -> Option<u32> {
    let digits = text.trim().strip_prefix("0x")?;
    // A sign would be read, too.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_runs_of_bits() {
        for mask in [1, 0x8000_0000, 0xff00, u32::MAX] {
            assert!(is_run(mask), "{mask:x}");
        }
        for mask in [0, 5, 0x8000_0001, 0xf0f] {
            assert!(!is_run(mask), "{mask:x}");
        }
    }

    #[test]
    fn numbers_are_hexadecimal() {
        assert_eq!(number("0xff"), Some(0xff));
        assert_eq!(number("0xFFFFFFFF"), Some(u32::MAX));
        for text in ["", "0x", "ff", "0x+f", "0x100000000", "255"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_free_is_found() {
        assert_eq!(free(4, 0xff00_0000), Some(0x00f0_0000));
        assert_eq!(free(12, 0xffff_0000), Some(0x0000_fff0));
        assert_eq!(free(32, 0), Some(u32::MAX));
        assert_eq!(free(12, 0x0080_8080), None);
    }

    #[test]
    fn defaults_do_not_meet() {
        let Marks { exempt, packets, flows } = Marks::default();
        assert_eq!(exempt.mask & packets | packets & flows | flows & exempt.mask, 0);
        assert_eq!((packets.count_ones(), flows.count_ones()), (OF_PACKETS, OF_FLOWS));
    }
}
