//! The sections of a site file but SAs and policies, and putting it all together.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::fields::{
    auto_or, interface, interface_address, mtu, name, path_in, port, prefix, section, socket,
    tables, transposed,
};
use super::model::{
    Backend, BetweenTunnels, Capture, FastPath, Metrics, Plain, Routes, Site, Wire,
};
use super::name::is_name;
use super::places::Places;
use super::reader::{At, Field, Place, Report, Table, quote};
use super::{check, crypto, daemons, drivers, marks, policy, sa, width, workers};

/// Reads everything; `None` when something needed is missing or wrong.
pub(super) fn read(mut root: Table<'_>, report: &mut Report<'_>, path: &Path) -> Option<Site> {
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let name =
        root.need(report, "name", "name = \"left\"").and_then(|f| name(f, report, "gateway"));
    let namespace = root.take("namespace").map(|f| namespace(f, report));
    let state_dir = root.take("state_dir").and_then(|f| path_in(f, report, &folder));
    let control_socket = root.take("control_socket").map(|f| socket(f, report, &folder));
    let (mut plain_place, mut wanted_spd) = (None, None);
    let plain = root.need(report, "plain", "[plain]").and_then(|field| {
        plain_place = Some(field.place.clone());
        let table = field.table(report, "a [plain] section")?;
        plain(table, report, &mut wanted_spd)
    });
    let wire = wire_side(&mut root, report);
    let (workers, worker_rules) = workers::read(&mut root, report).unzip();
    let workers = workers.flatten();
    let known = drivers::Known::new();
    let serves_daemons = root.has("xfrm");
    let crypto = crypto::read(&mut root, report, workers.as_ref(), &known, serves_daemons);
    let capture = root.take("capture").map(|field| {
        let table = field.table(report, "a [capture] section")?;
        capture(table, report, &folder)
    });
    let xfrm = root.take("xfrm").map(|field| {
        let place = field.place.clone();
        check::daemons(plain.as_ref(), wire.as_ref(), &place, report);
        let table = field.table(report, "an [xfrm] section")?;
        let xfrm = daemons::read(table, report, &folder)?;
        daemons::taken(&xfrm, plain.as_ref(), wire.as_ref(), &place, report);
        Some(xfrm)
    });
    let worker_rules = worker_rules.flatten().and_then(|rules| {
        rules.checked(xfrm.as_ref().and_then(Option::as_ref), serves_daemons, report)
    });
    let leak_protection = leak_protection(&mut root, report, serves_daemons);
    let marks = marks::read(&mut root, report);
    let metrics = root.take("metrics").map(|field| {
        let table = field.table(report, "a [metrics] section")?;
        metrics(table, report)
    });
    let legacy = legacy(&mut root, report);
    let context = sa::Context {
        folder: &folder,
        // If it is neither true nor false, ciphers are not told as errors, too.
        legacy: legacy.unwrap_or(true),
        worker_count: workers.as_ref().map_or(u16::MAX, |w| w.count),
        udp_port: wire.as_ref().map_or(4500, |w| w.udp_port),
        drivers: &known,
    };
    let sas: Vec<_> = tables(&mut root, report, "sa")
        .into_iter()
        .map(|table| sa::read(table, report, &context))
        .collect();
    let policies: Vec<_> = tables(&mut root, report, "policy")
        .into_iter()
        .map(|table| policy::read(table, report))
        .collect();
    if let Some(Some(socket)) = &control_socket {
        check::socket_folder(&socket.value, &socket.place, report);
    } else if let (None, Some(name)) = (&control_socket, &name) {
        let place = Place { key: "control_socket".into(), ..name.place.clone() };
        check::socket_folder(&default_socket(&name.value), &place, report);
    }
    check::state_dir(state_dir.as_ref(), sas.first().map(|sa| &sa.place), report);
    check::associations(&sas, report);
    check::policies(&policies, &sas, plain.as_ref(), report);
    width::ipv6_in_ipv6(&policies, &sas, wire.as_ref(), report);
    check::databases(plain_place.is_some(), wanted_spd.as_ref(), &policies, report);
    check::files(path, &root.place, &sas, report);
    if let (Some(plain), Some(wire), Some(place)) = (&plain, &wire, &plain_place) {
        check::interfaces(plain, wire, place, report);
        check::bypass(&policies, plain, wire, leak_protection, report);
    }
    root.finish(report);

    let name = name?.value;
    let crypto::Section { engine: crypto, verify_every, shared_work, drivers } = crypto?;
    let (mut outbound, mut inbound) = (Vec::new(), Vec::new());
    for built in sas.into_iter().map(|sa| sa.built) {
        match built? {
            sa::Built::Outbound(sa) => outbound.push(sa),
            sa::Built::Inbound(sa) => inbound.push(sa),
        }
    }
    Some(Site {
        path: path.to_owned(),
        namespace: transposed(namespace)?,
        state_dir: state_dir.map(|dir| dir.value),
        control_socket: match control_socket {
            Some(socket) => socket?.value,
            None => default_socket(&name),
        },
        name,
        plain: plain?,
        wire: wire?,
        workers: workers?,
        worker_rules: worker_rules?,
        crypto,
        verify_every,
        shared_work,
        drivers,
        capture: transposed(capture)?,
        xfrm: transposed(xfrm)?,
        metrics: transposed(metrics)?,
        outbound,
        inbound,
        policies: policies
            .into_iter()
            .map(|policy| policy.built.filter(|_| policy.is_sound))
            .collect::<Option<_>>()?,
        leak_protection: leak_protection?,
        legacy: legacy?,
        marks: marks?,
        key_files: mem::take(&mut report.key_files).into_iter().map(|at| at.value).collect(),
        places: Places::default(),
    })
}

