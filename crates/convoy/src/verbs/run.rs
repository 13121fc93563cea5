//! `convoy run`: one gateway, until it is told to end.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use convoy_control::client::{Client, ClientError, Target};
use convoy_control::protocol::{Answer, Request};
use convoy_control::server::Server;
use convoy_control::site::{Backend, Site};
use convoy_control::xfrm::{self, Multicast};
use convoy_crypto::Cpu;
use convoy_host::{GenerationWatch, has_generation_id};
use scopeguard::ScopeGuard;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Stop};
use crate::gateway::{
    Absent, Carriers, Gateway, Helper, Live, Metrics, Unprotected, absent_here,
    describe_protection, describe_wire, enter_namespace, load, past_interface, plain_mtu, plan,
    refuse, unusable_here, wire_mtu,
};
use crate::output;
use crate::privileges::{self, Limits};
use crate::service_manager::ServiceManager;

/// `convoy run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Site file.
    #[arg(value_name = "SITE.toml")]
    pub site: PathBuf,
    /// Print the changes that the gateway would make on this host, and change nothing; exit code 1 if it could not
    /// start: the user's rights are not enough, or an interface or an address is not here.
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print as JSON.
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// End when standard input ends, too: for programs that start a gateway and may die before it.
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// The limits under which it runs.
    #[command(flatten)]
    pub limits: Limits,
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    if !args.dry_run {
        privileges::keep_private();
    }
    let (site, warnings) = load(&args.site)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    // First of all: threads started later inherit the namespace.
    enter_namespace(&site)?;
    refuse(&unusable_here(&site))?;
    if args.dry_run {
        return dry_run(&site, args.json);
    }
    refuse_second(&site)?;
    serve(site, args)
}

/// Refuses to start a gateway that runs already, before anything is changed.
fn refuse_second(site: &Site) -> anyhow::Result<()> {
    let client = Client::find(&Target::Socket(site.control_socket.clone()))?;
    match client.ask(Request::Status) {
        Ok(Answer::Status(status)) => anyhow::bail!(
            "gateway {} runs already (process {}, socket {}): stop that one first, or have it read the changed site \
             file (convoy reload); another gateway needs another name",
            status.name,
            status.pid,
            site.control_socket.display()
        ),
        Err(error @ ClientError::Silent { .. }) => Err(error.into()),
        // What else is in the place of the socket is found when it is made.
        _ => Ok(()),
    }
}

/// Request to a running gateway, or change of its state.
enum Event {
    /// SIGTERM, SIGINT, the end of standard input, or a client's wish.
    End,
    /// SIGHUP.
    Reload,
    /// A worker failed.
    Failed,
    /// This interface does not exist any more.
    Gone(String),
}

/// Time between two looks at the counters, from which rates are made.
const TICK: Duration = Duration::from_secs(1);

/// Runs it; a start that failed leaves no interface that it has made, and nothing closed that was open before.
fn serve(site: Site, args: &RunArgs) -> anyhow::Result<Exit> {
    let absent = Absent::look(&site)?;
    let unprotected = Unprotected::look(&site)?;
    let mut is_ready = false;
    let outcome = start_and_serve(site, args, &mut is_ready);
    if !is_ready {
        absent.restore();
        unprotected.restore();
    }
    outcome
}

