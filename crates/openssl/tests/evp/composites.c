/* AES-CBC with HMAC of Convoy's provider and of OpenSSL's own, led through the same calls of EVP: records of every
 * version and padding, good and tampered with, whole blocks outside TLS, parameters, copies. Results, lengths, bytes and
 * the error queue must be the same. Then several records at once: what one side seals, the other opens.
 *
 *   composites ROUNDS SEED [all]      all: prints every call
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "differences.h"

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("seed %llu, line %d: %s\n", seed, __LINE__, #what);                                               \
            ERR_print_errors_fp(stdout);                                                                             \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define ROOM 20000

static unsigned long long seed, state;

static unsigned below(unsigned most)
{
    state = state * 6364136223846793005ULL + 1;
    return most == 0 ? 0 : (unsigned)(state >> 33) % most;
}

static void fill(unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)below(256);
}

static const char *const CIPHERS[] = {"AES-128-CBC-HMAC-SHA1", "AES-256-CBC-HMAC-SHA1", "AES-128-CBC-HMAC-SHA256",
                                      "AES-256-CBC-HMAC-SHA256"};

/* What a call did. */
struct outcome {
    int result;
    long len;
    unsigned char bytes[ROOM];
    size_t count;
    unsigned long errors[8];
};

struct side {
    EVP_CIPHER *cipher;
    EVP_CIPHER_CTX *context;
    unsigned char text[ROOM];
    struct outcome did;
};

static struct side sides[2];
static unsigned which, mac_len, key_len;

/* Everything that is drawn for a call, once for both sides. */
static struct {
    unsigned what, len, size, kind, name, place, front, text;
    unsigned char bytes[ROOM];
} call;

static int seals, has_key, has_mac, has_aad, has_version;
static unsigned char key[32], mac_key[80], iv[16], aad[16];
static unsigned mac_key_len;

static const unsigned KINDS[] = {OSSL_PARAM_INTEGER, OSSL_PARAM_UNSIGNED_INTEGER, OSSL_PARAM_OCTET_STRING,
                                 OSSL_PARAM_UTF8_STRING, OSSL_PARAM_OCTET_PTR};
static const char *const NAMES[] = {"keylen", "ivlen", "iv", "updated-iv", "tlsaadpad", "tlsaad", "mackey",
                                    "tls-version", "tls1multi_maxsndfrag", "tls-mac-size", "unheard-of"};

enum { INIT, MAC_KEY, AAD, RECORD, BLOCKS, FINAL, COPY, VERSION, NUMBERS, ODD_SET, ODD_GET, WHATS };

static void take_errors(struct outcome *did)
{
    unsigned long error;
    unsigned at = 0;
    while ((error = ERR_get_error()) != 0) {
        /* What newer versions of libcrypto say of parameters is of their own functions. */
        if (ERR_GET_LIB(error) == ERR_LIB_CRYPTO)
            continue;
        if (OpenSSL_version_num() >= 0x30100000L)
            error = 1;
        if (at < 8)
            did->errors[at++] = error;
    }
}

static void one_param(struct side *side, int sets)
{
    struct outcome *did = &side->did;
    OSSL_PARAM params[2] = {{NAMES[call.name], KINDS[call.kind], sets ? call.bytes : did->bytes, call.size, 77},
                            OSSL_PARAM_END};
    if (!call.place)
        params[0].data = NULL;
    if (sets) {
        did->result = EVP_CIPHER_CTX_set_params(side->context, params);
    } else {
        memset(did->bytes, 0, 64);
        did->result = EVP_CIPHER_CTX_get_params(side->context, params);
        /* A pointer is each side's own. */
        did->count = KINDS[call.kind] == OSSL_PARAM_OCTET_PTR ? 0 : 64;
        did->len = did->result == 1 ? (long)params[0].return_size : 0;
    }
}

