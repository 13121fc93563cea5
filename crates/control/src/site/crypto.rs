//! The section `[crypto]`: which engine does the cryptography, and with which drivers.

use std::time::Duration;

use convoy_engine::registry::DriverRules;

use super::fields::{cpus, transposed};
use super::model::{CryptoEngine, ModelFault, ModelFaultKind, SharedWork, Workers};
use super::reader::{Field, Place, Report, Table, list_words, quote};
use super::{cryptodev, drivers};

/// Engines that can be named.
const NAMES: [&str; 5] = ["inline", "workers", "pool", "cryptodev", "model"];

/// Content of the section.
pub(super) struct Section {
    pub(super) engine: CryptoEngine,
    pub(super) verify_every: u32,
    pub(super) shared_work: SharedWork,
    pub(super) drivers: DriverRules,
}

/// Of about so many packets one is worked on again, unless the file says otherwise.
const VERIFY_EVERY: u32 = 1000;

/// Reads the section; without it workers do their own cryptography, with the best drivers.
pub(super) fn read(
    root: &mut Table<'_>,
    report: &mut Report<'_>,
    workers: Option<&Workers>,
    known: &drivers::Known,
    serves_daemons: bool,
) -> Option<Section> {
    let Some(field) = root.take("crypto") else {
        let (engine, drivers) = (CryptoEngine::Inline, DriverRules::default());
        let (verify_every, shared_work) = (VERIFY_EVERY, SharedWork::default());
        return Some(Section { engine, verify_every, shared_work, drivers });
    };
    let section = field.place.clone();
    let mut table = field.table(report, "a [crypto] section")?;
    let rules = drivers::read(&mut table, report, known);
    let engine = engine(&mut table, report, workers, &section);
    let verify_every = table.take("verify_every").map(|field| {
        let place = field.place.clone();
        let help = "use a number of packets: 1000 for one of a thousand, 1 for all, 0 for none";
        let number = field.integer(report, 0..=u32::MAX.into(), help)?;
        if engine == Some(CryptoEngine::Inline) {
            let what = "has no meaning where workers do the cryptography themselves";
            report.error(&place, what, "leave the line out, or use another engine");
            return None;
        }
        u32::try_from(number.value).ok()
    });
    let shared_work = shared_work(&mut table, report, engine.as_ref());
    table.finish(report);
    if let (Some(rules), false) = (&rules, serves_daemons) {
        drivers::without_daemons(&section, rules, report);
    }
    let engine = engine?;
    let keeps_keys = matches!(engine, CryptoEngine::Cryptodev(_));
    Some(Section {
        engine,
        verify_every: transposed(verify_every)?.unwrap_or(VERIFY_EVERY),
        shared_work: shared_work?,
        drivers: DriverRules { keeps_keys, ..rules? },
    })
}

fn engine(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    workers: Option<&Workers>,
    section: &Place,
) -> Option<CryptoEngine> {
    let given = table.take("engine").map(|field| {
        (field.place.clone(), field.string(report, "the name of an engine, such as \"pool\""))
    });
    // All sections are read, so that their own errors are told whatever engine is named.
    let pool = own_section(table, report, "pool", |own, _, report| pool(own, report, workers));
    let model = own_section(table, report, "model", |own, _, report| model(own, report));
    let cryptodev = own_section(table, report, "cryptodev", |own, place, report| {
        cryptodev::read(own, place, report)
    });
    let (place, name) = match given {
        Some((place, name)) => (place, name?.value),
        None => (section.clone(), "inline".to_owned()),
    };
    if !NAMES.contains(&&*name) {
        let what = format!("there is no engine {}", quote(&name));
        report.error(&place, what, format!("use {}", list_words(&NAMES)));
        return None;
    }
    // A section of another engine than the one that is named is a mistake.
    let given = [
        pool.as_ref().map(|(place, _)| ("pool", place)),
        model.as_ref().map(|(place, _)| ("model", place)),
        cryptodev.as_ref().map(|(place, _)| ("cryptodev", place)),
    ];
    let mut are_strange = false;
    for (owner, place) in given.into_iter().flatten().filter(|(owner, _)| *owner != name) {
        let help = format!("leave the section out, or use `engine = \"{owner}\"`");
        let what = format!("is for the engine \"{owner}\", not {}", quote(&name));
        report.error(place, what, help);
        are_strange = true;
    }
    if are_strange {
        return None;
    }
    match &*name {
        "workers" => Some(CryptoEngine::Workers),
        "pool" => {
            let threads = pool.map_or_else(|| Some(vec![None]), |(_, threads)| threads)?;
            Some(CryptoEngine::Pool { threads })
        }
        "model" => {
            let faults = model.map_or_else(|| Some(Vec::new()), |(_, faults)| faults)?;
            Some(CryptoEngine::Model { faults })
        }
        "cryptodev" => {
            let Some((_, device)) = cryptodev else {
                let help =
                    "add the section, with `device = \"crypto_aesni_mb\"` or an address on PCI";
                report.error(&place, "needs a section [crypto.cryptodev]", help);
                return None;
            };
            device.map(CryptoEngine::Cryptodev)
        }
        _ => Some(CryptoEngine::Inline),
    }
}

