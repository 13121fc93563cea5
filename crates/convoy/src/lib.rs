//! The `convoy` binary as a library: wiring of the other crates, and the verbs of the command line.
//!
//! * [`gateway`] builds a running gateway from a site file;
//! * [`verbs`] has one file per verb;
//! * [`demo`] is the demonstration;
//! * `doctor` looks at what on a host helps or hinders;
//! * `privileges` gives up what a running gateway does not need;
//! * `preload` finds the library that leads XFRM sockets to Convoy;
//! * `service_manager` tells systemd how far a gateway is;
//! * `units` knows the services of IKE daemons.
#![forbid(unsafe_code)]

pub mod cli;
pub mod demo;
mod doctor;
pub mod exit;
pub mod gateway;
mod interrupt;
mod output;
mod preload;
mod privileges;
mod service_manager;
mod units;
pub mod verbs;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use convoy_control::status::fold_to;
use exit::{Exit, code_of};

/// Runs the command line and says how the process ends.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match cli::Cli::read() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            let _ = error.print();
            return exit.into();
        }
    };
    if let Err(error) = start_log(&cli.log) {
        let given = std::env::args_os().any(|word| word.to_string_lossy().starts_with("--log"));
        let from = if given { "--log" } else { "CONVOY_LOG" };
        eprintln!("convoy: {from}: {error}");
        return Exit::Usage.into();
    }
    if std::io::stdout().is_terminal()
        && let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout())
    {
        fold_to(size.ws_col);
    }
    match cli.verb.run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("convoy: {}", exit::describe(&error));
            code_of(&error).into()
        }
    }
}

/// Logs go to standard error; results go to standard output.
fn start_log(filter: &str) -> Result<(), String> {
    check_levels(filter)?;
    let filter = EnvFilter::builder().parse(filter).map_err(|error| error.to_string())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(
            std::io::stderr().is_terminal() && is_colour_wanted(std::env::var_os("NO_COLOR")),
        )
        .with_target(false)
        .init();
    Ok(())
}

/// True unless `NO_COLOR`, whose value this is, is there and not empty (<https://no-color.org>).
fn is_colour_wanted(no_color: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty())
}

/// Refuses a word that is no level: the filter would take it for the name of a crate, and log nothing else. Refuses
/// names that no crate of Convoy has, too: no message would have them.
fn check_levels(filter: &str) -> Result<(), String> {
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, level) = part.rsplit_once('=').unwrap_or(("", part));
        let of_convoy = ["", "convoy"].contains(&name)
            || name.starts_with("convoy_")
            || name.starts_with("convoy::");
        if !of_convoy {
            return Err(format!(
                "\"{name}\" is no crate of Convoy: their names are convoy, convoy_control, convoy_runtime and so on"
            ));
        }
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "\"{level}\" is no level: use error, warn, info, debug, trace or off, for all or by crate \
                 (info,convoy_control=debug)"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check_levels, is_colour_wanted};

    #[test]
    fn no_color_is_honoured_unless_it_is_empty() {
        assert!(is_colour_wanted(None) && is_colour_wanted(Some("".into())));
        assert!(!is_colour_wanted(Some("1".into())));
    }

    #[test]
    fn only_levels_are_taken_for_what_is_logged() {
        for good in ["info", "DEBUG", "off", "info,convoy_control=debug", "warn, convoy_io=trace"] {
            assert_eq!(check_levels(good), Ok(()), "{good}");
        }
        for bad in ["verbose", "info,convoy_control", "convoy_io=loud", "convoy_io="] {
            assert!(
                check_levels(bad).unwrap_err().contains("is no level: use error, warn"),
                "{bad}"
            );
        }
        let unknown = check_levels("info,nosuch=debug").unwrap_err();
        assert!(unknown.starts_with("\"nosuch\" is no crate of Convoy"), "{unknown}");
    }
}
