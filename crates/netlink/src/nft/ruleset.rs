//! Effects of all rules of a network namespace on marks and on flows, of all programs.

mod flows;

use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_core::{DefaultNla, Nla as _};
use netlink_packet_netfilter::{
    NetfilterProtoFamily,
    nftables::{
        Bitwise, ChainAttribute, ChainMessage, DataAttribute, Expressions, Hook, HookNumber,
        Immediate, Meta, MetaKey, NfTablesMessage, RuleAttribute, RuleMessage, VerdictAttribute,
    },
};

use super::{
    Nft,
    chain::expressions_of,
    flow::{CT_KEY, CT_LOAD_TO, CT_TAKE_FROM, MARK},
    jump::{TARGET_INFO, TARGET_NAME, TARGET_REVISION},
    read::{CHAIN, RULE},
    transaction::Answer,
};
use crate::Refusal;

/// `NFTA_FLOWTABLE_TABLE` and `NFTA_FLOWTABLE_NAME`.
const FLOW_TABLE_TABLE: u16 = 1;
const FLOW_TABLE_NAME: u16 = 2;
/// `XT_CONNMARK_SET`, `XT_CONNMARK_SAVE`, `XT_CONNMARK_RESTORE`.
const SET: u8 = 0;
const SAVE: u8 = 1;
const RESTORE: u8 = 2;
/// `XT_CT_NOTRACK`.
const NOT_TRACKED: u16 = 1;
/// `NFTA_RT_KEY` and `NFT_RT_XFRM`.
const ROUTE_KEY: u16 = 2;
const ROUTE_XFRM: u32 = 4;
/// `IPSET_FLAG_MAP_SKBMARK`.
const MAPS_MARK: u32 = 1 << 8;

/// Action of a rule that others may mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It changes these bits of packets' marks.
    WritesMark(u32),
    /// It changes these bits of flows' marks.
    WritesFlow(u32),
    /// It keeps packets from being tracked as flows.
    Untracks,
    /// It asks whether the kernel's own IPsec opened the packet, or is to protect it.
    AsksForIpsec,
}

/// A chain by its family (`NFPROTO_INET` and others), its table and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainName {
    /// The number of the family.
    pub family: u8,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
}

/// Rules with effects, and tables of flows that pass rules by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Effects of rules, by chain, in the order of their rules.
    pub effects: BTreeMap<ChainName, Vec<Effect>>,
    /// Number of the hook, and priority, of chains that packets come to by themselves.
    pub places: BTreeMap<ChainName, (u32, i32)>,
    /// Chains that rules of a chain lead to, by jumps and gotos.
    pub jumps: BTreeMap<ChainName, BTreeSet<ChainName>>,
    /// Tables of flows (`flowtable`), each with its family and its table of the packet filter.
    pub flow_tables: Vec<ChainName>,
    /// Chains that need packets to be tracked as flows: by their type, or by a rule.
    pub needing_flows: BTreeSet<ChainName>,
    /// Chains among them that change addresses by flows (NAT), by their type.
    pub of_nat: BTreeSet<ChainName>,
    /// Number of rules that were not understood.
    pub not_understood: usize,
}

impl Ruleset {
    /// Reads that of the calling thread's network namespace. What iptables keeps apart (`iptables-legacy`) is not in it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read() -> Result<Self, Refusal> {
        let mut nft = Nft::open()?;
        let rules = NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() });
        let rules = nft.dump_all(rules)?;
        let chains = nft.dump_all(chains())?;
        let flow_tables = nft.dump_all(NfTablesMessage::GetFlowTable(Vec::new()))?;
        Ok(Self::of(&rules, &chains, &flow_tables))
    }

    /// Reads [`Self::places`] alone: there are few chains where there are many rules.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read_places() -> Result<BTreeMap<ChainName, (u32, i32)>, Refusal> {
        Ok(Nft::open()?.dump_all(chains())?.iter().filter_map(place).collect())
    }

    /// Reads the kernel's answers about rules, chains and tables of flows.
    #[must_use]
    pub fn of(rules: &[Answer], chains: &[Answer], flow_tables: &[Answer]) -> Self {
        let mut set = Self::default();
        for rule in rules {
            match named_rule(rule) {
                Some((name, expressions)) => set.note(&name, expressions),
                None => set.not_understood += 1,
            }
        }
        set.places.extend(chains.iter().filter_map(place));
        set.of_nat = chains.iter().filter_map(of_nat).collect();
        set.needing_flows.extend(set.of_nat.iter().cloned());
        for table in flow_tables {
            let text = |kind| text(table.attributes(kind).next()?);
            let named = |family: &u8| {
                let (table, chain) = (text(FLOW_TABLE_TABLE)?, text(FLOW_TABLE_NAME)?);
                Some(ChainName { family: *family, table, chain })
            };
            set.flow_tables.extend(table.bytes.first().and_then(named));
        }
        set
    }
}

