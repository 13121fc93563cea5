//! Records of TLS 1.2. With AES-GCM a part of the nonce stands in the record (RFC 5288), with
//! ChaCha20-Poly1305 nothing of it does (RFC 7905).

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
        let explicit = self.0.explicit();
        Box::new(Encrypter { key: Sealer::new(self.0, &key), iv: joined(iv, extra), explicit })
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        let explicit = self.0.explicit();
        Box::new(Decrypter { key: Opener::new(self.0, &key), iv: joined(iv, &[]), explicit })
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        KeyBlockShape {
            enc_key_len: self.0.key_len(),
            fixed_iv_len: NONCE_LEN - self.0.explicit(),
            explicit_nonce_len: self.0.explicit(),
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
    explicit: usize,
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
        payload.extend_from_slice(&nonce.0[NONCE_LEN - self.explicit..]);
        payload.extend_from_chunks(&msg.payload);
        payload.extend_from_slice(&[0; TAG]);
        let aad = make_tls12_aad(seq, msg.typ, msg.version, text);
        self.key.seal(seq, nonce, &aad, &mut payload.as_mut()[self.explicit..])?;
        Ok(OutboundOpaqueMessage::new(msg.typ, msg.version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        self.explicit + payload_len + TAG
    }
}

struct Decrypter {
    key: Opener,
    iv: Iv,
    explicit: usize,
}

impl MessageDecrypter for Decrypter {
    fn decrypt<'a>(
        &mut self,
        mut msg: InboundOpaqueMessage<'a>,
        seq: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let explicit = self.explicit;
        let Some(text) = msg.payload.len().checked_sub(explicit + TAG) else {
            return Err(Error::DecryptError);
        };
        let mut nonce = Nonce::new(&self.iv, seq);
        nonce.0[NONCE_LEN - explicit..].copy_from_slice(&msg.payload[..explicit]);
        let aad = make_tls12_aad(seq, msg.typ, msg.version, text);
        let len = self.key.open(nonce, &aad, &mut msg.payload[explicit..])?;
        if len > MAX_TEXT {
            return Err(Error::PeerSentOversizedRecord);
        }
        Ok(msg.into_plain_message_range(explicit..explicit + len))
    }
}
