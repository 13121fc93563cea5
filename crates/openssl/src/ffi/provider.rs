//! The provider itself: what it is called, and which ciphers it has.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use convoy_crypto::{Cpu, try_box};

use super::{
    cbc::{
        AES_128_CBC_HMAC_SHA1, AES_128_CBC_HMAC_SHA256, AES_256_CBC_HMAC_SHA1,
        AES_256_CBC_HMAC_SHA256,
    },
    chacha::CHACHA20_POLY1305,
    core::{Algorithm, Core, Dispatch, Failure, Handle, dispatch, guard, guard_pointer},
    counters,
    environment::variable,
    gcm::{AES_128_GCM, AES_192_GCM, AES_256_GCM},
    loading::{Offered, Provider},
    param::{Param, Params},
};
use crate::{
    Reason,
    offer::{self, Cipher},
};

const OP_CIPHER: c_int = 2;

const PROPERTIES: &CStr = c"provider=convoy";

const fn algorithm(names: &'static CStr, implementation: &'static [Dispatch]) -> Algorithm {
    Algorithm {
        names: names.as_ptr(),
        properties: PROPERTIES.as_ptr(),
        implementation: implementation.as_ptr(),
        description: ptr::null(),
    }
}

/// With every name that the default provider has for them: of AES-GCM, libssl asks for the second.
static CIPHERS: [(Cipher, Algorithm); Cipher::ALL.len()] = [
    (Cipher::ChaCha20Poly1305, algorithm(c"ChaCha20-Poly1305", &CHACHA20_POLY1305)),
    (
        Cipher::Aes128Gcm,
        algorithm(c"AES-128-GCM:id-aes128-GCM:2.16.840.1.101.3.4.1.6", &AES_128_GCM),
    ),
    (
        Cipher::Aes192Gcm,
        algorithm(c"AES-192-GCM:id-aes192-GCM:2.16.840.1.101.3.4.1.26", &AES_192_GCM),
    ),
    (
        Cipher::Aes256Gcm,
        algorithm(c"AES-256-GCM:id-aes256-GCM:2.16.840.1.101.3.4.1.46", &AES_256_GCM),
    ),
    (Cipher::Aes128CbcHmacSha1, algorithm(c"AES-128-CBC-HMAC-SHA1", &AES_128_CBC_HMAC_SHA1)),
    (Cipher::Aes256CbcHmacSha1, algorithm(c"AES-256-CBC-HMAC-SHA1", &AES_256_CBC_HMAC_SHA1)),
    (Cipher::Aes128CbcHmacSha256, algorithm(c"AES-128-CBC-HMAC-SHA256", &AES_128_CBC_HMAC_SHA256)),
    (Cipher::Aes256CbcHmacSha256, algorithm(c"AES-256-CBC-HMAC-SHA256", &AES_256_CBC_HMAC_SHA256)),
];

/// True if every cipher is to be offered, as the configuration or the environment says.
///
/// # Errors
///
/// `None` if either says something else.
fn offers_all(core: &Core) -> Option<bool> {
    /// [`KEY`](offer::KEY), [`VARIABLE`](offer::VARIABLE).
    const NAMES: (&CStr, &CStr) = (c"offer", c"CONVOY_PROVIDER_OFFER");
    let configured = core.configured(NAMES.0).filter(|value| !value.is_empty());
    match configured.or_else(|| variable(NAMES.1)) {
        None => Some(false),
        Some(value) => (value.to_bytes() == offer::EVERY.as_bytes()).then_some(true),
    }
}

/// The table of what is offered.
fn offered(cpu: &Cpu, all: bool) -> Offered {
    let offered = CIPHERS.iter().filter(|(cipher, _)| all || cipher.withheld(cpu).is_none());
    offered.map(|(_, algorithm)| *algorithm).chain([Algorithm::END]).collect()
}

