//! `convoy keys`: a key file for Wireshark.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use convoy_control::protocol::{Answer, Request};
use convoy_control::wireshark::esp_sa;
use zeroize::Zeroizing;

use super::ask::{self, Target};
use crate::exit::Exit;
use crate::gateway::load;
use crate::output;

/// `convoy keys`
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// The gateway that has the keys.
    #[command(flatten)]
    pub target: Target,
    /// Take the keys from this site file instead of a running gateway.
    #[arg(long, value_name = "SITE.toml", conflicts_with = "gateway")]
    pub from_site: Option<PathBuf>,
    /// Write to this file (mode 0600) instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &KeysArgs) -> anyhow::Result<Exit> {
    let text = match &args.from_site {
        Some(path) => esp_sa(&load(path)?.0),
        None => ask_gateway(args)?,
    };
    match &args.output {
        Some(path) if args.json => {
            write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
            output::json(
                &serde_json::json!({ "file": path, "sas": text.lines().filter(|line| !line.starts_with('#')).count() }),
            )?;
        }
        None if args.json => output::json(&serde_json::json!({ "esp_sa": text.as_str() }))?,
        Some(path) => {
            write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!(
                "wrote {}: anyone who reads it can decrypt the traffic. In Wireshark: Preferences, Protocols, \
                 ESP; or WIRESHARK_CONFIG_DIR=FOLDER tshark -o esp.enable_encryption_decode:TRUE with the file \
                 as FOLDER/esp_sa",
                path.display()
            );
        }
        None => output::print(&text)?,
    }
    Ok(Exit::Ok)
}

fn ask_gateway(args: &KeysArgs) -> anyhow::Result<Zeroizing<String>> {
    let client = ask::client(&args.target)?;
    match ask::ask(&client, Request::Keys, Exit::Trouble)? {
        Answer::Keys(text) => Ok(Zeroizing::new(text)),
        _ => Err(ask::unexpected(&client)),
    }
}

fn write(path: &Path, text: &Zeroizing<String>) -> std::io::Result<()> {
    convoy_host::create_private_file(path)?.write_all(text.as_bytes())
}
