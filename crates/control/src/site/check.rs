//! Checks across sections, and of what the file names on the host.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use convoy_ipsec::key::Nonces;
use convoy_ipsec::sa::{IpsecProtocol, Mode};
use convoy_ipsec::selector::Direction;
use convoy_wire::Spi;
use nix::unistd::AccessFlags;

use crate::folder::{self, Open};
use crate::place::folder_of;

use super::model::{Action, Addresses, Plain, Policy, Routes, Wire};
use super::policy;
use super::reader::{At, Place, Report, nearest, quote};
use super::sa::Draft;

/// Reason that static keys need the folder, for people.
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
    let create = format!(
        "if these keys were never used, create it: install -d -m 0700 {shown}; else write new keys on both \
         sides (convoy init), as an empty folder would repeat sequence numbers"
    );
    let meta = match std::fs::metadata(&dir.value) {
        Ok(meta) => meta,
        Err(error) => {
            let what = format!(
                "state folder {shown} cannot be used: {}",
                convoy_host::describe_io(&error)
            );
            return report.error(&dir.place, what, create);
        }
    };
    if !meta.is_dir() {
        return report.error(&dir.place, format!("{shown} is not a folder"), create);
    }
    if nix::unistd::access(&dir.value, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        let what = format!("state folder {shown} is not writable, so SAs are refused: {WHY_STATE}");
        report.error(
            &dir.place,
            what,
            "run as the folder's owner, or name a folder on a writable disk",
        );
    }
    if meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw() {
        let what =
            format!("state folder {shown} belongs to user {}, who could change it", meta.uid());
        report.error(
            &dir.place,
            what,
            format!("give it to the user the gateway runs as: chown root {shown}"),
        );
    }
    if meta.mode() & 0o022 != 0 {
        let what =
            format!("others can write to state folder {shown} (mode {:04o})", meta.mode() & 0o7777);
        report.error(&dir.place, what, format!("chmod 700 {shown}"));
    } else if meta.mode() & 0o055 != 0 {
        let what = format!(
            "others can look into state folder {shown} (mode {:04o})",
            meta.mode() & 0o7777
        );
        report.warn(&dir.place, what, format!("make it its owner's alone: chmod 700 {shown}"));
    }
    for open in folder::look_above(&dir.value) {
        let is_good = open.is_doubtful_only();
        changed_by_others(&format!("state folder {shown}"), &open, is_good, &dir.place, report);
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

/// The folder of a socket: nobody else may put a socket of theirs there.
pub(super) fn socket_folder(socket: &Path, place: &Place, report: &mut Report<'_>) {
    for open in folder::look(folder_of(socket)) {
        let what = format!("socket {}", socket.display());
        changed_by_others(&what, &open, open.is_doubtful_only(), place, report);
    }
}

/// The folder that keeps what daemons negotiated, if it is there.
pub(super) fn kept_folder(kept: &Path, place: &Place, report: &mut Report<'_>) {
    for open in folder::look(kept) {
        let what = format!("state folder {}", kept.display());
        // What is in it is believed, so it must be the gateway's own.
        let is_good = open.is_doubtful_only() && !open.is_of_itself();
        changed_by_others(&what, &open, is_good, place, report);
    }
}

fn changed_by_others(
    what: &str,
    open: &Open,
    is_good: bool,
    place: &Place,
    report: &mut Report<'_>,
) {
    let what = format!("{what} can be replaced by others: {open}");
    if is_good {
        report.warn(place, what, open.help());
    } else {
        report.error(place, what, open.help());
    }
}

/// True if a folder is gone after a reboot.
fn is_volatile(dir: &Path) -> bool {
    use nix::sys::statfs;
    let kind = statfs::statfs(dir).map(|fs| fs.filesystem_type());
    // RAMFS_MAGIC is missing from the library (linux/magic.h).
    matches!(kind, Ok(statfs::TMPFS_MAGIC | statfs::FsType(0x8584_58f6)))
}

/// Names, SPIs and keys that must not meet.
pub(super) fn associations(sas: &[Draft], report: &mut Report<'_>) {
    let (mut names, mut receivers, mut keys) = (Names::new(), HashMap::new(), HashMap::new());
    for sa in sas {
        same_name("SA", sa.name.as_ref(), &mut names, report);
        same_spi(sa, &mut receivers, report);
        same_key(sa, &mut keys, report);
    }
}

/// Names that were read so far, each where it came first.
type Names<'a> = HashMap<&'a str, &'a At<String>>;

fn same_name<'a>(
    what: &str,
    name: Option<&'a At<String>>,
    before: &mut Names<'a>,
    report: &mut Report<'_>,
) {
    let Some(name) = name else { return };
    let other = *before.entry(&name.value).or_insert(name);
    if !std::ptr::eq(other, name) {
        let line = report.line_of(&other.place);
        report.error(
            &name.place,
            format!("{what} {} is already defined in line {line}", quote(&name.value)),
            "give each its own name",
        );
    }
}