static void carry_out(struct side *side)
{
    struct outcome *did = &side->did;
    int len = 0;

    did->result = 0, did->len = 0, did->count = 0;
    memset(did->errors, 0, sizeof did->errors);
    ERR_clear_error();
    switch (call.what) {
    case INIT:
        did->result = EVP_CipherInit_ex(side->context, NULL, NULL, call.kind & 1 ? key : NULL,
                                        call.kind & 2 ? iv : NULL, seals);
        break;
    case MAC_KEY:
        did->result = EVP_CIPHER_CTX_ctrl(side->context, EVP_CTRL_AEAD_SET_MAC_KEY, (int)mac_key_len, mac_key);
        break;
    case AAD: {
        /* The default provider changes what it is given. */
        unsigned char copy[32];
        memcpy(copy, aad, 16);
        did->result = EVP_CIPHER_CTX_ctrl(side->context, EVP_CTRL_AEAD_TLS1_AAD, (int)call.size, copy);
        break;
    }
    case RECORD: case BLOCKS: {
        unsigned char *from = call.bytes;
        memset(side->text, 0, call.len);
        if (call.place)
            memcpy(from = side->text, call.bytes, call.len);
        if (call.kind) {
            did->result = EVP_CipherUpdate(side->context, side->text, &len, from, (int)call.len);
            did->len = len;
        } else {
            did->result = EVP_Cipher(side->context, side->text, from, call.len);
        }
        if (did->result > 0) {
            /* What is behind the text of a record that was opened is not the same. */
            unsigned skip = call.what == RECORD && !seals && differs("cbc-explicit-iv") ? call.front : 0;
            did->count = call.what == RECORD && !seals ? call.text : call.len;
            memcpy(did->bytes, side->text + skip, did->count);
        } else if (side == &sides[1] && call.what == RECORD && !seals && has_aad && differs("cbc-forged-record")) {
            for (unsigned i = call.front; i < call.len; i++)
                CHECK(side->text[i] == 0 || call.len < call.front);
        }
        break;
    }
    case FINAL:
        did->result = EVP_CipherFinal_ex(side->context, side->text, &len);
        did->len = len;
        break;
    case COPY: {
        EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
        did->result = EVP_CIPHER_CTX_copy(copy, side->context);
        EVP_CIPHER_CTX_free(side->context);
        side->context = copy;
        break;
    }
    case VERSION: {
        unsigned version = call.kind ? 0x0303 : 0x0301;
        OSSL_PARAM params[2] = {OSSL_PARAM_construct_uint("tls-version", &version), OSSL_PARAM_construct_end()};
        did->result = EVP_CIPHER_CTX_set_params(side->context, params);
        break;
    }
    case NUMBERS:
        did->result = EVP_CIPHER_CTX_get_iv_length(side->context);
        did->len = EVP_CIPHER_CTX_get_key_length(side->context);
        did->bytes[0] = (unsigned char)EVP_CIPHER_CTX_get_mode(side->context);
        did->bytes[1] = (unsigned char)EVP_CIPHER_CTX_get_block_size(side->context);
        memset(did->bytes + 2, 0, 16);
        if (EVP_CIPHER_CTX_get_updated_iv(side->context, did->bytes + 2, 16) != 1)
            did->result = -5;
        did->count = 18;
        break;
    case ODD_SET: case ODD_GET:
        one_param(side, call.what == ODD_SET);
        break;
    }
    take_errors(did);
}

static int same(void)
{
    const struct outcome *a = &sides[0].did, *b = &sides[1].did;
    return a->result == b->result && a->len == b->len && a->count == b->count
           && memcmp(a->bytes, b->bytes, a->count) == 0 && memcmp(a->errors, b->errors, sizeof a->errors) == 0;
}

