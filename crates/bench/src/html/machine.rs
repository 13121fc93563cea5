//! The machine, as a reader must know it.

use maud::{Markup, html};

use super::table::{cell, table};
use crate::chart::number;
use crate::machine::Machine;

/// Markup of all that is known of the machine.
pub(super) fn machine(machine: &Machine) -> Markup {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "not told".to_owned());
    let mhz = |clock: f64| format!("{} MHz", number(clock.round()));
    let load = |load: Option<[f64; 3]>| {
        or_unknown(load.map(|[one, five, fifteen]| {
            format!("{one:.2} over 1 minute, {five:.2} over 5, {fifteen:.2} over 15")
        }))
    };
    let siblings: Vec<String> = machine
        .siblings
        .iter()
        .filter(|threads| threads.len() > 1)
        .map(|threads| numbers(threads).replace(", ", " and "))
        .collect();
    let siblings =
        if siblings.is_empty() { "none is told".to_owned() } else { siblings.join("; ") };
    let rows: Vec<(&str, String)> = [
        ("Processor", machine.cpu.clone()),
        ("Class", or_unknown(machine.class.map(|class| class.name().to_owned()))),
        ("Tiers of Convoy", machine.tiers.join(", ")),
        ("Denied", machine.denied.clone().unwrap_or_default()),
        ("Time-stamp counter", mhz(machine.tsc_mhz)),
        ("Clock at the start", or_unknown(machine.clock_mhz.map(mhz))),
        ("Governor", or_unknown(machine.governor.clone())),
        (
            "Processors allowed",
            format!("{} ({})", machine.processors.len(), numbers(&machine.processors)),
        ),
        ("Threads of one core", siblings),
        ("Load before", load(machine.load_before)),
        ("Load after", load(machine.load_after)),
        ("Kernel", machine.kernel.clone()),
    ]
    .into_iter()
    .filter(|(name, text)| *name != "Denied" || !text.is_empty())
    .collect();
    html! {
        dl.facts { @for (name, text) in &rows { div { dt { (name) } dd { (text) } } } }
        @if !machine.peers.is_empty() { (peers(machine)) }
    }
}

fn peers(machine: &Machine) -> Markup {
    let row = |peer: &crate::machine::PeerVersion| {
        let tier = peer.tier.as_deref().unwrap_or("all");
        vec![cell(&peer.who), cell(&peer.version), cell(tier)]
    };
    let rows: Vec<_> = machine.peers.iter().map(row).collect();
    let caption = html! { "Who was measured beside Convoy" };
    table("peers", &caption, &["name", "version", "beside Convoy's tier"], &rows)
}

/// Numbers, runs of which are told by their ends.
fn numbers(all: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in all {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let told = |(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    runs.iter().map(told).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn runs_of_numbers_are_short() {
        assert_eq!(numbers(&[0, 1, 2, 3, 8, 10, 11]), "0–3, 8, 10, 11");
        assert_eq!(numbers(&[]), "");
    }
}