static TABLE: [Dispatch; 5] = dispatch![
    1024: teardown as unsafe extern "C" fn(*mut Provider),
    1025: gettable_params as unsafe extern "C" fn(*mut c_void) -> *const Param,
    1026: get_params as unsafe extern "C" fn(*mut Provider, *mut Param) -> c_int,
    1027: query as unsafe extern "C" fn(*mut Provider, c_int, *mut c_int) -> *const Algorithm,
];

/// Entry point, which libcrypto calls after it loads the library.
///
/// # Safety
///
/// As provider(7) has it: `table` is libcrypto's table of functions, `out` and `provctx` point to places
/// for pointers.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn OSSL_provider_init(
    handle: *const Handle,
    table: *const Dispatch,
    out: *mut *const Dispatch,
    provctx: *mut *mut c_void,
) -> c_int {
    guard(None, || {
        if out.is_null() || provctx.is_null() {
            return Err(Failure::Quiet);
        }
        // Servers empty their environment before workers work, so it is read now, and faults of it show.
        let cpu = Cpu::detect().map_err(|_| Failure::Quiet)?;
        // SAFETY: the caller's promise.
        let core = unsafe { Core::of(handle, table) };
        let offered = offered(&cpu, offers_all(&core).ok_or(Failure::Quiet)?);
        counters::open(&core);
        let provider = try_box(Provider { core, offered }).map_err(|_| Failure::Quiet)?;
        // SAFETY: the caller's promise; it is not null.
        unsafe { *out = TABLE.as_ptr() };
        // SAFETY: as above.
        unsafe { *provctx = Box::into_raw(provider).cast() };
        Ok(())
    })
}

/// # Safety
///
/// `provider` came from [`OSSL_provider_init`], and nothing of it is used any more.
unsafe extern "C" fn teardown(provider: *mut Provider) {
    guard_pointer::<()>(|| {
        if !provider.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(provider) });
        }
        ptr::null_mut()
    });
}

/// # Safety
///
/// `provider` came from [`OSSL_provider_init`]; `no_cache` is null or a place for a number.
unsafe extern "C" fn query(
    provider: *mut Provider,
    operation: c_int,
    no_cache: *mut c_int,
) -> *const Algorithm {
    if !no_cache.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *no_cache = 0 };
    }
    // SAFETY: the caller's promise.
    match unsafe { provider.as_ref() } {
        Some(provider) if operation == OP_CIPHER => provider.offered.as_ptr(),
        _ => ptr::null(),
    }
}

static GETTABLE: [Param; 5] = [
    Param::text(c"name"),
    Param::text(c"version"),
    Param::text(c"buildinfo"),
    Param::unsigned(c"status"),
    Param::END,
];

extern "C" fn gettable_params(_: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

const NAME: &CStr = c"Convoy";

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// # Safety
///
/// `provider` came from [`OSSL_provider_init`]; `params` is a list of parameters to be filled.
unsafe extern "C" fn get_params(provider: *mut Provider, params: *mut Param) -> c_int {
    // SAFETY: the caller's promise.
    let core = unsafe { provider.as_ref() }.map(|provider| &provider.core);
    guard(core, || {
        // SAFETY: the caller's promise.
        for mut param in unsafe { Params::new(params) } {
            let done = match param.key() {
                b"name" => param.put_text(NAME),
                b"version" | b"buildinfo" => param.put_text(VERSION),
                b"status" => param.put_number(1),
                _ => true,
            };
            if !done {
                return Err(Reason::FailedToSetParameter.into());
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_is_in_the_table_by_its_name() {
        for cipher in Cipher::ALL {
            let (_, algorithm) = CIPHERS.iter().find(|(of, _)| *of == cipher).unwrap();
            // SAFETY: a constant of the table.
            let names = unsafe { CStr::from_ptr(algorithm.names) }.to_str().unwrap();
            assert_eq!(names.split(':').next(), Some(cipher.name()));
        }
    }

    #[test]
    fn what_is_offered_is_a_table_with_an_end() {
        let cpu = Cpu::without("aesni").unwrap();
        let count = |all| offered(&cpu, all).iter().position(|it| it.names.is_null());
        assert_eq!((count(false), count(true)), (Some(0), Some(Cipher::ALL.len())));
    }
}
