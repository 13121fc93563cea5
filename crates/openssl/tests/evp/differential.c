/* Convoy's provider and OpenSSL's own, led through the same calls of EVP: random ones, good and bad, in any
 * order. Results, lengths, bytes and the error queue must be the same.
 *
 *   differential ROUNDS SEED [all]      all: prints every call
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "differences.h"

#define ROOM 40000

static unsigned long long state;

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

/* What a call did. */
struct outcome {
    int result;
    long len;
    unsigned char bytes[ROOM + 64];
    size_t count;
    unsigned long errors[8];
};

struct side {
    EVP_CIPHER *cipher;
    EVP_CIPHER_CTX *context;
    unsigned char text[ROOM + 64];
    struct outcome did;
};

static struct side sides[2];
static int prints_all, offers_chacha;

/* Everything that is drawn for a call, once for both sides. */
struct call {
    unsigned what, len, size, place, kind, with;
    unsigned char key[32], iv[160], bytes[ROOM];
};

static struct call call;

/* What is known of the contexts, so that calls are left out in which the two may differ. */
static int seals, has_iv, in_message, has_aad, has_no_tag, had_record;
static unsigned iv_len;

/* The same of ChaCha20-Poly1305: bytes of text that its next record is to have. */
static int is_chacha, has_key, has_fixed, has_text, has_tag;
static unsigned record_len;

static void take_errors(struct outcome *did)
{
    unsigned long error;
    unsigned at = 0;
    while ((error = ERR_get_error()) != 0) {
        /* What newer versions of libcrypto say of parameters is of their own functions. */
        if (ERR_GET_LIB(error) == ERR_LIB_CRYPTO)
            continue;
        /* They have finer reasons, too; that there is one must be the same. */
        if (OpenSSL_version_num() >= 0x30100000L)
            error = 1;
        if (at < 8)
            did->errors[at++] = error;
    }
}

static OSSL_PARAM wanted(const char *key, void *data, size_t size, unsigned kind)
{
    OSSL_PARAM param = {key, kind, data, size, OSSL_PARAM_UNMODIFIED};
    return param;
}

static void set(struct side *side, const char *key, void *data, size_t size, unsigned kind)
{
    OSSL_PARAM params[2] = {wanted(key, data, size, kind), OSSL_PARAM_END};
    side->did.result = EVP_CIPHER_CTX_set_params(side->context, params);
}

static void get(struct side *side, const char *key, void *data, size_t size, unsigned kind)
{
    OSSL_PARAM params[2] = {wanted(key, data, size, kind), OSSL_PARAM_END};
    side->did.result = EVP_CIPHER_CTX_get_params(side->context, params);
    side->did.len = (long)params[0].return_size;
}

static const unsigned KINDS[] = {OSSL_PARAM_INTEGER, OSSL_PARAM_UNSIGNED_INTEGER, OSSL_PARAM_OCTET_STRING,
                                 OSSL_PARAM_UTF8_STRING, OSSL_PARAM_OCTET_PTR};
static const char *const NAMES[] = {"keylen", "ivlen", "taglen", "iv", "updated-iv", "tag", "tlsaadpad",
                                    "tlsivgen", "tlsaad", "tlsivfixed", "tlsivinv", "unheard-of"};

enum { INIT, IVLEN, AAD, TEXT, FINAL, SET_TAG, GET_TAG, NUMBERS, GET_IV, COPY, FIXED, GENERATE, COUNTED, TLS_AAD,
       RECORD, ODD_SET, ODD_GET, CIPHER, WHATS };

