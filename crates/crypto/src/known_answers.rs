//! Known answers for self-tests: the examples of RFCs and NIST's publications, and what the portable tier makes of
//! packets.

use crate::{
    Cipher, Cpu, GcmParams, HashAlg, IcvLen, Integrity, KeyBits, KeyError, KeyMaterial, Lengths,
    MacAlg, Nonce, SealKey, SealOp, SecretBytes, Suite, Tier, seal_burst,
};

/// Bytes from hexadecimal digits, at compile time.
const fn decode<const N: usize>(text: &str) -> [u8; N] {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    let mut at = 0;
    while at < 2 * N {
        let value = match digits[at] {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            _ => panic!("not a digit"),
        };
        bytes[at / 2] = bytes[at / 2] << 4 | value;
        at += 1;
    }
    bytes
}

macro_rules! hex {
    ($($text:literal)*) => {{
        const TEXT: &str = concat!($($text),*);
        const BYTES: [u8; TEXT.len() / 2] = decode(TEXT);
        &BYTES
    }};
}

/// An AEAD's answer; the ICV stands behind the text.
struct Aead {
    source: &'static str,
    suite: Suite,
    key: &'static [u8],
    nonce: &'static [u8],
    aad: &'static [u8],
    plain: &'static [u8],
    sealed: &'static [u8],
}

struct CipherAnswer {
    source: &'static str,
    cipher: Cipher,
    key: &'static [u8],
    nonce: &'static [u8],
    plain: &'static [u8],
    sealed: &'static [u8],
}

struct MacAnswer {
    source: &'static str,
    alg: MacAlg,
    key: &'static [u8],
    message: &'static [u8],
    mac: &'static [u8],
}

const fn gcm(key_bits: KeyBits) -> Suite {
    Suite::Gcm(GcmParams::new(key_bits, IcvLen::Icv16))
}

const fn ccm(key_bits: KeyBits) -> Suite {
    Suite::Ccm { key_bits, icv_len: IcvLen::Icv16 }
}

const MCGREW_VIEGA: &str =
    "McGrew and Viega, The Galois/Counter Mode of Operation, cases 4, 10, 16";
const CAVP_GMAC: &str = "NIST CAVP, gcmEncryptExtIV, no plaintext";
const WYCHEPROOF_CCM: &str = "Project Wycheproof, aes_ccm, cases 262, 298, 334";

const GCM_NONCE: &[u8] = hex!("cafebabefacedbaddecaf888");
const GCM_AAD: &[u8] = hex!("feedfacedeadbeeffeedfacedeadbeefabaddad2");
const GCM_PLAIN: &[u8] = hex!(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
);

