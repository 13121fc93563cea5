//! `convoy keys`: a key file for Wireshark.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use convoy_control::protocol::{Answer, Request};
use convoy_control::wireshark::esp_sa;
use zeroize::Zeroizing;

use super::ask;
use crate::cli::KeysArgs;
use crate::exit::Exit;
use crate::gateway::load;
use crate::output;

pub(super) fn run(args: &KeysArgs) -> anyhow::Result<Exit> {
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
                "wrote {}: whoever reads it can read the traffic. In Wireshark: Preferences, \
                 Protocols, ESP; or WIRESHARK_CONFIG_DIR=FOLDER tshark -o \
                 esp.enable_encryption_decode:TRUE with the file as FOLDER/esp_sa",
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