static void carry_out(struct side *side)
{
    struct outcome *did = &side->did;
    EVP_CIPHER_CTX *context = side->context;
    unsigned char *out = call.place ? side->text : side->text + 16;
    int len = 0;

    did->result = 0;
    did->len = 0;
    did->count = 0;
    memset(did->errors, 0, sizeof did->errors);
    ERR_clear_error();
    switch (call.what) {
    case INIT:
        did->result = EVP_CipherInit_ex(context, NULL, NULL, call.with & 1 ? call.key : NULL,
                                        call.with & 2 ? call.iv : NULL, seals);
        break;
    case IVLEN:
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IVLEN, (int)call.size, NULL);
        break;
    case AAD:
        did->result = EVP_CipherUpdate(context, NULL, &len, call.bytes, (int)call.len);
        did->len = len;
        break;
    case TEXT:
        memcpy(side->text, call.bytes, call.len);
        if (!call.place)
            memset(out, 0x5a, call.len);
        did->result = EVP_CipherUpdate(context, out, &len, call.place ? side->text : call.bytes, (int)call.len);
        did->len = len;
        /* Of a call that is refused, too: it writes nothing. */
        memcpy(did->bytes, out, did->count = call.len);
        break;
    case CIPHER:
        /* As OpenSSH calls it: additional data, text, the end. */
        memcpy(side->text, call.bytes, call.len);
        did->result = call.kind == 0 ? EVP_Cipher(context, NULL, call.bytes, call.len)
                      : call.kind == 1 ? EVP_Cipher(context, side->text, side->text, call.len)
                                       : EVP_Cipher(context, NULL, NULL, 0);
        if (call.kind == 1 && did->result >= 0)
            memcpy(did->bytes, side->text, did->count = call.len);
        break;
    case FINAL:
        did->result = EVP_CipherFinal_ex(context, out, &len);
        did->len = len;
        break;
    case SET_TAG:
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, (int)call.size, call.bytes);
        break;
    case GET_TAG:
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, (int)call.size, did->bytes);
        if (did->result == 1)
            did->count = call.size;
        break;
    case NUMBERS:
        did->result = EVP_CIPHER_CTX_get_iv_length(context);
        did->len = EVP_CIPHER_CTX_get_key_length(context) * 1000 + EVP_CIPHER_CTX_get_tag_length(context);
        did->bytes[0] = (unsigned char)EVP_CIPHER_CTX_get_mode(context);
        did->bytes[1] = (unsigned char)EVP_CIPHER_CTX_get_block_size(context);
        did->count = 2;
        break;
    case GET_IV:
        memset(did->bytes, 0, 160);
        did->result = call.kind ? EVP_CIPHER_CTX_get_updated_iv(context, did->bytes, call.size)
                                : EVP_CIPHER_CTX_get_original_iv(context, did->bytes, call.size);
        did->count = did->result == 1 ? 160 : 0;
        break;
    case COPY: {
        EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
        did->result = EVP_CIPHER_CTX_copy(copy, context);
        EVP_CIPHER_CTX_free(context);
        side->context = copy;
        break;
    }
    case FIXED:
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IV_FIXED, (int)call.size, call.bytes);
        break;
    case GENERATE:
        memset(did->bytes, 0, 160);
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_IV_GEN, (int)call.size, did->bytes);
        did->count = did->result == 1 ? 160 : 0;
        break;
    case COUNTED:
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_IV_INV, (int)call.size, call.bytes);
        break;
    case TLS_AAD:
        did->result = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, (int)call.size, call.bytes);
        break;
    case RECORD:
        memcpy(side->text, call.bytes, call.len);
        if (is_chacha)
            did->result = EVP_CipherUpdate(context, side->text, &len, call.place ? side->text : call.bytes,
                                           (int)call.len);
        else
            did->result = EVP_CipherUpdate(context, call.place ? side->text : side->text + 8, &len, side->text,
                                           (int)call.len);
        did->len = len;
        /* Of one that is refused, too: it is wiped. */
        if (is_chacha && call.len == record_len + 16)
            memcpy(did->bytes, side->text, did->count = call.len);
        break;
    case ODD_SET:
        memset(side->text, 0, 64);
        memcpy(side->text, call.bytes, 20);
        set(side, NAMES[call.with], call.place ? side->text : NULL, call.size, KINDS[call.kind]);
        break;
    case ODD_GET:
        memset(did->bytes, 0, 160);
        get(side, NAMES[call.with], call.place ? did->bytes : NULL, call.size, KINDS[call.kind]);
        did->count = KINDS[call.kind] == OSSL_PARAM_OCTET_PTR ? 0 : 160;
        /* Whether a refused parameter tells its size depends on the version. */
        if (did->result != 1 && OpenSSL_version_num() >= 0x30100000L)
            did->len = 0;
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

/* Whether the default provider's EVP_Cipher ends messages of ChaCha20-Poly1305. */
static int ends_one_shots;

static void look_at_one_shots(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "ChaCha20-Poly1305", "provider=default");
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char bytes[48] = {1}, tag[16] = {0}, none[16] = {0};

    ends_one_shots = cipher && EVP_EncryptInit_ex(context, cipher, NULL, bytes, bytes) == 1
                     && EVP_Cipher(context, bytes, bytes, 16) == 16 && EVP_Cipher(context, NULL, NULL, 0) == 0
                     && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1 && memcmp(tag, none, 16);
    EVP_CIPHER_CTX_free(context), EVP_CIPHER_free(cipher);
    if (ends_one_shots)
        (void)differs("chacha-one-shot-end");
}