/// Reads whether packets that policies protect are kept from leaving in clear.
fn leak_protection(
    root: &mut Table<'_>,
    report: &mut Report<'_>,
    serves_daemons: bool,
) -> Option<bool> {
    let Some(field) = root.take("leak_protection") else { return Some(true) };
    let place = field.place.clone();
    let is_on = field.boolean(report)?;
    if !is_on && serves_daemons {
        report.error(
            &place,
            "cannot be false with [xfrm]: the marks that lead packets to the SAs of daemons are part of it",
            "leave the line out",
        );
        return None;
    }
    if !is_on {
        report.warn(
            &place,
            "is false: what policies protect leaves in clear wherever a route leads past the tunnels, and \
             always while the gateway does not run",
            "leave the line out, unless something else holds these packets",
        );
    }
    Some(is_on)
}

/// Reads whether SAs may have ciphers of old peers.
fn legacy(root: &mut Table<'_>, report: &mut Report<'_>) -> Option<bool> {
    let Some(field) = root.take("legacy") else { return Some(false) };
    let place = field.place.clone();
    let is_on = field.boolean(report)?;
    if is_on {
        report.warn(
            &place,
            "is true: SAs may have 3DES or Camellia, whose code is slow and may tell of keys by the time it takes",
            "remove the line once no peer needs them",
        );
    }
    Some(is_on)
}

/// The control socket alone, or its default.
pub(super) fn control_socket(
    root: &mut Table<'_>,
    report: &mut Report<'_>,
    path: &Path,
) -> Option<PathBuf> {
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    if let Some(field) = root.take("control_socket") {
        return socket(field, report, &folder).map(|socket| socket.value);
    }
    let name =
        root.need(report, "name", "name = \"left\"").and_then(|f| name(f, report, "gateway"))?;
    Some(default_socket(&name.value))
}

fn default_socket(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/convoy/{name}.sock"))
}

