//! `convoy init`: a pair of site files to begin with.

use std::path::PathBuf;

use convoy_control::init::{InitError, PairOptions, SideOptions, pair};
use convoy_crypto::KeyBits;
use convoy_wire::Prefix;
use serde::Serialize;

use crate::cli::InitArgs;
use crate::exit::{Exit, Stop};
use crate::output;

#[derive(Serialize)]
struct Report {
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    let side = |name: &str, address, networks: &[Prefix]| {
        SideOptions::new(name, address, networks.to_vec())
    };
    let options = PairOptions {
        left: side(&args.left_name, args.left, &args.left_net),
        right: side(&args.right_name, args.right, &args.right_net),
        key_bits: KeyBits::from_bits(args.key_bits.into()).ok_or_else(|| {
            Stop::usage(format!("--key-bits {}: use 128, 192 or 256", args.key_bits))
        })?,
        udp_encap: args.udp_encap,
        esn: true,
    };
    let files = pair(&options).and_then(|pair| pair.write(&args.folder)).map_err(|e| match e {
        InitError::Write { .. } | InitError::Random(_) => e.into(),
        wrong => Stop::usage(wrong.to_string()),
    })?;
    let report = Report { files };
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
        text += &format!("wrote {}\n", file.display());
    }
    text += "\nBoth files hold the keys of both directions: keep one on each gateway, with its state \
             folder,\nreadable by its owner alone. Next, on each gateway:\n";
    for file in &report.files {
        text += &format!("  convoy check {0} && convoy run {0} --dry-run\n", file.display());
    }
    text
}
