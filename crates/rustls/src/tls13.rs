//! Records of TLS 1.3 (RFC 8446 section 5.2).

use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    crypto::cipher::{
        AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
        Nonce, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
        UnsupportedOperationError, make_tls13_aad,
    },
};

use crate::aead::{Aead, Opener, Sealer, TAG};

/// An AEAD as TLS 1.3 uses it.
pub(crate) struct Tls13(pub(crate) Aead);

impl Tls13AeadAlgorithm for Tls13 {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter { key: Sealer::new(self.0, &key), iv })
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Decrypter { key: Opener::new(self.0, &key), iv })
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok(self.0.secrets(key, iv))
    }
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
        let len = self.encrypted_payload_len(msg.payload.len());
        let mut payload = PrefixedPayload::with_capacity(len);
        payload.extend_from_chunks(&msg.payload);
        payload.extend_from_slice(&[u8::from(msg.typ)]);
        payload.extend_from_slice(&[0; TAG]);
        let nonce = Nonce::new(&self.iv, seq);
        self.key.seal(seq, nonce, &make_tls13_aad(len), payload.as_mut())?;
        // Type and version are those of every record of TLS 1.3; the type that counts is sealed with the text.
        Ok(OutboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            payload,
        ))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + 1 + TAG
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
        let aad = make_tls13_aad(msg.payload.len());
        let len = self.key.open(Nonce::new(&self.iv, seq), &aad, &mut msg.payload)?;
        msg.payload.truncate(len);
        msg.into_tls13_unpadded_message()
    }
}
