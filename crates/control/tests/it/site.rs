//! A good site file becomes a typed site with its defaults filled in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use convoy_control::site::{Action, CryptoEngine, Marks, Routes, SharedWork, Site, Warning};
use convoy_control::state::State;
use convoy_control::status::{Text, policy_report};
use convoy_crypto::Cpu;
use convoy_engine::registry::DriverRules;
use convoy_host::Mark;
use convoy_ipsec::sa::{DfPolicy, DscpPolicy, IpsecProtocol, Mode, WorkerId};

const GOOD: &str = r#"
name = "left"
state_dir = "."

[plain]
interface = "convoy0"
addresses = ["10.1.0.1/24", "fd01::1/64"]

[[sa]]
name = "to-right"
direction = "outbound"
spi = 0x1001
local = "192.0.2.1"
remote = "192.0.2.2"
algorithm = "aes-128-gcm"
key = "000102030405060708090a0b0c0d0e0f10111213"

[[sa]]
name = "from-right"
direction = "inbound"
spi = 4098
local = "192.0.2.1"
remote = "192.0.2.2"
algorithm = "aes-256-gcm"
key_file = "in.key"
encap = { kind = "udp", remote_port = 4501 }

[[policy]]
name = "lans"
action = "protect"
local = ["10.1.0.0/24", "fd01::/64"]
remote = ["10.2.0.0/24", "10.2.0.0/16", "fd02::/64"]
sa_out = "to-right"
sa_in = "from-right"

[[policy]]
name = "web"
action = "discard"
local = "10.1.0.5-10.1.0.9"
remote = "10.3.0.0/16"
protocol = "tcp"
remote_port = "8000-8999"
priority = 10
"#;

fn load(text: &str) -> (tempfile::TempDir, PathBuf, (Site, Vec<Warning>)) {
    let dir = tempfile::tempdir().unwrap();
    let private = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    private(dir.path(), 0o700);
    let key = dir.path().join("in.key");
    fs::write(&key, format!("0x{}\n", "ab".repeat(36))).unwrap();
    private(&key, 0o600);
    let path = dir.path().join("left.toml");
    fs::write(&path, text).unwrap();
    private(&path, 0o600);
    let loaded = Site::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    (dir, path, loaded)
}

/// Warnings but the one about folders in memory, which depends on where tests run.
fn texts(warnings: &[Warning]) -> Vec<String> {
    let texts = warnings.iter().map(|w| w.to_string());
    texts.filter(|text| !text.contains("forgotten at the next boot")).collect()
}

#[test]
fn defaults_are_filled_in() {
    let (dir, _, (site, warnings)) = load(GOOD);
    assert_eq!(texts(&warnings), [""; 0]);
    assert_eq!(site.name, "left");
    assert_eq!(site.control_socket, PathBuf::from("/run/convoy/left.sock"));
    assert_eq!(site.state_dir, Some(dir.path().join(".")));
    assert_eq!((site.workers.count, site.workers.busy_poll, site.wire.udp_port), (1, false, 4500));
    assert_eq!((site.plain.mtu, &site.plain.routes), (None, &Routes::FromPolicies));
    let out = &site.outbound[0];
    assert_eq!(
        (out.association.mode, out.association.esn, out.association.worker),
        (Mode::Tunnel, true, WorkerId(0))
    );
    assert_eq!(
        (out.outer.df, out.outer.dscp, out.outer.hop_limit),
        (DfPolicy::Copy, DscpPolicy::Copy, 64)
    );
    assert_eq!((out.path_mtu, out.lease_block, out.association.encap), (None, 1 << 20, None));
    assert_eq!(out.association.key.salt().expose(), &[0x10, 0x11, 0x12, 0x13]);
    let inbound = &site.inbound[0];
    assert_eq!((inbound.association.spi.get(), inbound.replay_window), (4098, 1024));
    assert_eq!(inbound.association.encap.unwrap().remote_port, 4501);
    assert!(site.uses_native_esp() && site.uses_udp());
}

#[test]
fn a_site_prints_nothing_of_its_keys() {
    let (_dir, _, (site, _)) = load(GOOD);
    let shown = format!("{site:?}");
    assert!(shown.contains("SaKeyMaterial(aes-128-gcm-16)"), "{shown}");
    for piece in ["00010203", "0, 1, 2, 3", "16, 17, 18", "abab", "171, 171"] {
        assert!(!shown.contains(piece), "{piece}");
    }
}

