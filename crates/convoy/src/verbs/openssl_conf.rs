//! `convoy openssl-conf`: a configuration of OpenSSL that loads Convoy's provider, and what is wrong with one.

mod args;
mod grammar;
mod judge;
mod listed;
pub(in crate::verbs) mod module;
pub(in crate::verbs) mod offered;
mod parse;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use convoy_openssl::{PROVIDER, offer};
use serde::Serialize;

use crate::exit::{Exit, Stop};
use crate::output;
pub use args::{HELP, OpensslConfArgs};
use judge::{Finding, Judgement};
use listed::Listed;
use offered::Offered;
use parse::{Conf, Entry};

#[derive(Serialize)]
struct Report {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// Ciphers of the provider on this machine with the configuration, whatever else is wrong with that.
    ciphers: Vec<Offered>,
}

pub(crate) fn run(args: &OpensslConfArgs) -> anyhow::Result<Exit> {
    match &args.check {
        Some(file) => check(file, args.json),
        None => write(args),
    }
}

fn check(file: &Path, is_json: bool) -> anyhow::Result<Exit> {
    let conf = Conf::load(file).map_err(|error| Stop::usage(error.to_string()))?;
    let Judgement { errors, warnings } = judge::judge(&conf);
    let all = convoy_says(&conf, offer::KEY).is_some_and(|entry| entry.value == offer::EVERY);
    let report = Report { errors, warnings, ciphers: Offered::here(all)? };
    if is_json {
        output::json(&report)?;
    } else {
        if report.errors.is_empty() {
            let word = if report.warnings.is_empty() { "good" } else { "usable, with warnings" };
            let mut text = format!("{}: {word}\n", file.display());
            report.ciphers.iter().for_each(|cipher| text += &format!("{cipher}\n"));
            output::print(&text)?;
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
    let mut lines = Lines(text(&module, stats.as_deref(), system.as_ref()));
    lines.tell(&Offered::here(false)?);
    output::bytes(&lines.0)?;
    Ok(Exit::Ok)
}

/// A configuration with nothing of the system's, and with counters.
pub(in crate::verbs) fn alone(module: &Path, stats: &Path) -> Vec<u8> {
    text(module, Some(stats), None)
}

/// The file of counters that a configuration names, if it can be read and lists Convoy.
pub(in crate::verbs) fn stats(file: &Path) -> Option<PathBuf> {
    let conf = Conf::load(file).ok()?;
    let stats = convoy_says(&conf, convoy_openssl::stats::KEY)?;
    (!stats.path.as_os_str().is_empty()).then(|| stats.path.clone())
}

/// Entry of a name in the section of Convoy's provider.
fn convoy_says<'a>(conf: &'a Conf, name: &str) -> Option<&'a Entry> {
    let starts =
        [START, START_OF_NODE].into_iter().filter_map(|name| conf.value(Conf::DEFAULT, name));
    let lists = starts.filter_map(|start| conf.value(start, "providers"));
    let mut listed = lists.flat_map(|list| conf.section(list)).map(|entry| Listed::of(conf, entry));
    let convoy = listed.find(Listed::is_convoy)?;
    conf.entry(&convoy.entry.value, name)
}

/// The lines of a configuration, as they grow.
struct Lines(Vec<u8>);

impl Lines {
    fn raw(&mut self, text: &str) {
        self.0.extend(text.as_bytes());
    }

    /// A line whose value is read as it was given, whatever is in it.
    fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.raw(name);
        self.raw(" = ");
        self.0.extend(grammar::quoted(value.as_ref()));
        self.raw("\n");
    }

    /// Adds the ciphers on this machine as comments. The file may be for another machine.
    fn tell(&mut self, ciphers: &[Offered]) {
        self.raw("\n# What is not offered comes from the default provider, too:\n");
        ciphers.iter().for_each(|cipher| self.raw(&format!("# {cipher}\n")));
    }

    /// Adds what the system has in a section, but for some names.
    fn rest_of(&mut self, conf: Option<&Conf>, section: Option<&str>, but: &[&str]) {
        let (Some(conf), Some(section)) = (conf, section) else { return };
        for entry in conf.section(section).filter(|entry| !but.contains(&entry.name.as_str())) {
            self.set(&entry.name, &entry.path);
        }
    }
}