fn namespace(field: Field<'_>, report: &mut Report<'_>) -> Option<String> {
    let name = field.string(report, "the name of a network namespace")?;
    let absolute = name.value.starts_with('/');
    if (absolute && name.value.len() > 1) || is_name(&name.value) {
        return Some(name.value);
    }
    report.error(
        &name.place,
        format!("{} cannot be a network namespace", quote(&name.value)),
        "use a name that `ip netns list` shows, or the absolute path of a namespace file",
    );
    None
}

/// Address on which metrics are served unless the section says otherwise.
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

fn metrics(mut table: Table<'_>, report: &mut Report<'_>) -> Option<Metrics> {
    let expected = "an address and a port, such as \"127.0.0.1:9464\"";
    let listen = match table.take("listen") {
        Some(field) => field.parsed::<SocketAddr>(report, expected).map(|listen| {
            if !listen.value.ip().is_loopback() {
                report.warn(
                    &listen.place,
                    "metrics tell peers, counters and names to everybody who reaches this address",
                    "listen on 127.0.0.1, or let a packet filter say who may ask",
                );
            }
            listen.value
        }),
        None => Some(METRICS),
    };
    table.finish(report);
    listen.map(|listen| Metrics { listen })
}

/// `wanted_spd` is where the name of the interface's database stands, if it has one of its own.
fn plain(
    mut table: Table<'_>,
    report: &mut Report<'_>,
    wanted_spd: &mut Option<At<String>>,
) -> Option<Plain> {
    let words =
        [("tun", Backend::Host), ("af_packet", Backend::AfPacket), ("af_xdp", Backend::AfXdp)];
    let backend = table.take("backend").map(|f| f.choice(report, &words).map(|at| at.value));
    let example = match backend {
        Some(Some(direct)) if direct.is_direct() => "interface = \"eth1\"",
        _ => "interface = \"convoy0\"",
    };
    let name = table.need(report, "interface", example).and_then(|f| interface(f, report));
    if matches!(backend, Some(Some(direct)) if direct.is_direct()) {
        for key in ["addresses", "mtu", "routes"] {
            let Some(field) = table.take(key) else { continue };
            report.error(
                &field.place,
                "is for a TUN interface, which the gateway makes; this one is there already",
                format!("leave `{key}` out, or use `backend = \"tun\"`"),
            );
        }
    }
    let addresses = table.take("addresses").map_or_else(Vec::new, Field::one_or_many);
    let addresses: Vec<_> = addresses.into_iter().map(|f| interface_address(f, report)).collect();
    let mtu = table.take("mtu").map(|f| auto_or(f, report, |f, report| mtu(f, report, 576)));
    let routes = table.take("routes").map(|f| routes(f, report));
    let spd = table.take("spd").map(|f| self::name(f, report, "database"));
    let words = [("gateway", BetweenTunnels::Gateway), ("host", BetweenTunnels::Host)];
    let between_tunnels = table.take("between_tunnels").map(|f| f.choice(report, &words));
    if let (Some(Some(Backend::AfPacket | Backend::AfXdp)), Some(Some(given))) =
        (backend, &between_tunnels)
        && given.value == BetweenTunnels::Host
    {
        report.error(
            &given.place,
            "the host gets nothing of a gateway that forwards by itself: what comes out of a tunnel and falls \
             under a policy of another would leave in clear by this interface",
            "leave `between_tunnels` out, or use `backend = \"tun\"`",
        );
    }
    let between_tunnels = between_tunnels.map(|given| given.map(|at| at.value));
    table.finish(report);
    if let (Some(Some(spd)), wanted) = (&spd, wanted_spd) {
        *wanted = Some(spd.clone());
    }
    let spd = transposed(spd)?.map(|at| at.value.into());
    let backend = backend.map_or(Some(Backend::Host), |given| given)?;
    // What arrives at an interface is routed to it by others.
    let usual =
        if backend.is_direct() { Routes::Explicit(Vec::new()) } else { Routes::FromPolicies };
    Some(Plain {
        backend,
        interface: name?,
        addresses: addresses.into_iter().collect::<Option<_>>()?,
        mtu: mtu.map_or(Some(None), |given| given)?,
        routes: routes.map_or(Some(usual), |given| given)?,
        spd,
        between_tunnels: between_tunnels.unwrap_or(Some(BetweenTunnels::Gateway))?,
    })
}

