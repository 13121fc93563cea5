//! The section `[crypto.cryptodev]`: a crypto device that DPDK drives.

use std::time::Duration;

use super::fields::transposed;
use super::model::Cryptodev;
use super::reader::{Place, Report, Table, quote};

/// Keys at once, unless the file says otherwise.
const SESSIONS: u32 = 4096;
/// Milliseconds of the deadline, unless the file says otherwise.
const DEADLINE: u64 = 50;

/// Reads the section; `place` is where it stands.
pub(super) fn read(
    mut table: Table<'_>,
    place: &Place,
    report: &mut Report<'_>,
) -> Option<Cryptodev> {
    let device = table.take("device").map(|field| {
        let help = "the name of a device, such as \"crypto_aesni_mb\" or \"0000:3d:01.0\"";
        let text = field.string(report, help)?;
        if is_device(&text.value) {
            return Some(text.value);
        }
        let what = format!("{} is no name of a device", quote(&text.value));
        let right = "write a virtual device's name, such as \"crypto_aesni_mb\", or an address on PCI, such as \
                     \"0000:3d:01.0\"";
        report.error(&text.place, what, right);
        None
    });
    if device.is_none() {
        let right = "add `device`: \"crypto_openssl\", \"crypto_aesni_mb\", or an address on PCI, such as \
                     \"0000:3d:01.0\"";
        report.error(place, "names no device", right);
    }
    let arguments = table.take("arguments").map(|field| {
        let fields = field.many(report, "a list of DPDK's arguments")?;
        let word = |field: super::reader::Field<'_>| {
            Some(field.string(report, "an argument, such as \"--in-memory\"")?.value)
        };
        fields.into_iter().map(word).collect::<Option<Vec<_>>>()
    });
    let library = table.take("library").map(|field| {
        field.string(report, "the path of libconvoy_cryptodev.so").map(|text| text.value.into())
    });
    let sessions = table.take("sessions").map(|field| {
        field.integer(
            report,
            1..=1_000_000,
            "use the number of keys that the device may have at once",
        )
    });
    let deadline = table.take("deadline_ms").map(|field| {
        let help =
            "use milliseconds: how long packets may be away before the device counts as lost";
        field.integer(report, 1..=60_000, help)
    });
    table.finish(report);
    Some(Cryptodev {
        device: device??,
        arguments: transposed(arguments)?,
        library: transposed(library)?,
        sessions: transposed(sessions)?
            .and_then(|at| u32::try_from(at.value).ok())
            .unwrap_or(SESSIONS),
        deadline: Duration::from_millis(transposed(deadline)?.map_or(DEADLINE, |at| at.value)),
    })
}

/// DPDK takes a comma for the beginning of a device's own arguments.
fn is_device(name: &str) -> bool {
    let is_of_one = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '-');
    (1..=40).contains(&name.len()) && name.chars().all(is_of_one) && !name.starts_with('-')
}
