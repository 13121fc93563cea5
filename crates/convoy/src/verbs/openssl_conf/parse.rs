//! The files that config(5) of OpenSSL describes, read as its own reader does.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use super::grammar::{self, Dollar};

/// Files include each other no deeper than this.
const DEPTH: usize = 10;

/// No configuration is longer.
const BYTES: u64 = 1 << 20;

/// Bytes that editors of Windows put in front of UTF-8. OpenSSL skips them in the file that it is given, but in none
/// that this one includes.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A configuration with all that it includes.
#[derive(Debug)]
pub(super) struct Conf {
    entries: Vec<Entry>,
    /// Names with a heading, also if nothing stands below it.
    sections: BTreeSet<String>,
    /// The file that was asked for.
    pub(super) file: PathBuf,
}

/// A line that gives a name a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) section: String,
    pub(super) name: String,
    pub(super) value: String,
    /// The value, if it is a path: to the byte.
    pub(super) path: PathBuf,
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

impl Conf {
    /// The section of what stands before the first one.
    pub(super) const DEFAULT: &str = "default";

    /// Reads a file and what it includes.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or OpenSSL would refuse a line; the text says where.
    pub(super) fn load(file: &Path) -> io::Result<Self> {
        let sections = BTreeSet::from([Self::DEFAULT.to_owned()]);
        let conf = Self { entries: Vec::new(), sections, file: file.to_owned() };
        let mut reader = Reader {
            conf,
            section: Self::DEFAULT.to_owned(),
            dollar: Dollar::Variable,
            folder_of_includes: None,
            needs_absolute: false,
            is_in_folder: false,
        };
        let text = text_of(file)?;
        reader.read(file, text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text), DEPTH)?;
        Ok(reader.conf)
    }

    /// Line of a name in a section; of several lines the last counts.
    pub(super) fn entry(&self, section: &str, name: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.section == section && entry.name == name)
    }

    pub(super) fn value(&self, section: &str, name: &str) -> Option<&str> {
        Some(&self.entry(section, name)?.value)
    }

    /// True if there is a section, even an empty one.
    pub(super) fn has(&self, section: &str) -> bool {
        self.sections.contains(section)
    }

    /// The lines of a section that count, in the order of the file.
    pub(super) fn section<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().enumerate().filter_map(move |(at, entry)| {
            let behind = &self.entries[at + 1..];
            let is_replaced =
                behind.iter().any(|later| later.section == section && later.name == entry.name);
            (entry.section == section && !is_replaced).then_some(entry)
        })
    }
}

fn text_of(file: &Path) -> io::Result<Vec<u8>> {
    let name_it =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    if fs::metadata(file).map_err(name_it)?.len() > BYTES {
        let what = format!("{}: is longer than a configuration is", file.display());
        return Err(io::Error::other(what));
    }
    fs::read(file).map_err(name_it)
}

/// A configuration as far as it was read, and what lines before change for those behind.
struct Reader {
    conf: Conf,
    section: String,
    dollar: Dollar,
    /// Folder of included files whose names are relative, if a pragma names it.
    folder_of_includes: Option<PathBuf>,
    /// True if included files must have absolute names.
    needs_absolute: bool,
    /// True if a folder is being included: OpenSSL then includes no other.
    is_in_folder: bool,
}

impl Reader {
    fn read(&mut self, file: &Path, text: &[u8], depth: usize) -> io::Result<()> {
        for (line, whole) in grammar::lines(text) {
            self.line(file, line, &whole, depth).map_err(|fault| match fault {
                Fault::Here(what) => io::Error::other(format!("{}:{line}: {what}", file.display())),
                Fault::Within(error) => error,
            })?;
        }
        Ok(())
    }

