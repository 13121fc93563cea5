//! The C library as a C programmer meets it: installed into a folder, found by pkg-config, and used
//! by the examples in every way of linking, under AddressSanitizer too, and moved elsewhere.

mod names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::gate::Gate;
use crate::report::Tally;
use crate::workspace::{Workspace, works};

const EXAMPLES: &str = "crates/capi/examples";

/// Folder for libraries, below the prefix: not the default one.
const LIBDIR: &str = "lib64";

/// The folder of what is installed with its symbols.
const UNSTRIPPED: &str = "unstripped";

/// Folder for libraries in Debian and its kin.
const MULTIARCH: &str = "lib/x86_64-linux-gnu";

/// Libraries that a program needs beside the archive.
const STATIC_NEEDS: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// A way to build a program.
struct Way {
    name: &'static str,
    flags: &'static [&'static str],
    linked_statically: bool,
}

/// With everything in the program, the C library too.
const ALONE: Way = Way { name: "alone", flags: &["-O2", "-static"], linked_statically: true };

const WAYS: &[Way] = &[
    Way { name: "shared", flags: &["-O2"], linked_statically: false },
    Way { name: "static", flags: &["-O2"], linked_statically: true },
    Way {
        name: "shared-asan",
        flags: &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
        linked_statically: false,
    },
    Way {
        name: "static-asan",
        flags: &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
        linked_statically: true,
    },
];

/// Library to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    /// The one that the build of the tests made.
    OfTests,
    /// The one that is shipped.
    Release,
}

/// Installs the library that the build of the tests made, builds every example in every way, and runs it.
pub(crate) fn run(gate: &Gate) -> Result<Tally> {
    gate.programs()?;
    check(&gate.workspace, Build::OfTests)
}

/// The same with the library that is shipped.
pub(crate) fn run_release(gate: &Gate) -> Result<Tally> {
    check(&gate.workspace, Build::Release)
}

fn check(workspace: &Workspace, build: Build) -> Result<Tally> {
    for tool in ["cc", "make", "pkg-config", "readelf", "objcopy"] {
        if !works(Command::new(tool).arg("--version")) {
            let why = format!("c-library: {tool} is not installed");
            println!("SKIPPED {why}");
            return Ok(Tally::skip(why));
        }
    }
    let folder = workspace.target.join("gate/c-library");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let prefix = folder.join("prefix");
    install(workspace, build, &prefix, LIBDIR, &[])?;
    let mut sum = header_alone(&prefix)?;
    sum.add(stripped(workspace, build, &prefix, &folder)?);
    if matches!(build, Build::Release) {
        sum.add(inlined(&folder.join(UNSTRIPPED))?);
    }
    sum.add(names::check(&prefix, &folder)?);
    for libdir in [LIBDIR, MULTIARCH] {
        sum.add(match moved(workspace, build, &folder, libdir) {
            Ok(()) => Tally::pass(),
            Err(error) => Tally::fail(format!("c-library: moved, {libdir}: {error:#}")),
        });
    }
    let mut ways: Vec<&Way> = WAYS.iter().collect();
    if has_static_libc(&folder)? {
        ways.push(&ALONE);
    } else {
        sum.add(Tally::skip("c-library: there is no static C library".to_owned()));
    }
    for source in examples(&workspace.root)? {
        for way in &ways {
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let program = folder.join(format!("{name}-{}", way.name));
            sum.add(match build_and_run(way, &source, &prefix, &program) {
                Ok(()) => Tally::pass(),
                Err(error) => Tally::fail(format!("c-library: {name}, {}: {error:#}", way.name)),
            });
        }
    }
    Ok(sum)
}

fn install(
    workspace: &Workspace,
    build: Build,
    prefix: &Path,
    libdir: &str,
    more: &[&str],
) -> Result<()> {
    let status = Command::new("make")
        .arg("--no-print-directory")
        .args(match build {
            Build::OfTests => ["install-library-files", "LIBRARY=debug/deps"],
            Build::Release => ["install-library", "LIBRARY=release"],
        })
        .args(more)
        .arg(format!("PREFIX={}", prefix.display()))
        .arg(format!("LIBDIR={}", prefix.join(libdir).display()))
        .env("CARGO_TARGET_DIR", &workspace.target)
        .env_remove("DESTDIR")
        .env_remove("STRIP")
        .current_dir(&workspace.root)
        .status()?;
    ensure!(status.success(), "make install-library failed");
    Ok(())
}

/// Checks that the installed files have no debug information, unless that was asked for.
fn stripped(workspace: &Workspace, build: Build, prefix: &Path, folder: &Path) -> Result<Tally> {
    let whole = folder.join(UNSTRIPPED);
    install(workspace, build, &whole, LIBDIR, &["STRIP="])?;
    let mut sum = Tally::default();
    for name in ["libconvoy_crypto.so", "libconvoy_crypto.a"] {
        for (prefix, is_wanted) in [(prefix, false), (&whole, true)] {
            let file = prefix.join(LIBDIR).join(name);
            let output = Command::new("readelf").args(["--wide", "--sections"]).arg(&file).output();
            let sections = String::from_utf8_lossy(&output?.stdout).into_owned();
            let is_right =
                sections.contains(".text") && sections.contains(".debug_line") == is_wanted;
            sum.add(match is_right {
                true => Tally::pass(),
                false => Tally::fail(format!("c-library: debug information in {}", file.display())),
            });
        }
    }
    Ok(sum)
}