fn routes(field: Field<'_>, report: &mut Report<'_>) -> Option<Routes> {
    if field.is_string() && matches!(field.as_str(), Some(text) if !text.contains('/')) {
        let word = field.choice(report, &[("auto", true), ("none", false)])?;
        return Some(if word.value { Routes::FromPolicies } else { Routes::Explicit(Vec::new()) });
    }
    let networks: Vec<_> = field.one_or_many().into_iter().map(|f| prefix(f, report)).collect();
    networks.into_iter().collect::<Option<_>>().map(Routes::Explicit)
}

/// Daemons bring SAs of any address and in UDP, and their IKE shares ports: sockets are always there.
fn beside_sockets(wire: Wire, root: &Table<'_>) -> Wire {
    if wire.backend != Backend::AfXdp || !root.has("xfrm") {
        return wire;
    }
    Wire { backend: Backend::Host, fast_path: FastPath::Needed, ..wire }
}

/// Reads the section `[wire]`.
fn wire_side(root: &mut Table<'_>, report: &mut Report<'_>) -> Option<Wire> {
    let serves_daemons = root.has("xfrm");
    // Packet sockets cannot be beside IKE daemons, which is told there: no interface would help.
    let needs_interface =
        |backend: Backend| backend.is_direct() && !(serves_daemons && backend == Backend::AfPacket);
    let wire = section(root, report, "wire", |table, report| wire(table, report, needs_interface));
    wire.map(|wire| beside_sockets(wire, root))
}

fn wire(
    mut table: Table<'_>,
    report: &mut Report<'_>,
    needs_interface: impl Fn(Backend) -> bool,
) -> Option<Wire> {
    let words = [
        ("auto", (Backend::Host, FastPath::Auto)),
        ("socket", (Backend::Host, FastPath::Off)),
        ("af_packet", (Backend::AfPacket, FastPath::Off)),
        ("af_xdp", (Backend::AfXdp, FastPath::Off)),
    ];
    let backend = table.take("backend").map(|f| f.choice(report, &words).map(|at| at.value));
    let name = match backend {
        Some(Some((backend, _))) if needs_interface(backend) => {
            let name = table.need(report, "interface", "interface = \"eth0\"");
            Some(name.and_then(|f| interface(f, report)))
        }
        _ => table.take("interface").map(|f| interface(f, report)),
    };
    let udp_port = table.take("udp_port").map(|f| port(f, report));
    let mtu = table.take("mtu").map(|f| auto_or(f, report, |f, report| mtu(f, report, 576)));
    table.finish(report);
    let (backend, fast_path) = backend.unwrap_or_else(|| Some(Default::default()))?;
    Some(Wire {
        backend,
        fast_path,
        interface: transposed(name)?,
        udp_port: udp_port.map_or(Some(4500), |given| given)?,
        mtu: mtu.map_or(Some(None), |given| given)?,
    })
}

fn capture(mut table: Table<'_>, report: &mut Report<'_>, folder: &Path) -> Option<Capture> {
    let file =
        table.need(report, "file", "file = \"wire.pcap\"").and_then(|f| path_in(f, report, folder));
    let max = table
        .take("max_mib")
        .map(|f| f.integer(report, 1..=1 << 20, "use the largest size in MiB"));
    table.finish(report);
    let file = file?;
    let parent =
        file.value.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if !parent.is_dir() {
        report.error(
            &file.place,
            format!("folder {} does not exist", parent.display()),
            format!("create it: mkdir -p {}", parent.display()),
        );
        return None;
    }
    let max_mib = transposed(max)?.map_or(100, |at| at.value);
    Some(Capture { file: file.value, max_mib: u32::try_from(max_mib).ok()? })
}