/* Whether a message of ChaCha20-Poly1305 can begin, or go on. */
static int can_go_on(void)
{
    if (has_aad && differs("chacha-record-alone"))
        return 0;
    return (has_key && has_iv) || !differs("chacha-missing");
}

/* Whether both sides must answer a call of ChaCha20-Poly1305 alike. */
static int suits_chacha(void)
{
    const char *name;

    switch (call.what) {
    case INIT:
        if (in_message && (call.with & 1) && differs("chacha-key-in-message"))
            call.with = 3;
        fill(call.key, 32), fill(call.iv, 16);
        return 1;
    case IVLEN:
        call.size = below(4) ? 12 : below(20);
        return 1;
    case AAD:
        if (has_text && differs("chacha-aad-behind-text"))
            return 0;
        return can_go_on();
    case TEXT:
        return can_go_on();
    case CIPHER:
        if (call.kind == 0 && has_text && differs("chacha-aad-behind-text"))
            return 0;
        if (call.kind != 2 && call.len == 0 && differs("chacha-empty-text"))
            return 0;
        if (call.kind == 2 && !ends_one_shots && differs("chacha-one-shot-end"))
            return 0;
        if (call.kind == 2 && !seals && !has_tag && differs("chacha-short-tag"))
            return 0;
        return can_go_on();
    case FINAL:
        if (!seals && !has_tag && differs("chacha-short-tag"))
            return 0;
        return can_go_on();
    case SET_TAG:
        return call.size == 0 || call.size >= 4 || !differs("chacha-short-tag");
    case FIXED:
        call.size = below(3) ? 12 : below(14);
        if (has_aad && differs("chacha-record-alone"))
            return 0;
        return !in_message || !differs("chacha-key-in-message");
    case TLS_AAD:
        call.size = below(6) ? 13 : below(16);
        call.bytes[11] &= 7;
        return has_fixed;
    case RECORD:
        if (below(4))
            call.len = record_len + 16;
        return has_key && has_aad;
    case NUMBERS: case GET_TAG: case COPY:
        return 1;
    case ODD_SET: case ODD_GET:
        call.with = below(12), call.kind = below(5);
        name = NAMES[call.with];
        if (call.what == ODD_SET) {
            memset(call.bytes + 1, 0, 7);
            call.bytes[0] = strcmp(name, "keylen") ? 12 : 32;
            call.size = below(2) ? 8 : below(20);
            /* Of these, good ones have their own calls; libcrypto reads from null in others. */
            if (KINDS[call.kind] == OSSL_PARAM_OCTET_STRING || !call.place)
                return 0;
            return 1;
        }
        call.size = below(2) ? 8 : below(20);
        return call.place;
    default:
        return 0;
    }
}