/// No intrinsic is called as a function. It is an instruction; but in a closure that the compiler does not inline it
/// is none, and the kernel then takes many times as long.
fn inlined(prefix: &Path) -> Result<Tally> {
    let file = prefix.join(LIBDIR).join("libconvoy_crypto.so");
    let output = Command::new("readelf").args(["--wide", "--symbols"]).arg(&file).output()?;
    let symbols = String::from_utf8_lossy(&output.stdout);
    ensure!(symbols.contains("convoy_crypto"), "{} has no symbols", file.display());
    let is_intrinsic = |line: &&str| line.contains("core_arch") && line.contains("_mm");
    let called: Vec<_> = symbols.lines().filter(is_intrinsic).collect();
    if called.is_empty() {
        return Ok(Tally::pass());
    }
    called.iter().for_each(|line| println!("{line}"));
    let file = file.display();
    Ok(Tally::fail(format!("c-library: {file} calls {} intrinsics", called.len())))
}

fn has_static_libc(folder: &Path) -> Result<bool> {
    let source = folder.join("nothing.c");
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let (out, null) = (folder.join("nothing"), std::process::Stdio::null);
    let mut command = Command::new("cc");
    command.arg("-static").arg(&source).arg("-o").arg(out).stdout(null()).stderr(null());
    Ok(command.status()?.success())
}

/// The header is complete by itself, in the oldest C and the newest, and in C++.
fn header_alone(prefix: &Path) -> Result<Tally> {
    let header = prefix.join("include/convoy_crypto.h");
    let mut sum = Tally::default();
    for (compiler, language, standard) in
        [("cc", "c", "c89"), ("cc", "c", "c2x"), ("c++", "c++", "c++11")]
    {
        if !works(Command::new(compiler).arg("--version")) {
            sum.add(Tally::skip(format!("c-library: {compiler} is not installed")));
            continue;
        }
        let status = Command::new(compiler)
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-pedantic-errors",
                "-Werror",
                "-x",
                language,
            ])
            .arg(format!("-std={standard}"))
            .arg(&header)
            .status()?;
        sum.add(if status.success() {
            Tally::pass()
        } else {
            Tally::fail(format!("c-library: the header is no good {standard}"))
        });
    }
    Ok(sum)
}

fn examples(root: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root.join(EXAMPLES)).context("there are no examples in C")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    ensure!(!sources.is_empty(), "there are no examples in C");
    Ok(sources)
}

fn build_and_run(way: &Way, source: &Path, prefix: &Path, program: &Path) -> Result<()> {
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror"]).args(way.flags);
    let libdir = &prefix.join(LIBDIR);
    command.arg(source).arg("-o").arg(program).args(pkg_config(libdir, &["--cflags"])?);
    if way.linked_statically {
        // By its path, for the linker prefers the shared library of that name.
        command.arg(libdir.join("libconvoy_crypto.a"));
        let all = pkg_config(libdir, &["--static", "--libs-only-l"])?;
        command.args(all.iter().filter(|flag| *flag != "-lconvoy_crypto"));
    } else {
        command.args(pkg_config(libdir, &["--libs"])?);
    }
    ensure!(command.status()?.success(), "it does not build");
    println!("{}:", program.display());
    let mut run = Command::new(program);
    if !way.linked_statically {
        run.env("LD_LIBRARY_PATH", libdir);
    }
    ensure!(run.status()?.success(), "it fails");
    Ok(())
}

/// A tree that was moved after it was installed serves, if pkg-config is asked to look where it is.
fn moved(workspace: &Workspace, build: Build, folder: &Path, libdir: &str) -> Result<()> {
    let (first, then) = (folder.join("first"), folder.join("moved").join(libdir));
    install(workspace, build, &first, libdir, &[])?;
    fs::create_dir_all(&then)?;
    let prefix = then.join("prefix");
    fs::rename(&first, &prefix)?;
    let libdir = prefix.join(libdir);
    let flags = pkg_config(&libdir, &["--define-prefix", "--cflags", "--libs"])?;
    let source = examples(&workspace.root)?.swap_remove(0);
    let program = then.join("program");
    let mut command = Command::new("cc");
    command.arg("-std=gnu99").arg(source).arg("-o").arg(&program).args(flags);
    ensure!(command.status()?.success(), "no program builds");
    let status = Command::new(&program).env("LD_LIBRARY_PATH", &libdir).status()?;
    ensure!(status.success(), "the program fails");
    Ok(())
}

/// Output of pkg-config for the library that is installed in a folder.
fn pkg_config(libdir: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let output = Command::new("pkg-config")
        .args(arguments)
        .arg("convoy_crypto")
        .env("PKG_CONFIG_PATH", libdir.join("pkgconfig"))
        .output()?;
    ensure!(output.status.success(), "pkg-config does not find the library");
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}
