//! Checks across sections, and of what the file names on the host.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use convoy_ipsec::sa::Mode;
use nix::unistd::AccessFlags;

use super::model::{Action, Addresses, Plain, Policy, Wire};
use super::reader::{At, Place, Report, nearest, quote};
use super::sa::{Direction, Draft};
use super::{policy, sections};

/// Why static keys need the folder, for people.
const WHY_STATE: &str = "RFC 4106 allows fixed keys only where no nonce can come twice, since two packets under one \
                         nonce reveal the authentication key, and no sequence number may come twice under any fixed \
                         key; the folder remembers across restarts which were used";

/// The state folder: there when there are SAs, a folder, ours alone, writable.
pub(super) fn state_dir(
    dir: Option<&At<PathBuf>>,
    first_sa: Option<&Place>,
    report: &mut Report<'_>,
) {
    let Some(dir) = dir else {
        if let Some(sa) = first_sa {
            let place = Place { span: sa.span.clone(), key: "state_dir".into() };
            report.error(
                &place,
                format!("is missing, so SAs are refused: {WHY_STATE}"),
                "add state_dir = \"…\" at the top of the file: a folder on a disk",
            );
        }
        return;
    };
    let shown = dir.value.display();
    let create = format!("create it: install -d -m 0700 {shown}");
    let meta = match std::fs::metadata(&dir.value) {
        Ok(meta) => meta,
        Err(error) => {
            let what =
                format!("state folder {shown} cannot be used: {}", super::describe_io(&error));
            return report.error(&dir.place, what, create);
        }
    };
    if !meta.is_dir() {
        return report.error(&dir.place, format!("{shown} is not a folder"), create);
    }
    if nix::unistd::access(&dir.value, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        let what = format!("state folder {shown} is not writable, so SAs are refused: {WHY_STATE}");
        return report.error(
            &dir.place,
            what,
            "run as the folder's owner, or name a folder on a writable disk",
        );
    }
    if meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw() {
        let what =
            format!("state folder {shown} belongs to user {}, who could change it", meta.uid());
        return report.error(
            &dir.place,
            what,
            format!("give it to the user the gateway runs as: chown root {shown}"),
        );
    }
    if meta.mode() & 0o022 != 0 {
        let what =
            format!("others can write to state folder {shown} (mode {:04o})", meta.mode() & 0o7777);
        return report.error(&dir.place, what, format!("chmod 700 {shown}"));
    }
    if is_volatile(&dir.value) {
        let what = format!("state folder {shown} lies in memory and is forgotten at the next boot");
        report.warn(
            &dir.place,
            what,
            "name a folder on a disk, or write new keys after every boot",
        );
    }
}

/// Whether a folder is gone after a reboot.
fn is_volatile(dir: &Path) -> bool {
    use nix::sys::statfs;
    let kind = statfs::statfs(dir).map(|fs| fs.filesystem_type());
    // RAMFS_MAGIC is missing from the library (linux/magic.h).
    matches!(kind, Ok(statfs::TMPFS_MAGIC | statfs::FsType(0x8584_58f6)))
}

/// Names, SPIs and keys that must not meet.
pub(super) fn associations(sas: &[Draft], report: &mut Report<'_>) {
    for (at, sa) in sas.iter().enumerate() {
        let before = sas.get(..at).unwrap_or_default();
        same_name(
            "SA",
            sa.name.as_ref(),
            before.iter().filter_map(|other| other.name.as_ref()),
            report,
        );
        same_spi(sa, before, report);
        same_key(sa, before, report);
    }
}

fn same_name<'a>(
    what: &str,
    name: Option<&At<String>>,
    mut before: impl Iterator<Item = &'a At<String>>,
    report: &mut Report<'_>,
) {
    let Some(name) = name else { return };
    if let Some(other) = before.find(|other| other.value == name.value) {
        let line = report.line_of(&other.place);
        report.error(
            &name.place,
            format!("{what} {} is already defined in line {line}", quote(&name.value)),
            "give each its own name",
        );
    }
}

/// Inbound packets are told apart by SPI and the address they arrive at (RFC 4301 section 4.1),
/// outbound ones at the peer by SPI and the address they go to.
fn same_spi(sa: &Draft, before: &[Draft], report: &mut Report<'_>) {
    let (Some(spi), Some(direction)) = (&sa.spi, sa.direction) else { return };
    let receiver = |sa: &Draft| match direction {
        Direction::Inbound => sa.local.as_ref().map(|at| at.value),
        Direction::Outbound => sa.remote.as_ref().map(|at| at.value),
    };
    let clash = before.iter().find(|other| {
        other.direction == sa.direction
            && matches!(&other.spi, Some(at) if at.value == spi.value)
            && receiver(sa).is_some()
            && receiver(other) == receiver(sa)
    });
    if let (Some(other), Some(address)) = (clash, receiver(sa)) {
        let what = format!(
            "{} SA {} in line {} has SPI {} at {address} as well",
            direction.word(),
            label(other),
            report.line_of(&other.place),
            spi.value,
        );
        report.error(&spi.place, what, "give each SA to one address its own SPI");
    }
}