/* Draws a call that both sides must answer alike. */
static void draw(void)
{
    static const unsigned IV_LENS[] = {12, 12, 12, 12, 1, 8, 13, 16};
    static const unsigned MOST[] = {20, 100, 600, 5000, ROOM};

    for (;;) {
        call.what = below(WHATS);
        call.with = below(4);
        call.place = below(2);
        call.kind = below(3);
        call.size = below(18);
        call.len = below(MOST[below(5)]);
        fill(call.bytes, call.len < 64 ? 64 : call.len);
        if (below(12) == 0)
            call.len = 0;
        if (is_chacha) {
            if (suits_chacha())
                return;
            continue;
        }
        switch (call.what) {
        case INIT:
            if (in_message && (call.with & 1) && differs("gcm-key-in-message"))
                call.with = 3;
            fill(call.key, 32);
            fill(call.iv, 16);
            return;
        case SET_TAG:
            if (call.size == 0 || call.size >= 4 || !differs("gcm-short-tag"))
                return;
            break;
        case NUMBERS:
            if (!had_record || !differs("gcm-record-tag"))
                return;
            break;
        case IVLEN:
            call.size = below(8) ? IV_LENS[below(8)] : below(300);
            /* EVP itself has room for 16 bytes. */
            if (call.size <= 16 || call.size > 128)
                return;
            break;
        case TEXT: case FINAL: case AAD: case CIPHER:
            if (had_record && (call.what == FINAL || call.what == CIPHER) && differs("gcm-record-tag"))
                break;
            if (call.what == CIPHER && call.kind == 1 && call.len == 0 && differs("gcm-empty-text"))
                break;
            /* Without an IV, one is drawn; what is expected to be a record is none. */
            if ((has_iv || !seals) && !has_aad)
                return;
            break;
        case GET_TAG:
            if (!has_no_tag || !differs("gcm-refused-tag"))
                return;
            break;
        case GET_IV:
            call.size = below(20);
            call.kind = below(2);
            if (has_iv)
                return;
            break;
        case FIXED:
            call.size = below(3) ? (unsigned)-1 : below(14);
            /* When sealing, the rest is random unless all is given. OpenSSL 3.0 takes what is longer than the IV. */
            if ((call.size == (unsigned)-1 || (!seals && call.size <= iv_len)) && !has_aad)
                return;
            break;
        case GENERATE:
            call.size = below(20);
            if (iv_len < 8 && differs("gcm-short-iv"))
                break;
            if (!has_aad)
                return;
            break;
        case COUNTED:
            call.size = below(9);
            if (call.size > iv_len && differs("gcm-short-iv"))
                break;
            if (!has_aad)
                return;
            break;
        case TLS_AAD:
            call.size = below(4) ? 13 : below(16);
            if (!seals || !differs("gcm-explicit-nonce"))
                return;
            break;
        case RECORD:
            if (has_aad && (iv_len == 12 || !differs("gcm-record-iv")))
                return;
            break;
        case ODD_SET: case ODD_GET: {
            const char *name;
            call.with = below(12);
            call.kind = below(5);
            name = NAMES[call.with];
            if (call.what == ODD_SET) {
                memset(call.bytes + 1, 0, 7);
                call.bytes[0] = 12;
                call.size = below(2) ? 8 : below(20);
                /* Of these, good ones have their own calls. */
                if (KINDS[call.kind] == OSSL_PARAM_OCTET_STRING && call.place)
                    break;
                /* Libcrypto reads from null here. */
                if (!call.place && (strncmp(name, "tls", 3) == 0 || strcmp(name, "ivlen") == 0))
                    break;
                /* A change of length would have to be kept in mind. */
                if (strcmp(name, "ivlen") == 0 && call.size > 8)
                    break;
                return;
            }
            call.size = below(2) ? 8 : below(20);
            if ((strcmp(name, "tag") == 0 && has_no_tag) || (strcmp(name, "taglen") == 0 && had_record))
                break;
            if (strcmp(name, "tlsivgen") == 0 && KINDS[call.kind] == OSSL_PARAM_OCTET_STRING)
                break;
            if ((strcmp(name, "iv") == 0 || strcmp(name, "updated-iv") == 0) && !has_iv)
                break;
            /* Newer versions tell the length where older refuse, and what they write into a tag of no bytes. */
            if (!call.place)
                break;
            return;
        }
        default:
            return;
        }
    }
}

static void note_chacha(void)
{
    int done = sides[0].did.result > 0 || (call.what == CIPHER && sides[0].did.result == 0);

    switch (call.what) {
    case INIT:
        if (call.with & 1)
            has_key = 1, has_aad = 0;
        if (call.with & 2)
            has_iv = has_fixed = 1, in_message = has_text = has_aad = 0;
        break;
    case AAD:
        in_message |= call.len > 0;
        break;
    case TEXT:
        in_message |= call.len > 0, has_text |= call.len > 0;
        break;
    case CIPHER:
        if (call.kind == 2)
            has_iv = in_message = has_text = 0;
        else
            in_message |= call.len > 0, has_text |= call.len > 0 && call.kind;
        break;
    case FINAL:
        has_iv = in_message = has_text = 0;
        break;
    case SET_TAG:
        has_tag |= done;
        break;
    case FIXED:
        if (done)
            has_iv = has_fixed = 1, in_message = has_text = 0;
        break;
    case TLS_AAD:
        if (done) {
            has_aad = 1, has_iv = in_message = has_text = 0;
            record_len = (unsigned)(call.bytes[11] << 8 | call.bytes[12]) - (seals ? 0 : 16);
        }
        break;
    case RECORD:
        if (call.len == record_len + 16)
            has_aad = 0;
        break;
    default:
        break;
    }
}

