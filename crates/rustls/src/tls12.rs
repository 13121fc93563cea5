//! Records of TLS 1.2 with AES-GCM: a part of the nonce stands in the record (RFC 5288).

use rustls::{
    ConnectionTrafficSecrets, Error,
    crypto::cipher::{
        AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter,
        MessageEncrypter, NONCE_LEN, Nonce, OutboundOpaqueMessage, OutboundPlainMessage,
        PrefixedPayload, Tls12AeadAlgorithm, UnsupportedOperationError, make_tls12_aad,
    },
};

use crate::aead::{Aead, MAX_TEXT, Opener, Sealer, TAG};

/// An AEAD as TLS 1.2 uses it.
pub(crate) struct Tls12(pub(crate) Aead);

impl Tls12AeadAlgorithm for Tls12 {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter { key: Sealer::new(self.0, &key), iv: joined(iv, extra) })
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        Box::new(Decrypter { key: Opener::new(self.0, &key), iv: joined(iv, &[]) })
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        KeyBlockShape {
            enc_key_len: self.0.key_len(),
            fixed_iv_len: FIXED,
            explicit_nonce_len: EXPLICIT,
        }
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok(self.0.secrets(key, joined(iv, explicit)))
    }
}

/// Bytes of a nonce that stand in front of the text, and those that do not.
const EXPLICIT: usize = 8;
const FIXED: usize = NONCE_LEN - EXPLICIT;

/// A nonce's fixed part, and what the explicit one counts from.
fn joined(fixed: &[u8], explicit: &[u8]) -> Iv {
    let mut iv = [0; NONCE_LEN];
    for (to, from) in iv.iter_mut().zip(fixed.iter().chain(explicit)) {
        *to = *from;
    }
    iv.into()
}

struct Encrypter {
    key: Sealer,
    iv: Iv,
}

impl MessageEncrypter for Encrypter {
    fn encrypt(
        &mut self,
        msg: OutboundPlainMessage<'_>,
        seq: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let text = msg.payload.len();
        let mut payload = PrefixedPayload::with_capacity(self.encrypted_payload_len(text));
        let nonce = Nonce::new(&self.iv, seq);
        payload.extend_from_slice(&nonce.0[FIXED..]);
        payload.extend_from_chunks(&msg.payload);
        payload.extend_from_slice(&[0; TAG]);
        let aad = make_tls12_aad(seq, msg.typ, msg.version, text);
        self.key.seal(seq, nonce, &aad, &mut payload.as_mut()[EXPLICIT..])?;
        Ok(OutboundOpaqueMessage::new(msg.typ, msg.version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        EXPLICIT + payload_len + TAG
    }
}

struct Decrypter {
    key: Opener,
    iv: Iv,
}

impl MessageDecrypter for Decrypter {
    fn decrypt<'a>(
        &mut self,
        mut msg: InboundOpaqueMessage<'a>,
        seq: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let Some(text) = msg.payload.len().checked_sub(EXPLICIT + TAG) else {
            return Err(Error::DecryptError);
        };
        let mut nonce = Nonce::new(&self.iv, seq);
        nonce.0[FIXED..].copy_from_slice(&msg.payload[..EXPLICIT]);
        let aad = make_tls12_aad(seq, msg.typ, msg.version, text);
        let len = self.key.open(nonce, &aad, &mut msg.payload[EXPLICIT..])?;
        if len > MAX_TEXT {
            return Err(Error::PeerSentOversizedRecord);
        }
        Ok(msg.into_plain_message_range(EXPLICIT..EXPLICIT + len))
    }
}
