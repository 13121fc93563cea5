//! The examples of RFCs and NIST's publications, in every set-up. They stand here, so these tests need
//! no files.

use crate::common::{
    Packet, gcm,
    vectors::{Set, Vector, unhex},
};
use convoy_crypto::{Cipher, HashAlg, IcvLen, Integrity, KeyBits, MacAlg, Suite};

/// Consecutive bytes.
fn count(first: u8, len: u8) -> Vec<u8> {
    (first..).take(usize::from(len)).collect()
}

fn aead(
    set: &mut Set,
    suite: Suite,
    [key, nonce, aad]: [&[u8]; 3],
    (plain, sealed): (&[u8], &str),
) {
    let sealed = unhex(sealed);
    let (text, icv) = sealed.split_at(sealed.len() - suite.icv_bytes());
    set.vectors.push(Vector {
        name: format!("vector {}", set.vectors.len() + 1),
        sealed: Packet {
            suite,
            keys: (key.to_vec(), Vec::new()),
            nonce: nonce.to_vec(),
            header: aad.to_vec(),
            text: text.to_vec(),
            trailer: Vec::new(),
            icv: icv.to_vec(),
        },
        plain: Some(plain.to_vec()),
    });
}

/// RFC 3602 section 4, cases 1 to 4.
#[test]
fn cbc() {
    let mut set = Set::new("RFC 3602");
    for (key, iv, plain, sealed) in [
        (
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            b"Single block msg".to_vec(),
            "e353779c1079aeb82708942dbe77181a",
        ),
        (
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            count(0, 32),
            "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
        ),
        (
            "6c3ea0477630ce21a2ce334aa746c2cd",
            "c782dc4c098c66cbd9cd27d825682c81",
            b"This is a 48-byte message (exactly 3 AES blocks)".to_vec(),
            "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5
             021c19216bad525c8579695d83ba2684",
        ),
        (
            "56e47a38c5598974bc46903dba290349",
            "8ce82eefbea0da3c44699ed7db51b7d9",
            count(0xa0, 64),
            "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e
             35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55",
        ),
    ] {
        let cipher = Cipher::AesCbc(KeyBits::Aes128);
        set.push_cipher("example", cipher, &unhex(key), &unhex(iv), &plain, &unhex(sealed));
    }
    set.check();
}

/// RFC 3686 section 6, vectors 1 to 3; `counter_mode` in `kat.rs` has all.
#[test]
fn ctr() {
    let mut set = Set::new("RFC 3686");
    for (key, nonce, plain, sealed) in [
        (
            "ae6852f8121067cc4bf7a5765577f39e",
            "000000300000000000000000",
            b"Single block msg".to_vec(),
            "e4095d4fb7a7b3792d6175a3261311b8",
        ),
        (
            "7e24067817fae0d743d6ce1f32539163",
            "006cb6dbc0543b59da48d90b",
            count(0, 32),
            "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28",
        ),
        (
            "7691be035e5020a8ac6e618529f9a0dc",
            "00e0017b27777f3f4a1786f0",
            count(0, 36),
            "c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef31053
             25b2072f",
        ),
    ] {
        let cipher = Cipher::AesCtr(KeyBits::Aes128);
        set.push_cipher("example", cipher, &unhex(key), &unhex(nonce), &plain, &unhex(sealed));
    }
    set.check();
}

/// RFC 3566 section 4.6.
#[test]
fn xcbc() {
    let mut set = Set::new("RFC 3566");
    let zeros = vec![0; 1000];
    let bytes = count(0, 34);
    for (message, tag) in [
        (&bytes[..0], "75f0251d528ac01c4573dfd584d79f29"),
        (&bytes[..3], "5b376580ae2f19afe7219ceef172756f"),
        (&bytes[..16], "d2a246fa349b68a79998a4394ff7a263"),
        (&bytes[..20], "47f51b4564966215b8985c63055ed308"),
        (&bytes[..32], "f54f0ec8d2b9f3d36807734bd5283fd4"),
        (&bytes[..34], "becbb3bccdb518a30677d5481fb6b4d8"),
        (&zeros[..], "f0dafee895db30253761103b5d84528f"),
    ] {
        let tag = unhex(tag);
        for integrity in [Integrity::full(MacAlg::AesXcbc), Integrity::AES_XCBC_96] {
            let tag = &tag[..integrity.icv_bytes()];
            set.push_mac("example", integrity, &count(0, 16), message, tag, true);
        }
    }
    set.check();
}

/// RFC 4493 section 4, and cut to 96 bits RFC 4494 section 4.
#[test]
fn cmac() {
    let mut set = Set::new("RFC 4493");
    let key = unhex("2b7e151628aed2a6abf7158809cf4f3c");
    let message = unhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    );
    for (len, tag) in [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ] {
        let tag = unhex(tag);
        for integrity in [Integrity::full(MacAlg::AesCmac(KeyBits::Aes128)), Integrity::AES_CMAC_96]
        {
            let tag = &tag[..integrity.icv_bytes()];
            set.push_mac("example", integrity, &key, &message[..len], tag, true);
        }
    }
    set.check();
}