#[test]
fn among_ten_thousand_sas_those_that_clash_are_named() {
    let sa = |n: u32, spi: u32, key: u32| {
        format!(
            "[[sa]]\nname = \"s{n}\"\ndirection = \"inbound\"\nspi = {}\nlocal = \"192.0.2.1\"\n\
             remote = \"192.0.2.2\"\nalgorithm = \"aes-128-gcm\"\nkey = \"{key:08x}{}\"\n",
            0x1000 + spi,
            "5a".repeat(16)
        )
    };
    let head = "name = \"left\"\nstate_dir = \".\"\n[plain]\ninterface = \"tun\"\n";
    let sas: String = (0..10_000).map(|n| sa(n, n, n)).collect();
    let clashes = sa(10_000, 77, 10_000) + &sa(10_001, 10_001, 88) + &sa(10_002, 77, 88);
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let path = dir.path().join("left.toml");
    fs::write(&path, format!("{head}{sas}{clashes}")).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let errors = Site::load(&path).unwrap_err().errors;
    let told: Vec<_> = errors.iter().map(|e| (e.line, e.key.as_str(), e.what.as_str())).collect();
    // Each SA has eight lines, behind four; the first of a name, SPI or key is the one that is told.
    let line = |n: usize, at: usize| 4 + 8 * n + at;
    let twice = |n: usize| {
        format!(
            "inbound SA \"s{n}\" in line {} has SPI 0x0000104d at 192.0.2.1 as well",
            line(n, 1)
        )
    };
    let same = |n: usize| {
        format!(
            "SA \"s{n}\" in line {} has the same key, so both would use the same nonces or numbers",
            line(n, 1)
        )
    };
    let expected = [
        (line(10_000, 4), "sa[s10000].spi", twice(77)),
        (line(10_001, 8), "sa[s10001].key", same(88)),
        (line(10_002, 4), "sa[s10002].spi", twice(77)),
        (line(10_002, 8), "sa[s10002].key", same(88)),
    ];
    assert_eq!(told, expected.each_ref().map(|(line, key, what)| (*line, *key, what.as_str())));
}

#[test]
fn an_interface_has_a_database_of_its_own_where_asked() {
    let web = "name = \"web\"";
    let own = GOOD.replace(web, &format!("{web}\nspd = \"lan\""));
    let (_dir, _, (site, warnings)) = load(&own);
    assert_eq!(
        site.policies.iter().map(|p| p.spd.as_deref()).collect::<Vec<_>>(),
        [None, Some("lan")]
    );
    let [warning] = &texts(&warnings)[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("policy[web].spd: no interface has database \"lan\"")
            && warning.contains("add spd = \"lan\" to [plain], or remove the line"),
        "{warning}"
    );
    assert_eq!((site.deciding_policies().count(), site.protected_networks().len()), (1, 2));
    let own = own.replacen("[plain]\n", "[plain]\nspd = \"lan\"\n", 1);
    let (_dir, _, (site, warnings)) = load(&own);
    let [warning] = &texts(&warnings)[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("policy[lans]: is in the common database, which no interface has"),
        "{warning}"
    );
    let deciding: Vec<_> = site.deciding_policies().map(|policy| &*policy.name).collect();
    assert_eq!((deciding, site.protected_networks().len()), (vec!["web"], 0));
    let state = State::start(site, Cpu::detect().unwrap(), 1500, |_| {}).unwrap();
    let shown = policy_report(&state, None, 0);
    assert_eq!(
        shown.policies.iter().map(|p| (p.spd.as_deref(), p.decides)).collect::<Vec<_>>(),
        [(None, false), (Some("lan"), true)]
    );
    let text = shown.text();
    assert!(text.contains("database") && text.contains("(common) (unused)"), "{text}");
}

