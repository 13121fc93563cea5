//! Ciphers of old peers: whether SAs may have them, and which do.

use convoy_control::site::Site;
use convoy_control::status::Status;
use convoy_crypto::Suite;

use super::check::Check;

const ABOUT: &str = "ciphers";

/// Most SAs that are named.
const NAMED: usize = 5;

/// Looks for legacy suites: those that a site file allows, and those of SAs of the running gateway.
pub(super) fn look(site: Option<&Site>, status: Option<&Status>) -> Option<Check> {
    let is_allowed = site.is_some_and(|site| site.legacy);
    let is_old = |algorithm: &str| algorithm.parse().is_ok_and(Suite::is_legacy);
    let of_status = status.iter().flat_map(|status| &status.sas);
    let mut old: Vec<_> = of_status
        .filter(|sa| is_old(&sa.algorithm))
        .map(|sa| format!("{} ({})", sa.name, sa.algorithm))
        .collect();
    if old.is_empty() {
        return is_allowed.then(|| {
            let found = "`legacy = true` allows 3DES and Camellia, which no SA has now: remove the line if no \
                         peer needs them";
            Check::note(ABOUT, found)
        });
    }
    let count = old.len();
    old.truncate(NAMED);
    if count > NAMED {
        old.push(format!("{} more", count - NAMED));
    }
    Some(Check::note(
        ABOUT,
        format!(
            "SAs use ciphers of old peers, whose timing may reveal keys: {}; make their peers propose AES",
            old.join(", ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use convoy_control::status::SCHEMA;

    use super::*;

    fn site(top: &str) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("left.toml");
        let text = format!("name = \"left\"\n{top}\n[plain]\ninterface = \"convoy0\"\n[xfrm]\n");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        Site::load(&path).unwrap_or_else(|errors| panic!("{errors}")).0
    }

    fn status(algorithms: &[&str]) -> Status {
        let sa = |(n, algorithm): (usize, &&str)| {
            serde_json::json!({
                "name": format!("sa-{n}"), "spi": "0x00001001", "protocol": "esp", "mode": "tunnel",
                "local": "192.0.2.1", "remote": "192.0.2.2", "udp_ports": null,
                "algorithm": algorithm, "tier": "portable", "esn": true, "origin": "daemon", "reqid": 1,
                "worker": 0, "flow": {"packets": 0, "bytes": 0, "idle_s": null}, "dropped": 0,
                "lifetime": null, "direction": "inbound", "replay_window": 1024,
                "replay_edge": 1, "replayed": 0, "icv_failures": 0,
            })
        };
        let sas: Vec<_> = algorithms.iter().enumerate().map(sa).collect();
        serde_json::from_value(serde_json::json!({
            "schema": SCHEMA, "version": "1", "name": "left", "pid": 7, "uptime_s": 1.5,
            "site_file": "left.toml", "namespace": null, "health": {"level": "ok", "reasons": []},
            "tier": "portable", "engine": null, "generation": 1,
            "outbound": {"packets": 1, "bytes": 2}, "inbound": {"packets": 0, "bytes": 0},
            "drops": [], "kernel_drops": 0, "counters": [], "workers": 1,
            "leases": {"state_dir": null, "failure": null}, "sas": sas,
        }))
        .unwrap()
    }

    #[test]
    fn ciphers_of_old_peers_are_told_where_allowed_or_in_use() {
        let found = |site: Option<&Site>, algorithms: &[&str]| {
            look(site, Some(&status(algorithms))).map(|check| check.found)
        };
        let (off, on) = (site(""), site("legacy = true"));
        assert_eq!(found(Some(&off), &["aes-128-gcm-16", "aes-128-cbc+hmac-md5-96"]), None);
        assert_eq!(look(None, None), None);
        assert!(found(Some(&on), &[]).unwrap().contains("no SA has now"));
        let old = "camellia-256-cbc+hmac-sha256-128";
        let text = found(Some(&on), &["aes-128-gcm-16", "3des-cbc+hmac-sha1-96", old]).unwrap();
        assert!(text.contains("sa-1 (3des-cbc+hmac-sha1-96), sa-2 (camellia-256"), "{text}");
        assert!(!text.contains("sa-0"), "{text}");
        // They stay after a reload without it.
        let text = found(Some(&off), &[old; 7]).unwrap();
        assert!(
            text.contains("sa-4") && !text.contains("sa-5") && text.contains("2 more"),
            "{text}"
        );
    }
}
