//! Keys of a crypto device for suites.

use convoy_crypto::{Cipher, HashAlg, KeyMaterial, MacAlg, Suite};

use crate::ffi::{Aead, Auth, BlockCipher, DeviceKey};

/// The key of a device that does no work for packets of `suite`.
pub(crate) fn idle_key(suite: Suite, opens: bool) -> Option<DeviceKey> {
    let icv = u8::try_from(suite.icv_bytes()).ok()?;
    DeviceKey::new(Aead::None, BlockCipher::Idle, Auth::None, opens, icv, &[], &[])
}

/// The key of a device for `suite`; `None` for suites that are not given to devices.
pub(crate) fn device_key(suite: Suite, material: &KeyMaterial, opens: bool) -> Option<DeviceKey> {
    let (aead, cipher, auth) = match suite {
        Suite::Gcm(_) => (Aead::AesGcm, BlockCipher::None, Auth::None),
        Suite::ChaCha20Poly1305 => (Aead::ChaCha20Poly1305, BlockCipher::None, Auth::None),
        Suite::Pair { cipher, integrity } => {
            let cipher = match cipher {
                Cipher::Null => BlockCipher::None,
                Cipher::AesCbc(_) => BlockCipher::AesCbc,
                Cipher::AesCtr(_) | Cipher::TripleDesCbc | Cipher::CamelliaCbc(_) => return None,
            };
            let auth = match integrity.alg() {
                MacAlg::Hmac(HashAlg::Sha1) => Auth::HmacSha1,
                MacAlg::Hmac(HashAlg::Sha256) => Auth::HmacSha256,
                MacAlg::Hmac(HashAlg::Sha384) => Auth::HmacSha384,
                MacAlg::Hmac(HashAlg::Sha512) => Auth::HmacSha512,
                _ => return None,
            };
            (Aead::None, cipher, auth)
        }
        _ => return None,
    };
    let icv = u8::try_from(suite.icv_bytes()).ok()?;
    let (key, mac) = (material.cipher.expose(), material.integrity.expose());
    DeviceKey::new(aead, cipher, auth, opens, icv, key, mac)
}
