//! Every suite that both sides have, in every shape that both sides know.

use convoy_lab::Family;
use convoy_lab::strongswan::{Connection, Mode};

use super::world::{FAMILIES, LIMIT, Plane, World};

/// Suites that strongSwan's own ESP has too, by its names, without the group of the key exchange.
pub(crate) const COMMON: &[&str] = &[
    "aes128gcm16",
    "aes192gcm16",
    "aes256gcm16",
    "aes128gcm8",
    "aes128gcm12",
    "aes128ccm16",
    "aes256ccm8",
    "chacha20poly1305",
    "aes128-md5",
    "aes128-sha1",
    "aes128-sha256",
    "aes192-sha384",
    "aes256-sha512",
    "aes128ctr-sha256",
    "aes128-aesxcbc",
    "aes128-aescmac",
    "null-sha256",
];
/// Suites that it does not have.
pub(crate) const OURS: &[&str] = &["aes128gmac", "aes256gmac"];

/// Suites of old peers, which strongSwan's own ESP has too.
pub(crate) const LEGACY: &[&str] = &[
    "3des-md5",
    "3des-sha1",
    "3des-sha256",
    "3des-aesxcbc",
    "camellia128-sha1",
    "camellia192-sha384",
    "camellia256-sha512",
    "camellia256-aescmac",
];

/// A tunnel to be made, used and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) suite: &'static str,
    pub(crate) outer: Family,
    pub(crate) encap: bool,
    pub(crate) mode: Mode,
    pub(crate) esn: bool,
}

/// Plays each case between running daemons; tells all that fail.
fn play(planes: [Plane; 2], cases: impl IntoIterator<Item = Case>) {
    let Some(world) = World::start(planes) else { return };
    play_in(world, cases);
}

fn play_in(mut world: World, cases: impl IntoIterator<Item = Case>) {
    let (mut count, mut failed) = (0, Vec::new());
    for case in cases {
        count += 1;
        if let Err(why) = case.play(&mut world) {
            failed.push(format!("{case:?}: {why}"));
        }
    }
    assert!(count > 0);
    println!("{} of {count} cases passed", count - failed.len());
    if !failed.is_empty() {
        panic!("{}{}{}", failed.join("\n"), world.logs(0), world.logs(1));
    }
    world.assert_nothing_in_the_clear();
}

impl Case {
    /// Of the suite that everybody has, in one of sixteen shapes: both families outside, plain and in
    /// UDP, both modes, short and extended sequence numbers.
    pub(crate) fn shape(n: usize) -> Self {
        Self {
            suite: "aes128gcm16",
            outer: FAMILIES[n % 2],
            encap: n / 2 % 2 == 1,
            mode: if n / 4 % 2 == 1 { Mode::Transport } else { Mode::Tunnel },
            esn: n / 8 % 2 == 1,
        }
    }

    /// As a charon is told of it; in tunnel mode between both networks of both families.
    pub(crate) fn connection(&self, world: &World, side: usize) -> Connection {
        let mut connection = world.connection(side, self.outer);
        connection.encap = self.encap;
        let child = &mut connection.children[0];
        let esn = if self.esn { "esn" } else { "noesn" };
        child.proposals = format!("{}-x25519-{esn}", self.suite);
        child.mode = self.mode;
        if self.mode == Mode::Transport {
            child.local_ts = vec!["dynamic".into()];
            child.remote_ts = vec!["dynamic".into()];
        }
        connection
    }

    fn play(&self, world: &mut World) -> Result<(), String> {
        world.load(|world, side| self.connection(world, side));
        let said = |error: convoy_lab::LabError| error.to_string();
        let used = world
            .daemon(0)
            .initiate("net", LIMIT)
            .and_then(|()| world.daemon(1).wait_installed("net", LIMIT).map(drop))
            .map_err(said)
            .and_then(|()| self.use_it(world));
        // It may not be there after a failure.
        let _ = world.daemon(0).terminate_ike("peers");
        world
            .daemon(1)
            .wait(LIMIT, "end of the tunnel", |right| Ok(right.sas()?.is_empty().then_some(())))
            .map_err(said)?;
        used
    }

