//! What is wrong with a configuration that is to load Convoy's provider.

use std::fmt;
use std::path::Path;

use convoy_openssl::PROVIDER;
use serde::Serialize;

use super::module;
use super::parse::{Conf, Entry};

/// Something wrong, and the line to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) file: String,
    /// 0 if no line is wrong, but one is missing.
    pub(super) line: usize,
    pub(super) what: String,
    /// What would be right.
    pub(super) mend: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}; {}", self.what, self.mend)
    }
}

#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) errors: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
}

/// Judges a configuration as OpenSSL would read it on this machine.
pub(super) fn judge(conf: &Conf) -> Judgement {
    let mut judge = Judge { conf, judgement: Judgement::default() };
    judge.start();
    judge.judgement
}

struct Judge<'a> {
    conf: &'a Conf,
    judgement: Judgement,
}

impl<'a> Judge<'a> {
    fn at(&self, entry: Option<&Entry>, what: String, mend: String) -> Finding {
        let file = entry.map_or(&self.conf.file, |entry| &entry.file).display().to_string();
        Finding { file, line: entry.map_or(0, |entry| entry.line), what, mend }
    }

    fn error(&mut self, entry: Option<&Entry>, what: impl Into<String>, mend: impl Into<String>) {
        let finding = self.at(entry, what.into(), mend.into());
        self.judgement.errors.push(finding);
    }

    fn warning(&mut self, entry: Option<&Entry>, what: impl Into<String>, mend: impl Into<String>) {
        let finding = self.at(entry, what.into(), mend.into());
        self.judgement.warnings.push(finding);
    }