/// Every suite by its names, and AH.
#[test]
fn pairs_and_ah_are_read() {
    let cbc = "encryption = \"aes-128-cbc\"\nintegrity = \"hmac-sha1-96\"\ntfc = 512\ndummy_s = 30\n\
               key = \"000102030405060708090a0b0c0d0e0f\"\n\
               integrity_key = \"101112131415161718191a1b1c1d1e1f20212223\"";
    let gcm = "algorithm = \"aes-128-gcm\"\nkey = \"000102030405060708090a0b0c0d0e0f10111213\"";
    let (_dir, _, (site, warnings)) = load(&GOOD.replace(gcm, cbc));
    assert_eq!(texts(&warnings), [""; 0]);
    let sa = &site.outbound[0];
    assert_eq!(sa.association.key.suite().to_string(), "aes-128-cbc+hmac-sha1-96");
    assert_eq!((sa.pad_to, sa.association.protocol), (512, IpsecProtocol::Esp));
    assert_eq!(sa.dummy_every, Some(std::time::Duration::from_secs(30)));

    let ah = "protocol = \"ah\"\nintegrity = \"aes-cmac-96\"\n\
              integrity_key = \"101112131415161718191a1b1c1d1e1f\"";
    let (_dir, _, (site, _)) = load(&GOOD.replace(gcm, ah));
    let sa = &site.outbound[0].association;
    assert_eq!(
        (sa.protocol, sa.key.suite().to_string()),
        (IpsecProtocol::Ah, "null+aes-cmac-96".into())
    );
    assert!(site.uses_ah() && !site.uses_native_esp() && site.uses_udp());

    let gmac = "protocol = \"ah\"\nalgorithm = \"aes-128-gmac\"\n\
                key = \"000102030405060708090a0b0c0d0e0f10111213\"";
    let (_dir, _, (site, _)) = load(&GOOD.replace(gcm, gmac));
    assert_eq!(site.outbound[0].association.key.suite().to_string(), "aes-128-gmac-16");
}

#[test]
fn ciphers_of_old_peers_are_read_where_the_site_allows_them() {
    let gcm = "algorithm = \"aes-128-gcm\"\nkey = \"000102030405060708090a0b0c0d0e0f10111213\"";
    let site = |cipher: &str, key: usize, more: &str| {
        let digits: String = (0..key).map(|byte| format!("{byte:02x}")).collect();
        let mac = "01".repeat(20);
        let pair = format!(
            "encryption = \"{cipher}\"\nintegrity = \"hmac-sha1-96\"\nkey = \"{digits}\"\n\
             integrity_key = \"{mac}\"\n{more}"
        );
        let (_dir, _, (site, warnings)) =
            load(&format!("legacy = true{}", GOOD.replace(gcm, &pair)));
        assert!(site.legacy);
        let texts = texts(&warnings);
        assert!(texts[0].contains(":1:") && texts[0].contains("may have 3DES"), "{texts:?}");
        let sa = &site.outbound[0].association;
        (sa.key.suite().to_string(), sa.lifetime, texts)
    };
    let (camellia, lifetime, warnings) = site("camellia-192-cbc", 24, "");
    assert_eq!(camellia, "camellia-192-cbc+hmac-sha1-96");
    assert_eq!((lifetime.hard.bytes, warnings.len()), (None, 1));
    let (triple_des, _, warnings) = site("3des-cbc", 24, "");
    assert_eq!(triple_des, "3des-cbc+hmac-sha1-96");
    assert!(warnings.len() == 2 && warnings[1].contains("RFC 8221"), "{warnings:?}");
    // 2^20 blocks less the longest packet, and a warning at three quarters.
    let limits = |lifetime: &str| {
        let lifetime = site("3des-cbc", 24, lifetime).1;
        (lifetime.soft.bytes, lifetime.hard.bytes)
    };
    assert_eq!(limits(""), (Some(6_242_304), Some(8_323_072)));
    assert_eq!(limits("lifetime = { hard = { age_s = 60 } }"), limits(""));
    let own = "lifetime = { soft = { bytes = 100 }, hard = { bytes = 200 } }";
    assert_eq!(limits(own), (Some(100), Some(200)));
}

#[test]
fn routes_come_from_what_policies_protect() {
    let (_dir, _, (site, _)) = load(GOOD);
    let networks: Vec<_> = site.protected_networks().iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.2.0.0/16", "fd02::/64"]);
    assert!(matches!(&site.policies[1].action, Action::Discard));
    assert_eq!(site.policies[0].address_pairs().count(), 3);
}