/// Properties by which packets of SAs are told apart where they arrive (RFC 4301 section 4.1).
#[derive(PartialEq, Eq, Hash)]
struct Receiver {
    direction: Direction,
    protocol: Option<IpsecProtocol>,
    spi: Spi,
    address: IpAddr,
}

/// Inbound packets arrive at a local address, outbound ones at the peer's.
fn same_spi<'a>(sa: &'a Draft, before: &mut HashMap<Receiver, &'a Draft>, report: &mut Report<'_>) {
    let (Some(spi), Some(direction)) = (&sa.spi, sa.direction) else { return };
    let address = match direction {
        Direction::Inbound => &sa.local,
        Direction::Outbound => &sa.remote,
    };
    let Some(At { value: address, .. }) = *address else { return };
    let receiver = Receiver { direction, protocol: sa.protocol, spi: spi.value, address };
    let other = *before.entry(receiver).or_insert(sa);
    if !std::ptr::eq(other, sa) {
        let what = format!(
            "{} SA {} in line {} has SPI {} at {address} as well",
            direction.name(),
            label(other),
            report.line_of(&other.place),
            spi.value,
        );
        report.error(&spi.place, what, "give each SA to one address its own SPI");
    }
}

/// One key in two SAs makes every nonce twice, whatever their directions: the peer counts as well.
fn same_key<'a>(
    sa: &'a Draft,
    before: &mut HashMap<Nonces<'a>, &'a Draft>,
    report: &mut Report<'_>,
) {
    let Some(key) = &sa.key else { return };
    let other = *before.entry(Nonces(&key.value)).or_insert(sa);
    if !std::ptr::eq(other, sa) {
        let what = format!(
            "SA {} in line {} has the same key, so both would use the same nonces or numbers",
            label(other),
            report.line_of(&other.place),
        );
        report.secret_error(
            &key.place,
            what,
            "give each SA in each direction its own key; `convoy genkey` makes fresh ones",
        );
    }
}

fn label(sa: &Draft) -> String {
    sa.name.as_ref().map_or_else(|| "without name".to_owned(), |name| quote(&name.value))
}