/* Makes a record by other means: any padding that TLS allows, and now and then something wrong. */
static void make_record(void)
{
    static const unsigned MOST[] = {20, 70, 300, 1500, 16385};
    unsigned version = aad[9] << 8 | aad[10], padding, len, text = below(MOST[below(5)]);
    unsigned char plain[ROOM], header[13], *at = plain;
    const EVP_CIPHER *cipher = key_len == 16 ? EVP_aes_128_cbc() : EVP_aes_256_cbc();
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char chain[16];
    int out;

    call.front = version >= 0x0302 ? 16 : 0;
    call.text = text;
    memcpy(header, aad, 13);
    header[11] = (unsigned char)(text >> 8), header[12] = (unsigned char)text;
    fill(plain + 13, text);
    memcpy(plain, header, 13);
    HMAC(mac_len == 20 ? EVP_sha1() : EVP_sha256(), mac_key, (int)mac_key_len, plain, 13 + text, plain + 13 + text,
         NULL);
    at = plain + 13;
    len = text + mac_len;
    padding = 15 - len % 16 + 16 * below(below(2) ? 1 : 16);
    if (padding > 255)
        padding -= 16;
    memset(at + len, (int)padding, padding + 1);
    len += padding + 1;
    if (below(3) == 0)
        at[below(4) ? below(len) : len - 1 - below(padding + 2)] ^= (unsigned char)(1 << below(8));
    /* The IV of a chain is what the contexts hold. */
    CHECK(EVP_CIPHER_CTX_get_updated_iv(sides[0].context, chain, 16) == 1);
    if (call.front)
        fill(chain, 16);
    CHECK(EVP_EncryptInit_ex(context, cipher, NULL, key, chain) && EVP_CIPHER_CTX_set_padding(context, 0));
    memcpy(call.bytes, chain, 16);
    CHECK(EVP_EncryptUpdate(context, call.bytes + call.front, &out, at, (int)len) && out == (int)len);
    call.len = call.front + len;
    EVP_CIPHER_CTX_free(context);
}

/* Draws a call that both sides must answer alike. */
static void draw(void)
{
    for (;;) {
        call.what = below(WHATS);
        call.size = below(2) ? 8 : below(20);
        call.kind = below(5);
        call.name = below(sizeof NAMES / sizeof *NAMES);
        call.place = below(2);
        switch (call.what) {
        case INIT:
            call.kind = below(4);
            if (!(call.kind & 1) && !has_key && differs("cbc-direction"))
                break;
            fill(key, 32), fill(iv, 16);
            return;
        case MAC_KEY:
            if (!has_key || has_aad)
                break;
            mac_key_len = below(4) ? mac_len : below(80);
            fill(mac_key, 80);
            return;
        case AAD: {
            unsigned len = below(3) ? below(16385) : below(400);
            if (!has_mac && differs("cbc-no-mac-key"))
                break;
            call.size = below(8) ? 13 : below(16);
            /* What is refused changes nothing. */
            if (call.size != 13)
                return;
            fill(aad, 16);
            aad[9] = 3, aad[10] = (unsigned char)(1 + below(3));
            /* A version outside TLS 1.0 to 1.2. */
            if (below(30) == 0)
                aad[10] = (unsigned char)below(8);
            len += seals && aad[10] > 1 ? 16 : 0;
            if (below(20) == 0)
                len = below(20);
            aad[11] = (unsigned char)(len >> 8), aad[12] = (unsigned char)len;
            if (seals && len < 16 && aad[10] > 1 && differs("cbc-refused-aad"))
                break;
            if (seals && mac_len == 32 && aad[10] > 1 && (len & 0xff) < 16 && differs("cbc-carry"))
                break;
            return;
        }
        case RECORD: {
            unsigned text = aad[11] << 8 | aad[12];
            if (!has_aad || !has_mac)
                break;
            call.kind = below(3);
            if (!seals) {
                /* Lengths that a version takes away that is not that of the record. */
                make_record();
                if (has_version && (has_version == 2) != (call.front == 16))
                    break;
                if (below(10) == 0)
                    call.len = 16 * below(6);
                if (call.len < call.front + mac_len + 1 && differs("cbc-short-record"))
                    call.len = below(2) && mac_len == 20 ? 0 : call.len + 160;
                if (call.len == 0)
                    break;
                return;
            }
            fill(call.bytes, text);
            call.len = (text + mac_len + 16) / 16 * 16;
            if (below(10) == 0)
                call.len = below(3) ? call.len - 16 : below(200);
            return;
        }
        case BLOCKS:
            if (has_aad || (has_version && !seals && differs("cbc-version")))
                break;
            call.kind = below(3);
            call.len = below(8) ? 16 * below(60) : below(1000);
            call.front = 0;
            fill(call.bytes, call.len);
            return;
        case VERSION:
            if (!has_key || (has_version && differs("cbc-version")))
                break;
            call.kind = below(3);
            return;
        case ODD_SET: {
            const char *name = NAMES[call.name];
            memset(call.bytes, 0, 20);
            call.bytes[0] = below(2) ? (unsigned char)key_len : 3;
            /* These have calls of their own, and libcrypto reads from null. */
            if (KINDS[call.kind] == OSSL_PARAM_OCTET_STRING
                && (strcmp(name, "tlsaad") == 0 || strcmp(name, "mackey") == 0))
                break;
            if (strcmp(name, "tls-version") == 0 && KINDS[call.kind] <= OSSL_PARAM_UNSIGNED_INTEGER)
                break;
            if (!call.place && KINDS[call.kind] <= OSSL_PARAM_UNSIGNED_INTEGER)
                break;
            return;
        }
        case ODD_GET:
            /* Newer versions tell the length where older refuse. */
            if (!call.place)
                break;
            return;
        default:
            return;
        }
    }
}