#[test]
fn weak_settings_are_warned_of_and_work() {
    let (_dir, path, (_, warnings)) = load(
        &GOOD
            .replace("spi = 4098", "spi = 4098\nesn = false\nreplay_window = 0\nicv = 8")
            .replace("sa_in = \"from-right\"\n", ""),
    );
    let texts = texts(&warnings);
    let expected = [
        "no policy uses this SA",
        "recorded packets are accepted again",
        "an ICV of 8 bytes",
        "has no `sa_in`",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for text in expected {
        assert!(texts.iter().any(|t| t.contains(text)), "{text} is missing in {texts:#?}");
    }
    let open = PermissionsExt::from_mode(0o755);
    fs::set_permissions(path.parent().unwrap(), open).unwrap();
    let (_, warnings) = Site::load(&path).unwrap();
    assert!(warnings.iter().any(|w| w.to_string().contains("others can look into state folder")));
}

#[test]
fn a_file_with_keys_that_others_can_read_is_refused_and_one_without_is_not() {
    let (dir, path, _) = load(GOOD);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let errors = Site::load(&path).unwrap_err().errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    let line = GOOD.lines().position(|line| line.starts_with("key = ")).unwrap() + 1;
    assert_eq!((errors[0].line, errors[0].key.as_str()), (line, "sa[to-right].key"));
    assert!(errors[0].what.contains("readable by others (mode 0640)"), "{errors:?}");
    assert!(errors[0].help.as_ref().unwrap().starts_with("make it its owner's alone: chmod 600"));
    let key = dir.path().join("out.key");
    fs::write(&key, "000102030405060708090a0b0c0d0e0f10111213\n").unwrap();
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let inline = "key = \"000102030405060708090a0b0c0d0e0f10111213\"";
    fs::write(&path, GOOD.replace(inline, "key_file = \"out.key\"")).unwrap();
    Site::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
}

#[test]
fn files_that_others_can_change_are_refused() {
    let keys = ["out", "in"].map(|name| format!("key_file = \"keys/{name}.key\""));
    let inline = "key = \"000102030405060708090a0b0c0d0e0f10111213\"";
    let (dir, path, _) = load(GOOD);
    let set = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let folder = dir.path().join("keys");
    fs::create_dir(&folder).unwrap();
    for (name, digits) in [("out", "cd".repeat(20)), ("in", "ab".repeat(36))] {
        let key = folder.join(format!("{name}.key"));
        fs::write(&key, digits).unwrap();
        set(&key, 0o600);
    }
    let text = GOOD.replace(inline, &keys[0]).replace("key_file = \"in.key\"", &keys[1]);
    fs::write(&path, text).unwrap();
    // What others can read is good.
    for mode in [0o644, 0o755] {
        set(&path, mode);
        set(&folder, mode | 0o700);
        Site::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let said = || {
        let errors = Site::load(&path).unwrap_err().errors;
        let [error] = &errors[..] else { panic!("{errors:?}") };
        (error.key.clone(), error.to_string())
    };
    set(&path, 0o646);
    let (key, told) = said();
    assert!(key.is_empty() && told.contains("other users can write to file"), "{told}");
    assert!(told.ends_with(&format!("help: chmod go-w {}", path.display())), "{told}");
    set(&path, 0o644);
    set(&folder, 0o777);
    let (key, told) = said();
    assert_eq!(key, "sa[to-right].key_file");
    assert!(told.contains("can rename what is in folder"), "{told}");
    assert!(told.ends_with(&format!("help: chmod go-w {}", folder.display())), "{told}");
}

#[test]
fn bypass_by_way_of_sockets_is_warned_of_where_the_kernel_does_not_ask() {
    let bypass = |leak_protection: &str, wire: &str| {
        let web = GOOD.replace("action = \"discard\"", "action = \"bypass\"");
        let web = web.replace("\n[plain]", &format!("{leak_protection}\n[plain]"));
        let (_dir, _, (_, warnings)) =
            load(&web.replace("[[sa]]\nname = \"to", &format!("{wire}[[sa]]\nname = \"to")));
        let mut said = texts(&warnings);
        said.retain(|text| text.contains("unprotected"));
        said
    };
    assert_eq!(bypass("", ""), [""; 0]);
    let sockets = bypass("leak_protection = false\n", "");
    assert_eq!(sockets.len(), 1, "{sockets:#?}");
    assert!(sockets[0].contains("bypass-impossible"), "{sockets:#?}");
    assert!(sockets[0].contains("backend = \"af_packet\" in [wire]"), "{sockets:#?}");
    let wire = "[wire]\nbackend = \"af_packet\"\ninterface = \"w0\"\n";
    assert_eq!(bypass("leak_protection = false\n", wire), [""; 0]);
}

#[test]
fn beside_daemons_leak_protection_is_on_and_bypass_is_possible() {
    let web = GOOD.replace("action = \"discard\"", "action = \"bypass\"");
    let (_dir, _, (site, warnings)) = load(&web.replace("\n[plain]", "\n[xfrm]\n[plain]"));
    assert!(site.leak_protection && site.xfrm.is_some());
    let said = texts(&warnings);
    assert!(!said.iter().any(|text| text.contains("unprotected")), "{said:#?}");
}

#[test]
fn interfaces_for_daemons_are_read() {
    let text = "name = \"left\"\n[plain]\ninterface = \"convoy0\"\n[xfrm]\n\
                [[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 42\n\
                [[xfrm.interface]]\nname = \"ipsec1\"\nif_id = 0xffff_ffff\n\
                addresses = \"fd00::1/64\"\nmtu = 1400\n";
    let (_dir, _, (site, _)) = load(text);
    let interfaces = &site.xfrm.unwrap().interfaces;
    let read = interfaces.iter().map(|i| (i.name.as_str(), i.if_id, i.addresses.len(), i.mtu));
    let expected = [("ipsec0", 42, 0, None), ("ipsec1", u32::MAX, 1, Some(1400))];
    assert_eq!(read.collect::<Vec<_>>(), expected);
}

#[test]
fn engines_are_read_and_workers_do_their_own_cryptography_by_default() {
    let engine = |section: &str| load(&format!("{GOOD}\n{section}")).2.0.crypto;
    let pool = |section: &str| match engine(section) {
        CryptoEngine::Pool { threads } => threads,
        other => panic!("{other:?}"),
    };
    assert_eq!(engine(""), CryptoEngine::Inline);
    assert_eq!(engine("[crypto]\nengine = \"inline\""), CryptoEngine::Inline);
    assert_eq!(pool("[crypto]\nengine = \"pool\""), [None]);
    let section = "[crypto]\nengine = \"pool\"\n[crypto.pool]\n";
    assert_eq!(pool(&format!("{section}threads = 3")), [None; 3]);
    assert_eq!(pool(&format!("{section}pin = [2, 5]")), [Some(2), Some(5)]);
    let CryptoEngine::Model { faults } = engine(
        "[crypto]\nengine = \"model\"\n[crypto.model]\nfaults = [\"stall@2s\", \"remove@500ms\"]",
    ) else {
        panic!("it is a model");
    };
    let shown: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["stall@2000ms", "remove@500ms"]);
    let CryptoEngine::Cryptodev(found) = engine(
        "[crypto]\nengine = \"cryptodev\"\n[crypto.cryptodev]\ndevice = \"crypto_aesni_mb\"\ndeadline_ms = 5",
    ) else {
        panic!("it is a device");
    };
    assert_eq!((&*found.device, found.sessions), ("crypto_aesni_mb", 4096));
    assert_eq!((found.deadline.as_millis(), found.arguments, found.library), (5, None, None));
    assert_eq!(engine("[crypto]\nengine = \"workers\""), CryptoEngine::Workers);
    let shared = |section: &str| {
        let SharedWork { balance, budget } =
            load(&format!("{GOOD}\n[crypto]\nengine = {section}")).2.0.shared_work;
        (balance, budget.map(|budget| budget.as_micros()))
    };
    assert_eq!(shared("\"pool\""), (false, None));
    assert_eq!(shared("\"pool\"\nbalance = true\nbudget_us = 50"), (true, Some(50)));
    assert_eq!(shared("\"workers\""), (true, None));
    let checks = |section: &str| load(&format!("{GOOD}\n{section}")).2.0.verify_every;
    assert_eq!(checks(""), 1000);
    assert_eq!(checks("[crypto]\nengine = \"pool\"\nverify_every = 0"), 0);
}

#[test]
fn drivers_are_read_with_rules_for_daemons() {
    let text = "name = \"left\"\n[plain]\ninterface = \"tun\"\n[xfrm]\n\
                [crypto]\ndrivers = [\"rfc4106-gcm-aes-convoy-portable\"]\n\
                [[crypto.rule]]\ndriver = \"hmac-sha256-convoy-portable\"\npeer = \"192.0.2.0/24\"\n\
                [[crypto.rule]]\ndriver = \"rfc4106-gcm-aes-convoy-portable\"\nif_id = 42\n";
    let (_dir, _, (site, _)) = load(text);
    let DriverRules { preferred, of_daemons, keeps_keys: false } = site.drivers else {
        panic!("workers do the cryptography");
    };
    assert_eq!(preferred, ["rfc4106-gcm-aes-convoy-portable".into()]);
    let rules: Vec<_> = of_daemons.iter().map(|r| (&*r.driver, r.sas.peer, r.sas.if_id)).collect();
    let network = "192.0.2.0/24".parse().ok();
    let expected = [
        ("hmac-sha256-convoy-portable", network, None),
        ("rfc4106-gcm-aes-convoy-portable", None, Some(42)),
    ];
    assert_eq!(rules, expected);
    assert_eq!(site.crypto, CryptoEngine::Inline);
}

#[test]
fn workers_are_read_with_rules_for_daemons() {
    let text = "name = \"left\"\n[plain]\ninterface = \"tun\"\n[xfrm]\n\
                [[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 42\n\
                [workers]\ncount = 3\n\
                [[workers.rule]]\nworker = 2\npeer = \"192.0.2.0/24\"\n\
                [[workers.rule]]\nworker = [0, 1]\nif_id = 42\n\
                [[workers.rule]]\nworker = 0\nif_id = 0\n";
    let (_dir, _, (site, _)) = load(text);
    assert_eq!(site.workers.count, 3);
    let rules: Vec<_> = site
        .worker_rules
        .iter()
        .map(|r| (r.workers.iter().map(|w| w.0).collect(), r.sas.peer, r.sas.if_id))
        .collect();
    let network = "192.0.2.0/24".parse().ok();
    let expected: [(Vec<u16>, _, _); 3] =
        [(vec![2], network, None), (vec![0, 1], None, Some(42)), (vec![0], None, Some(0))];
    assert_eq!(rules, expected);
}

#[test]
fn bits_of_marks_are_read_and_have_defaults() {
    let site = |marks: &str| load(&format!("{GOOD}\n{marks}")).2.0;
    assert_eq!(site("").marks, Marks::default());
    assert_eq!(site("[marks]\n").marks, Marks::default());
    let chosen =
        site("[marks]\nexempt = \"0x500/0xf00\"\npackets = \"0xF000\"\nflows = \"0xfff00000\"\n");
    let exempt = Mark { value: 0x500, mask: 0xf00 };
    assert_eq!(chosen.marks, Marks { exempt, packets: 0xf000, flows: 0xfff0_0000 });
    // Another one may lie where the default of a third one does.
    let moved = site("[marks]\npackets = \"0x000f0000\"\nflows = \"0x0000fff0\"\n").marks;
    assert_eq!((moved.packets, moved.flows), (0x000f_0000, 0x0000_fff0));
}

#[test]
fn every_key_of_the_reference_is_known_to_the_reader() {
    let reference = include_str!("../../src/site/reference.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/site");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let sources: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `"));
    let keys: Vec<&str> = rows
        .flat_map(|row| row.split(" | ").next().unwrap().split('`'))
        .filter(|k| k.starts_with(|c: char| c.is_alphabetic()))
        .collect();
    assert!(keys.len() > 35, "{keys:?}");
    for key in keys {
        let asked = format!("\"{key}\"");
        assert!(
            sources.iter().any(|source| source.contains(&asked)),
            "{key} is documented but not read"
        );
    }
}

#[test]
fn no_change_of_a_file_makes_its_reader_panic_or_show_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left.toml");
    // Digits that stand nowhere else in the file or in messages.
    let text = GOOD.replace(
        "000102030405060708090a0b0c0d0e0f10111213",
        "9a7b9a7b9a7b9a7b9a7b9a7b9a7b9a7b9a7b9a7b",
    );
    let mut errors = 0;
    let key = text.find("9a7b").unwrap();
    let places = (0..text.len()).filter(|at| at % 7 == 0 || (key - 10..key + 45).contains(at));
    for at in places {
        let (before, after) = text.split_at(at);
        let rest: String = after.chars().skip(1).collect();
        for changed in [
            before.to_owned(),
            format!("{before}{rest}"),
            format!("{before}\"{rest}"),
            format!("{before}\n{after}"),
        ] {
            fs::write(&path, changed).unwrap();
            if let Err(found) = Site::load(&path) {
                errors += 1;
                let shown = format!("{found}{found:?}");
                assert!(!shown.contains("9a7b9a7b"), "at {at}: {found}");
                assert!(
                    found.errors.iter().all(|e| e.line > 0 && !e.what.is_empty()),
                    "at {at}: {found}"
                );
            }
        }
    }
    assert!(errors > 300, "{errors}");
}