static void note(void)
{
    int done = sides[0].did.result > 0 || (call.what == CIPHER && sides[0].did.result == 0);

    if (is_chacha) {
        note_chacha();
        return;
    }

    switch (call.what) {
    case INIT:
        if (call.with & 2)
            has_iv = 1, in_message = 0;
        break;
    case TEXT: case AAD: case CIPHER: case GENERATE: case COUNTED:
        in_message |= done;
        break;
    case FIXED:
        if (done)
            has_iv = 1;
        break;
    case IVLEN:
        if (done)
            iv_len = call.size;
        break;
    case ODD_SET:
        if (done && strcmp(NAMES[call.with], "ivlen") == 0)
            iv_len = 12;
        break;
    case FINAL:
        in_message = 0;
        if (done)
            has_no_tag = 0;
        break;
    case SET_TAG:
        has_no_tag = seals;
        if (done)
            had_record = 0;
        break;
    case TLS_AAD:
        has_aad |= done;
        break;
    case RECORD:
        if (call.len > 0)
            has_aad = 0, had_record = 1;
        break;
    default:
        break;
    }
}

static int round_of(unsigned long long seed, unsigned *calls, unsigned *failed)
{
    unsigned bits, count;
    char name[20];

    state = seed;
    bits = 128 + 64 * below(3);
    is_chacha = offers_chacha && below(4) == 0;
    snprintf(name, sizeof name, is_chacha ? "ChaCha20-Poly1305" : "AES-%u-GCM", bits);
    has_key = has_fixed = has_text = has_tag = 0;
    seals = (int)below(2);
    has_iv = in_message = has_aad = has_no_tag = had_record = 0;
    iv_len = 12;
    for (int i = 0; i < 2; i++) {
        sides[i].cipher = EVP_CIPHER_fetch(NULL, name, i ? "provider=convoy" : "provider=default");
        sides[i].context = EVP_CIPHER_CTX_new();
        if (!sides[i].cipher || EVP_CipherInit_ex(sides[i].context, sides[i].cipher, NULL, NULL, NULL, seals) != 1) {
            printf("no cipher %s\n", name);
            return 0;
        }
    }
    count = 1 + below(30);
    for (unsigned at = 0; at < count; at++) {
        draw();
        /* Most begin as one would. */
        if (at == 0 && below(10)) {
            call.what = INIT, call.with = 3;
            fill(call.key, 32), fill(call.iv, 16);
        }
        carry_out(&sides[0]);
        carry_out(&sides[1]);
        *calls += 1;
        *failed += sides[0].did.result <= 0;
        if (prints_all || !same()) {
            printf("seed %llu: call %u of kind %u, length %u, size %d, place %u, kind %u, with %u, %s, %s\n", seed, at,
                   call.what, call.len, (int)call.size, call.place, call.kind, call.with,
                   call.what >= ODD_SET && call.what <= ODD_GET ? NAMES[call.with] : "", seals ? "seals" : "opens");
            for (int i = 0; i < 2; i++)
                printf("  %s: result %d, length %ld, errors %lx %lx %lx, bytes %02x %02x %02x\n",
                       i ? "convoy " : "default", sides[i].did.result, sides[i].did.len, sides[i].did.errors[0],
                       sides[i].did.errors[1], sides[i].did.errors[2], sides[i].did.bytes[0], sides[i].did.bytes[1],
                       sides[i].did.bytes[2]);
            if (!same())
                return 0;
        }
        if (!seals && sides[0].did.result <= 0 && (call.what == FINAL || (call.what == CIPHER && call.kind == 2))
            && differs(is_chacha ? "chacha-missing" : "gcm-after-forgery"))
            break;
        if (call.what == TLS_AAD && sides[0].did.result <= 0 && !is_chacha && differs("gcm-refused-aad"))
            break;
        note();
    }
    for (int i = 0; i < 2; i++) {
        EVP_CIPHER_CTX_free(sides[i].context);
        EVP_CIPHER_free(sides[i].cipher);
    }
    return 1;
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long long seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned calls = 0, failed = 0;

    EVP_CIPHER *chacha = EVP_CIPHER_fetch(NULL, "ChaCha20-Poly1305", "provider=convoy");

    read_differences();
    look_at_one_shots();
    prints_all = argc > 3;
    offers_chacha = chacha != NULL;
    EVP_CIPHER_free(chacha);
    ERR_clear_error();
    for (unsigned long i = 0; i < rounds; i++)
        if (!round_of(seed + i, &calls, &failed))
            return 1;
    printf("%u calls agree, of which %u failed alike\n", calls, failed);
    if (unmet_differences("gcm-") || (offers_chacha && unmet_differences("chacha-")))
        return 1;
    /* Both sorts must have been there. */
    return failed < calls / 10 || failed > calls / 10 * 9;
}