/// Policies against each other and against the SAs they name.
pub(super) fn policies(
    policies: &[policy::Draft],
    sas: &[Draft],
    plain: Option<&Plain>,
    report: &mut Report<'_>,
) {
    // Then the sides of each must differ.
    let makes_routes = plain.is_some_and(|plain| plain.routes == Routes::FromPolicies);
    let (mut names, mut groups) = (Names::new(), Groups::new());
    let mut by_name: HashMap<&str, &Draft> = HashMap::new();
    for sa in sas {
        if let Some(name) = &sa.name {
            by_name.entry(&name.value).or_insert(sa);
        }
    }
    let near = neighbours(policies);
    for (at, policy) in policies.iter().enumerate() {
        same_name("policy", policy.name.as_ref(), &mut names, report);
        if names_fit(policy, sas, &by_name, report) {
            pairs_agree(policy, &mut groups, report);
        }
        match near.as_ref().and_then(|near| near.get(at)) {
            Some(near) => {
                overlap(policy, near.iter().filter_map(|at| policies.get(*at)), report);
            }
            None => overlap(policy, policies.iter().take(at), report),
        }
        transport_fits(policy, &by_name, report);
        one_way(policy, report);
        if makes_routes {
            sides_differ(policy, report);
        }
    }
    let used: HashSet<&str> = policies
        .iter()
        .flat_map(|policy| policy.sa_out.iter().chain(&policy.sa_in))
        .map(|used| used.value.as_str())
        .collect();
    for sa in sas {
        let Some(name) = &sa.name else { continue };
        if !used.contains(name.value.as_str()) {
            report.warn(
                &name.place,
                "no policy uses this SA",
                "name it in `sa_out` or `sa_in` of a [[policy]]",
            );
        }
    }
}