/// One key in two SAs makes every nonce twice, whatever their directions: the peer counts as well.
fn same_key(sa: &Draft, before: &[Draft], report: &mut Report<'_>) {
    let Some(key) = &sa.key else { return };
    let clash = before
        .iter()
        .find(|other| matches!(&other.key, Some(k) if k.value.same_nonces(&key.value)));
    if let Some(other) = clash {
        let what = format!(
            "SA {} in line {} has the same key, so both would use the same nonces or numbers",
            label(other),
            report.line_of(&other.place),
        );
        report.secret_error(
            &key.place,
            what,
            "give each SA in each direction its own key; `convoy init` makes fresh ones",
        );
    }
}

fn label(sa: &Draft) -> String {
    sa.name.as_ref().map_or_else(|| "without name".to_owned(), |name| quote(&name.value))
}

/// Policies against each other and against the SAs they name.
pub(super) fn policies(policies: &[policy::Draft], sas: &[Draft], report: &mut Report<'_>) {
    let mut groups = Groups::new();
    for (at, policy) in policies.iter().enumerate() {
        let before = policies.get(..at).unwrap_or_default();
        same_name(
            "policy",
            policy.name.as_ref(),
            before.iter().filter_map(|other| other.name.as_ref()),
            report,
        );
        names_fit(policy, sas, report);
        pairs_agree(policy, &mut groups, report);
        overlap(policy, before, report);
        transport_fits(policy, sas, report);
        one_way(policy, report);
    }
    for sa in sas {
        let Some(name) = &sa.name else { continue };
        let used = |policy: &policy::Draft| {
            policy.sa_out.iter().chain(&policy.sa_in).any(|used| used.value == name.value)
        };
        if !policies.iter().any(used) {
            report.warn(
                &name.place,
                "no policy uses this SA",
                "name it in `sa_out` or `sa_in` of a [[policy]]",
            );
        }
    }
}

/// Two sides are two interfaces.
pub(super) fn interfaces(plain: &Plain, wire: &Wire, place: &Place, report: &mut Report<'_>) {
    let direct = plain.backend.is_direct() || wire.backend.is_direct();
    if direct && wire.interface.as_ref() == Some(&plain.interface) {
        report.error(
            place,
            format!("interface {} is both the plain and the wire side", quote(&plain.interface)),
            "give each side an interface of its own",
        );
    }
}

/// Every SA a policy names exists and has the right direction.
fn names_fit(policy: &policy::Draft, sas: &[Draft], report: &mut Report<'_>) {
    let outbound = policy.sa_out.iter().map(|name| (name, Direction::Outbound));
    let inbound = policy.sa_in.iter().map(|name| (name, Direction::Inbound));
    for (name, direction) in outbound.chain(inbound) {
        let named = |sa: &&Draft| matches!(&sa.name, Some(at) if at.value == name.value);
        match sas.iter().find(named) {
            None => {
                let known = sas.iter().filter(|sa| sa.direction == Some(direction));
                let known: Vec<_> =
                    known.filter_map(|sa| sa.name.as_ref()).map(|at| at.value.as_str()).collect();
                let help = match nearest(&name.value, known.iter().copied()) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None if known.is_empty() => {
                        format!("add an [[sa]] with direction = \"{}\"", direction.word())
                    }
                    None => format!("{} SAs are {}", direction.word(), known.join(", ")),
                };
                report.error(&name.place, format!("there is no SA {}", quote(&name.value)), help);
            }
            Some(sa) if matches!(sa.direction, Some(other) if other != direction) => {
                let other = if direction == Direction::Outbound { "sa_in" } else { "sa_out" };
                let what = format!("SA {} is not {}", quote(&name.value), direction.word());
                report.error(
                    &name.place,
                    what,
                    format!("name an {} SA here, or use it as `{other}`", direction.word()),
                );
            }
            Some(_) => {}
        }
    }
}

/// SAs that policies named so far, each with the policy and with all SAs that stand there.
type Groups<'a> = HashMap<&'a str, (&'a policy::Draft, Vec<&'a str>)>;

/// An SA serves one set of SAs: policies that share one share all, because they share its reqid.
fn pairs_agree<'a>(policy: &'a policy::Draft, groups: &mut Groups<'a>, report: &mut Report<'_>) {
    let used = || policy.sa_out.iter().chain(&policy.sa_in);
    let mut mine: Vec<_> = used().map(|at| at.value.as_str()).collect();
    mine.sort_unstable();
    for name in used() {
        let (other, theirs) = groups.entry(&name.value).or_insert_with(|| (policy, mine.clone()));
        if *theirs != mine {
            let what = format!(
                "SA {} goes with other SAs in the policy in line {}",
                quote(&name.value),
                report.line_of(&other.place),
            );
            return report.error(
                &name.place,
                what,
                "policies that share an SA must name the same sa_out and sa_in",
            );
        }
    }
}