/// RFC 2202 and RFC 4231, cases 2 and 6; `hmac` in `kat.rs` has all.
#[test]
fn hmac() {
    let mut set = Set::new("RFC 2202 and RFC 4231");
    let old_key = [0xaa; 80];
    let new_key = [0xaa; 131];
    let hash_first = b"Test Using Larger Than Block-Size Key - Hash Key First";
    for (hash, key, jefe, long_key) in [
        (
            HashAlg::Md5,
            &old_key[..],
            "750c783e6ab0b503eaa86e310a5db738",
            "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd",
        ),
        (
            HashAlg::Sha1,
            &old_key,
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            HashAlg::Sha224,
            &new_key,
            "a30e01098bc6dbbf45690f3a7e9e6d0f8bbea2a39e6148008fd05e44",
            "95e9a0db962095adaebe9b2d6f0dbce2d499f112f2d2b7273fa6870e",
        ),
        (
            HashAlg::Sha256,
            &new_key,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
        (
            HashAlg::Sha384,
            &new_key,
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e
             8e2240ca5e69e2c78b3239ecfab21649",
            "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6
             0c2ef6ab4030fe8296248df163f44952",
        ),
        (
            HashAlg::Sha512,
            &new_key,
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554
             9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352
             6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        ),
    ] {
        let integrity = Integrity::full(MacAlg::Hmac(hash));
        let message = b"what do ya want for nothing?";
        set.push_mac("case 2", integrity, b"Jefe", message, &unhex(jefe), true);
        set.push_mac("case 6", integrity, key, hash_first, &unhex(long_key), true);
    }
    set.check();
}

/// Test cases 1, 4, 7 and 13 of "The Galois/Counter Mode of Operation" by McGrew and Viega, which NIST
/// SP 800-38D refers to.
#[test]
fn gcm_and_gmac() {
    let mut set = Set::new("GCM's specification");
    let zeros = [0; 32];
    for (bits, tag) in [
        (KeyBits::Aes128, "58e2fccefa7e3061367f1d57a4e7455a"),
        (KeyBits::Aes192, "cd33b28ac773f74ba00ed1f312572435"),
        (KeyBits::Aes256, "530f8afbc74536b9a963b4f1c4cb738b"),
    ] {
        for suite in [gcm(bits, IcvLen::Icv16), Suite::Gmac(bits)] {
            let key = &zeros[..bits.bytes()];
            aead(&mut set, suite, [key, &zeros[..12], b""], (b"", tag));
        }
    }
    let plain = unhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    );
    let key = unhex("feffe9928665731c6d6a8f9467308308");
    let nonce = unhex("cafebabefacedbaddecaf888");
    let aad = unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    aead(
        &mut set,
        gcm(KeyBits::Aes128, IcvLen::Icv16),
        [&key, &nonce, &aad],
        (
            &plain,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091
             5bc94fbc3221a5db94fae95ae7121a47",
        ),
    );
    set.check();
}

/// RFC 3610 section 8, vectors 1 to 4, and NIST SP 800-38C appendix C.3.
#[test]
fn ccm() {
    let mut set = Set::new("RFC 3610 and NIST SP 800-38C");
    let suite = Suite::Ccm { key_bits: KeyBits::Aes128, icv_len: IcvLen::Icv8 };
    let key = count(0xc0, 16);
    for (nonce, aad, len, sealed) in [
        (
            "00000003020100a0a1a2a3a4a5",
            8,
            23,
            "588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0",
        ),
        (
            "00000004030201a0a1a2a3a4a5",
            8,
            24,
            "72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916",
        ),
        (
            "00000005040302a0a1a2a3a4a5",
            8,
            25,
            "51b1e5f44a197d1da46b0f8e2d282ae871e838bb64da8596574adaa76fbd9fb0c5",
        ),
        (
            "00000006050403a0a1a2a3a4a5",
            12,
            19,
            "a28c6865939a9a79faaa5c4c2a9d4a91cdac8c96c861b9c9e61ef1",
        ),
    ] {
        let (nonce, plain) = (unhex(nonce), count(aad, len));
        aead(&mut set, suite, [&key, &nonce, &count(0, aad)], (&plain, sealed));
    }
    aead(
        &mut set,
        suite,
        [&count(0x40, 16), &count(0x10, 12), &count(0, 20)],
        (&count(0x20, 24), "e3b201a9f5b71a7a9b1ceaeccd97e70b6176aad9a4428aa5484392fbc1b09951"),
    );
    set.check();
}

/// RFC 7634 appendix A.
#[test]
fn chacha20_poly1305() {
    let mut set = Set::new("RFC 7634");
    let plain = unhex(
        "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec10
         0007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223
         2425262728292a2b2c2d2e2f303132333435363701020204",
    );
    let nonce = unhex("a0a1a2a31011121314151617");
    let aad = unhex("0102030400000005");
    aead(
        &mut set,
        Suite::ChaCha20Poly1305,
        [&count(0x80, 32), &nonce, &aad],
        (
            &plain,
            "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c6
             14ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3
             cbec163fac469b502773f6fb94e664da9165b82829f641e0
             76aaa8266b7fb0f7b11b369907e1ad43",
        ),
    );
    set.check();
}
