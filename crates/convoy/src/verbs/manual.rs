//! `convoy manual`: man pages and completions of shells, from the definition of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::output;

/// Completions of a shell, and their folder below `/usr/share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// `convoy manual`
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Folder to write below, as below /usr/share: man/man1, bash-completion, zsh, fish.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Write nothing; print the paths.
    #[arg(long)]
    pub list: bool,
}

/// Writes them for a command line.
pub(crate) fn run(args: &ManualArgs, command: &Command) -> anyhow::Result<Exit> {
    let mut told = String::new();
    for (name, bytes) in pages(command)?.into_iter().chain(completions(command)) {
        let path = args.folder.join(name);
        if !args.list {
            write(&path, &bytes)?;
        }
        told.push_str(&format!("{}\n", path.display()));
    }
    output::print(&told)?;
    Ok(Exit::Ok)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Man pages: `convoy.1`, and one for each verb that is shown.
pub(crate) fn pages(command: &Command) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut command = command.clone().disable_help_subcommand(true);
    // Gives each verb the name of its page.
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, pages: &mut Vec<(PathBuf, Vec<u8>)>) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone()).manual("Convoy").render(&mut bytes)?;
    pages.push((Path::new("man/man1").join(format!("{name}.1")), bytes));
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        collect(verb, pages)?;
    }
    Ok(())
}

/// Completions of each shell.
pub(crate) fn completions(command: &Command) -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    COMPLETIONS.into_iter().map(|(shell, folder)| {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "convoy", &mut bytes);
        let name = match shell {
            Shell::Zsh => "_convoy",
            Shell::Fish => "convoy.fish",
            _ => "convoy",
        };
        (Path::new(folder).join(name), bytes)
    })
}
