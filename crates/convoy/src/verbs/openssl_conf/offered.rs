//! Ciphers that the provider offers on this machine.

use std::fmt;

use convoy_crypto::Cpu;
use convoy_openssl::offer::Cipher;
use serde::Serialize;

use crate::exit::Stop;

/// A cipher of the provider, and what becomes of it here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::verbs) struct Offered {
    pub(in crate::verbs) cipher: &'static str,
    pub(in crate::verbs) offered: bool,
    /// Reason for which it is not offered, or would not be but for `offer = all`.
    pub(in crate::verbs) why: Option<String>,
}

impl Offered {
    /// All of them on this machine, less what is denied; or with `offer = all`.
    ///
    /// # Errors
    ///
    /// `CONVOY_DENY_CPU` cannot be understood.
    pub(in crate::verbs) fn here(all: bool) -> anyhow::Result<Vec<Self>> {
        let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
        Ok(Self::with(&cpu, all))
    }

    /// The same with what may be used of a processor.
    pub(in crate::verbs) fn with(cpu: &Cpu, all: bool) -> Vec<Self> {
        let each = Cipher::ALL.into_iter().map(|cipher| {
            let why = cipher.withheld(cpu);
            Self { cipher: cipher.name(), offered: all || why.is_none(), why }
        });
        each.collect()
    }
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cipher, offered, why } = self;
        match (offered, why) {
            (true, None) => write!(f, "{cipher} is offered on this machine"),
            (true, Some(why)) => {
                write!(f, "{cipher} is offered on this machine, as all are to be: {why}")
            }
            (false, _) => {
                let why = why.as_deref().unwrap_or_default();
                write!(f, "{cipher} is not offered on this machine: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cipher_is_told_with_the_reason() {
        let cpu = Cpu::without("sha-ni").unwrap();
        let of = |all| Offered::with(&cpu, all);
        let (some, all) = (of(false), of(true));
        assert_eq!((some.len(), all.len()), (Cipher::ALL.len(), Cipher::ALL.len()));
        let cbc = some.iter().find(|it| it.cipher == "AES-128-CBC-HMAC-SHA1").unwrap();
        let said = cbc.to_string();
        assert!(said.contains("is not offered") && said.contains("without the "), "{said}");
        assert!(all.iter().all(|it| it.offered));
        assert!(all.iter().any(|it| it.to_string().contains("as all are to be")));
    }
}