/// The plain interface has a database that policies are in, and policies are in one that an interface
/// has. `wanted` is the plain interface's own, if any.
pub(super) fn databases(
    plain_is_there: bool,
    wanted: Option<&At<String>>,
    policies: &[policy::Draft],
    report: &mut Report<'_>,
) {
    let mut known: Vec<_> =
        policies.iter().filter_map(|policy| Some(policy.spd.as_ref()?.value.as_str())).collect();
    known.sort_unstable();
    known.dedup();
    if let Some(wanted) = wanted.filter(|wanted| !known.contains(&wanted.value.as_str())) {
        let help = match nearest(&wanted.value, known.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("add spd = {} to each [[policy]] of it", quote(&wanted.value)),
        };
        let what = format!("no policy is in database {}", quote(&wanted.value));
        return report.error(&wanted.place, what, help);
    }
    let wanted = wanted.map(|at| at.value.as_str());
    let mut told = HashSet::new();
    for policy in policies.iter().filter(|_| plain_is_there) {
        let mine = policy.spd.as_ref().map(|at| at.value.as_str());
        if mine == wanted || !told.insert(mine) {
            continue;
        }
        let (place, what, help) = match &policy.spd {
            Some(at) => (
                &at.place,
                format!(
                    "no interface has database {}: its policies decide nothing",
                    quote(&at.value)
                ),
                format!("add spd = {} to [plain], or remove the line", quote(&at.value)),
            ),
            None => (
                &policy.place,
                "is in the common database, which no interface has: it decides nothing".to_owned(),
                format!("add spd = {}", quote(wanted.unwrap_or_default())),
            ),
        };
        report.warn(place, what, help);
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

/// Daemons bring SAs of any address: sockets take them all, and routes follow the policies.
pub(super) fn daemons(
    plain: Option<&Plain>,
    wire: Option<&Wire>,
    place: &Place,
    report: &mut Report<'_>,
) {
    let sides = [
        ("plain", "\"tun\"", plain.map(|plain| plain.backend)),
        ("wire", "\"af_xdp\" or \"socket\"", wire.map(|wire| wire.backend)),
    ];
    for (side, words, backend) in sides {
        if let Some(direct) = backend.filter(|backend| backend.is_direct()) {
            report.error(
                place,
                format!(
                    "IKE daemons cannot be served with backend \"{}\" in [{side}]",
                    direct.word()
                ),
                format!("leave `backend` out of [{side}], or set it to {words}"),
            );
        }
    }
}

/// Sockets send ESP and AH alone: what is not protected does not leave by them. Leak protection has the kernel ask,
/// and lead such packets past the TUN interface.
pub(super) fn bypass(
    policies: &[policy::Draft],
    plain: &Plain,
    wire: &Wire,
    leak_protection: Option<bool>,
    report: &mut Report<'_>,
) {
    let has_leak_protection = leak_protection == Some(true);
    if wire.backend.is_direct() || has_leak_protection && !plain.backend.is_direct() {
        return;
    }
    for policy in policies {
        let Some(built) = &policy.built else { continue };
        if built.action == Action::Bypass && built.spd == plain.spd {
            let help = format!(
                "leave `leak_protection` on, route these packets past interface {}, or use an interface \
                 as the wire side: backend = \"af_packet\" in [wire]",
                plain.interface
            );
            report.warn(
                &policy.place,
                "lets packets pass unprotected, but sockets send nothing that is not protected: all \
                 of them will be dropped (`bypass-impossible`)",
                help,
            );
        }
    }
}

/// True if every SA that a policy names exists and has the right direction.
fn names_fit(
    policy: &policy::Draft,
    sas: &[Draft],
    by_name: &HashMap<&str, &Draft>,
    report: &mut Report<'_>,
) -> bool {
    let mut fit = true;
    let outbound = policy.sa_out.iter().map(|name| (name, Direction::Outbound));
    let inbound = policy.sa_in.iter().map(|name| (name, Direction::Inbound));
    for (name, direction) in outbound.chain(inbound) {
        match by_name.get(name.value.as_str()) {
            None => {
                let known = sas.iter().filter(|sa| sa.direction == Some(direction));
                let known: Vec<_> =
                    known.filter_map(|sa| sa.name.as_ref()).map(|at| at.value.as_str()).collect();
                let help = match nearest(&name.value, known.iter().copied()) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None if known.is_empty() => {
                        format!("add an [[sa]] with direction = \"{}\"", direction.name())
                    }
                    None => format!("{} SAs are {}", direction.name(), known.join(", ")),
                };
                report.error(&name.place, format!("there is no SA {}", quote(&name.value)), help);
                fit = false;
            }
            Some(sa) if matches!(sa.direction, Some(other) if other != direction) => {
                let other = if direction == Direction::Outbound { "sa_in" } else { "sa_out" };
                let what = format!("SA {} is not {}", quote(&name.value), direction.name());
                report.error(
                    &name.place,
                    what,
                    format!("name an {} SA here, or use it as `{other}`", direction.name()),
                );
                fit = false;
            }
            Some(_) => {}
        }
    }
    fit
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

/// Remote addresses that may lie in so many policies without all being compared with all.
const CROWD: usize = 64;

/// For each policy, which ones before it share a remote address with it; `None` where so many do
/// that all may as well be compared with all.
fn neighbours(policies: &[policy::Draft]) -> Option<Vec<Vec<usize>>> {
    let mut ranges: Vec<(IpAddr, IpAddr, usize)> = Vec::new();
    for (at, built) in
        policies.iter().enumerate().filter_map(|(at, p)| Some((at, p.built.as_ref()?)))
    {
        ranges.extend(built.remote.iter().map(|range| (range.first(), range.last(), at)));
    }
    ranges.sort_unstable();
    let mut near = vec![Vec::new(); policies.len()];
    // Ranges that began before this one and have not ended.
    let mut open: Vec<(IpAddr, usize)> = Vec::new();
    for (first, last, at) in ranges {
        open.retain(|(end, _)| *end >= first);
        if open.len() > CROWD {
            return None;
        }
        for (_, other) in open.iter().filter(|(_, other)| *other != at) {
            near.get_mut(at.max(*other))?.push(at.min(*other));
        }
        open.push((last, at));
    }
    for list in &mut near {
        list.sort_unstable();
        list.dedup();
    }
    Some(near)
}

/// Policies that match the same packets.
fn overlap<'a>(
    policy: &policy::Draft,
    before: impl Iterator<Item = &'a policy::Draft>,
    report: &mut Report<'_>,
) {
    let Some(mine) = &policy.built else { return };
    for other in before {
        let Some(theirs) = &other.built else { continue };
        if mine.spd != theirs.spd {
            continue;
        }
        if same_selectors(mine, theirs) {
            let line = report.line_of(&other.place);
            let what =
                format!("policy \"{}\" in line {line} matches the same packets", theirs.name);
            return report.error(&policy.selector, what, "remove one of the two");
        }
        if mine.priority == theirs.priority && mine.action != theirs.action && meet(mine, theirs) {
            let line = report.line_of(&other.place);
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

/// True if one of the two can never decide about anything the other one means, or both decide about
/// the same packets at one priority.
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

/// True if some packet's addresses and protocol match both; ports are not looked at.
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
fn transport_fits(
    policy: &policy::Draft,
    by_name: &HashMap<&str, &Draft>,
    report: &mut Report<'_>,
) {
    for name in policy.sa_out.iter().chain(&policy.sa_in) {
        let sa = by_name.get(name.value.as_str());
        let Some(sa) = sa.filter(|sa| sa.mode == Some(Mode::Transport)) else { continue };
        let (Some(local), Some(remote)) = (&sa.local, &sa.remote) else { continue };
        let local_fits = policy.local.iter().all(|a| a.is_only(local.value));
        let remote_fits = policy.remote.iter().all(|a| a.is_only(remote.value));
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

fn host(at: &At<IpAddr>) -> convoy_wire::Prefix {
    convoy_wire::Prefix::host(at.value)
}

/// Refuses a protecting policy with the same network on both sides: no packet shows on which side its addresses
/// are, and a route would lead this side's away. All addresses of a version are no network in this sense.
fn sides_differ(policy: &policy::Draft, report: &mut Report<'_>) {
    if !policy.protects {
        return;
    }
    let is_everything =
        |addresses: &Addresses| matches!(addresses.prefixes().as_slice(), [all] if all.len() == 0);
    let both = policy.local.iter().find(|local| policy.remote.contains(local));
    if let Some(both) = both.filter(|both| !is_everything(both)) {
        report.error(
            &policy.selector,
            format!("{both} is both `local` and `remote`"),
            "write the networks behind this gateway in `local`, and those behind the peer in `remote`",
        );
    }
}

fn one_way(policy: &policy::Draft, report: &mut Report<'_>) {
    let Some(Policy { action: Action::Protect { sa_out, sa_in }, acquire, .. }) = &policy.built
    else {
        return;
    };
    let missing = match (sa_out, sa_in.is_empty()) {
        (None, false) if !acquire => "sa_out",
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

/// Only the gateway's own user may read a file with keys, and change any.
pub(super) fn files(path: &Path, place: &Place, sas: &[Draft], report: &mut Report<'_>) {
    file_mode(path, sas, report);
    changed_files(path, place, report);
}

/// Refuses a file with keys in it that is not its owner's alone, as a key file is.
fn file_mode(path: &Path, sas: &[Draft], report: &mut Report<'_>) {
    let Some(key) = sas.iter().find_map(|sa| sa.inline_key.as_ref()) else { return };
    if let Some(mode) = mode_of(path).filter(|mode| mode & 0o077 != 0) {
        let what = format!("this file holds keys and is readable by others (mode {mode:04o})");
        let shown = path.display();
        let help = format!(
            "make it its owner's alone: chmod 600 {shown}; if others may have read it, make new keys (convoy genkey)"
        );
        report.secret_error(key, what, help);
    }
}

/// Refuses a site file, and key files, that others than their owners can change: what is in it is done with the
/// gateway's rights, and a key file of before brings nonces again.
fn changed_files(path: &Path, whole: &Place, report: &mut Report<'_>) {
    let keys = report.key_files.iter().map(|at| (at.value.as_path(), &at.place));
    // A folder that others can change is told with the first of its files.
    let mut told = HashSet::new();
    let found: Vec<_> = [(path, whole)]
        .into_iter()
        .chain(keys)
        .filter_map(|(file, place)| {
            Some((file.to_owned(), place.clone(), folder::look_at_file(file)?))
        })
        .filter(|(.., open)| told.insert(open.path().to_owned()))
        .collect();
    for (file, place, open) in found {
        let what = format!("{} can be changed by others: {open}", file.display());
        report.secret_error(&place, what, open.help_for_file());
    }
}

/// The permission bits of a path, if it can be looked at.
fn mode_of(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|meta| meta.mode() & 0o7777)
}