    fn line(&mut self, file: &Path, line: usize, text: &[u8], depth: usize) -> Result<(), Fault> {
        if text.contains(&0) {
            return Err("has a NUL byte".into());
        }
        let text = grammar::without_blanks_before(grammar::without_comment(text));
        if text.is_empty() {
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix(b"[") {
            self.section = self.heading(rest)?;
            self.conf.sections.insert(self.section.clone());
            return Ok(());
        }
        let mut end = grammar::end_of_name(text, self.dollar);
        let (mut section, mut name) = (self.section.clone(), 0);
        if text[end..].starts_with(b"::") {
            section = lossy(&text[..end]);
            name = end + 2;
            end = name + grammar::end_of_name(&text[name..], self.dollar);
        }
        let behind = grammar::without_blanks_before(&text[end..]);
        let name = &text[name..end];
        let value = behind.strip_prefix(b"=").map(grammar::without_blanks_before);
        // Such lines need no `=`.
        let argument = grammar::without_blanks_behind(value.unwrap_or(behind));
        let is = |directive: &[u8]| {
            let blanks = text.len() - end > behind.len();
            name.strip_prefix(directive)
                .is_some_and(|more| !more.is_empty() || blanks || behind.starts_with(b"="))
        };
        if is(b".pragma") {
            return Ok(self.pragma(argument)?);
        }
        if is(b".include") {
            return self.include(&section, argument, depth);
        }
        let Some(value) = value else {
            return Err(format!("{:?} has no = behind its name", lossy(text)).into());
        };
        let value = self.value_of(Some(&section), grammar::without_blanks_behind(value))?;
        self.conf.sections.insert(section.clone());
        self.conf.entries.push(Entry {
            section,
            name: lossy(name),
            value: lossy(&value),
            path: OsString::from_vec(value).into(),
            file: file.to_owned(),
            line,
        });
        Ok(())
    }

    /// The section that a heading names; blanks may be within the name.
    fn heading(&self, text: &[u8]) -> Result<String, String> {
        let text = grammar::without_blanks_before(text);
        let mut at = 0;
        loop {
            let end = at + grammar::end_of_name(&text[at..], self.dollar);
            let behind = grammar::without_blanks_before(&text[end..]);
            match behind.first() {
                Some(b']') => return Ok(lossy(&self.value_of(None, &text[..end])?)),
                Some(_) if behind.len() < text.len() - at => at = text.len() - behind.len(),
                _ => return Err("the section's name has no ] behind it".to_owned()),
            }
        }
    }

    fn pragma(&mut self, text: &[u8]) -> Result<(), String> {
        let says = lossy(text);
        let Some((name, value)) =
            says.split_once(':').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        else {
            return Err(format!("a pragma is NAME:VALUE, not {says:?}"));
        };
        let is_blank = |c: char| u8::try_from(c).is_ok_and(grammar::is_blank);
        let (name, value) = (name.trim_end_matches(is_blank), value.trim_start_matches(is_blank));
        let is_on = || match value.to_ascii_lowercase().as_str() {
            "on" | "true" => Ok(true),
            "off" | "false" => Ok(false),
            _ => Err(format!("the pragma {name} is on or off, not {value:?}")),
        };
        match name {
            "dollarid" => {
                self.dollar = if is_on()? { Dollar::InNames } else { Dollar::Variable };
            }
            "abspath" => self.needs_absolute = is_on()?,
            "includedir" => self.folder_of_includes = Some(PathBuf::from(value)),
            _ => {}
        }
        Ok(())
    }

    /// Includes a file, or those of a folder. What is not there, or cannot be read, is passed over, as OpenSSL does.
    fn include(&mut self, section: &str, text: &[u8], depth: usize) -> Result<(), Fault> {
        let path = PathBuf::from(OsString::from_vec(self.value_of(Some(section), text)?));
        let folder = env::var_os("OPENSSL_CONF_INCLUDE").map(PathBuf::from);
        let folder = folder.or_else(|| self.folder_of_includes.clone());
        let path = folder.unwrap_or_default().join(path);
        if self.needs_absolute && !path.is_absolute() {
            return Err(format!("{} is no absolute path, and abspath is on", path.display()).into());
        }
        if depth == 0 {
            return Err(format!("includes are nested deeper than {DEPTH}").into());
        }
        let is_folder = path.is_dir();
        if is_folder && self.is_in_folder {
            return Ok(());
        }
        let files = if is_folder { files_of(&path) } else { vec![path] };
        self.is_in_folder |= is_folder;
        for file in files.iter().filter(|file| file.is_file()) {
            let Ok(text) = text_of(file) else { continue };
            self.read(file, &text, depth - 1).map_err(Fault::Within)?;
        }
        self.is_in_folder &= !is_folder;
        Ok(())
    }

    /// A value without quotes, and with variables replaced by what they stand for so far.
    fn value_of(&self, section: Option<&str>, text: &[u8]) -> Result<Vec<u8>, String> {
        let mut value = Vec::new();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            at += 1;
            let next = text.get(at).copied();
            match byte {
                b'\\' => {
                    value.extend(next.map(escaped));
                    at += 1;
                }
                b'$' if self.dollar == Dollar::Variable || matches!(next, Some(b'{' | b'(')) => {
                    let (of, behind) = self.variable(section, &text[at..])?;
                    value.extend(of);
                    at += behind;
                }
                _ if grammar::is_quote(byte) => at += within_quotes(byte, &text[at..], &mut value),
                _ => value.push(byte),
            }
        }
        Ok(value)
    }