fn start_and_serve(site: Site, args: &RunArgs, is_ready: &mut bool) -> anyhow::Result<Exit> {
    let (events, happened) = mpsc::channel();
    let manager = ServiceManager::find();
    let carriers = Carriers::take_over(&site, &manager);
    // Before there are threads.
    let helper = Helper::start(&site);
    // Before anything is changed on the host, so that no signal finds it half done.
    listen_to_signals(events.clone())?;
    if args.until_stdin_ends {
        listen_to_stdin(events.clone())?;
    }
    warn_without_forwarding(&site);
    let control_socket = site.control_socket.clone();
    let metrics_at = site.metrics.map(|metrics| metrics.listen);
    let xfrm_socket = site.xfrm.as_ref().map(|xfrm| xfrm.socket.clone());
    let alarm = {
        let events = events.clone();
        // Nobody listens any more only when the gateway is ending anyway.
        move |_| drop(events.send(Event::Failed))
    };
    let cpu = Cpu::detect().map_err(|e| Stop::usage(e.to_string()))?;
    // Before sequence numbers are leased, so that no copy that is made from there on is missed.
    let generations = watch_generations(&helper);
    let gateway = Gateway::start(site, helper, &carriers, alarm)?;
    tracing::info!(interface = gateway.interface(), tier = %cpu.best(), "gateway runs");
    let multicast = Multicast::new().context("cannot make a descriptor for events")?;
    let live = Live::new(gateway, cpu, multicast.clone(), move || drop(events.send(Event::End)));
    listen_to_workers(live.clone());
    listen_to_generations(live.clone(), generations);
    look_out(live.clone());
    // A start that fails from here on stops the gateway.
    let started = scopeguard::guard(&live, |live| {
        live.take().into_iter().for_each(Gateway::stop_after_failure);
    });
    let daemons = xfrm_socket.map(|path| xfrm::Server::start(&path, live.clone(), multicast));
    let daemons = daemons.transpose()?;
    let server = Server::start(&control_socket, live.clone())?;
    let mut metrics = metrics_at.map(|at| Metrics::start(live.clone(), at));
    carriers.keep(&manager);
    live.give_up(args.limits)?;
    ScopeGuard::into_inner(started);
    // Whoever started the gateway may not listen any more; that is no reason to end.
    let _ = writeln!(std::io::stdout(), "ready");
    *is_ready = true;
    manager.tell_ready();
    let end = wait(&live, metrics.as_mut(), &happened);
    manager.tell_stopping();
    tracing::info!("stopping: packets that have arrived are still processed");
    drop(metrics);
    drop(server);
    drop(daemons);
    live.take().map_or(Ok(()), Gateway::stop)?;
    match end {
        Event::Failed => anyhow::bail!("a worker failed"),
        Event::Gone(name) => anyhow::bail!(
            "interface {name} was removed, so the gateway ends: start it again when the interface is back"
        ),
        _ => Ok(Exit::Ok),
    }
}

/// Serves until something ends the gateway; says what.
fn wait(live: &Live, mut metrics: Option<&mut Metrics>, happened: &mpsc::Receiver<Event>) -> Event {
    loop {
        match happened.recv_timeout(TICK) {
            // How it went is in the log.
            Ok(Event::Reload) => drop(live.reload()),
            Ok(end) => return end,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                live.tick();
                if let Some(metrics) = &mut metrics {
                    metrics.tick();
                }
                if let Some(name) = live.gone() {
                    return Event::Gone(name);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Event::Failed,
        }
    }
}

fn listen_to_signals(events: mpsc::Sender<Event>) -> anyhow::Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot listen to signals")?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let event = if signal == SIGHUP { Event::Reload } else { Event::End };
            if events.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn listen_to_workers(live: Arc<Live>) {
    let thread = std::thread::Builder::new().name("events".into());
    if let Err(error) = thread.spawn(move || live.listen()) {
        tracing::warn!(%error, "events of SAs will not be logged");
    }
}

/// Hears of copies of this machine, and says where it cannot.
fn watch_generations(helper: &Helper) -> GenerationWatch {
    let mut watch = GenerationWatch::open();
    if !has_generation_id(Path::new("/")) {
        tracing::info!(
            "this machine has no VM generation id: if it is a virtual machine, the gateway does not detect \
             that it was resumed from a snapshot or cloned, and sequence numbers are used twice; make new keys \
             then"
        );
        return watch;
    }
    if !watch.receives_log()
        && let Some(log) = helper.kernel_log()
    {
        watch.receive_log(log);
    }
    for deaf in watch.unavailable() {
        tracing::warn!("snapshots and clones of this machine may not be detected: {deaf}");
    }
    watch
}

fn listen_to_generations(live: Arc<Live>, watch: GenerationWatch) {
    let thread = std::thread::Builder::new().name("generation".into());
    if let Err(error) = thread.spawn(move || live.listen_to_generations(watch)) {
        tracing::warn!(%error, "snapshots and clones of this machine are not detected");
    }
}

fn look_out(live: Arc<Live>) {
    let Some(lookout) = live.lookout() else { return };
    let thread = std::thread::Builder::new().name("convoy-lookout".into());
    if let Err(error) = thread.spawn(move || live.look_out(lookout)) {
        tracing::warn!(%error, "changes of the packet filter are seen once a second, not at once");
    }
}

fn listen_to_stdin(events: mpsc::Sender<Event>) -> anyhow::Result<()> {
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        // An error is an end as well.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = events.send(Event::End);
    })?;
    Ok(())
}