static void note(void)
{
    int done = sides[0].did.result > 0;

    switch (call.what) {
    case INIT:
        if ((call.kind & 1) && done)
            has_key = 1, has_mac = has_aad = 0, has_version = has_version ? 2 : 0;
        break;
    case MAC_KEY:
        has_mac |= done;
        break;
    case AAD:
        has_aad |= done;
        break;
    case RECORD:
        if (call.len > 0 || call.kind == 0)
            has_aad = 0;
        break;
    case VERSION:
        if (done)
            has_version = call.kind ? 2 : 1;
        break;
    }
}

static void begin(unsigned cipher)
{
    which = cipher;
    mac_len = which < 2 ? 20 : 32;
    key_len = which % 2 ? 32 : 16;
    for (int i = 0; i < 2; i++) {
        sides[i].cipher = EVP_CIPHER_fetch(NULL, CIPHERS[which], i ? "provider=convoy" : "provider=default");
        sides[i].context = EVP_CIPHER_CTX_new();
        if (!sides[i].cipher) {
            printf("no cipher %s of provider %d\n", CIPHERS[which], i);
            exit(77);
        }
        CHECK(EVP_CipherInit_ex(sides[i].context, sides[i].cipher, NULL, NULL, NULL, seals) == 1);
    }
}

static void end(void)
{
    for (int i = 0; i < 2; i++) {
        EVP_CIPHER_CTX_free(sides[i].context);
        EVP_CIPHER_free(sides[i].cipher);
    }
}

static unsigned calls, failed;

static int round_of(int prints_all)
{
    unsigned count;

    state = seed;
    below(2);
    seals = (int)below(2);
    has_key = has_mac = has_aad = has_version = 0;
    begin(below(4));
    count = 1 + below(40);
    for (unsigned at = 0; at < count; at++) {
        draw();
        /* Most begin as one would. */
        if (at < 2 && below(10)) {
            call.what = at == 0 ? INIT : MAC_KEY;
            call.kind = 3;
            mac_key_len = mac_len;
            fill(key, 32), fill(iv, 16), fill(mac_key, 80);
        }
        if (call.what == MAC_KEY && !has_key)
            continue;
        carry_out(&sides[0]);
        carry_out(&sides[1]);
        calls++;
        failed += sides[0].did.result <= 0;
        if (prints_all || !same()) {
            printf("seed %llu: %s, call %u of kind %u, length %u, text %u, size %u, place %u, kind %u, %s, %s\n", seed,
                   CIPHERS[which], at, call.what, call.len, call.text, call.size, call.place, call.kind,
                   call.what >= ODD_SET ? NAMES[call.name] : "", seals ? "seals" : "opens");
            for (int i = 0; i < 2; i++)
                printf("  %s: result %d, length %ld, count %zu, errors %lx %lx, bytes %02x %02x %02x\n",
                       i ? "convoy " : "default", sides[i].did.result, sides[i].did.len, sides[i].did.count,
                       sides[i].did.errors[0], sides[i].did.errors[1], sides[i].did.bytes[0], sides[i].did.bytes[1],
                       sides[i].did.bytes[2]);
            if (!same())
                return 0;
        }
        note();
    }
    end();
    return 1;
}