/// Question for all chains.
const fn chains() -> NfTablesMessage {
    NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() })
}

impl Ruleset {
    fn note(&mut self, name: &ChainName, rule: Vec<Expressions>) {
        let targets: Vec<_> = rule.iter().flat_map(leads_to).collect();
        if !targets.is_empty() {
            let named = |chain| ChainName { chain, ..name.clone() };
            self.jumps.entry(name.clone()).or_default().extend(targets.into_iter().map(named));
        }
        if rule.iter().any(flows::are_needed) {
            self.needing_flows.insert(name.clone());
        }
        let effects = effects(rule);
        if !effects.is_empty() {
            self.effects.entry(name.clone()).or_default().extend(effects);
        }
    }

    /// The places by which packets come to each chain, by itself or by jumps. None are known of one to which no rule
    /// leads, or only maps of verdicts do.
    #[must_use]
    pub fn ways(&self) -> BTreeMap<&ChainName, BTreeSet<(u32, i32)>> {
        let mut ways = BTreeMap::<_, BTreeSet<_>>::new();
        for (base, place) in &self.places {
            let mut next = vec![base];
            while let Some(chain) = next.pop() {
                if ways.entry(chain).or_default().insert(*place) {
                    next.extend(self.jumps.get(chain).into_iter().flatten());
                }
            }
        }
        ways
    }
}

/// Chains that an expression leads to.
fn leads_to(expression: &Expressions) -> Vec<String> {
    let Expressions::Immediate(parts) = expression else { return Vec::new() };
    let verdicts = parts.iter().filter_map(|part| match part {
        Immediate::Data(DataAttribute::Verdict(verdict)) => Some(verdict),
        _ => None,
    });
    let chain = |part: &VerdictAttribute| match part {
        VerdictAttribute::Chain(chain) => Some(chain.clone()),
        _ => None,
    };
    verdicts.flatten().filter_map(chain).collect()
}

impl Nft {
    /// Asks for all objects of a kind, of all families.
    fn dump_all(&mut self, question: NfTablesMessage) -> Result<Vec<Answer>, Refusal> {
        match self.dump_of(NetfilterProtoFamily::Unspec, question) {
            // A kernel without this kind.
            Err(Refusal { errno: nix::libc::EOPNOTSUPP | nix::libc::EINVAL, .. }) => Ok(Vec::new()),
            answers => answers,
        }
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    core::str::from_utf8(bytes.strip_suffix(&[0])?).ok().map(str::to_owned)
}

fn named_rule(answer: &Answer) -> Option<(ChainName, Vec<Expressions>)> {
    let NfTablesMessage::NewRule(rule) = answer.read(RULE)? else { return None };
    let (mut table, mut chain) = (None, None);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Table(name) => table = Some(name.clone()),
            RuleAttribute::Chain(name) => chain = Some(name.clone()),
            _ => {}
        }
    }
    let name = ChainName { family: *answer.bytes.first()?, table: table?, chain: chain? };
    Some((name, expressions_of(rule)))
}