/// Policies that match the same packets.
fn overlap(policy: &policy::Draft, before: &[policy::Draft], report: &mut Report<'_>) {
    let Some(mine) = &policy.built else { return };
    for other in before {
        let Some(theirs) = &other.built else { continue };
        let line = report.line_of(&other.place);
        if same_selectors(mine, theirs) {
            let what =
                format!("policy \"{}\" in line {line} matches the same packets", theirs.name);
            return report.error(&policy.selector, what, "remove one of the two");
        }
        if mine.priority == theirs.priority && mine.action != theirs.action && meet(mine, theirs) {
            let what = format!(
                "overlaps with policy \"{}\" in line {line} at the same priority; the earlier one decides",
                theirs.name
            );
            return report.warn(
                &policy.selector,
                what,
                "give the one that shall decide a lower `priority`",
            );
        }
    }
}

/// Whether one of the two can never decide about anything the other one means, or both about the
/// same packets at one priority.
fn same_selectors(a: &Policy, b: &Policy) -> bool {
    if a.protocol != b.protocol || a.upper != b.upper {
        return false;
    }
    let mut shared = a.address_pairs().filter(|pair| b.address_pairs().any(|other| other == *pair));
    if a.priority == b.priority {
        return shared.next().is_some();
    }
    shared.count() == a.address_pairs().count().max(b.address_pairs().count())
}

/// Whether some packet's addresses and protocol match both; ports are not looked at.
fn meet(a: &Policy, b: &Policy) -> bool {
    let meet = |x: &[Addresses], y: &[Addresses]| {
        x.iter().any(|one| y.iter().any(|other| one.overlaps(other)))
    };
    let protocols = a.protocol.is_none()
        || b.protocol.is_none()
        || (a.protocol == b.protocol && a.upper == b.upper);
    protocols && meet(&a.local, &b.local) && meet(&a.remote, &b.remote)
}

/// In transport mode the packet's own addresses are the SA's (RFC 4301 section 4.1).
fn transport_fits(policy: &policy::Draft, sas: &[Draft], report: &mut Report<'_>) {
    let Some(built) = &policy.built else { return };
    for name in policy.sa_out.iter().chain(&policy.sa_in) {
        let named = |sa: &&Draft| matches!(&sa.name, Some(at) if at.value == name.value);
        let Some(sa) = sas.iter().find(named).filter(|sa| sa.mode == Some(Mode::Transport)) else {
            continue;
        };
        let (Some(local), Some(remote)) = (&sa.local, &sa.remote) else { continue };
        let local_fits = built.local.iter().all(|a| a.is_only(local.value));
        let remote_fits = built.remote.iter().all(|a| a.is_only(remote.value));
        if !(local_fits && remote_fits) {
            let what = format!(
                "SA {} is in transport mode, which carries its own two addresses only",
                quote(&name.value)
            );
            let help = format!(
                "use local = \"{}\" and remote = \"{}\" here, or mode = \"tunnel\" there",
                host(local),
                host(remote)
            );
            return report.error(&policy.selector, what, help);
        }
    }
}

fn host(at: &At<std::net::IpAddr>) -> convoy_wire::Prefix {
    convoy_wire::Prefix::host(at.value)
}

fn one_way(policy: &policy::Draft, report: &mut Report<'_>) {
    let Some(Policy { action: Action::Protect { sa_out, sa_in }, .. }) = &policy.built else {
        return;
    };
    let missing = match (sa_out, sa_in.is_empty()) {
        (None, false) => "sa_out",
        (Some(_), true) => "sa_in",
        _ => return,
    };
    let way = if missing == "sa_out" { "leave" } else { "arrive" };
    report.warn(
        &policy.place,
        format!("has no `{missing}`: packets that should {way} protected are discarded"),
        format!("name an SA in `{missing}`"),
    );
}

/// A file with keys in it is its owner's alone.
pub(super) fn file_mode(path: &Path, sas: &[Draft], report: &mut Report<'_>) {
    let Some(sa) = sas.iter().find(|sa| sa.key_is_inline) else { return };
    match sections::mode_of(path) {
        Some(mode) if mode & 0o077 != 0 => {
            let place = Place { span: sa.place.span.clone(), key: format!("{}.key", sa.place.key) };
            let what = format!("this file holds keys and is readable by others (mode {mode:04o})");
            report.warn(
                &place,
                what,
                format!("make it its owner's alone: chmod 600 {}", path.display()),
            );
        }
        _ => {}
    }
}