/* Several records at once, of both sides; each is opened by the other. */
static unsigned several(void)
{
    static unsigned char text[140000], out[2][160000];
    unsigned opened = 0;

    for (unsigned cipher = 0; cipher < 4; cipher++) {
        EVP_CIPHER_CTX *opens[2];
        seals = 1;
        fill(key, 32), fill(iv, 16), fill(mac_key, 32);
        begin(cipher);
        for (int i = 0; i < 2; i++) {
            opens[i] = EVP_CIPHER_CTX_new();
            CHECK(EVP_EncryptInit_ex(sides[i].context, NULL, NULL, key, iv));
            CHECK(EVP_DecryptInit_ex(opens[i], sides[!i].cipher, NULL, key, iv));
            CHECK(EVP_CIPHER_CTX_ctrl(sides[i].context, EVP_CTRL_AEAD_SET_MAC_KEY, (int)mac_len, mac_key) == 1);
            CHECK(EVP_CIPHER_CTX_ctrl(opens[i], EVP_CTRL_AEAD_SET_MAC_KEY, (int)mac_len, mac_key) == 1);
            CHECK(EVP_CIPHER_CTX_ctrl(sides[i].context, EVP_CTRL_TLS1_1_MULTIBLOCK_MAX_BUFSIZE, 16384, NULL)
                  == (int)(5 + 16 + (16384 + mac_len + 16) / 16 * 16));
        }
        for (unsigned round = 0; round < 60; round++) {
            unsigned records = round % 2 ? 8 : 4, len = 4096 + below(records * 16384 - 4095), packed[2];
            unsigned long long number = (unsigned long long)below(1u << 30) << 2;
            if (round < 4)
                len = records * 16384;
            fill(text, len);
            fill(aad, 8);
            for (int i = 0; i < 8; i++)
                aad[i] = (unsigned char)(number >> (56 - 8 * i));
            aad[8] = 23, aad[9] = 3, aad[10] = (unsigned char)(2 + below(2)), aad[11] = aad[12] = 0;
            for (int i = 0; i < 2; i++) {
                EVP_CTRL_TLS1_1_MULTIBLOCK_PARAM param = {NULL, aad, len, records};
                packed[i] = (unsigned)EVP_CIPHER_CTX_ctrl(sides[i].context, EVP_CTRL_TLS1_1_MULTIBLOCK_AAD,
                                                          sizeof param, &param);
                CHECK(packed[i] > len && packed[i] < sizeof *out && param.interleave == records);
                memset(out[i], 0xee, packed[i] + 32);
                param.out = out[i], param.inp = text, param.len = len;
                CHECK(EVP_CIPHER_CTX_ctrl(sides[i].context, EVP_CTRL_TLS1_1_MULTIBLOCK_ENCRYPT, sizeof param, &param)
                      == (int)packed[i]);
                CHECK(packed[i] == packed[0]);
                for (int j = 0; j < 32; j++)
                    CHECK(out[i][packed[i] + (unsigned)j] == 0xee);
            }
            for (int i = 0; i < 2; i++) {
                unsigned at = 0, text_at = 0;
                for (unsigned record = 0; record < records; record++) {
                    unsigned char header[13], *here = out[i] + at;
                    unsigned sealed = here[3] << 8 | here[4], padding;
                    unsigned long long now = number + record;
                    CHECK(here[0] == 23 && here[1] == 3 && here[2] == aad[10]);
                    /* Both cut the text alike. */
                    CHECK(memcmp(here, out[0] + at, 5) == 0);
                    for (int j = 0; j < 8; j++)
                        header[j] = (unsigned char)(now >> (56 - 8 * j));
                    memcpy(header + 8, here, 3);
                    header[11] = here[3], header[12] = here[4];
                    CHECK(EVP_CIPHER_CTX_ctrl(opens[i], EVP_CTRL_AEAD_TLS1_AAD, 13, header) == (int)mac_len);
                    CHECK(EVP_Cipher(opens[i], here + 5, here + 5, sealed) == (int)sealed);
                    padding = here[5 + sealed - 1];
                    sealed -= 16 + mac_len + padding + 1;
                    CHECK(memcmp(here + 21, text + text_at, sealed) == 0);
                    at += 5 + 16 + sealed + mac_len + padding + 1, text_at += sealed;
                    opened++;
                }
                CHECK(at == packed[i] && text_at == len);
            }
        }
        for (int i = 0; i < 2; i++)
            EVP_CIPHER_CTX_free(opens[i]);
        end();
    }
    return opened;
}

