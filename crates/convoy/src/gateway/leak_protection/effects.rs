//! Effects that leak protection of a site has, as far as its file tells.

use std::collections::BTreeSet;

use convoy_control::site::{Finding, Marks, Site};
use convoy_host::{IpNet, LinkName};
use convoy_leak_protection::{Config, Lead, Questions, Sides, SitePolicies};

use super::own_policies::OwnPolicies;

/// True if the site file asks for leak protection.
pub(super) fn is_asked_for(site: &Site) -> bool {
    site.leak_protection || site.xfrm.is_some()
}

/// Own policies of a site that asks for leak protection.
fn asked_for(site: &Site) -> Option<Result<OwnPolicies, Box<Finding>>> {
    is_asked_for(site).then(|| OwnPolicies::of(site))
}

/// Obstacle to installing leak protection, as far as the site file tells.
#[must_use]
pub fn unprotectable(site: &Site) -> Option<Finding> {
    asked_for(site)?.err().map(|finding| *finding)
}

/// True if the kernel asks about some packets of a site's own policies, as far as its file tells.
#[must_use]
pub fn will_ask(site: &Site) -> bool {
    asked_for(site).is_some_and(|own| own.is_ok_and(|own| own.protected().ask()))
}

/// Routes and rules of this host that lead what a site protects past its TUN interface, in words. What cannot be seen is
/// not told.
#[must_use]
pub fn past_interface(site: &Site) -> Vec<String> {
    let (Some(Ok(own)), Ok(config)) = (asked_for(site), config(site)) else { return Vec::new() };
    let found = own.leads_past(&config).unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

/// Effects that leak protection would have, in words; nothing where it would have none.
#[must_use]
pub fn describe_protection(site: &Site) -> Option<String> {
    let own = asked_for(site)?.ok().filter(OwnPolicies::are_described)?;
    let config = config(site).ok()?;
    let Sides { local, remote } = own.sides();
    let [local, remote] = [local, remote].map(|side| networks(&side));
    let (tun, table) = (&config.tun, config.table());
    let (mut words, about) = match own.protected() {
        SitePolicies::Networks(sets) => (
            format!(
                "drop packets between {local} and {remote} that do not go through {tun}, also after its end \
                 (nf_tables, table inet {table})"
            ),
            networks(&sets.partly_bypassed),
        ),
        SitePolicies::Each { .. } => (
            format!(
                "mark packets from {local} to {remote} to lead them into {tun}, and drop those that leave \
                 otherwise, also after its end (nf_tables, table inet {table})"
            ),
            "partly bypassed networks".to_owned(),
        ),
    };
    if own.protected().ask() {
        words += &asks_in_words(&config, &about);
    }
    Some(words)
}

/// That the kernel would ask about packets, in words.
fn asks_in_words(config: &Config, about: &str) -> String {
    let Questions { queue, table, priority, .. } = config.questions;
    format!(
        "; request a verdict for each new flow to and from {about} (queues from {queue} on, routing tables \
         from {table} on, ip rules from priority {priority} on)"
    )
}

/// A few networks, or how many.
pub(super) fn networks(all: &BTreeSet<IpNet>) -> String {
    match all.len() {
        0 => "nothing".to_owned(),
        1..=3 => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        many => format!("{many} networks"),
    }
}

/// Settings of a site's leak protection.
pub(super) fn config(site: &Site) -> anyhow::Result<Config> {
    let config = configured(site, LinkName::new(site.plain.tun())?);
    // Where daemons are served, marks lead.
    let leads = if site.xfrm.is_some() { Lead::ByMark } else { config.leads };
    Ok(Config { leads, ..config })
}

/// Settings of a site's leak protection around an interface.
pub fn configured(site: &Site, tun: LinkName) -> Config {
    let Marks { exempt, packets, flows } = site.marks;
    // The site file has no others.
    let marks = convoy_leak_protection::Marks::at(packets, flows).unwrap_or_default();
    let questions = Questions { marks, ..Questions::new() };
    let udp_port = site.wire.udp_port;
    let forwarding = site.plain.backend.is_direct().then(|| LinkName::new(&site.plain.interface));
    let forwarding = forwarding.and_then(Result::ok);
    Config { mark: exempt, udp_port, questions, forwarding, ..Config::new(tun) }
}

#[cfg(test)]
mod tests {
    use convoy_leak_protection::Marks as Bits;

    use super::*;

    #[test]
    fn marks_of_a_site_file_are_those_of_leak_protection() {
        let Marks { exempt, packets, flows } = Marks::default();
        assert_eq!(exempt, Config::new(LinkName::new("tun").unwrap()).mark);
        assert_eq!(Bits::at(packets, flows), Some(Bits::default()));
    }
}
