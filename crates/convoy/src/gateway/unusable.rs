//! Reasons for which a site cannot run on this machine, found before anything is changed.

use convoy_control::site::{Finding, Site};
use convoy_host::{LinkName, Netns, Network};

use super::leak_protection::unprotectable;
use super::plan::{finding, loops, missing_cpus};
use crate::exit::{Stop, describe};

/// Everything for which a gateway of this site can run on no machine.
#[must_use]
pub fn unusable(site: &Site) -> Vec<Finding> {
    let mut findings = loops(site);
    findings.extend(unprotectable(site));
    findings.extend(nothing_to_protect(site));
    findings
}

/// Everything for which a gateway of this site cannot run on this machine, as far as it can be seen
/// beforehand. To be asked in the site's network namespace.
#[must_use]
pub fn unusable_here(site: &Site) -> Vec<Finding> {
    let mut findings = unusable(site);
    findings.extend(missing_cpus(site));
    findings.extend(foreign_interface(site));
    findings
}

/// Refuses what was found, with all of it in one error.
///
/// # Errors
/// The findings, unless there are none.
pub fn refuse(findings: &[Finding]) -> anyhow::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
    Err(Stop::usage(told.join("\n")))
}

/// Enters the site's network namespace, if it names one.
///
/// # Errors
/// The finding, where there is no such namespace or it may not be entered.
pub fn enter_namespace(site: &Site) -> anyhow::Result<()> {
    let Some(name) = &site.namespace else { return Ok(()) };
    Netns::open(name).and_then(|namespace| namespace.enter_process()).map_err(|error| {
        let help = "make it first (`ip netns add`), or remove the line";
        Stop::usage(finding(site, "namespace", describe(&error.into()), help).to_string())
    })
}

/// The TUN interface's name, where another kind of interface has it.
fn foreign_interface(site: &Site) -> Option<Finding> {
    if site.plain.backend.is_direct() {
        return None;
    }
    let name = &site.plain.interface;
    let mut network = Network::open().ok()?;
    let link = network.link(&LinkName::new(name).ok()?).ok()?;
    let is_tun = network.tun_state(link.index).ok()?.is_some();
    (!is_tun).then(|| {
        let what = format!("{name} exists, and is no TUN interface with several queues");
        finding(site, "plain.interface", what, "choose a name that `ip link` does not show")
    })
}

/// A site without policies of its own and without those of IKE daemons; so a file looks that was cut off.
fn nothing_to_protect(site: &Site) -> Option<Finding> {
    (site.policies.is_empty() && site.xfrm.is_none()).then(|| {
        let what = "there is no [[policy]] and no [xfrm], so the gateway would protect nothing";
        let help = "add policies and their SAs, or [xfrm] for an IKE daemon; was the file cut off?";
        finding(site, "policy", what.to_owned(), help)
    })
}