static AEADS: [Aead; 10] = [
    Aead {
        source: MCGREW_VIEGA,
        suite: gcm(KeyBits::Aes128),
        key: hex!("feffe9928665731c6d6a8f9467308308"),
        nonce: GCM_NONCE,
        aad: GCM_AAD,
        plain: GCM_PLAIN,
        sealed: hex!(
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
            "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
            "5bc94fbc3221a5db94fae95ae7121a47"
        ),
    },
    Aead {
        source: MCGREW_VIEGA,
        suite: gcm(KeyBits::Aes192),
        key: hex!("feffe9928665731c6d6a8f9467308308feffe9928665731c"),
        nonce: GCM_NONCE,
        aad: GCM_AAD,
        plain: GCM_PLAIN,
        sealed: hex!(
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c"
            "7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710"
            "2519498e80f1478f37ba55bd6d27618c"
        ),
    },
    Aead {
        source: MCGREW_VIEGA,
        suite: gcm(KeyBits::Aes256),
        key: hex!("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"),
        nonce: GCM_NONCE,
        aad: GCM_AAD,
        plain: GCM_PLAIN,
        sealed: hex!(
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
            "76fc6ece0f4e1768cddf8853bb2d551b"
        ),
    },
    // Of what is only authenticated, the first 16 bytes stand apart, the rest is the text.
    Aead {
        source: CAVP_GMAC,
        suite: Suite::Gmac(KeyBits::Aes128),
        key: hex!("99e3e8793e686e571d8285c564f75e2b"),
        nonce: hex!("c2dd0ab868da6aa8ad9c0d23"),
        aad: hex!("b668e42d4e444ca8b23cfdd95a9fedd5"),
        plain: hex!("178aa521144890b093733cf5cf22526c5917ee476541809ac6867a8c399309fc"),
        sealed: hex!(
            "178aa521144890b093733cf5cf22526c5917ee476541809ac6867a8c399309fc"
            "3f4fba100eaf1f34b0baadaae9995d85"
        ),
    },
    Aead {
        source: CAVP_GMAC,
        suite: Suite::Gmac(KeyBits::Aes192),
        key: hex!("a83ac82554d5c3475d03514a9421c409ccad9bc44a5f8307"),
        nonce: hex!("38aa26f7b68dc674cae90b84"),
        aad: hex!("0397a714939f55c18da013271348bd23"),
        plain: hex!("1e14d07f397ca0db20d3a77c42f3f41c25c64fd93bd3bd9fcd355a0bde4f1961"),
        sealed: hex!(
            "1e14d07f397ca0db20d3a77c42f3f41c25c64fd93bd3bd9fcd355a0bde4f1961"
            "e48b36dc683f32dbae3b13c3adb1b789"
        ),
    },
    Aead {
        source: CAVP_GMAC,
        suite: Suite::Gmac(KeyBits::Aes256),
        key: hex!("f4069bb739d07d0cafdcbc609ca01597f985c43db63bbaaa0debbb04d384e49c"),
        nonce: hex!("d25ff30fdc3d464fe173e805"),
        aad: hex!("3e1449c4837f0892f9d55127c75c4b25"),
        plain: hex!("d69be334baf5f19394d2d8bb460cbf2120e14736d0f634aa792feca20e455f11"),
        sealed: hex!(
            "d69be334baf5f19394d2d8bb460cbf2120e14736d0f634aa792feca20e455f11"
            "805ec2931c2181e5bfb74fa0a975f0cf"
        ),
    },
    // Those of RFC 3610 and NIST SP 800-38C have nonces of other lengths than RFC 4309.
    Aead {
        source: WYCHEPROOF_CCM,
        suite: ccm(KeyBits::Aes128),
        key: hex!("82841ef7fbae35546525fbbebf4718fb"),
        nonce: hex!("b5cd818f73a36ed025b6cf"),
        aad: hex!("44f48c2a20456358"),
        plain: hex!("8c2c823bb39941b1c6b75bbc82f05ba4"),
        sealed: hex!("b287c637a7554362c80d6b24d50ddfb3" "3967277da0f856f8f0ad49282894d2bb"),
    },
    Aead {
        source: WYCHEPROOF_CCM,
        suite: ccm(KeyBits::Aes192),
        key: hex!("0a3bf0a926fb14a3b716bfa021a208da0330e57bed36828a"),
        nonce: hex!("a0ba36edc43d935ee94213"),
        aad: hex!("3fcd93ccb8e97956"),
        plain: hex!("9ab6c109c8069d054ccbb5c33c6e70d0"),
        sealed: hex!("27d1e353233755a2fe28231637739c46" "b9b74765ed3d53031bf3c7349e74340e"),
    },
    Aead {
        source: WYCHEPROOF_CCM,
        suite: ccm(KeyBits::Aes256),
        key: hex!("60d6841e9e6218a2c8605a7794e74fb215dcf3a70a0015d497ed16564f2a83a0"),
        nonce: hex!("4c93f591af92f16596554e"),
        aad: hex!("7cb0eb9aa21fe859"),
        plain: hex!("c0d1e635586b0ef835c01479a32175a3"),
        sealed: hex!("0c266113544d7a901ce721e1ead6d8f9" "8a149eaa05c8722b2663c345a6a5418c"),
    },
    Aead {
        source: "RFC 7634 appendix A",
        suite: Suite::ChaCha20Poly1305,
        key: hex!("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"),
        nonce: hex!("a0a1a2a31011121314151617"),
        aad: hex!("0102030400000005"),
        plain: hex!(
            "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec10"
            "0007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223"
            "2425262728292a2b2c2d2e2f303132333435363701020204"
        ),
        sealed: hex!(
            "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c6"
            "14ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3"
            "cbec163fac469b502773f6fb94e664da9165b82829f641e0"
            "76aaa8266b7fb0f7b11b369907e1ad43"
        ),
    },
];

const RFC_3602: &str = "RFC 3602 section 4, case 2";
const CAVP_CBC: &str = "NIST CAVP, CBCMMT, count 1";
/// One block, which CBC without an IV leaves to the cipher alone.
const RFC_3713: &str = "RFC 3713 appendix A";
const RFC_3686: &str = "RFC 3686 section 6, cases 3, 6, 9";
const COUNT_36: &[u8] =
    hex!("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223");