/// Without forwarding only this host itself can use the tunnel; that is easily overlooked.
fn warn_without_forwarding(site: &Site) {
    if site.plain.backend.is_direct() {
        return;
    }
    let networks = site.protected_networks();
    let files = [
        (true, "/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward"),
        (false, "/proc/sys/net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"),
    ];
    for (v4, file, name) in files {
        let concerned = networks.iter().any(|network| network.addr().is_ipv4() == v4);
        let off = std::fs::read_to_string(file).is_ok_and(|value| value.trim() == "0");
        if concerned && off {
            tracing::warn!(
                "{name} is 0, so only this host itself can use the tunnel; for the hosts behind it: sysctl -w \
                 {name}=1"
            );
        }
    }
}

#[derive(Serialize)]
struct DryRun {
    gateway: String,
    namespace: Option<String>,
    interface: String,
    workers: u16,
    sockets: Vec<String>,
    plain_mtu: u16,
    wire_mtu: u16,
    changes: Vec<String>,
    /// Capabilities that this user would need, and lacks.
    lacking: Vec<String>,
}

fn dry_run(site: &Site, json: bool) -> anyhow::Result<Exit> {
    // A start ends with these.
    let absent = absent_here(site);
    for missing in &absent {
        tracing::error!("{missing}");
    }
    for past in past_interface(site) {
        tracing::warn!("{past}");
    }
    let wire_mtu = wire_mtu(site);
    let interface = &site.plain.interface;
    let mut changes = vec![match site.plain.backend {
        Backend::Host => {
            format!("make TUN interface {interface} with {} queue(s)", site.workers.count)
        }
        Backend::AfPacket => format!("open packet sockets on interface {interface}"),
        Backend::AfXdp => format!("open xdp sockets on interface {interface}"),
    }];
    changes.extend(plan(site, &site.plain.interface, wire_mtu)?.describe());
    if site.plain.backend.is_direct() && site.leak_protection {
        let tun = site.plain.tun();
        changes.push(format!("make TUN interface {tun} for packets of the host itself"));
    }
    if site.plain.backend == Backend::Host {
        changes.push(format!(
            "clamp the MSS of TCP connections through {interface} to its MTU (nf_tables)"
        ));
    }
    changes.extend(describe_protection(site));
    for interface in site.xfrm_interfaces() {
        let (name, if_id) = (&interface.name, interface.if_id);
        changes.push(format!("make TUN interface {name} for if_id {if_id}, which stays"));
        let addresses = interface.addresses.iter();
        changes.extend(addresses.map(|it| {
            format!("add address {}/{} to interface {name}, which stays", it.addr, it.prefix_len)
        }));
    }
    changes.extend(
        site.xfrm.iter().map(|xfrm| format!("serve XFRM at socket {}", xfrm.socket.display())),
    );
    let report = DryRun {
        gateway: site.name.clone(),
        namespace: site.namespace.clone(),
        interface: site.plain.interface.clone(),
        workers: site.workers.count,
        sockets: describe_wire(site),
        plain_mtu: plain_mtu(site, wire_mtu),
        wire_mtu,
        changes,
        lacking: privileges::lacking(site),
    };
    if json {
        output::json(&report)?;
    } else {
        let mut text = format!("gateway {} would\n", report.gateway);
        report.changes.iter().for_each(|change| text += &format!("  {change}\n"));
        report.sockets.iter().for_each(|socket| text += &format!("  open {socket}\n"));
        let is_protected = describe_protection(site).is_some();
        text += match &site.xfrm {
            None if is_protected => {
                "and undo this at its end, except leak protection (`convoy open` removes it). Nothing was \
                 changed.\n"
            }
            None => "and undo all of it at its end. Nothing was changed.\n",
            Some(_) => {
                "and undo this at its end, except interfaces that stay and leak protection (`convoy open` \
                 removes both).\nNothing was changed.\n"
            }
        };
        output::print(&text)?;
    }
    if report.lacking.is_empty() {
        return Ok(if absent.is_empty() { Exit::Ok } else { Exit::Trouble });
    }
    tracing::warn!(
        "this user lacks {}, so it can neither start the gateway nor see all that may be in its way: run as root",
        report.lacking.join(" and ")
    );
    Ok(Exit::Trouble)
}