    /// Value of a variable, and the position of the text behind it.
    fn variable(&self, section: Option<&str>, text: &[u8]) -> Result<(Vec<u8>, usize), String> {
        let close = match text.first() {
            Some(b'{') => Some(b'}'),
            Some(b'(') => Some(b')'),
            _ => None,
        };
        let start = usize::from(close.is_some());
        let mut end = start + grammar::end_of_variable(&text[start..], self.dollar);
        let (mut section, mut name) = (section.map(str::to_owned), start);
        if text[end..].starts_with(b"::") {
            section = Some(lossy(&text[start..end]));
            name = end + 2;
            end = name + grammar::end_of_variable(&text[name..], self.dollar);
        }
        let name = lossy(&text[name..end]);
        if let Some(close) = close
            && text.get(end) != Some(&close)
        {
            return Err(format!("${} has no {} behind it", lossy(text), char::from(close)));
        }
        let value = self.stands_for(section.as_deref(), &name);
        let value = value.ok_or_else(|| format!("${name} has no value so far"))?;
        Ok((value, end + start))
    }

    fn stands_for(&self, section: Option<&str>, name: &str) -> Option<Vec<u8>> {
        let of = |section: &str| {
            let entry = self.conf.entry(section, name)?;
            Some(entry.path.as_os_str().as_bytes().to_vec())
        };
        let of_environment = |section: &str| {
            let is_asked = section == "ENV" && !name.is_empty();
            is_asked.then(|| env::var_os(name)).flatten().map(OsString::into_vec)
        };
        section
            .and_then(|section| of(section).or_else(|| of_environment(section)))
            .or_else(|| of(Conf::DEFAULT))
    }
}

enum Fault {
    /// The line makes no sense.
    Here(String),
    /// One of a file that it includes does not.
    Within(io::Error),
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Here(what)
    }
}

impl From<&str> for Fault {
    fn from(what: &str) -> Self {
        Self::Here(what.to_owned())
    }
}

/// Byte that a character behind a backslash stands for.
fn escaped(byte: u8) -> u8 {
    match byte {
        b'r' => b'\r',
        b'n' => b'\n',
        b'b' => 8,
        b't' => b'\t',
        other => other,
    }
}

