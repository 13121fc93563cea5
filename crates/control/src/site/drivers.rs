//! Names of drivers in a site file.

use std::cell::LazyCell;
use std::sync::Arc;

use convoy_crypto::{Cpu, Suite};
use convoy_engine::registry::{DriverRule, DriverRules, Purpose, Registry, RegistryError};

use super::daemon_sas;
use super::fields::{tables, transposed};
use super::reader::{At, Field, Place, Report, Table, quote};

const EXAMPLE: &str = "the name of a driver; `convoy crypto` lists them";

/// The drivers that this machine can have; looked up only where a file names one.
pub(super) struct Known(LazyCell<Option<Registry>>);

impl Known {
    pub(super) fn new() -> Self {
        // Where no tier can be had, whoever wants to run the site is told so.
        Self(LazyCell::new(|| Cpu::detect().ok().map(|cpu| Registry::of(&cpu))))
    }

    /// Reads the name of a driver that may protect packets.
    pub(super) fn name(&self, field: Field<'_>, report: &mut Report<'_>) -> Option<At<Arc<str>>> {
        let At { value, place } = field.string(report, EXAMPLE)?;
        self.ask(&place, report, |known| known.driver(&value, Purpose::Traffic).map(drop))?;
        Some(At { value: value.into(), place })
    }

    /// Checks that a driver works for the suite of an SA.
    pub(super) fn suits(
        &self,
        name: &At<Arc<str>>,
        suite: Suite,
        report: &mut Report<'_>,
    ) -> Option<()> {
        self.ask(&name.place, report, |known| known.driver_for(&name.value, suite).map(drop))
    }

    fn ask(
        &self,
        place: &Place,
        report: &mut Report<'_>,
        question: impl FnOnce(&Registry) -> Result<(), RegistryError>,
    ) -> Option<()> {
        let Some(known) = &*self.0 else { return Some(()) };
        let Err(error) = question(known) else { return Some(()) };
        report.error(place, error.fault(), error.remedy().unwrap_or_default());
        None
    }

    fn algorithm(&self, name: &str) -> Option<String> {
        let known = self.0.as_ref()?.driver(name, Purpose::Traffic).ok()?;
        Some(known.algorithm().to_owned())
    }
}

/// Reads `drivers` and `[[crypto.rule]]` of the section `[crypto]`.
pub(super) fn read(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    known: &Known,
) -> Option<DriverRules> {
    let preferred = table.take("drivers").map(|field| {
        let fields = field.many(report, "a list of drivers; `convoy crypto` lists them")?;
        let names: Vec<_> = fields.into_iter().map(|field| known.name(field, report)).collect();
        one_for_each(&names, report, known)?;
        names.into_iter().map(|name| Some(name?.value)).collect::<Option<Vec<_>>>()
    });
    let rules: Vec<_> =
        tables(table, report, "rule").into_iter().map(|table| rule(table, report, known)).collect();
    Some(DriverRules {
        keeps_keys: false,
        preferred: transposed(preferred)?.unwrap_or_default(),
        of_daemons: rules.into_iter().collect::<Option<_>>()?,
    })
}

/// Of two drivers for one algorithm the second would never be used.
fn one_for_each(
    names: &[Option<At<Arc<str>>>],
    report: &mut Report<'_>,
    known: &Known,
) -> Option<()> {
    let mut before: Vec<(String, &str)> = Vec::new();
    for name in names.iter().flatten() {
        let Some(algorithm) = known.algorithm(&name.value) else { continue };
        if let Some((_, other)) = before.iter().find(|(taken, _)| *taken == algorithm) {
            let what = format!("{} is for {algorithm}, as {} is", quote(&name.value), quote(other));
            report.error(&name.place, what, "name one driver for each algorithm");
            return None;
        }
        before.push((algorithm, &name.value));
    }
    Some(())
}

fn rule(mut table: Table<'_>, report: &mut Report<'_>, known: &Known) -> Option<DriverRule> {
    let driver = table.need(report, "driver", "driver = \"rfc4106-gcm-aes-convoy-aesni\"");
    let driver = driver.and_then(|field| known.name(field, report));
    let sas = daemon_sas::wanted(&mut table, report);
    table.finish(report);
    Some(DriverRule { driver: driver?.value, sas: sas?.sas })
}

/// Rules for SAs that cannot come.
pub(super) fn without_daemons(place: &Place, rules: &DriverRules, report: &mut Report<'_>) {
    if !rules.of_daemons.is_empty() {
        report.error(
            place,
            "has a rule for SAs of IKE daemons, and there is no [xfrm] section",
            "add [xfrm], or use `driver` in [[sa]] and `drivers` in [crypto]",
        );
    }
}