static CIPHERS: [CipherAnswer; 10] = [
    CipherAnswer {
        source: RFC_3602,
        cipher: Cipher::AesCbc(KeyBits::Aes128),
        key: hex!("c286696d887c9aa0611bbb3e2025a45a"),
        nonce: hex!("562e17996d093d28ddb3ba695a2e6f58"),
        plain: hex!("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"),
        sealed: hex!("d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1"),
    },
    CipherAnswer {
        source: CAVP_CBC,
        cipher: Cipher::AesCbc(KeyBits::Aes192),
        key: hex!("eab3b19c581aa873e1981c83ab8d83bbf8025111fb2e6b21"),
        nonce: hex!("f3d6667e8d4d791e60f7505ba383eb05"),
        plain: hex!("9d4e4cccd1682321856df069e3f1c6fa391a083a9fb02d59db74c14081b3acc4"),
        sealed: hex!("51d44779f90d40a80048276c035cb49ca2a47bcb9b9cf7270b9144793787d53f"),
    },
    CipherAnswer {
        source: CAVP_CBC,
        cipher: Cipher::AesCbc(KeyBits::Aes256),
        key: hex!("dce26c6b4cfb286510da4eecd2cffe6cdf430f33db9b5f77b460679bd49d13ae"),
        nonce: hex!("fdeaa134c8d7379d457175fd1a57d3fc"),
        plain: hex!("50e9eee1ac528009e8cbcd356975881f957254b13f91d7c6662d10312052eb00"),
        sealed: hex!("2fa0df722a9fd3b64cb18fb2b3db55ff2267422757289413f8f657507412a64c"),
    },
    CipherAnswer {
        source: RFC_3686,
        cipher: Cipher::AesCtr(KeyBits::Aes128),
        key: hex!("7691be035e5020a8ac6e618529f9a0dc"),
        nonce: hex!("00e0017b27777f3f4a1786f0"),
        plain: COUNT_36,
        sealed: hex!("c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef3105325b2072f"),
    },
    CipherAnswer {
        source: RFC_3686,
        cipher: Cipher::AesCtr(KeyBits::Aes192),
        key: hex!("02bf391ee8ecb159b959617b0965279bf59b60a786d3e0fe"),
        nonce: hex!("0007bdfd5cbd60278dcc0912"),
        plain: COUNT_36,
        sealed: hex!("96893fc55e5c722f540b7dd1ddf7e758d288bc95c69165884536c811662f2188abee0935"),
    },
    CipherAnswer {
        source: RFC_3686,
        cipher: Cipher::AesCtr(KeyBits::Aes256),
        key: hex!("ff7a617ce69148e4f1726e2f43581de2aa62d9f805532edff1eed687fb54153d"),
        nonce: hex!("001cc5b751a51d70a1c11148"),
        plain: COUNT_36,
        sealed: hex!("eb6c52821d0bbbf7ce7594462aca4faab407df866569fd07f48cc0b583d6071f1ec0e6b8"),
    },
    CipherAnswer {
        source: "NIST CAVP, TCBCMMT3, count 1",
        cipher: Cipher::TripleDesCbc,
        key: hex!("a49d7564199e97cb529d2c9d97bf2f98d35edf57ba1f7358"),
        nonce: hex!("c2e999cb6249023c"),
        plain: hex!("c689aee38a301bb316da75db36f110b5"),
        sealed: hex!("e9afaba5ec75ea1bbe65506655bb4ecb"),
    },
    CipherAnswer {
        source: RFC_3713,
        cipher: Cipher::CamelliaCbc(KeyBits::Aes128),
        key: hex!("0123456789abcdeffedcba9876543210"),
        nonce: &[0; 16],
        plain: hex!("0123456789abcdeffedcba9876543210"),
        sealed: hex!("67673138549669730857065648eabe43"),
    },
    CipherAnswer {
        source: RFC_3713,
        cipher: Cipher::CamelliaCbc(KeyBits::Aes192),
        key: hex!("0123456789abcdeffedcba98765432100011223344556677"),
        nonce: &[0; 16],
        plain: hex!("0123456789abcdeffedcba9876543210"),
        sealed: hex!("b4993401b3e996f84ee5cee7d79b09b9"),
    },
    CipherAnswer {
        source: RFC_3713,
        cipher: Cipher::CamelliaCbc(KeyBits::Aes256),
        key: hex!("0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff"),
        nonce: &[0; 16],
        plain: hex!("0123456789abcdeffedcba9876543210"),
        sealed: hex!("9acc237dff16d76c20ef7c919e3a7509"),
    },
];

const RFC_2202: &str = "RFC 2202, case 3";
const RFC_4868: &str = "RFC 4868 section 2.7.2, case 3";
const FIFTY: &[u8] = &[0xdd; 50];