    /// Pings both ways, then what the daemons say of the SAs.
    fn use_it(&self, world: &World) -> Result<(), String> {
        const PINGS: u16 = 4;
        let mut packets = 0;
        for from in 0..2 {
            let (near, far) = (world.site(from), world.site(1 - from));
            let (ways, namespace) = match self.mode {
                Mode::Tunnel => {
                    (FAMILIES.map(|family| far.host_address(family)).to_vec(), &near.host)
                }
                Mode::Transport => (vec![far.wire_address(self.outer)], &near.gateway),
            };
            for to in ways {
                let answered = World::ping(namespace, to, PINGS);
                if answered != u64::from(PINGS) {
                    return Err(format!("{answered} of {PINGS} pings to {to} answered"));
                }
                packets += u64::from(PINGS);
            }
        }
        for side in 0..2 {
            let sas = world.daemon(side).installed("net").map_err(|error| error.to_string())?;
            let [sa] = &sas[..] else { return Err(format!("SAs: {sas:?}")) };
            if (sa.packets_in, sa.packets_out) != (packets, packets) {
                return Err(format!("{packets} packets each way are counted as {sa:?}"));
            }
            if sa.encap != self.encap || sa.esn != self.esn {
                return Err(format!("not what was asked for: {sa:?}"));
            }
        }
        Ok(())
    }
}

#[test]
fn every_suite_of_strongswans_own_esp_works_against_it() {
    // It always encapsulates, by pretending that there is a NAT.
    let cases = FAMILIES.into_iter().flat_map(|outer| {
        COMMON.iter().map(move |suite| Case {
            suite,
            outer,
            encap: true,
            mode: Mode::Tunnel,
            esn: false,
        })
    });
    play([Plane::Convoy, Plane::Libipsec], cases);
}

#[test]
fn every_suite_works_between_gateways_in_some_shape_and_one_in_every_shape() {
    let every_shape = (0..16).map(Case::shape);
    // Steps of seven go round all shapes.
    let suites = COMMON.iter().chain(OURS).enumerate();
    let every_suite = suites.map(|(n, suite)| Case { suite, ..Case::shape(n * 7 % 16) });
    play([Plane::Convoy; 2], every_shape.chain(every_suite));
}

#[test]
fn every_suite_of_old_peers_works_against_strongswans_own_esp_where_the_site_allows_it() {
    let Some(world) = World::start_legacy([Plane::Convoy, Plane::Libipsec]) else { return };
    let cases = LEGACY.iter().enumerate().map(|(n, suite)| Case {
        suite,
        outer: FAMILIES[n % 2],
        encap: true,
        mode: Mode::Tunnel,
        esn: false,
    });
    play_in(world, cases);
}

#[test]
fn suites_of_old_peers_are_refused_with_the_reason_where_the_site_does_not_allow_them() {
    let Some(mut world) = World::start([Plane::Convoy, Plane::Libipsec]) else { return };
    for suite in ["3des-sha1", "camellia256-sha256"] {
        let case = Case { suite, encap: true, esn: false, ..Case::shape(0) };
        world.load(|world, side| case.connection(world, side));
        assert!(world.daemon(0).initiate("net", LIMIT).is_err(), "{suite}{}", world.logs(0));
        let _ = world.daemon(0).terminate_ike("peers");
        let _ = world.daemon(1).terminate_ike("peers");
    }
    let log = world.gateways[0].as_ref().unwrap().log();
    for name in ["3des-cbc+hmac-sha1-96", "camellia-256-cbc+hmac-sha256-128"] {
        let why = format!("refused: {name} is for old peers only, and off: `legacy = true`");
        assert!(log.contains(&why), "{log}");
    }
    world.assert_nothing_in_the_clear();
}
