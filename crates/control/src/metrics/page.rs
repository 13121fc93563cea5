//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// Type of a family's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They only grow, while the gateway runs.
    Counter,
    /// They go up and down.
    Gauge,
}

/// A page of metrics.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// Begins a family, to which the samples belong that follow.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String does not fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { page: self, name }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Samples of one name.
pub(super) struct Family<'a> {
    page: &'a mut Page,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a sample.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        let out = &mut self.page.0;
        out.push_str(self.name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(out, "{before}{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    c => out.push(c),
                }
            }
            out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(out, "{end} {value}");
        self
    }
}