fn place(answer: &Answer) -> Option<(ChainName, (u32, i32))> {
    let NfTablesMessage::NewChain(chain) = answer.read(CHAIN)? else { return None };
    let (mut table, mut name, mut hook, mut priority) = (None, None, None, None);
    for attribute in chain.attributes {
        match attribute {
            ChainAttribute::Table(text) => table = Some(text),
            ChainAttribute::Name(text) => name = Some(text),
            ChainAttribute::Hook(parts) => {
                for part in parts {
                    match part {
                        Hook::Number(HookNumber::Inet(number)) => hook = Some(u32::from(number)),
                        Hook::Priority(number) => priority = Some(number.cast_signed()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let name = ChainName { family: *answer.bytes.first()?, table: table?, chain: name? };
    Some((name, (hook?, priority?)))
}

/// A chain that translates addresses: that is remembered with flows.
fn of_nat(answer: &Answer) -> Option<ChainName> {
    let NfTablesMessage::NewChain(chain) = answer.read(CHAIN)? else { return None };
    let (mut table, mut name, mut is_nat) = (None, None, false);
    for attribute in chain.attributes {
        match attribute {
            ChainAttribute::Table(text) => table = Some(text),
            ChainAttribute::Name(text) => name = Some(text),
            ChainAttribute::Type(kind) => is_nat = kind == "nat",
            _ => {}
        }
    }
    let name = ChainName { family: *answer.bytes.first()?, table: table?, chain: name? };
    is_nat.then_some(name)
}

/// A mark that was loaded to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Packets,
    Flows,
    Other,
}

/// Finds what expressions of a rule do. Of registers, the one that was loaded last is followed.
fn effects(expressions: Vec<Expressions>) -> Vec<Effect> {
    let mut effects = Vec::new();
    // What was loaded, and which of its bits were changed since.
    let (mut loaded, mut changed) = (Loaded::Other, u32::MAX);
    for expression in expressions {
        effects.extend(asks_for_ipsec(&expression).then_some(Effect::AsksForIpsec));
        match expression {
            Expressions::Meta(parts) => {
                let is_mark = parts.contains(&Meta::Key(MetaKey::Mark));
                let is_written = parts.iter().any(|part| matches!(part, Meta::SourceRegister(_)));
                if is_written && is_mark {
                    let bits = if loaded == Loaded::Packets { changed } else { u32::MAX };
                    effects.push(Effect::WritesMark(bits));
                } else if !is_written {
                    (loaded, changed) = match is_mark {
                        true => (Loaded::Packets, 0),
                        false => (Loaded::Other, u32::MAX),
                    };
                }
            }
            Expressions::Bitwise(parts) => changed |= changes(&parts),
            Expressions::Cmp(_) => {}
            Expressions::Other { expression_type, attributes } => {
                let kind = expression_type.as_str();
                let number = |key| value(&attributes, key).and_then(|value| word(&value));
                let is_mark = kind == "ct" && number(CT_KEY).map(u32::from_be) == Some(MARK);
                if is_mark && value(&attributes, CT_TAKE_FROM).is_some() {
                    let bits = if loaded == Loaded::Flows { changed } else { u32::MAX };
                    effects.push(Effect::WritesFlow(bits));
                } else if value(&attributes, CT_LOAD_TO).is_some() && is_mark {
                    (loaded, changed) = (Loaded::Flows, 0);
                } else if kind == "notrack" {
                    effects.push(Effect::Untracks);
                } else if kind == "target" {
                    effects.extend(of_target(&attributes));
                } else if kind != "counter" {
                    (loaded, changed) = (Loaded::Other, u32::MAX);
                }
            }
            _ => (loaded, changed) = (Loaded::Other, u32::MAX),
        }
    }
    effects
}

/// True if a step looks at what the kernel's own IPsec did, or will do: `meta ipsec` and `rt ipsec`, `ipsec in`, and the
/// match of iptables.
fn asks_for_ipsec(expression: &Expressions) -> bool {
    match expression {
        Expressions::Meta(parts) => parts.contains(&Meta::Key(MetaKey::Secpath)),
        Expressions::Other { expression_type, attributes } => match expression_type.as_str() {
            "xfrm" => true,
            "rt" => {
                value(attributes, ROUTE_KEY).and_then(|key| word(&key)).map(u32::from_be)
                    == Some(ROUTE_XFRM)
            }
            "match" => {
                value(attributes, TARGET_NAME).and_then(|name| text(&name)).as_deref()
                    == Some("policy")
            }
            _ => false,
        },
        _ => false,
    }
}

/// Bits that a bitwise operation may change; all where it is not by constants.
fn changes(parts: &[Bitwise]) -> u32 {
    let constant = |pick: fn(&Bitwise) -> Option<&DataAttribute>| {
        parts.iter().find_map(pick).and_then(|data| match data {
            DataAttribute::Value(bytes) => word(bytes),
            _ => None,
        })
    };
    let mask = constant(|part| if let Bitwise::Mask(data) = part { Some(data) } else { None });
    let xor = constant(|part| if let Bitwise::Xor(data) = part { Some(data) } else { None });
    mask.zip(xor).map_or(u32::MAX, |(mask, xor)| !mask | xor)
}

/// Finds what a target of iptables does (`nft_compat`).
fn of_target(attributes: &[DefaultNla]) -> Vec<Effect> {
    let name = value(attributes, TARGET_NAME).and_then(|name| text(&name)).unwrap_or_default();
    let revision = value(attributes, TARGET_REVISION).and_then(|value| word(&value));
    let info = value(attributes, TARGET_INFO).unwrap_or_default();
    let both =
        |first: usize, second: usize| Some(word(info.get(first..)?)? | word(info.get(second..)?)?);
    match (name.as_str(), revision.map(u32::from_be)) {
        // `struct xt_mark_tginfo2`.
        ("MARK", Some(2)) => vec![Effect::WritesMark(both(0, 4).unwrap_or(u32::MAX))],
        ("MARK" | "HMARK", _) => vec![Effect::WritesMark(u32::MAX)],
        // Both revisions begin with mask and value.
        ("TPROXY", _) => vec![Effect::WritesMark(both(0, 4).unwrap_or(u32::MAX))],
        ("CONNMARK", revision) => of_connmark(revision, &info)
            .unwrap_or_else(|| vec![Effect::WritesFlow(u32::MAX), Effect::WritesMark(u32::MAX)]),
        // `struct xt_set_info_target_v3`; earlier ones map nothing.
        ("SET", Some(3..)) => {
            let flags = info.get(12..).and_then(word).unwrap_or(MAPS_MARK);
            let maps = (flags & MAPS_MARK != 0).then_some(Effect::WritesMark(u32::MAX));
            maps.into_iter().collect()
        }
        ("NOTRACK", _) => vec![Effect::Untracks],
        ("CT", _) => {
            let flags = info.first_chunk().copied().map_or(0, u16::from_ne_bytes);
            (flags & NOT_TRACKED != 0).then_some(Effect::Untracks).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Finds what `CONNMARK` does; none if that cannot be told.
fn of_connmark(revision: Option<u32>, info: &[u8]) -> Option<Vec<Effect>> {
    // `struct xt_connmark_tginfo1` and `2`: mark, mask of flows, mask of packets; then in the second one which way and
    // by how many bits the result is shifted; then how.
    let (shift, how) = match revision? {
        1 => (0, *info.get(12)?),
        2 => (*info.get(13)?, *info.get(14)?),
        _ => return None,
    };
    let number = |at: usize| info.get(at..).and_then(word);
    // What is copied is taken out of the other mark by its mask, and then flips bits of this one.
    let is_copied = how != SET;
    let bits = number(4)? | number(if is_copied { 8 } else { 0 })?;
    let bits = if shift == 0 { bits } else { u32::MAX };
    match how {
        SET | SAVE => Some(vec![Effect::WritesFlow(bits)]),
        RESTORE => Some(vec![Effect::WritesMark(bits)]),
        _ => None,
    }
}

fn value(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    let attribute = attributes.iter().find(|attribute| attribute.kind() == kind)?;
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    Some(bytes)
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use netlink_packet_netfilter::nftables::{ExpressionAttribute, ListAttribute, Register};

    use super::super::expression::{Expression, equal, meta};
    use super::super::flow::{Bits, other};
    use super::*;

    fn seen(rule: Vec<Expression>) -> Vec<Effect> {
        let data = |expression: Expression| match expression {
            ListAttribute::Element(attributes) => attributes.into_iter().find_map(|it| match it {
                ExpressionAttribute::Data(data) => Some(data),
                _ => None,
            }),
            _ => None,
        };
        effects(rule.into_iter().filter_map(data).collect())
    }

    fn target(name: &str, revision: u32, info: &str) -> Vec<Expression> {
        let byte = |at: usize| u8::from_str_radix(&info[at..at + 2], 16).unwrap();
        let info = (0..info.len()).step_by(2).map(byte).collect();
        let name = [name.as_bytes(), &[0]].concat();
        vec![other(
            "target",
            vec![
                DefaultNla::new(TARGET_NAME, name),
                DefaultNla::new(TARGET_REVISION, revision.to_be_bytes().to_vec()),
                DefaultNla::new(TARGET_INFO, info),
            ],
        )]
    }

    #[test]
    fn bits_that_rules_write_are_seen() {
        let bits = Bits { mask: 0xff00, value: 0x1200 };
        assert_eq!(seen(bits.into_mark()), [Effect::WritesMark(0xff00)]);
        assert_eq!(seen(bits.into_flow()), [Effect::WritesFlow(0xff00)]);
        // A look at a mark before changes nothing of that.
        let both = [bits.in_flow(), bits.into_mark()].concat();
        assert_eq!(seen(both), [Effect::WritesMark(0xff00)]);
        assert_eq!(seen([bits.in_mark(), bits.not_in_flow()].concat()), []);
        // Of a constant, and of the other mark, nothing stays.
        let store =
            Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)]);
        let whole = Effect::WritesMark(u32::MAX);
        assert_eq!(
            seen(vec![meta(MetaKey::L4Proto), equal(vec![1]), store.clone().into()]),
            [whole]
        );
        let restore = [bits.in_flow()[..1].to_vec(), vec![store.into()]].concat();
        assert_eq!(seen(restore), [whole]);
    }

    /// Bytes that Linux 6.18 gave back of rules that `iptables-nft` 1.8.9 made, on x86-64; beside them its arguments.
    /// Read by `NFT_MSG_GETRULE` from a namespace of their own.
    #[cfg(target_endian = "little")]
    #[test]
    fn targets_that_iptables_made_are_seen() {
        use Effect::{Untracks, WritesFlow, WritesMark};
        let all = u32::MAX;
        for (arguments, name, revision, info, effect) in [
            ("--set-xmark 0x10/0xff", "MARK", 2, "10000000ff000000", WritesMark(0xff)),
            ("--restore-mark", "CONNMARK", 2, "00000000ffffffffffffffff00000200", WritesMark(all)),
            (
                "--restore-mark --nfmask 0xff00 --ctmask 0xff0000",
                "CONNMARK",
                2,
                "000000000000ff0000ff000000000200",
                WritesMark(0xff_ff00),
            ),
            (
                "--save-mark --nfmask 0xff00 --ctmask 0xff0000",
                "CONNMARK",
                2,
                "000000000000ff0000ff000000000100",
                WritesFlow(0xff_ff00),
            ),
            (
                "--set-xmark 0x10/0xff",
                "CONNMARK",
                2,
                "10000000ff000000ffffffff00000000",
                WritesFlow(0xff),
            ),
            (
                "--restore-mark --ctmask 0xff --nfmask 0xff --left-shift-mark 8",
                "CONNMARK",
                2,
                "00000000ff000000ff00000000080200",
                WritesMark(all),
            ),
            (
                "--hmark-tuple src --hmark-mod 4 --hmark-rnd 1 --hmark-offset 256",
                "HMARK",
                0,
                "ffffffffffffffffffffffffffffffff000000000000000000000000000000000000000000000000010e0000\
                 0000000001000000040000000001000000000000",
                WritesMark(all),
            ),
            (
                "--map-set a dst --map-mark",
                "SET",
                3,
                "ffff0000ffff00000000010000010000ffffffff00000000",
                WritesMark(all),
            ),
            (
                "--on-port 5 --tproxy-mark 1/3",
                "TPROXY",
                1,
                "0300000001000000000000000000000000000000000000000005000000000000",
                WritesMark(3),
            ),
            ("--notrack", "CT", 2, "0100000000000000", Untracks),
        ] {
            assert_eq!(seen(target(name, revision, info)), [effect], "{name} {arguments}");
        }
        let adds = target("SET", 3, "00000100ffff0000ffff000000000000ffffffff00000000");
        assert_eq!(seen(adds), [], "SET --add-set a dst");
    }

    #[test]
    fn targets_that_are_not_known_or_too_short_write_all() {
        let (packets, flows) = (Effect::WritesMark(u32::MAX), Effect::WritesFlow(u32::MAX));
        let info = "00000000ff000000ff00000000000200";
        assert_eq!(seen(target("CONNMARK", 3, info)), [flows, packets]);
        assert_eq!(seen(target("CONNMARK", 2, &info[..28])), [flows, packets]);
        // As older kernels have it.
        let sets = "10000000ff0000000000000000000000";
        assert_eq!(seen(target("CONNMARK", 1, sets)), seen(target("CONNMARK", 2, sets)));
        assert_eq!(seen(target("MARK", 3, info)), [packets]);
        assert_eq!(seen(target("MARK", 2, "10000000")), [packets]);
        assert_eq!(seen([target("CT", 2, "0000"), target("LOG", 0, "07")].concat()), []);
        assert_eq!(seen(vec![other("notrack", Vec::new())]), [Effect::Untracks]);
    }
}
