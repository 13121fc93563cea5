//! The section `[xfrm]`: IKE daemons, and interfaces for their SAs.

use std::path::Path;

use super::check;
use super::fields::{interface, interface_address, mtu, path_in, socket, tables, transposed};
use super::model::{Plain, Wire, Xfrm, XfrmInterface};
use super::reader::{At, Field, Report, Table, quote};

/// Socket to which the preloaded library connects, unless it is told otherwise.
const SOCKET: &str = "/run/convoy/xfrm.sock";
/// Interfaces at most: each costs every worker a queue.
const INTERFACES_MAX: usize = 64;

/// Reads the section.
pub(super) fn read(mut table: Table<'_>, report: &mut Report<'_>, folder: &Path) -> Option<Xfrm> {
    let given = table.take("socket").map(|field| socket(field, report, folder));
    let state = table.take("state").map(|field| path_in(field, report, folder));
    let place = table.place.clone();
    let drafts: Vec<_> = tables(&mut table, report, "interface")
        .into_iter()
        .map(|table| draft(table, report))
        .collect();
    table.finish(report);
    if drafts.len() > INTERFACES_MAX {
        report.error(
            &place,
            format!("{} interfaces are too many", drafts.len()),
            format!("use at most {INTERFACES_MAX}"),
        );
    }
    twice(&drafts, report);
    let usual = || Some(At { value: SOCKET.into(), place: place.clone() });
    let socket = given.unwrap_or_else(usual)?;
    check::socket_folder(&socket.value, &socket.place, report);
    let state = transposed(state)?;
    if let Some(state) = &state {
        check::kept_folder(&state.value, &state.place, report);
    }
    Some(Xfrm {
        socket: socket.value,
        state: state.map(|path| path.value),
        interfaces: drafts.into_iter().map(|draft| draft.built).collect::<Option<_>>()?,
    })
}

/// An interface as far as it could be read.
struct Draft {
    name: Option<At<String>>,
    if_id: Option<At<u32>>,
    built: Option<XfrmInterface>,
}

fn draft(mut table: Table<'_>, report: &mut Report<'_>) -> Draft {
    let named = table.need(report, "name", "name = \"ipsec0\"");
    let name = named.and_then(|field| named_interface(field, report));
    let if_id = table.need(report, "if_id", "if_id = 42").and_then(|field| if_id(field, report));
    let addresses = table.take("addresses").map_or_else(Vec::new, Field::one_or_many);
    let addresses: Vec<_> = addresses.into_iter().map(|f| interface_address(f, report)).collect();
    let mtu = table.take("mtu").map(|field| mtu(field, report, 576));
    table.finish(report);
    let built = || {
        Some(XfrmInterface {
            name: name.as_ref()?.value.clone(),
            if_id: if_id.as_ref()?.value,
            addresses: addresses.into_iter().collect::<Option<_>>()?,
            mtu: transposed(mtu)?,
        })
    };
    Draft { built: built(), name, if_id }
}

fn named_interface(field: Field<'_>, report: &mut Report<'_>) -> Option<At<String>> {
    let place = field.place.clone();
    let value = interface(field, report)?;
    // The kernel would make another interface at each start.
    if value.contains('%') {
        let what = format!("{} is not the name of one interface", quote(&value));
        report.error(&place, what, "leave '%' out, such as \"ipsec0\"");
        return None;
    }
    Some(At { value, place })
}

fn if_id(field: Field<'_>, report: &mut Report<'_>) -> Option<At<u32>> {
    let help = "use the number that the daemon calls if_id_in and if_id_out, from 1 on";
    let number = field.integer(report, 1..=u32::MAX.into(), help)?;
    Some(At { value: u32::try_from(number.value).ok()?, place: number.place })
}

/// Names and numbers that come twice.
fn twice(drafts: &[Draft], report: &mut Report<'_>) {
    for (at, draft) in drafts.iter().enumerate() {
        let before = drafts.get(..at).unwrap_or_default();
        let same =
            |a: &Option<At<String>>, b: &At<String>| a.as_ref().is_some_and(|a| a.value == b.value);
        if let Some(name) = &draft.name
            && before.iter().any(|other| same(&other.name, name))
        {
            report.error(
                &name.place,
                format!("interface {} is there twice", quote(&name.value)),
                "give each `if_id` an interface of its own",
            );
        }
        if let Some(if_id) = &draft.if_id
            && before.iter().any(|o| o.if_id.as_ref().is_some_and(|o| o.value == if_id.value))
        {
            report.error(
                &if_id.place,
                format!("if_id {} has two interfaces", if_id.value),
                "give each interface a number of its own",
            );
        }
    }
}

/// Interfaces for daemons' SAs that are something else already.
pub(super) fn taken(
    xfrm: &Xfrm,
    plain: Option<&Plain>,
    wire: Option<&Wire>,
    place: &super::reader::Place,
    report: &mut Report<'_>,
) {
    for interface in &xfrm.interfaces {
        let is_plain = plain.is_some_and(|plain| plain.interface == interface.name);
        let is_wire = wire.is_some_and(|wire| wire.interface.as_ref() == Some(&interface.name));
        for (is_taken, section) in [(is_plain, "plain"), (is_wire, "wire")] {
            if is_taken {
                report.error(
                    place,
                    format!("interface {} is that of [{section}]", quote(&interface.name)),
                    "give it another name: it is made for the SAs of its `if_id`",
                );
            }
        }
    }
}
