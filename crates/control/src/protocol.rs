//! Messages of client and gateway: one request and one answer per connection, each one line of JSON
//! on a UNIX socket.

use std::fmt;

use convoy_engine::registry::Setting;
use serde::{Deserialize, Serialize};

use crate::state::ReloadReport;
use crate::status::{CryptoReport, DriverChange, PolicyReport, SaReport, Status};
use crate::trace::{Question, Trace};

/// Longest request in bytes, with its line end.
pub(crate) const MAX_REQUEST: usize = 4096;

/// Longest answer in bytes that a client takes.
pub(crate) const MAX_ANSWER: usize = 64 << 20;

/// Message of a client, as `{"verb":"status"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// Condition of the gateway.
    Status,
    /// The SAs.
    Sa,
    /// The policies.
    Policy,
    /// Tiers, algorithms and drivers.
    Crypto,
    /// Set a driver otherwise.
    SetDriver {
        /// Its name.
        driver: String,
        /// New setting.
        setting: DriverSetting,
    },
    /// Fate of a packet that might come.
    Trace(Question),
    /// Read the site file again.
    Reload,
    /// The keys, for Wireshark.
    Keys,
    /// Metrics, for Prometheus.
    Metrics,
    /// Drain and end.
    Stop,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Sa => f.write_str("SAs"),
            Self::Policy => f.write_str("policies"),
            Self::Crypto => f.write_str("drivers"),
            Self::SetDriver { driver, setting } => write!(f, "set driver {driver}: {setting}"),
            Self::Trace(_) => f.write_str("trace of a packet"),
            Self::Reload => f.write_str("reload"),
            Self::Keys => f.write_str("export of keys"),
            Self::Metrics => f.write_str("metrics"),
            Self::Stop => f.write_str("stop"),
        }
    }
}

/// A change of a driver's settings, which lasts until the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverSetting {
    /// Of the drivers of one algorithm, the one of highest priority is used.
    Priority(u16),
    /// It may be used again.
    On,
    /// It is not used any more.
    Off,
}

impl fmt::Display for DriverSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(priority) => write!(f, "priority {priority}"),
            Self::On => f.write_str("on"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl From<DriverSetting> for Setting {
    fn from(setting: DriverSetting) -> Self {
        match setting {
            DriverSetting::Priority(priority) => Self::Priority(priority),
            DriverSetting::On => Self::On(true),
            DriverSetting::Off => Self::On(false),
        }
    }
}

/// Message of a gateway, as `{"status":{…}}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Sa`].
    Sa(SaReport),
    /// To [`Request::Policy`].
    Policy(PolicyReport),
    /// To [`Request::Crypto`].
    Crypto(CryptoReport),
    /// To [`Request::SetDriver`].
    SetDriver(Box<DriverChange>),
    /// To [`Request::Trace`].
    Trace(Box<Trace>),
    /// To [`Request::Reload`].
    Reload(Box<ReloadReport>),
    /// To [`Request::Keys`]: an `esp_sa` file.
    Keys(String),
    /// To [`Request::Metrics`]: a page as `[metrics]` serves it.
    Metrics(String),
    /// To [`Request::Stop`]: the gateway is about to end.
    Stopping,
    /// The request was understood and could not be fulfilled, or was not understood.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_one_word_objects() {
        assert_eq!(serde_json::to_string(&Request::Status).unwrap(), r#"{"verb":"status"}"#);
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"verb":"reload"}"#).unwrap(),
            Request::Reload
        );
        let off = Request::SetDriver { driver: "x".into(), setting: DriverSetting::Off };
        let text = serde_json::to_string(&off).unwrap();
        assert_eq!(text, r#"{"verb":"set-driver","driver":"x","setting":"off"}"#);
        let higher = r#"{"verb":"set-driver","driver":"x","setting":{"priority":900}}"#;
        let setting = DriverSetting::Priority(900);
        let higher = serde_json::from_str::<Request>(higher).unwrap();
        assert_eq!(higher, Request::SetDriver { driver: "x".into(), setting });
        let question = Question {
            from: [10, 1, 0, 5].into(),
            to: [10, 2, 0, 7].into(),
            protocol: 17,
            ports: Some((1, 2)),
            bytes: 100,
            dont_fragment: true,
            if_id: 0,
            spi: None,
        };
        let text = serde_json::to_string(&Request::Trace(question)).unwrap();
        assert!(text.starts_with(r#"{"verb":"trace","from":"10.1.0.5","to":"10.2.0.7""#), "{text}");
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), Request::Trace(question));
        for bad in [r#"{"verb":"explode"}"#, r#"{"verb":"trace"}"#, "{}", "[]", ""] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
    }
}
