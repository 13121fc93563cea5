//! Port ranges of selectors.

use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// An inclusive range of ports. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    start: u16,
    end: u16,
}

/// Error of a refused port range.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortRangeError {
    /// The text is neither a port nor two ports joined by `-`.
    #[error("not a port or a port range such as 80 or 8000-8999")]
    Syntax,
    /// The first port is above the last.
    #[error("port range is reversed: {start}-{end}; did you mean {end}-{start}?")]
    Reversed {
        /// First port as given.
        start: u16,
        /// Last port as given.
        end: u16,
    },
}

impl PortRange {
    /// Every port, 0 to 65535.
    pub const ANY: Self = Self { start: 0, end: u16::MAX };

    /// The range from `start` to `end`, both included.
    ///
    /// # Errors
    /// [`PortRangeError::Reversed`] when `start > end`.
    pub const fn new(start: u16, end: u16) -> Result<Self, PortRangeError> {
        if start > end {
            return Err(PortRangeError::Reversed { start, end });
        }
        Ok(Self { start, end })
    }

    /// The range of one port.
    pub const fn single(port: u16) -> Self {
        Self { start: port, end: port }
    }

    /// First port of the range.
    #[inline]
    pub const fn start(self) -> u16 {
        self.start
    }

    /// Last port of the range.
    #[inline]
    pub const fn end(self) -> u16 {
        self.end
    }

    /// True if the range holds every port.
    #[inline]
    pub const fn is_any(self) -> bool {
        self.start == 0 && self.end == u16::MAX
    }

    /// True if `port` lies in the range.
    #[inline]
    pub const fn contains(self, port: u16) -> bool {
        self.start <= port && port <= self.end
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self::ANY
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            f.write_str("any")
        } else if self.start == self.end {
            write!(f, "{}", self.start)
        } else {
            write!(f, "{}-{}", self.start, self.end)
        }
    }
}

/// Reads `any`, `80` or `8000-8999`.
impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let port = |s: &str| s.trim().parse::<u16>().map_err(|_| PortRangeError::Syntax);
        match text.split_once('-') {
            _ if text == "any" => Ok(Self::ANY),
            Some((start, end)) => Self::new(port(start)?, port(end)?),
            None => port(text).map(Self::single),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn reads_what_it_prints() {
        for text in ["any", "0", "80", "8000-8999"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        assert_eq!("0-65535".parse(), Ok(PortRange::ANY));
    }

    #[test]
    fn refuses_reversed_and_malformed_ranges_with_the_reason() {
        let reversed: Result<PortRange, _> = "90-80".parse();
        assert_eq!(
            reversed.unwrap_err().to_string(),
            "port range is reversed: 90-80; did you mean 80-90?"
        );
        for text in ["", "-", "80-", "65536", "http", "1-2-3"] {
            assert_eq!(text.parse::<PortRange>(), Err(PortRangeError::Syntax), "{text:?}");
        }
    }

    #[test]
    fn contains_both_ends_and_nothing_beyond() {
        let range = PortRange::new(10, 20).unwrap();
        assert!(range.contains(10) && range.contains(20));
        assert!(!range.contains(9) && !range.contains(21));
    }
}