/// Position and content of an engine's section, if there is one; no content where it is wrong.
fn own_section<T>(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    owner: &'static str,
    read: impl FnOnce(Table<'_>, &Place, &mut Report<'_>) -> Option<T>,
) -> Option<(Place, Option<T>)> {
    let field = table.take(owner)?;
    let place = field.place.clone();
    let own = field.table(report, &format!("a [crypto.{owner}] section"));
    let content = own.and_then(|own| read(own, &place, report));
    Some((place, content))
}

/// Reads how workers share the cryptography with the engine.
fn shared_work(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    engine: Option<&CryptoEngine>,
) -> Option<SharedWork> {
    let is_inline = engine == Some(&CryptoEngine::Inline);
    let alone = "has no meaning where workers do the cryptography themselves";
    let another = "leave the line out, or use another engine, such as \"workers\"";
    let balance = table.take("balance").map(|field| {
        let place = field.place.clone();
        let balance = field.boolean(report)?;
        if is_inline {
            report.error(&place, alone, another);
            return None;
        }
        if engine == Some(&CryptoEngine::Workers) {
            let what = "is always so with the engine \"workers\"";
            report.error(&place, what, "leave the line out");
            return None;
        }
        Some(balance)
    });
    let budget = table.take("budget_us").map(|field| {
        let place = field.place.clone();
        let help = "use a number of microseconds, 1 to 1000000";
        let budget = field.integer(report, 1..=1_000_000, help)?;
        if is_inline {
            report.error(&place, alone, another);
            return None;
        }
        Some(Duration::from_micros(budget.value))
    });
    let is_always = engine == Some(&CryptoEngine::Workers);
    let balance = transposed(balance)?.unwrap_or(is_always);
    Some(SharedWork { balance, budget: transposed(budget)? })
}

/// The threads of a pool: each bound to a CPU, or to none.
fn pool(
    mut table: Table<'_>,
    report: &mut Report<'_>,
    workers: Option<&Workers>,
) -> Option<Vec<Option<u16>>> {
    let count = table.take("threads").map(|field| {
        field.integer(report, 1..=64, "use the number of threads, at most one per CPU")
    });
    let pin = table.take("pin").map(|field| {
        let place = field.place.clone();
        (place, cpus(field, report, "two threads"))
    });
    table.finish(report);
    let count = transposed(count)?.map(|at| at.value);
    let Some((place, pin)) = pin else {
        return Some(vec![None; usize::try_from(count.unwrap_or(1)).ok()?]);
    };
    let pin = pin?;
    if pin.is_empty() {
        report.error(&place, "names no CPU", "give one CPU per thread, or leave it out");
        return None;
    }
    let pinned = u64::try_from(pin.len()).unwrap_or(u64::MAX);
    if count.is_some_and(|count| count != pinned) {
        report.error(
            &place,
            format!("{pinned} CPUs are given for {} threads", count.unwrap_or_default()),
            "give one CPU per thread, or leave `threads` out",
        );
        return None;
    }
    let taken = workers.and_then(|workers| pin.iter().find(|cpu| workers.pin.contains(cpu)));
    if let Some(cpu) = taken {
        report.error(
            &place,
            format!("a worker is bound to CPU {cpu} already"),
            "give threads CPUs that no worker has: there both would be slower",
        );
        return None;
    }
    Some(pin.into_iter().map(Some).collect())
}

/// Reads the faults of the device made of software.
fn model(mut table: Table<'_>, report: &mut Report<'_>) -> Option<Vec<ModelFault>> {
    let faults = table.take("faults").map(|field| {
        let fields = field.many(report, "a list of faults such as [\"stall@2s\"]")?;
        fields.into_iter().map(|field| fault(field, report)).collect::<Option<Vec<_>>>()
    });
    table.finish(report);
    Some(transposed(faults)?.unwrap_or_default())
}

fn fault(field: Field<'_>, report: &mut Report<'_>) -> Option<ModelFault> {
    let text = field.string(report, "a fault such as \"stall@2s\"")?;
    match text.value.parse() {
        Ok(fault) => Some(fault),
        Err(help) => {
            let what = format!("{} is not a fault", quote(&text.value));
            report.error(&text.place, what, String::from(help));
            None
        }
    }
}

impl std::str::FromStr for ModelFault {
    /// Advice on what to write.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HELP: &str =
            "write what happens and when after the first packet: \"stall@2s\", \"remove@500ms\"";
        let (kind, time) = text.split_once('@').ok_or(HELP)?;
        let kind = match kind {
            "stall" => ModelFaultKind::Stall,
            "remove" => ModelFaultKind::Remove,
            _ => return Err(HELP),
        };
        let digits = time.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let number: u32 = digits.parse().map_err(|_| HELP)?;
        let unit = match time.get(digits.len()..) {
            Some("s") => Duration::from_secs(1),
            Some("ms") => Duration::from_millis(1),
            _ => return Err(HELP),
        };
        Ok(Self { kind, after: unit.checked_mul(number).ok_or(HELP)? })
    }
}
