//! Refusals of requests, in a kernel's terms.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// A Linux error number, above 0. The values are those of x86 and most other architectures
/// (`asm-generic/errno.h`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

/// Constants and what they print as.
macro_rules! errnos {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl Errno {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The symbol, such as `EINVAL`, of those that XFRM uses.
            #[must_use]
            pub const fn symbol(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "The socket's owner may not do this.";
    ENOENT = 2, "There is no such policy.";
    ESRCH = 3, "There is no such SA.";
    ENOMEM = 12, "There is no memory, or a limit is reached.";
    EEXIST = 17, "There is such an SA or policy already.";
    EINVAL = 22, "The message makes no sense.";
    ERANGE = 34, "An attribute is too short, or its value out of range.";
    ENOSYS = 38, "The algorithm is not known.";
    ENOPROTOOPT = 92, "This kind of message is not supported.";
    EPROTONOSUPPORT = 93, "This protocol or mode is not supported.";
    EOPNOTSUPP = 95, "This option is not supported.";
    EAFNOSUPPORT = 97, "This address family is not supported.";
    ENOBUFS = 105, "Events were lost, because nobody read them.";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The symbol where it is known: `EINVAL`, else `errno 75`.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.symbol() {
            Some(symbol) => f.write_str(symbol),
            None => write!(f, "errno {}", self.0),
        }
    }
}

/// A refused request: the error number, and what the extended acknowledgement says beside it.
///
/// The parser gives the kernel's number and words (`net/xfrm/xfrm_user.c`, `lib/nlattr.c`); a server
/// makes refusals of its own in the same way. [`Acknowledgement`](crate::Acknowledgement) makes a
/// message of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{errno}{}{text}", if text.is_empty() { "" } else { ": " })]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The words for people (`NLMSGERR_ATTR_MSG`); may be empty.
    pub text: Cow<'static, str>,
    /// Position in the message of the attribute that is to blame, counted in bytes from the
    /// message's header (`NLMSGERR_ATTR_OFFS`).
    pub offset: Option<u32>,
}

impl Refusal {
    /// A refusal with words.
    pub fn new(errno: Errno, text: impl Into<Cow<'static, str>>) -> Self {
        Self { errno, text: text.into(), offset: None }
    }

    /// A refusal that is only a number.
    #[must_use]
    pub const fn bare(errno: Errno) -> Self {
        Self { errno, text: Cow::Borrowed(""), offset: None }
    }

    /// `EINVAL` with words, by far the most usual.
    pub(crate) const fn invalid(text: &'static str) -> Self {
        Self { errno: Errno::EINVAL, text: Cow::Borrowed(text), offset: None }
    }

    /// With these words if it has none.
    pub(crate) fn or_words(self, text: &'static str) -> Self {
        if self.text.is_empty() { Self { text: Cow::Borrowed(text), ..self } } else { self }
    }

    pub(crate) fn at(errno: Errno, text: &'static str, offset: usize) -> Self {
        Self { offset: u32::try_from(offset).ok(), ..Self::new(errno, text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_symbol_and_the_words() {
        let refusal = Refusal::invalid("Invalid header length");
        assert_eq!(refusal.to_string(), "EINVAL: Invalid header length");
        assert_eq!(Refusal::bare(Errno::ESRCH).to_string(), "ESRCH");
        assert_eq!(Refusal::bare(Errno(75)).to_string(), "errno 75");
    }
}