    /// The section that an entry names; an error if there is none.
    fn section(&mut self, section: &str, name: &str, why: &str) -> Option<&'a Entry> {
        let conf = self.conf;
        let Some(entry) = conf.entry(section, name) else {
            let what = format!("[{section}] has no {name}, {why}");
            self.error(None, what, format!("write {name} = convoy_{name} into [{section}]"));
            return None;
        };
        if !conf.has(&entry.value) {
            let what = format!("{name} names [{}], which is empty or not there", entry.value);
            self.error(Some(entry), what, "write that section, or correct the name");
            return None;
        }
        Some(entry)
    }

    fn start(&mut self) {
        let why = "so OpenSSL loads nothing";
        let Some(start) = self.section(Conf::DEFAULT, "openssl_conf", why) else { return };
        let why = "so OpenSSL loads no provider but its default one";
        let Some(providers) = self.section(&start.value, "providers", why) else { return };
        let listed: Vec<&Entry> = self.conf.section(&providers.value).collect();
        self.convoy(providers, &listed);
        self.default(providers, &listed);
        self.properties(start, &listed);
    }

    fn convoy(&mut self, providers: &Entry, listed: &[&'a Entry]) {
        let Some(entry) = listed.iter().find(|entry| entry.name == PROVIDER).copied() else {
            let what = format!("[{}] does not list {PROVIDER}", providers.value);
            self.error(Some(providers), what, format!("add {PROVIDER} = convoy_module there"));
            return;
        };
        if !self.is_activated(entry) {
            return;
        }
        let conf = self.conf;
        let Some(named) = conf.entry(&entry.value, "module") else {
            let what =
                format!("[{}] has no module, so OpenSSL looks in its own folder", entry.value);
            self.warning(Some(entry), what, "add module = with the whole path of the library");
            return;
        };
        let path = Path::new(&named.value);
        if !path.is_absolute() {
            let what = format!("{} is looked for in OpenSSL's folder of modules", named.value);
            self.warning(Some(named), what, "write the whole path of the library");
        } else if let Some(trouble) = module::trouble(path) {
            let what = format!("{} {trouble}", named.value);
            let mend = "name the library of this machine; `convoy openssl-conf` finds it";
            self.error(Some(named), what, mend);
        }
    }

    /// Once a provider is named, the default one is loaded only if it is, too.
    fn default(&mut self, providers: &Entry, listed: &[&'a Entry]) {
        let Some(entry) = listed.iter().find(|entry| entry.name == "default").copied() else {
            let what = format!(
                "[{}] does not list default: all that {PROVIDER} has not would be gone",
                providers.value
            );
            let mend = "add default = convoy_default there, and activate = 1 to [convoy_default]";
            self.error(Some(providers), what, mend);
            return;
        };
        self.is_activated(entry);
    }

    fn is_activated(&mut self, entry: &'a Entry) -> bool {
        let (provider, conf) = (&entry.name, self.conf);
        if entry.value == Conf::DEFAULT {
            let what = "[default] is the section of what stands before every section".to_owned();
            self.error(Some(entry), what, format!("call it {provider}_section, say"));
            return false;
        }
        if !conf.has(&entry.value) {
            let what = format!(
                "{provider} names [{}], which is empty or not there: {provider} is not loaded",
                entry.value
            );
            self.error(Some(entry), what, format!("write activate = 1 into [{}]", entry.value));
            return false;
        }
        let Some(activate) = conf.entry(&entry.value, "activate") else {
            let what = format!("[{}] has no activate: {provider} is not loaded", entry.value);
            self.error(Some(entry), what, format!("write activate = 1 into [{}]", entry.value));
            return false;
        };
        let is_off = ["0", "no", "false", "off"].contains(&activate.value.to_lowercase().as_str());
        if is_off {
            let what = format!("activate = {}: {provider} is not loaded", activate.value);
            self.error(Some(activate), what, "write activate = 1");
        }
        !is_off
    }

    fn properties(&mut self, start: &Entry, listed: &[&'a Entry]) {
        let conf = self.conf;
        let wish = format!("?provider={PROVIDER}");
        let section = conf.entry(&start.value, "alg_section");
        let properties =
            section.and_then(|section| conf.entry(&section.value, "default_properties"));
        let Some(properties) = properties.filter(|entry| !entry.value.trim().is_empty()) else {
            let place = |name: &str| listed.iter().position(|entry| entry.name == name);
            if place("default") < place(PROVIDER) {
                let what = "nothing prefers Convoy, and default is listed before it";
                let mend = format!(
                    "add alg_section = convoy_algorithms to [{}], and default_properties = {wish} to \
                     [convoy_algorithms]",
                    start.value
                );
                self.error(section.or(Some(start)), what, mend);
            }
            return;
        };
        let mut prefers = false;
        for term in properties.value.split(',') {
            let term: String = term.chars().filter(|c| !c.is_whitespace()).collect();
            if term == format!("provider={PROVIDER}") {
                let what = format!("{term} is strict: what {PROVIDER} has not is not to be had");
                self.error(Some(properties), what, format!("write {wish}, with a question mark"));
                return;
            }
            if let Some(other) = term.strip_prefix("provider=") {
                let what = format!("{term} is strict: only {other} is used");
                self.error(Some(properties), what, format!("write {wish} instead"));
                return;
            }
            prefers |= term == wish;
        }
        if !prefers {
            let what = format!("{} does not prefer {PROVIDER}", properties.value);
            self.error(Some(properties), what, format!("add {wish}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A configuration with a module that is right here, changed.
    fn judged(change: impl Fn(&str) -> String) -> Judgement {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("module.so");
        let mut bytes = fs::read("/proc/self/exe").unwrap();
        bytes.extend(b"OSSL_provider_init\0provider=convoy\0");
        fs::write(&module, &bytes).unwrap();
        bytes[18] ^= 0xff;
        fs::write(folder.path().join("other.so"), &bytes).unwrap();
        let text = format!(
            "openssl_conf = start\n[start]\nproviders = list\nalg_section = algorithms\n\
             [list]\ndefault = own\nconvoy = ours\n[own]\nactivate = 1\n\
             [ours]\nmodule = {}\nactivate = 1\n\
             [algorithms]\ndefault_properties = ?provider=convoy\n",
            module.display()
        );
        let file = folder.path().join("a.cnf");
        fs::write(&file, change(&text)).unwrap();
        judge(&Conf::load(&file).unwrap())
    }

    #[test]
    fn a_good_one_is_good() {
        let judgement = judged(str::to_owned);
        assert!(judgement.errors.is_empty() && judgement.warnings.is_empty(), "{judgement:?}");
        // Listed first, Convoy needs no property.
        let judgement = judged(|text| {
            let text = text.replace("default = own\nconvoy = ours", "convoy = ours\ndefault = own");
            text.replace("alg_section = algorithms\n", "")
        });
        assert!(judgement.errors.is_empty() && judgement.warnings.is_empty(), "{judgement:?}");
    }

    #[test]
    fn each_mistake_is_told_with_its_line() {
        for (from, to, line, says) in [
            ("openssl_conf = start", "", 0, "[default] has no openssl_conf"),
            ("openssl_conf = start", "openssl_conf = begin", 1, "[begin]"),
            ("providers = list", "", 0, "has no providers"),
            ("default = own\n", "", 3, "does not list default"),
            ("[own]\nactivate = 1\n", "[own]\nx = 1\n", 6, "no activate"),
            ("[own]\nactivate = 1\n", "[own]\nactivate = no\n", 9, "default is not loaded"),
            ("default = own", "default = default", 6, "before every section"),
            ("convoy = ours\n", "", 3, "does not list convoy"),
            ("?provider", "provider", 14, "strict"),
            ("?provider=convoy", "provider = default", 14, "only default is used"),
            ("?provider=convoy", "fips=yes", 14, "does not prefer convoy"),
            ("alg_section = algorithms\n", "", 2, "nothing prefers Convoy"),
            ("module.so", "missing.so", 11, "cannot be read"),
            ("module.so", "other.so", 11, "this machine is"),
            ("module.so", "a.cnf", 11, "not an ELF file"),
        ] {
            let judgement = judged(|text| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
            let texts: Vec<_> = judgement.errors.iter().map(ToString::to_string).collect();
            let line = if says.contains("nothing prefers") { 1 } else { line };
            assert!(
                judgement.errors.iter().any(|it| it.line == line && it.what.contains(says)),
                "{from} -> {to}: {texts:?}"
            );
        }
    }

    #[test]
    fn a_module_without_a_path_is_worth_a_warning() {
        let without = judged(|text| {
            text.lines().filter(|l| !l.starts_with("module")).map(|l| format!("{l}\n")).collect()
        });
        assert!(without.errors.is_empty() && without.warnings.len() == 1, "{without:?}");
        let relative = judged(|text| text.replace("module = /", "module = "));
        assert!(relative.errors.is_empty() && relative.warnings.len() == 1, "{relative:?}");
    }
}
