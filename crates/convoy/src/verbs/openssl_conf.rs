//! `convoy openssl-conf`: a configuration of OpenSSL that loads Convoy's provider, and what is wrong with one.

mod judge;
pub(in crate::verbs) mod module;
mod parse;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use convoy_openssl::PROVIDER;
use serde::Serialize;

use crate::cli::OpensslConfArgs;
use crate::exit::{Exit, Stop};
use crate::output;
use judge::{Finding, Judgement};
use parse::Conf;

#[derive(Serialize)]
struct Report {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

pub(super) fn run(args: &OpensslConfArgs) -> anyhow::Result<Exit> {
    match &args.check {
        Some(file) => check(file, args.json),
        None => write(args),
    }
}

fn check(file: &Path, is_json: bool) -> anyhow::Result<Exit> {
    let conf = Conf::load(file).map_err(|error| Stop::usage(error.to_string()))?;
    let Judgement { errors, warnings } = judge::judge(&conf);
    let report = Report { errors, warnings };
    if is_json {
        output::json(&report)?;
    } else {
        if report.errors.is_empty() {
            let word = if report.warnings.is_empty() { "good" } else { "usable, with warnings" };
            output::print(&format!("{}: {word}\n", file.display()))?;
        }
        report.warnings.iter().for_each(|finding| eprintln!("warning: {finding}"));
        report.errors.iter().for_each(|finding| eprintln!("error: {finding}"));
    }
    Ok(match (report.errors.is_empty(), report.warnings.is_empty()) {
        (false, _) => Exit::Usage,
        (true, false) => Exit::Trouble,
        (true, true) => Exit::Ok,
    })
}

fn write(args: &OpensslConfArgs) -> anyhow::Result<Exit> {
    let module = module::named_or_found(args.module.as_deref(), "--module")?;
    let stats = args.stats.as_ref().map(std::path::absolute).transpose()?;
    let system = match Conf::load(&args.system) {
        Ok(conf) => Some((std::path::absolute(&args.system)?, conf)),
        Err(_) if !args.system.exists() => None,
        Err(error) => return Err(Stop::usage(error.to_string())),
    };
    output::print(&text(&module, stats.as_deref(), system.as_ref()))?;
    Ok(Exit::Ok)
}

/// A configuration with nothing of the system's, and with counters.
pub(in crate::verbs) fn alone(module: &Path, stats: &Path) -> String {
    text(module, Some(stats), None)
}

/// The configuration: what the system's says, Convoy beside the default provider, and preferred to it.
fn text(module: &Path, stats: Option<&Path>, system: Option<&(PathBuf, Conf)>) -> String {
    let mut text = String::from(
        "# OpenSSL with Convoy's provider, for programs that are started with OPENSSL_CONF=THIS-FILE.\n\
         # `convoy openssl-conf --check THIS-FILE` judges it after a change.\n",
    );
    let start = system.and_then(|(_, conf)| conf.value(Conf::DEFAULT, "openssl_conf"));
    let of_start = |name: &str| Some(system?.1.value(start?, name)?.to_owned());
    if let Some((path, _)) = system {
        let _ = write!(
            text,
            "\n# What the system's own configuration says stays.\n.include {}\n",
            path.display()
        );
    }
    text.push_str("\n[default]\nopenssl_conf = convoy_start\n\n[convoy_start]\n");
    text.push_str("providers = convoy_providers\nalg_section = convoy_algorithms\n");
    let others = |section: Option<&str>, but: &[&str], text: &mut String| {
        let (Some((_, conf)), Some(section)) = (system, section) else { return };
        for entry in conf.section(section).filter(|entry| !but.contains(&entry.name.as_str())) {
            let _ = writeln!(text, "{} = {}", entry.name, entry.value);
        }
    };
    others(start, &["providers", "alg_section"], &mut text);
    text.push_str(
        "\n# The default provider has all that Convoy has not. Without a line of its own it would be gone.\n\
         [convoy_providers]\ndefault = convoy_default\n",
    );
    let _ = writeln!(text, "{PROVIDER} = convoy_module");
    let providers = of_start("providers");
    others(providers.as_deref(), &["default", PROVIDER], &mut text);
    text.push_str("\n[convoy_default]\nactivate = 1\n\n[convoy_module]\n");
    let _ = writeln!(text, "module = {}\nactivate = 1", module.display());
    if let Some(stats) = stats {
        let _ = writeln!(text, "stats = {}", stats.display());
    }
    text.push_str("\n# The ? makes it a wish: what Convoy has not comes from the others.\n");
    let algorithms = of_start("alg_section");
    let wish = system.zip(algorithms.as_deref()).and_then(|((_, conf), section)| {
        let properties = conf.value(section, "default_properties")?;
        (!properties.trim().is_empty()).then(|| format!("{properties},"))
    });
    let wish = wish.unwrap_or_default();
    let _ = writeln!(text, "[convoy_algorithms]\ndefault_properties = {wish}?provider={PROVIDER}");
    others(algorithms.as_deref(), &["default_properties"], &mut text);
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SYSTEM: &str = "\
        HOME = .\n\
        openssl_conf = openssl_init\n\
        [openssl_init]\n\
        providers = provider_sect\n\
        ssl_conf = ssl_sect\n\
        [provider_sect]\n\
        default = default_sect\n\
        legacy = legacy_sect\n\
        [default_sect]\n\
        # activate = 1\n\
        [legacy_sect]\n\
        activate = 1\n\
        [ssl_sect]\n\
        system_default = system_default_sect\n\
        [system_default_sect]\n\
        MinProtocol = TLSv1.2\n";

    #[test]
    fn what_is_written_keeps_the_system_s_settings_and_is_judged_good() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path().join("system.cnf");
        fs::write(&system, SYSTEM).unwrap();
        let conf = Conf::load(&system).unwrap();
        // A module of this machine that says what is looked for.
        let module = folder.path().join("module.so");
        let mut bytes = fs::read("/proc/self/exe").unwrap();
        bytes.extend(b"OSSL_provider_init\0provider=convoy\0");
        fs::write(&module, bytes).unwrap();
        let stats = Path::new("/run/counts");
        let whole = text(&module, Some(stats), Some(&(system, conf)));
        let file = folder.path().join("convoy.cnf");
        fs::write(&file, &whole).unwrap();
        let conf = Conf::load(&file).unwrap();
        assert_eq!(conf.value("convoy_start", "ssl_conf"), Some("ssl_sect"));
        assert_eq!(conf.value("ssl_sect", "system_default"), Some("system_default_sect"));
        assert_eq!(conf.value("convoy_providers", "legacy"), Some("legacy_sect"));
        assert_eq!(conf.value("convoy_module", "stats"), Some("/run/counts"));
        let judgement = judge::judge(&conf);
        assert!(judgement.errors.is_empty() && judgement.warnings.is_empty(), "{judgement:?}");
        // Without a system's file, too.
        fs::write(&file, text(&module, None, None)).unwrap();
        let judgement = judge::judge(&Conf::load(&file).unwrap());
        assert!(judgement.errors.is_empty() && judgement.warnings.is_empty(), "{judgement:?}");
    }

    #[test]
    fn properties_of_the_system_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path().join("system.cnf");
        let conf = "openssl_conf = a\n[a]\nalg_section = b\n[b]\ndefault_properties = -fips\n";
        fs::write(&system, conf).unwrap();
        let conf = Conf::load(&system).unwrap();
        let whole = text(Path::new("/m.so"), None, Some(&(system, conf)));
        assert!(whole.contains("\ndefault_properties = -fips,?provider=convoy\n"), "{whole}");
    }
}