/// The configuration: what the system's says, Convoy beside the default provider, and preferred to it.
fn text(module: &Path, stats: Option<&Path>, system: Option<&(PathBuf, Conf)>) -> Vec<u8> {
    let mut lines = Lines(Vec::new());
    lines.raw(
        "# OpenSSL with Convoy's provider, for programs that are started with OPENSSL_CONF=THIS-FILE.\n\
         # `convoy openssl-conf --check THIS-FILE` judges it after a change.\n",
    );
    let conf = system.map(|(_, conf)| conf);
    let start = conf.and_then(|conf| conf.value(Conf::DEFAULT, START));
    let of_start = |name: &str| conf?.value(start?, name);
    if let Some((path, _)) = system {
        lines.raw("\n# What the system's own configuration says stays.\n");
        lines.set(".include", path);
    }
    lines.raw("\n[default]\nopenssl_conf = convoy_start\n");
    match conf.and_then(|conf| conf.value(Conf::DEFAULT, START_OF_NODE)) {
        Some(own) if Some(own) != start => {
            lines.raw(
                "# Node.js begins elsewhere: nodejs_conf of the system's configuration stays.\n",
            );
        }
        _ => {
            lines.raw(
                "# Where Node.js begins, unless it is started with --openssl-shared-config.\n",
            );
            lines.raw("nodejs_conf = convoy_start\n");
        }
    }
    lines.raw("\n[convoy_start]\nproviders = convoy_providers\nalg_section = convoy_algorithms\n");
    lines.rest_of(conf, start, &["providers", "alg_section"]);
    lines.raw(
        "\n# The default provider has all that Convoy has not. Without a line of its own it would be gone.\n\
         [convoy_providers]\ndefault = convoy_default\n",
    );
    lines.set(PROVIDER, "convoy_module");
    lines.rest_of(conf, of_start("providers"), &["default", PROVIDER]);
    lines.raw("\n[convoy_default]\nactivate = 1\n\n[convoy_module]\n");
    lines.set("module", module);
    lines.raw("activate = 1\n");
    if let Some(stats) = stats {
        lines.set("stats", stats);
    }
    lines.raw("\n# The ? makes it a wish: what Convoy has not comes from the others.\n[convoy_algorithms]\n");
    let algorithms = of_start("alg_section");
    let properties = conf.zip(algorithms).and_then(|(conf, section)| {
        conf.value(section, "default_properties").filter(|properties| !properties.trim().is_empty())
    });
    let properties = properties.map(|properties| format!("{properties},")).unwrap_or_default();
    lines.set("default_properties", format!("{properties}?provider={PROVIDER}"));
    lines.rest_of(conf, algorithms, &["default_properties"]);
    lines.0
}

/// Name of the value that names the section in which OpenSSL begins.
const START: &str = "openssl_conf";

/// The same, of Node.js.
const START_OF_NODE: &str = "nodejs_conf";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

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
        let module = folder.path().join("module.so");
        fs::write(&module, module::look_alike()).unwrap();
        let stats = Path::new("/run/counts");
        let whole = text(&module, Some(stats), Some(&(system, conf)));
        let file = folder.path().join("convoy.cnf");
        fs::write(&file, &whole).unwrap();
        let conf = Conf::load(&file).unwrap();
        assert_eq!(conf.value("convoy_start", "ssl_conf"), Some("ssl_sect"));
        assert_eq!(conf.value("ssl_sect", "system_default"), Some("system_default_sect"));
        assert_eq!(conf.value("convoy_providers", "legacy"), Some("legacy_sect"));
        assert_eq!(conf.value("convoy_module", "stats"), Some("/run/counts"));
        assert_eq!(conf.value("default", "nodejs_conf"), Some("convoy_start"));
        assert_eq!(super::stats(&file).as_deref(), Some(stats));
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
        let whole = String::from_utf8(whole).unwrap();
        assert!(whole.contains("\ndefault_properties = -fips,?provider=convoy\n"), "{whole}");
    }

    #[test]
    fn what_the_system_says_is_read_again_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path().join("a $b # `c`.cnf");
        let conf = "openssl_conf = a\nnodejs_conf = other\n[a]\nproviders = p\n\
                    [p]\nmore = '#more'\n1.x = \\$y\nz = x\\ \\ny\n";
        fs::write(&system, conf).unwrap();
        let conf = Conf::load(&system).unwrap();
        let module = PathBuf::from(OsStr::from_bytes(b"/m \xff\xfe $x/ "));
        let whole = text(&module, Some(Path::new("/s#`t\\")), Some(&(system, conf)));
        let file = folder.path().join("convoy.cnf");
        fs::write(&file, &whole).unwrap();
        let conf = Conf::load(&file).unwrap();
        assert_eq!(conf.value("default", "nodejs_conf"), Some("other"));
        assert_eq!(conf.value("p", "more"), Some("#more"), "what it includes is found");
        assert_eq!(conf.value("convoy_providers", "more"), Some("#more"));
        assert_eq!(conf.value("convoy_providers", "1.x"), Some("$y"));
        assert_eq!(conf.value("convoy_providers", "z"), Some("x \ny"));
        assert_eq!(conf.entry("convoy_module", "module").unwrap().path, module);
        assert_eq!(conf.value("convoy_module", "stats"), Some("/s#`t\\"));
        assert_eq!(conf.value("convoy_module", "activate"), Some("1"));
    }
}