/* What must not be done, at Convoy's side: more, or other, text than was announced, and text over the records. */
static void refused(void)
{
    unsigned char out[9000], text[9000];
    EVP_CTRL_TLS1_1_MULTIBLOCK_PARAM param = {NULL, aad, 4096, 4};

    seals = 1;
    begin(0);
    memset(aad, 0, 16), aad[9] = 3, aad[10] = 3, fill(text, sizeof text);
    CHECK(EVP_EncryptInit_ex(sides[1].context, NULL, NULL, key, iv));
    CHECK(EVP_CIPHER_CTX_ctrl(sides[1].context, EVP_CTRL_AEAD_SET_MAC_KEY, 20, mac_key) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(sides[1].context, EVP_CTRL_TLS1_1_MULTIBLOCK_ENCRYPT, sizeof param, &param) <= 0);
    CHECK(EVP_CIPHER_CTX_ctrl(sides[1].context, EVP_CTRL_TLS1_1_MULTIBLOCK_AAD, sizeof param, &param) > 4096);
    for (int i = 0; i < 4; i++) {
        param.out = i == 2 ? text + 4000 : out, param.inp = text;
        param.len = i == 0 ? 4097 : 4096, param.interleave = i == 1 ? 8 : 4;
        CHECK((EVP_CIPHER_CTX_ctrl(sides[1].context, EVP_CTRL_TLS1_1_MULTIBLOCK_ENCRYPT, sizeof param, &param) > 0)
              == (i == 3));
    }
    aad[10] = 1;
    param.inp = aad;
    CHECK(EVP_CIPHER_CTX_ctrl(sides[1].context, EVP_CTRL_TLS1_1_MULTIBLOCK_AAD, sizeof param, &param) <= 0);
    aad[10] = 3;
    param.len = 8 * 16384 + 8, param.interleave = 8;
    CHECK(differs("cbc-several"));
    CHECK(EVP_CIPHER_CTX_ctrl(sides[1].context, EVP_CTRL_TLS1_1_MULTIBLOCK_AAD, sizeof param, &param) <= 0);
    ERR_clear_error();
    end();
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long long first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned opened;

    read_differences();
    for (unsigned long i = 0; i < rounds; i++) {
        seed = first + i;
        if (!round_of(argc > 3))
            return 1;
    }
    opened = several();
    refused();
    printf("%u calls agree, of which %u failed alike; %u records of several opened\n", calls, failed, opened);
    if (unmet_differences("cbc-"))
        return 1;
    /* Both sorts must have been there. */
    return failed < calls / 20 || failed > calls / 10 * 9;
}