static MACS: [MacAnswer; 7] = [
    MacAnswer {
        source: RFC_2202,
        alg: MacAlg::Hmac(HashAlg::Md5),
        key: &[0xaa; 16],
        message: FIFTY,
        mac: hex!("56be34521d144c88dbb8c733f0e8b3f6"),
    },
    MacAnswer {
        source: RFC_2202,
        alg: MacAlg::Hmac(HashAlg::Sha1),
        key: &[0xaa; 20],
        message: FIFTY,
        mac: hex!("125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
    },
    MacAnswer {
        source: RFC_4868,
        alg: MacAlg::Hmac(HashAlg::Sha256),
        key: &[0xaa; 32],
        message: FIFTY,
        mac: hex!("cdcb1220d1ecccea91e53aba3092f962e549fe6ce9ed7fdc43191fbde45c30b0"),
    },
    MacAnswer {
        source: RFC_4868,
        alg: MacAlg::Hmac(HashAlg::Sha384),
        key: &[0xaa; 48],
        message: FIFTY,
        mac: hex!(
            "809f439be00274321d4a538652164b53554a508184a0c316"
            "0353e3428597003d35914a18770f9443987054944b7c4b4a"
        ),
    },
    MacAnswer {
        source: RFC_4868,
        alg: MacAlg::Hmac(HashAlg::Sha512),
        key: &[0xaa; 64],
        message: FIFTY,
        mac: hex!(
            "2ee7acd783624ca9398710f3ee05ae41b9f9b0510c87e49e586cc9bf961733d8"
            "623c7b55cebefccf02d5581acc1c9d5fb1ff68a1de45509fbe4da9a433922655"
        ),
    },
    MacAnswer {
        source: "RFC 3566 section 4.6, case 6",
        alg: MacAlg::AesXcbc,
        key: hex!("000102030405060708090a0b0c0d0e0f"),
        message: hex!("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021"),
        mac: hex!("becbb3bccdb518a30677d5481fb6b4d8"),
    },
    MacAnswer {
        source: "RFC 4493 section 4, example 3",
        alg: MacAlg::AesCmac(KeyBits::Aes128),
        key: hex!("2b7e151628aed2a6abf7158809cf4f3c"),
        message: hex!(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
            "30c81c46a35ce411"
        ),
        mac: hex!("dfa66747de9ae63030ca32611497c827"),
    },
];

/// A packet, open and sealed.
#[derive(Debug)]
pub struct Case {
    /// Source of the answer.
    pub source: &'static str,
    /// The suite.
    pub suite: Suite,
    key: Vec<u8>,
    mac_key: Vec<u8>,
    /// The nonce or IV.
    pub nonce: Vec<u8>,
    /// Bytes that a pair authenticates in front of the text.
    pub header: Vec<u8>,
    /// Additional data of an AEAD; of a pair, what is authenticated behind the text and not sent.
    pub beside: Vec<u8>,
    /// The text.
    pub plain: Vec<u8>,
    /// The text and its ICV.
    pub sealed: Vec<u8>,
}

/// Header in front of the text in packets that no publication prescribes.
const HEADER: &[u8] = hex!("0102030400000005");

impl Case {
    /// The keys.
    #[must_use]
    pub fn material(&self) -> KeyMaterial {
        let secret = SecretBytes::copy_from;
        KeyMaterial { cipher: secret(&self.key), integrity: secret(&self.mac_key) }
    }

    /// The nonce with zeros behind it, and its length.
    #[must_use]
    pub fn nonce_block(&self) -> ([u8; 16], u8) {
        let mut block = [0; 16];
        block.iter_mut().zip(&self.nonce).for_each(|(to, byte)| *to = *byte);
        (block, u8::try_from(self.nonce.len()).unwrap_or(u8::MAX))
    }

    /// With what the portable tier makes of it.
    fn computed(mut self, cpu: &Cpu) -> Result<Self, KeyError> {
        let key = SealKey::with_tier(cpu, Tier::Portable, self.suite, self.material())?;
        let icv = vec![0; self.suite.icv_bytes()];
        let mut packet = [&*self.header, &*self.plain, &*icv].concat();
        let (nonce, len) = self.nonce_block();
        let lengths = Lengths { header: self.header.len(), text: self.plain.len() };
        if let Ok(op) =
            SealOp::in_place(&key, Nonce::front(nonce, len), &mut packet, lengths, &self.beside)
        {
            seal_burst(&mut [op]);
        }
        self.sealed = packet.split_off(self.header.len());
        Ok(self)
    }
}

/// The packets that a suite is tested with: at first those that are published.
///
/// # Errors
///
/// [`KeyError`] if the portable tier does not take a key.
pub fn cases(suite: Suite, cpu: &Cpu) -> Result<Vec<Case>, KeyError> {
    let mut cases = published(suite, cpu)?;
    for len in [0, 64, 208, 1424] {
        cases.push(counting(suite, len).computed(cpu)?);
    }
    Ok(cases)
}

/// Published cases.
///
/// # Errors
///
/// As for [`cases`].
pub fn published(suite: Suite, cpu: &Cpu) -> Result<Vec<Case>, KeyError> {
    let Suite::Pair { cipher, integrity } = suite else {
        return Ok(AEADS.iter().filter_map(|known| of_aead(suite, known)).collect());
    };
    let mut cases = Vec::new();
    let macs = MACS.iter().filter(|known| known.alg == integrity.alg());
    cases.extend(macs.map(|known| of_mac(suite, cipher, integrity, known)));
    for known in CIPHERS.iter().filter(|known| known.cipher == cipher) {
        cases.push(of_cipher(suite, integrity, known, cpu)?);
    }
    Ok(cases)
}

/// GCM's ICVs may be cut; of other AEADs they are made for their length.
fn of_aead(suite: Suite, known: &Aead) -> Option<Case> {
    let same = match (suite, known.suite) {
        (Suite::Gcm(a), Suite::Gcm(b)) => a.key_bits == b.key_bits,
        (a, b) => a == b,
    };
    let sealed = known.sealed.get(..known.plain.len() + suite.icv_bytes())?;
    same.then(|| Case {
        source: known.source,
        suite,
        key: known.key.to_vec(),
        mac_key: Vec::new(),
        nonce: known.nonce.to_vec(),
        header: Vec::new(),
        beside: known.aad.to_vec(),
        plain: known.plain.to_vec(),
        sealed: sealed.to_vec(),
    })
}

/// A message of which the last four bytes are not sent, and without a cipher all but eight are text.
fn of_mac(suite: Suite, cipher: Cipher, integrity: Integrity, known: &MacAnswer) -> Case {
    let (sent, beside) = known.message.split_at(known.message.len().saturating_sub(4));
    let header = if cipher == Cipher::Null { 8 } else { sent.len() };
    let (header, text) = sent.split_at(header.min(sent.len()));
    let icv = known.mac.iter().take(integrity.icv_bytes());
    Case {
        source: known.source,
        suite,
        // Nothing is encrypted; 3DES refuses keys of equal parts.
        key: (0..suite.key_bytes()).map(|i| i as u8).collect(),
        mac_key: known.key.to_vec(),
        nonce: vec![0; suite.nonce_bytes()],
        header: header.to_vec(),
        beside: beside.to_vec(),
        plain: text.to_vec(),
        sealed: text.iter().chain(icv).copied().collect(),
    }
}

/// A text whose ICV, if there is one, is that of the portable tier over what is published.
fn of_cipher(
    suite: Suite,
    integrity: Integrity,
    known: &CipherAnswer,
    cpu: &Cpu,
) -> Result<Case, KeyError> {
    let mac_only = Suite::Pair { cipher: Cipher::Null, integrity };
    let mac = Case { plain: known.sealed.to_vec(), nonce: Vec::new(), ..counting(mac_only, 0) };
    let mac = mac.computed(cpu)?;
    Ok(Case {
        source: known.source,
        suite,
        key: known.key.to_vec(),
        nonce: known.nonce.to_vec(),
        plain: known.plain.to_vec(),
        ..mac
    })
}

/// A packet of consecutive bytes that is not sealed yet.
fn counting(suite: Suite, len: usize) -> Case {
    let count = |first: u8, len| (0..len).map(|i: usize| first.wrapping_add(i as u8)).collect();
    let (header, beside): (&[u8], &[u8]) =
        if suite.is_aead() { (&[], HEADER) } else { (HEADER, &[0, 0, 0, 1]) };
    Case {
        source: "Convoy's portable tier",
        suite,
        key: count(0x10, suite.key_bytes()),
        mac_key: count(0x60, suite.integrity_key_bytes()),
        nonce: count(0xa0, suite.nonce_bytes()),
        header: header.to_vec(),
        beside: beside.to_vec(),
        plain: count(0, len),
        sealed: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portable_tier_gives_published_answers_of_every_suite() {
        let cpu = Cpu::without("aesni").unwrap();
        for suite in Suite::all() {
            for case in published(suite, &cpu).unwrap() {
                let expected = case.sealed.clone();
                let case = case.computed(&cpu).unwrap();
                assert_eq!(case.sealed, expected, "{suite}, {}", case.source);
            }
        }
    }
}
