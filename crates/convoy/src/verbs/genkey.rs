//! `convoy genkey`: a key file for one direction of a tunnel.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use convoy_control::new_key::NewKey;
use convoy_control::site::{KeyParts, key_parts};
use serde::Serialize;

use crate::exit::{Exit, Stop};
use crate::output;

/// Examples below the help.
pub(crate) const HELP: &str = "\
Examples:
  convoy genkey to-right.key                            # key and salt of AES-128-GCM
  convoy genkey --algorithm chacha20-poly1305 to-right.key
  convoy genkey --algorithm aes-128-cbc to-right.key    # a cipher needs a MAC beside it:
  convoy genkey --algorithm hmac-sha256-128 to-right.mac
  convoy genkey -                                       # to standard output

An SA of the site file names the file: key_file = \"to-right.key\", or integrity_key_file for a MAC. The SA of the
other direction needs a key of its own. The peer has a copy of each; bring it there by a safe way.";

/// `convoy genkey`
#[derive(Debug, Args)]
pub struct GenkeyArgs {
    /// File to write, mode 0600, never over one that exists; - for standard output.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Algorithm that the key is for, as the site file names it; of a cipher or AEAD with its salt.
    #[arg(long, short, default_value = "aes-128-gcm", value_name = "NAME")]
    pub algorithm: String,
    /// Print what was written as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    file: &'a PathBuf,
    algorithm: &'a str,
    /// Key of the site file that names the file.
    field: &'a str,
    key_bytes: usize,
    salt_bytes: usize,
}

pub(crate) fn run(args: &GenkeyArgs) -> anyhow::Result<Exit> {
    let parts =
        key_parts(&args.algorithm).map_err(|error| Stop::usage(format!("--algorithm: {error}")))?;
    let is_stdout = args.file.as_os_str() == "-";
    if is_stdout && args.json {
        return Err(Stop::usage("--json tells of a file, and - is none: name a file".to_owned()));
    }
    let key = NewKey::random(parts.key + parts.salt)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    if is_stdout {
        output::print(key.text())?;
        return Ok(Exit::Ok);
    }
    let shown = args.file.display();
    key.write_new(&args.file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Stop::usage(format!(
            "{shown} exists and is not overwritten: its key may be in use. Give another name"
        )),
        _ => anyhow::Error::from(error).context(format!("cannot write {shown}")),
    })?;
    if args.json {
        output::json(&Report {
            schema: 1,
            file: &args.file,
            algorithm: &parts.name,
            field: parts.field,
            key_bytes: parts.key,
            salt_bytes: parts.salt,
        })?;
    } else {
        output::print(&format!(
            "wrote {shown}: {} for {}. The SA has {} = \"{shown}\"; its peer needs the same file\n",
            in_words(&parts),
            parts.name,
            parts.field
        ))?;
    }
    Ok(Exit::Ok)
}

fn in_words(parts: &KeyParts) -> String {
    match parts.salt {
        0 => format!("{} bytes of key", parts.key),
        salt => format!("{} bytes of key and {salt} of salt", parts.key),
    }
}
