//! Results of record calls as rows of text.

use std::path::PathBuf;

use super::measure::Point;
use crate::class::Class;
use crate::results::LeftOut;
use crate::results::head::Head;

/// Everything a run found out.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// The class of processors whose best tier this is.
    pub class: Class,
    /// The tier of CPU that Convoy's provider takes.
    pub tier: &'static str,
    /// True if its hashes may use the SHA extensions.
    pub sha_extensions: bool,
    /// Version of libcrypto, in its own words.
    pub openssl: String,
    /// The provider's file.
    pub provider: PathBuf,
    /// Measured points.
    pub points: Vec<Point>,
    /// Ciphers and calls that one side does not have.
    pub not_offered: Vec<NotOffered>,
    /// Points that could not be measured, with the reason.
    pub failed: Vec<LeftOut>,
}

/// Something that one side does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOffered {
    /// Name of the cipher.
    pub cipher: &'static str,
    /// The call; none if the whole cipher is missing.
    pub call: Option<&'static str>,
    /// Side that does not have it.
    pub by: &'static str,
    /// Reason, as far as that is known.
    pub why: Option<String>,
}

impl Report {
    /// The head of the text: with what and on what it was measured.
    #[must_use]
    pub fn head(&self) -> String {
        format!(
            "convoy {}: {}\n{}; class {}: tier {}, SHA extensions {}\n{}; provider {}\n",
            self.head.version,
            self.head.command,
            self.head.machine.cpu,
            self.class.name(),
            self.tier,
            if self.sha_extensions { "allowed" } else { "not used" },
            self.openssl,
            self.provider.display(),
        )
    }

    /// One row for each point.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let heading = [
            "CIPHER",
            "CALL",
            "BYTES",
            "OPENSSL ns",
            "CONVOY ns",
            "CONVOY GB/s",
            "RATIO",
            "95 %",
            "",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for point in &self.points {
            let bytes = point.size * point.records;
            let (size, rate) = match point.size {
                0 => ("–".to_owned(), "–".to_owned()),
                size => (size.to_string(), format!("{:.2}", bytes as f64 / point.convoy_ns)),
            };
            rows.push(vec![
                point.cipher.to_owned(),
                point.call.to_owned(),
                size,
                format!("{:.1}", point.default_ns),
                format!("{:.1}", point.convoy_ns),
                rate,
                format!("{:.2}", point.ratio.median),
                format!("{:.2}–{:.2}", point.ratio.low, point.ratio.high),
                if point.offered { String::new() } else { "not offered".to_owned() },
            ]);
        }
        rows
    }

    /// The lines below the rows: what is missing.
    #[must_use]
    pub fn missing(&self) -> String {
        let mut text = String::new();
        for NotOffered { cipher, call, by, why } in &self.not_offered {
            let call = call.map(|call| format!(" {call}")).unwrap_or_default();
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            text += &format!("not offered: {cipher}{call}, by {by}{why}\n");
        }
        for LeftOut { what, why } in &self.failed {
            text += &format!("failed: {what}: {why}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let by = "Convoy's provider";
        let report = Report {
            head: Head::now(),
            class: Class::D,
            tier: "aesni",
            sha_extensions: false,
            openssl: "OpenSSL 3".to_owned(),
            provider: PathBuf::from("/lib/x.so"),
            points: Vec::new(),
            not_offered: vec![
                NotOffered {
                    cipher: "aes-128-cbc-hmac-sha1",
                    call: None,
                    by,
                    why: Some("it is slow".to_owned()),
                },
                NotOffered {
                    cipher: "aes-256-cbc-hmac-sha1",
                    call: Some("multiblock-4"),
                    by,
                    why: None,
                },
            ],
            failed: vec![LeftOut::new("aes-128-gcm key", "no")],
        };
        let text = report.missing();
        assert!(
            text.starts_with(
                "not offered: aes-128-cbc-hmac-sha1, by Convoy's provider: it is slow\n"
            )
        );
        assert!(
            text.contains("aes-256-cbc-hmac-sha1 multiblock-4, by Convoy's provider\n"),
            "{text}"
        );
        assert!(text.ends_with("failed: aes-128-gcm key: no\n"), "{text}");
        assert!(report.head().contains("class D: tier aesni, SHA extensions not used"));
    }
}