/// RFC 8200 section 5: every IPv6 path carries packets of 1280 bytes, and routers cut none.
#[test]
fn a_path_too_narrow_for_ipv6_in_ipv6_is_warned_of() {
    let v6 = |of: &str, path_mtu: u32| {
        GOOD.replacen("192.0.2.1", "2001:db8::1", 1)
            .replacen("192.0.2.2", "2001:db8::2", 1)
            .replacen("algorithm = \"aes-128-gcm\"", of, 1)
            .replacen("spi = 0x1001", &format!("spi = 0x1001\npath_mtu = {path_mtu}"), 1)
    };
    // IPv6 header, ESP header, IV, 1280 bytes and two of trailer filled up to four, ICV; in UDP 8
    // more. AH: 12 bytes, IV and ICV, filled up to eight.
    let gcm = "algorithm = \"aes-128-gcm\"";
    let in_udp = "algorithm = \"aes-128-gcm\"\nencap = \"udp\"";
    let ah = "protocol = \"ah\"\nalgorithm = \"aes-128-gmac\"";
    for (of, needed) in [
        (gcm, 40 + 8 + 8 + 1284 + 16),
        ("algorithm = \"aes-128-gcm\"\nicv = 12", 40 + 8 + 8 + 1284 + 12),
        (in_udp, 40 + 8 + 8 + 8 + 1284 + 16),
        (ah, 40 + 40 + 1280),
    ] {
        let about = |path_mtu: u32| {
            let (_dir, _, (_, warnings)) = load(&v6(of, path_mtu));
            let mut texts = texts(&warnings);
            texts.retain(|text| text.contains("1280"));
            texts
        };
        assert_eq!(about(needed), [""; 0], "{of}");
        let narrow = about(needed - 1);
        let [warning] = &narrow[..] else { panic!("{of}: {narrow:?}") };
        assert!(warning.contains("sa[to-right]: "), "{warning}");
        assert!(warning.contains(&format!("paths of at least {needed} bytes")), "{warning}");
        assert!(warning.contains(&format!("{} bytes", needed - 1)), "{warning}");
    }

    let warned = |text: &str| {
        let (_dir, _, (_, warnings)) = load(text);
        texts(&warnings).iter().any(|text| text.contains("1280"))
    };
    // The wire's size counts where the SA says none.
    let of_wire = |mtu: u32| {
        v6(gcm, 1300).replace("\npath_mtu = 1300", "").replacen(
            "[[sa]]",
            &format!("[wire]\nmtu = {mtu}\n[[sa]]"),
            1,
        )
    };
    assert!(warned(&of_wire(1355)) && !warned(&of_wire(1356)));
    // Over IPv4 routers may cut, and IPv4 packets inside are cut or their senders told.
    assert!(!warned(&GOOD.replacen("spi = 0x1001", "spi = 0x1001\npath_mtu = 1300", 1)));
    let only_v4 = v6(gcm, 1300)
        .replace("[\"10.1.0.0/24\", \"fd01::/64\"]", "\"10.1.0.0/24\"")
        .replace(", \"fd02::/64\"", "");
    assert!(!warned(&only_v4));
}
