//! Faults of a configuration that is to load Convoy's provider.

use std::fmt;

use convoy_openssl::{PROVIDER, offer};
use serde::Serialize;

use super::listed::{Listed, switch};
use super::parse::{Conf, Entry};

/// Something wrong, and the line to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) file: String,
    /// 0 if no line is wrong, but one is missing.
    pub(super) line: usize,
    pub(super) what: String,
    /// Remedy.
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
        self.is_section(entry).then_some(entry)
    }

    fn is_section(&mut self, entry: &Entry) -> bool {
        let is_there = self.conf.section(&entry.value).next().is_some();
        if !is_there {
            let what = format!("{} names [{}], which is empty or missing", entry.name, entry.value);
            self.error(Some(entry), what, "write that section, or correct the name");
        }
        is_there
    }

    fn start(&mut self) {
        let why = "so OpenSSL loads nothing";
        let Some(start) = self.section(Conf::DEFAULT, "openssl_conf", why) else { return };
        let conf = self.conf;
        let modules: Vec<&Entry> = conf.section(&start.value).collect();
        let Some(last) = modules.iter().rposition(|it| module_of(&it.name) == Some(PROVIDERS))
        else {
            let why = "so OpenSSL loads no provider but its default one";
            self.section(&start.value, PROVIDERS, why);
            return;
        };
        for entry in &modules[..last] {
            if let Some((what, mend)) = stops(conf, entry) {
                let what = format!("{what}: OpenSSL stops there, and loads no provider");
                self.error(Some(entry), what, mend);
            }
        }
        for entry in &modules[last + 1..] {
            if let Some((what, mend)) = stops(conf, entry) {
                let what = format!("{what}: OpenSSL reads no further");
                self.warning(Some(entry), what, mend);
            }
        }
        let lists = modules.iter().filter(|it| module_of(&it.name) == Some(PROVIDERS));
        let lists: Vec<&Entry> = lists.copied().collect();
        if !lists.iter().all(|list| self.is_section(list)) {
            return;
        }
        let listed = lists.iter().flat_map(|list| conf.section(&list.value));
        let listed: Vec<_> = listed.map(|entry| Listed::of(conf, entry)).collect();
        let convoy = self.convoy(lists[0], &listed);
        let default = self.default(lists[0], &listed);
        self.others(&listed, convoy, default);
        self.properties(start, &modules, default < convoy);
    }

    /// Judges the provider that is Convoy, by whatever name; its place in the list.
    fn convoy(&mut self, list: &Entry, listed: &[Listed<'a>]) -> Option<usize> {
        let is_sound = |it: &Listed<'_>| it.is_active() && it.trouble().is_none();
        let place =
            listed.iter().position(|it| it.is_convoy() && is_sound(it) && !OWN.contains(&it.name));
        let place = place.or_else(|| listed.iter().position(Listed::is_convoy));
        let Some(place) = place else {
            let what = format!("[{}] does not list {PROVIDER}", list.value);
            self.error(Some(list), what, format!("add {PROVIDER} = convoy_module there"));
            return None;
        };
        let it = &listed[place];
        if OWN.contains(&it.name) {
            let what =
                format!("{} is a provider of OpenSSL's own, whatever its module is", it.name);
            self.error(Some(it.entry), what, format!("call it {PROVIDER}"));
            return None;
        }
        if !self.is_activated(it) {
            return Some(place);
        }
        self.offer(&it.entry.value);
        let Some(named) = it.module else {
            let section = &it.entry.value;
            let what = format!("[{section}] has no module, so OpenSSL looks in its own folder");
            self.warning(Some(it.entry), what, "add module = with the whole path of the library");
            return Some(place);
        };
        if let Some(trouble) = it.trouble() {
            let what = format!("{} {trouble}", named.value);
            let mend = "name the library of this machine; `convoy openssl-conf` finds it";
            self.error(Some(named), what, mend);
        } else if !named.path.is_absolute() {
            let what = format!("{} is looked for in OpenSSL's folder of modules", named.value);
            self.warning(Some(named), what, "write the whole path of the library");
        }
        Some(place)
    }

    /// Judges what Convoy's section says of the ciphers that are offered.
    fn offer(&mut self, section: &str) {
        let conf = self.conf;
        let Some(entry) = conf.entry(section, offer::KEY) else { return };
        if !["", offer::EVERY].contains(&&*entry.value) {
            let what =
                format!("{} = {}: {PROVIDER} does not load with it", offer::KEY, entry.value);
            let mend = format!(
                "take it out, or write {} = {}, which offers what is slower here, too",
                offer::KEY,
                offer::EVERY
            );
            self.error(Some(entry), what, mend);
        }
    }

    /// Once a provider is named, the default one is loaded only if it is, too. Its place in the list.
    fn default(&mut self, list: &Entry, listed: &[Listed<'a>]) -> Option<usize> {
        let Some(place) = listed.iter().position(|it| it.name == "default") else {
            let what = format!(
                "[{}] does not list default: algorithms that {PROVIDER} lacks would be missing",
                list.value
            );
            let mend = "add default = convoy_default there, and activate = 1 to [convoy_default]";
            self.error(Some(list), what, mend);
            return None;
        };
        self.is_activated(&listed[place]);
        Some(place)
    }

    /// Judges the providers beside Convoy and the default one: a mistake there ends the list.
    fn others(&mut self, listed: &[Listed<'a>], convoy: Option<usize>, default: Option<usize>) {
        let last = convoy.max(default).unwrap_or(0);
        for (place, it) in listed.iter().enumerate() {
            if [convoy, default].contains(&Some(place)) {
                continue;
            }
            let name = it.name;
            let (entry, what, mend) = if it.section_is_missing {
                let what = format!("{name} names [{}], which is missing", it.entry.value);
                (it.entry, what, "write that section, or correct the name".to_owned())
            } else if let Some(flag) = it.refused() {
                let what =
                    format!("{} = {} is an error from OpenSSL 3.3 on", flag.name, flag.value);
                (flag, what, format!("write {} = 1, or 0", flag.name))
            } else {
                continue;
            };
            let what = format!("{what}: providers that are listed after it are not loaded");
            if place < last {
                self.error(Some(entry), what, mend);
            } else {
                self.warning(Some(entry), what, mend);
            }
        }
    }

    fn is_activated(&mut self, it: &Listed<'a>) -> bool {
        let (provider, entry, section) = (it.name, it.entry, &it.entry.value);
        let mend = format!("write activate = 1 into [{section}]");
        if section == Conf::DEFAULT {
            let what = "[default] is the section of the lines before the first section".to_owned();
            self.error(Some(entry), what, format!("call it {provider}_section, say"));
            return false;
        }
        if self.conf.section(section).next().is_none() {
            let what = format!(
                "{provider} names [{section}], which is empty or missing: {provider} is not loaded"
            );
            self.error(Some(entry), what, mend);
            return false;
        }
        let Some(activate) = it.activate else {
            let what = format!("[{section}] has no activate: {provider} is not loaded");
            self.error(Some(entry), what, mend);
            return false;
        };
        // OpenSSL before 3.3 activates with any value. One file is to serve every OpenSSL.
        let (wrong, what) = if let Some(refused) = it.refused() {
            let (name, value) = (&refused.name, &refused.value);
            let what = format!(
                "{name} = {value} is an error from OpenSSL 3.3 on: {provider} is not loaded, nor are the \
                 providers after it"
            );
            (refused, what)
        } else if switch(&activate.value) == Some(false) {
            let (name, value) = (&activate.name, &activate.value);
            (activate, format!("{name} = {value}: {provider} is not loaded from OpenSSL 3.3 on"))
        } else {
            return true;
        };
        self.error(Some(wrong), what, format!("write {} = 1 (or yes, true, on)", wrong.name));
        false
    }

    /// Checks that Convoy is preferred to the default provider, which comes first if `is_behind`.
    fn properties(&mut self, start: &Entry, modules: &[&'a Entry], is_behind: bool) {
        let conf = self.conf;
        let wish = format!("?provider={PROVIDER}");
        let section = modules.iter().rfind(|it| module_of(&it.name) == Some(ALGORITHMS));
        // OpenSSL reads no further than the first name that it does not know.
        let known = section.into_iter().flat_map(|section| {
            conf.section(&section.value).take_while(|it| OF_ALGORITHMS.contains(&&*it.name))
        });
        let properties = known.filter(|it| it.name == "default_properties").last();
        let Some(properties) = properties.filter(|entry| !entry.value.trim().is_empty()) else {
            if is_behind {
                let what = "nothing prefers Convoy, and default is listed before it";
                let mend = format!(
                    "add alg_section = convoy_algorithms to [{}], and default_properties = {wish} to \
                     [convoy_algorithms]",
                    start.value
                );
                self.error(Some(section.copied().unwrap_or(start)), what, mend);
            }
            return;
        };
        let mut prefers = false;
        for term in properties.value.split(',') {
            let is_noise = |c: char| c.is_whitespace() || c == '"' || c == '\'';
            let term = term.replace(is_noise, "").to_ascii_lowercase();
            if term == format!("provider={PROVIDER}") {
                let what =
                    format!("{term} is strict: algorithms that {PROVIDER} lacks are missing");
                self.error(Some(properties), what, format!("write {wish}, with a question mark"));
                return;
            }
            if let Some(other) = term.strip_prefix("provider=") {
                let what = format!("{term} is strict: only {other} is used");
                self.error(Some(properties), what, format!("write {wish} instead"));
                return;
            }
            prefers |= term == wish || term == "?provider!=default";
        }
        if !prefers {
            let what = format!("{} does not prefer {PROVIDER}", properties.value);
            self.error(Some(properties), what, format!("add {wish}"));
        }
    }
}

/// The module of OpenSSL that a line of the first section is for: it looks for a name that begins with
/// what is in front of the last dot.
fn module_of(name: &str) -> Option<&'static str> {
    let name = name.rsplit_once('.').map_or(name, |(front, _)| front);
    MODULES.into_iter().find(|module| module.starts_with(name))
}

/// Fault of a line of the first section at which OpenSSL stops reading, and the remedy.
fn stops(conf: &Conf, entry: &Entry) -> Option<(String, String)> {
    let Some(module) = module_of(&entry.name) else {
        let what = format!("OpenSSL has no module {}", entry.name);
        return Some((what, "put it in front of every section, or take it out".to_owned()));
    };
    if !conf.has(&entry.value) {
        let what = format!("{} names [{}], which is missing", entry.name, entry.value);
        return Some((what, "write that section, or correct the name".to_owned()));
    }
    let is_known = |it: &&Entry| OF_ALGORITHMS.contains(&&*it.name);
    let other =
        conf.section(&entry.value).find(|it| !is_known(it)).filter(|_| module == ALGORITHMS)?;
    let what = format!("[{}] says {}, which OpenSSL does not know there", entry.value, other.name);
    Some((what, "take it out".to_owned()))
}

const PROVIDERS: &str = "providers";
const ALGORITHMS: &str = "alg_section";

/// The modules of OpenSSL that its configuration is for, in OpenSSL's order.
const MODULES: [&str; 7] =
    ["oid_section", "stbl_section", "engines", ALGORITHMS, "ssl_conf", PROVIDERS, "random"];

/// Names that may stand in the section of [`ALGORITHMS`].
const OF_ALGORITHMS: [&str; 2] = ["default_properties", "fips_mode"];

/// Providers that are in OpenSSL itself.
const OWN: [&str; 3] = ["default", "base", "null"];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::verbs::openssl_conf::module;

    /// A configuration with a module that is right here, changed.
    fn judged(change: impl Fn(&str) -> String) -> Judgement {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("module.so");
        let mut bytes = module::look_alike();
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
            ("default = own", "default = default", 6, "of the lines before the first section"),
            ("convoy = ours\n", "", 3, "does not list convoy"),
            ("?provider", "provider", 14, "strict"),
            ("?provider=convoy", "provider = default", 14, "only default is used"),
            ("?provider=convoy", "fips=yes", 14, "does not prefer convoy"),
            ("alg_section = algorithms\n", "", 2, "nothing prefers Convoy"),
            ("module.so", "missing.so", 11, "cannot be read"),
            ("module.so", "other.so", 11, "this machine is"),
            ("module.so", "a.cnf", 11, "not an ELF file"),
            ("[ours]\nmodule", "[ours]\nmodule =\nx", 11, "names no library"),
            ("convoy = ours", "base = ours", 7, "OpenSSL's own"),
            ("[ours]\n", "[ours]\noffer = most\n", 11, "does not load with it"),
            (
                "convoy = ours",
                "more = none\nconvoy = ours",
                7,
                "that are listed after it are not loaded",
            ),
            ("[ours]\n", "[ours]\nsoft_load = maybe\n", 11, "error from OpenSSL 3.3 on"),
            (
                "[list]\n",
                "[list]\n1.more = more\n[more]\nactivate = maybe\n[list]\n",
                8,
                "OpenSSL 3.3",
            ),
            ("[start]\n", "[start]\nmore = own\n", 3, "no module more"),
            ("[start]\n", "[start]\nssl_conf = none\n", 3, "stops there"),
            ("providers = list", "alg_section.1 = none\nproviders = list", 3, "stops there"),
            ("[algorithms]\n", "[algorithms]\nmore = 1\n", 4, "default is listed before"),
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

    /// Words that OpenSSL takes for on or off, from 3.3 on; it refuses all else.
    #[test]
    fn a_switch_is_one_of_openssl_s_words() {
        for value in ["1", "yes", "YES", "true", "TRUE", "on", "ON", "'1'", "o\\n"] {
            // Outside quotes, `\n` is a line's end.
            let is_on = value != "o\\n";
            for section in ["[own]\n", "[ours]\n"] {
                let judgement = judged(|text| {
                    text.replace(section, &format!("{section}x.activate = {value}\n"))
                });
                assert_eq!(
                    judgement.errors.is_empty(),
                    is_on,
                    "one refused is enough: {judgement:?}"
                );
                let judgement = judged(|text| {
                    let (front, behind) = text.split_once(section).unwrap();
                    let behind = behind.replacen("activate = 1", &format!("activate = {value}"), 1);
                    format!("{front}{section}{behind}")
                });
                assert_eq!(judgement.errors.is_empty(), is_on, "{value}: {judgement:?}");
            }
        }
        for value in
            ["2", "Yes", "oN", "maybe", "", "0", "no", "NO", "false", "FALSE", "off", "OFF", "1 1"]
        {
            let judgement =
                judged(|text| text.replace("activate = 1\n", &format!("activate = {value}\n")));
            let is_off = ["0", "no", "false", "off"].contains(&&*value.to_lowercase());
            for (provider, line) in [("convoy", 12), ("default", 9)] {
                let says = if is_off {
                    "is not loaded from OpenSSL 3.3"
                } else {
                    "is an error from OpenSSL 3.3"
                };
                let is_told = judgement.errors.iter().any(|it| {
                    it.line == line && it.what.contains(provider) && it.what.contains(says)
                });
                assert!(is_told, "{value}: {judgement:?}");
            }
        }
    }

    #[test]
    fn what_openssl_loads_by_other_names_is_good() {
        for (from, to) in [
            ("convoy = ours", "1.convoy = ours"),
            ("convoy = ours", "a.b.c = ours"),
            ("convoy = ours", "fast = ours"),
            ("[ours]\n", "[ours]\nidentity = fast\n"),
            ("[ours]\n", "[ours]\noffer = all\n"),
            ("[ours]\nmodule", "[ours]\n1.module"),
            ("default = own", "2.default = own"),
            ("default = own", "first = own\n[own]\nidentity = default\n[list]"),
            ("providers = list", "providers.2 = list"),
            ("providers = list", "providers.a = first\nproviders.b = list\n[first]\n[start]"),
            ("[ours]", "[ ours ]"),
            ("[list]", "[empty]\n[list]"),
            ("?provider=convoy", "\"?Provider = 'Convoy'\""),
            ("openssl_conf", "\u{feff}openssl_conf"),
        ] {
            let judgement = judged(|text| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
                    .replace("providers.b = list\n[first]", "providers.b = list\n[first]\na = own")
            });
            assert!(
                judgement.errors.is_empty() && judgement.warnings.is_empty(),
                "{to}: {judgement:?}"
            );
        }
    }

    /// Convoy and the default provider are loaded all the same.
    #[test]
    fn a_mistake_behind_what_matters_is_worth_a_warning() {
        for (from, to, line) in [
            ("convoy = ours\n", "convoy = ours\nmore = none\n", 8),
            ("[start]\nproviders = list\n", "[start]\nproviders = list\nmore = own\n", 4),
            ("?provider=convoy\n", "?provider=convoy\nmore = 1\n", 4),
        ] {
            let judgement = judged(|text| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
            assert!(judgement.errors.is_empty(), "{to}: {judgement:?}");
            let [warning] = &judgement.warnings[..] else { panic!("{to}: {judgement:?}") };
            assert_eq!(warning.line, line, "{to}: {warning}");
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
