//! What verbs print on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use convoy_lab::Family;

use crate::common::{convoy, text};
use crate::keep::World;

/// What a verb prints on a terminal of so many columns.
fn on_terminal(width: u16, arguments: &[&str]) -> String {
    let size = nix::pty::Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = nix::pty::openpty(Some(&size), None).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_convoy"))
        .args(arguments)
        .stdout(Stdio::from(pty.slave))
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    // The end of the other side is an error here.
    let _ = File::from(pty.master).read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    text(&shown).replace('\r', "")
}

fn longest_line(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap()
}

/// Tables are folded where the terminal is narrow, and whole where there is none.
#[test]
fn tables_fold_to_the_width_of_a_terminal() {
    let first_two = |text: &str| text.split("\n\n").take(2).collect::<Vec<_>>().join("\n");
    let folded = first_two(&on_terminal(60, &["crypto"]));
    let whole = first_two(&text(&convoy(&["crypto"]).stdout));
    assert!(longest_line(&whole) > 60, "{whole}");
    assert!(longest_line(&folded) <= 60, "{folded}");
    assert!(!folded.contains('\x1b'), "{folded}");
}

/// SAs as Libreswan makes them: 2^63 packets and bytes stand for no limit, and numbers have 64 bits.
#[test]
fn tables_of_sas_fit_a_terminal_of_80_columns() {
    let Some(world) = World::start_by("") else { return };
    let [near, far] = [0, 1].map(|side| world.site(side).wire_address(Family::V4));
    for (from, to, spi, replay) in [(near, far, 0x1001, ""), (far, near, 0x1002, "replay-seq 5 ")] {
        world.ip_xfrm(
            0,
            &format!(
                "state add src {from} dst {to} proto esp spi {spi} reqid 16389 mode tunnel flag esn \
                 replay-window 128 {replay}replay-seq-hi 4294967290 aead rfc4106(gcm(aes)) \
                 0x{} 128 encap espinudp 4500 4500 0.0.0.0 limit byte-soft 5123456789012345678 \
                 limit byte-hard 9223372036854775808 limit packet-soft 6123456789012345678 \
                 limit packet-hard 9223372036854775808",
                format!("{spi:04x}").repeat(10)
            ),
        );
    }
    let site = world.folder(0).join("site.toml");
    let arguments = ["sa", site.to_str().unwrap()];
    let whole = text(&convoy(&arguments).stdout);
    let table = on_terminal(80, &arguments);
    assert!(longest_line(&table) <= 80, "{table}");
    for word in ["0x00001001", "0x00001002", "16389", "no limit", "18.4 E"] {
        assert!(table.contains(word), "{word}\n{table}");
    }
    assert!(!whole.contains("EB") && !whole.contains("9 223"), "{whole}");
    // Each SA is named in each part of its table.
    let name = whole.lines().nth(1).unwrap().split(' ').next().unwrap();
    assert!(table.matches(name).count() > 1, "{table}");
}