/// Adds what stands in quotes, and tells where the text behind them begins.
fn within_quotes(quote: u8, text: &[u8], value: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            _ if byte == quote => break,
            b'\\' => {
                value.extend(text.get(at));
                at += 1;
            }
            _ => value.push(byte),
        }
    }
    at.min(text.len())
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The configurations in a folder, in the order in which the folder has them.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let is_conf = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes().to_ascii_lowercase();
        [&b".conf"[..], b".cnf"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_conf).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn load(text: impl AsRef<[u8]>) -> io::Result<Conf> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cnf");
        fs::write(&file, text).unwrap();
        Conf::load(&file)
    }

    #[test]
    fn sections_comments_quotes_and_variables_are_read() {
        let conf = load(
            "# a comment\nbase = /opt # behind\na = 1\n[ one ]\nb = \"x # y\"\nc = ${base}/m.so\n\
             d = $base/$default::a\\\n  more\nx::y = 5\n b = later\n[ two  words ] x\n;e = `a#b` 'c\\'d'\\n\\$\n[]\n",
        )
        .unwrap();
        assert_eq!(conf.value("one", "b"), Some("later"));
        assert_eq!(conf.value("one", "c"), Some("/opt/m.so"));
        assert_eq!(conf.value("one", "d"), Some("/opt/1  more"));
        assert_eq!(conf.value("x", "y"), Some("5"));
        assert_eq!(conf.value("default", "a"), Some("1"));
        assert_eq!(conf.value("two  words", ";e"), Some("a#b c'd\n$"));
        assert!(conf.has("") && conf.has("x") && !conf.has("y"));
        let names: Vec<_> = conf.section("one").map(|entry| (&*entry.name, entry.line)).collect();
        assert_eq!(names, [("c", 6), ("d", 7), ("b", 10)]);
    }

    #[test]
    fn pragmas_change_what_dollars_are() {
        let conf = load(
            "a = 1\n.pragma = dollarid:ON\nb = $a\nc = ${a}\nd$e = 2\n.pragma dollarid:off\nf = $a\n",
        );
        let conf = conf.unwrap();
        let value = |name| conf.value("default", name).unwrap();
        assert_eq!((value("b"), value("c"), value("d$e"), value("f")), ("$a", "1", "2", "1"));
    }

    #[test]
    fn a_byte_order_mark_is_skipped_in_front_of_the_first_file_alone() {
        let conf = load("\u{feff}[a]\nb = 1\n").unwrap();
        assert_eq!(conf.value("a", "b"), Some("1"));
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.cnf"), folder.path().join("b.cnf"));
        fs::write(&a, format!(".include {}\n", b.display())).unwrap();
        fs::write(&b, "\u{feff}[a]\nb = 1\n").unwrap();
        assert!(Conf::load(&a).unwrap_err().to_string().contains("b.cnf:1: "));
    }

    #[test]
    fn files_are_included_and_not_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.cnf"), folder.path().join("b.cnf"));
        fs::write(&a, format!(".include {}\nx = 2\n.include = /not/there\n", b.display())).unwrap();
        fs::write(&b, "x = 1\n[s]\ny = 1\n").unwrap();
        let conf = Conf::load(&a).unwrap();
        assert_eq!((conf.value("s", "x"), conf.value("s", "y")), (Some("2"), Some("1")));
        assert_eq!(conf.entry("s", "y").unwrap().file, b);
        fs::write(&b, format!(".include {}\n", a.display())).unwrap();
        assert!(Conf::load(&a).unwrap_err().to_string().contains("deeper"));
    }

    #[test]
    fn folders_are_included_by_the_names_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let (a, more) = (folder.path().join("a"), folder.path().join("more"));
        fs::create_dir(&more).unwrap();
        for (name, key) in [("1.cnf", "one"), ("2.CONF", "two"), (".cnf", "three"), ("4", "four")] {
            fs::write(more.join(name), format!("{key} = 1\n")).unwrap();
        }
        let folder = folder.path().display();
        fs::write(&a, format!(".pragma includedir:{folder}\n.include more\n.include more\n"))
            .unwrap();
        let conf = Conf::load(&a).unwrap();
        let is_there =
            ["one", "two", "three", "four"].map(|name| conf.value("default", name).is_some());
        assert_eq!(is_there, [true, true, false, false]);
    }

    #[test]
    fn what_is_quoted_is_read_as_it_was() {
        let mut all: Vec<u8> = (1..=255).collect();
        all.extend(b"\\\\ ");
        let values: [&[u8]; 10] = [
            &all,
            b" /a b ",
            b"  two  ",
            b"\t/a\t",
            b"/a\n[b]\nc = d",
            b"/ends with\\",
            b"/${ENV::HOME}/$x",
            b"/\"a\"'b'`c`",
            b"/a # b ; c",
            b"",
        ];
        for value in values {
            let value = OsStr::from_bytes(value);
            for pragma in ["off", "on"] {
                let mut text = format!(".pragma = dollarid:{pragma}\nx = ").into_bytes();
                text.extend(grammar::quoted(value));
                text.extend(b"\ny = 1\n");
                let conf = load(&text).unwrap();
                assert_eq!(conf.entry("default", "x").unwrap().path.as_os_str(), value);
                assert_eq!(conf.entry("default", "y").unwrap().line, 3);
            }
        }
    }

    #[test]
    fn faults_name_their_line() {
        for (text, line, says) in [
            ("a = 1\nrubbish\n", 2, "has no ="),
            ("a b = 1\n", 1, "has no ="),
            ("a(b = 1\n", 1, "has no ="),
            ("a::b::c = 1\n", 1, "has no ="),
            (".include\n", 1, "has no ="),
            ("[open\n", 1, "no ]"),
            ("[a(b]\n", 1, "no ]"),
            ("\n\na = $none\n", 3, "$none has no value"),
            ("a = $\n", 1, "has no value"),
            ("a = ${b\n", 1, "no } behind"),
            ("a = 1\0\n", 1, "NUL"),
            (".pragma = dollarid\n", 1, "NAME:VALUE"),
            (".pragma = dollarid:maybe\n", 1, "on or off"),
            (".pragma = abspath:on\n.include x\n", 2, "no absolute path"),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(&format!("a.cnf:{line}: ")) && error.contains(says), "{error}");
        }
        assert!(
            Conf::load(Path::new("/not/there")).unwrap_err().to_string().contains("/not/there")
        );
    }
}
