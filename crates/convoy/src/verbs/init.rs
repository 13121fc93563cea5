//! `convoy init`: a pair of site files to begin with.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use convoy_control::init::{InitError, PairOptions, SideOptions, pair};
use convoy_crypto::KeyBits;
use convoy_wire::Prefix;
use serde::Serialize;

use crate::exit::{Exit, Stop};
use crate::output;

/// `convoy init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Folder to write the files into; nothing in it is overwritten.
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// Outer address of the left gateway.
    #[arg(long, default_value = "192.0.2.1", value_name = "ADDRESS")]
    pub left: IpAddr,
    /// Outer address of the right gateway.
    #[arg(long, default_value = "198.51.100.1", value_name = "ADDRESS")]
    pub right: IpAddr,
    /// Networks behind the left gateway.
    #[arg(long, default_value = "10.1.0.0/24", value_name = "NETWORK", value_delimiter = ',')]
    pub left_net: Vec<Prefix>,
    /// Networks behind the right gateway.
    #[arg(long, default_value = "10.2.0.0/24", value_name = "NETWORK", value_delimiter = ',')]
    pub right_net: Vec<Prefix>,
    /// Name of the left gateway, and of its file, its keys and its state folder.
    #[arg(long, default_value = "left", value_name = "NAME")]
    pub left_name: String,
    /// Name of the right gateway, and of its file, its keys and its state folder.
    #[arg(long, default_value = "right", value_name = "NAME")]
    pub right_name: String,
    /// Size of the AES keys in bits: 128, 192 or 256.
    #[arg(long, default_value_t = 128, value_name = "BITS")]
    pub key_bits: u16,
    /// Send ESP as IP protocol 50. Otherwise it is carried in UDP, which passes a NAT, and is faster over ordinary
    /// sockets.
    #[arg(long)]
    pub native: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    files: Vec<PathBuf>,
    key_files: Vec<PathBuf>,
}

pub(crate) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    let side = |name: &str, address, networks: &[Prefix]| {
        SideOptions::new(name, address, networks.to_vec())
    };
    let options = PairOptions {
        left: side(&args.left_name, args.left, &args.left_net),
        right: side(&args.right_name, args.right, &args.right_net),
        key_bits: KeyBits::from_bits(args.key_bits.into()).ok_or_else(|| {
            Stop::usage(format!("--key-bits {}: use 128, 192 or 256", args.key_bits))
        })?,
        udp_encap: !args.native,
        esn: true,
    };
    let written =
        pair(&options).and_then(|pair| pair.write(&args.folder)).map_err(|e| match e {
            InitError::Write { .. } | InitError::Random(_) => e.into(),
            wrong => Stop::usage(wrong.to_string()),
        })?;
    let report = Report { files: written.sites, key_files: written.keys };
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(Exit::Ok)
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for file in &report.files {
        let [keys, state] = ["keys", "state"].map(|end| file.with_extension(end));
        text += &format!(
            "wrote {}, its keys in {}, and an empty state folder {}\n",
            file.display(),
            keys.display(),
            state.display()
        );
    }
    text += "\nBoth gateways have the same two keys. Take each file with its two folders to its gateway by a safe way,\n\
             and keep no copies. Next, on each gateway:\n";
    for file in &report.files {
        text += &format!("  convoy check {0} && convoy run {0} --dry-run\n", file.display());
    }
    text
}
