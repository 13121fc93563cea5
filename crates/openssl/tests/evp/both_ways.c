/* What one of the two providers seals, the other opens: TLS 1.2 records of every length, and messages in any parts
 * with tags set late. What was tampered with is refused, and wiped. Nonces of records are their numbers, and none
 * comes twice.
 */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s\n", __LINE__, #what);                                                                \
            ERR_print_errors_fp(stdout);                                                                             \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static unsigned long long state = 11;

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

/* AES-GCM, or of 0 bits ChaCha20-Poly1305. */
static EVP_CIPHER *cipher(unsigned bits, int convoy)
{
    char name[20];
    snprintf(name, sizeof name, bits ? "id-aes%u-GCM" : "ChaCha20-Poly1305", bits);
    return EVP_CIPHER_fetch(NULL, name, convoy ? "provider=convoy" : "provider=default");
}

static void header(unsigned char aad[13], unsigned long long number, unsigned len)
{
    for (int i = 0; i < 8; i++)
        aad[i] = (unsigned char)(number >> (56 - 8 * i));
    aad[8] = 23, aad[9] = 3, aad[10] = 3, aad[11] = (unsigned char)(len >> 8), aad[12] = (unsigned char)len;
}

static unsigned char text[20000], record[20000], kept[20000];

static void records(unsigned bits, int convoy_seals)
{
    EVP_CIPHER *seal = cipher(bits, convoy_seals), *open = cipher(bits, !convoy_seals);
    EVP_CIPHER_CTX *from = EVP_CIPHER_CTX_new(), *to = EVP_CIPHER_CTX_new();
    unsigned char key[32], fixed[12], aad[13];
    unsigned long long number = 5;
    unsigned front = bits ? 8 : 0, fixed_len = bits ? 4 : 12;

    CHECK(seal && open);
    fill(key, 32), fill(fixed, 12);
    CHECK(EVP_EncryptInit_ex(from, seal, NULL, key, NULL) && EVP_DecryptInit_ex(to, open, NULL, key, NULL));
    CHECK(EVP_CIPHER_CTX_ctrl(from, EVP_CTRL_AEAD_SET_IV_FIXED, (int)fixed_len, fixed) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(to, EVP_CTRL_AEAD_SET_IV_FIXED, (int)fixed_len, fixed) == 1);
    for (unsigned len = 0; len <= 16384; len += len < 300 ? 1 : 1 + below(200)) {
        int tampered = below(4) == 0, out = 0, whole = (int)(len + front + 16);

        fill(text, len);
        memset(record, 0, front), memcpy(record + front, text, len);
        header(aad, number, len + front);
        CHECK(EVP_CIPHER_CTX_ctrl(from, EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
        CHECK(EVP_CipherUpdate(from, record, &out, record, whole) == 1 && out == whole);
        if (convoy_seals)
            CHECK(memcmp(record, aad, front) == 0);
        header(aad, number++, len + front + 16);
        if (tampered) {
            memcpy(kept, record, whole);
            kept[below(whole)] ^= (unsigned char)(1 << below(8));
            CHECK(EVP_CIPHER_CTX_ctrl(to, EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
            CHECK(EVP_CipherUpdate(to, kept, &out, kept, whole) == 0);
            /* The default provider says nothing there of ChaCha20-Poly1305. */
            if (bits)
                CHECK(ERR_GET_REASON(ERR_peek_error()) == 102 && ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_PROV);
            ERR_clear_error();
            for (unsigned i = 0; i < len; i++)
                CHECK(kept[front + i] == 0);
        }
        CHECK(EVP_CIPHER_CTX_ctrl(to, EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
        CHECK(EVP_CipherUpdate(to, record, &out, record, whole) == 1 && out == (int)len);
        CHECK(memcmp(record + front, text, len) == 0);
    }
    EVP_CIPHER_CTX_free(from), EVP_CIPHER_CTX_free(to), EVP_CIPHER_free(seal), EVP_CIPHER_free(open);
}

/* A number that comes twice, or is lower than the last, gets the next nonce. */
static void numbers_once(void)
{
    static const unsigned long long given[] = {7, 7, 3, 20, 8, ~0ULL - 1, ~0ULL, 5};
    static const unsigned long long used[] = {7, 8, 9, 20, 21, ~0ULL - 1, ~0ULL};
    EVP_CIPHER *convoy = cipher(128, 1);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char aad[13], right[13];
    int out;

    fill(text, 32);
    CHECK(EVP_EncryptInit_ex(context, convoy, NULL, text, NULL));
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IV_FIXED, 4, text) == 1);
    for (int i = 0; i < 8; i++) {
        header(aad, given[i], 18);
        CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
        if (i == 7) {
            CHECK(EVP_CipherUpdate(context, record, &out, record, 34) == 0);
            CHECK(ERR_GET_REASON(ERR_peek_error()) == 126);
            ERR_clear_error();
            break;
        }
        CHECK(EVP_CipherUpdate(context, record, &out, record, 34) == 1);
        header(right, used[i], 0);
        CHECK(memcmp(record, right, 8) == 0);
    }
    EVP_CIPHER_CTX_free(context), EVP_CIPHER_free(convoy);
}

/* Additional data and text of any length in any parts, copies on the way. */
static void message(EVP_CIPHER_CTX **context, const unsigned char *aad, unsigned aad_len, unsigned char *data,
                    unsigned len)
{
    int out;
    for (unsigned at = 0, part; at < aad_len; at += part) {
        part = 1 + below(below(3) ? 20 : aad_len);
        if (part > aad_len - at)
            part = aad_len - at;
        CHECK(EVP_CipherUpdate(*context, NULL, &out, aad + at, (int)part));
    }
    for (unsigned at = 0, part; at < len; at += part) {
        part = 1 + below(below(3) ? 40 : len);
        if (part > len - at)
            part = len - at;
        CHECK(EVP_CipherUpdate(*context, data + at, &out, data + at, (int)part) && out == (int)part);
        if (below(8) == 0) {
            EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
            CHECK(EVP_CIPHER_CTX_copy(copy, *context));
            EVP_CIPHER_CTX_free(*context);
            *context = copy;
        }
    }
}

static void messages(unsigned bits, int convoy_seals)
{
    EVP_CIPHER *seal = cipher(bits, convoy_seals), *open = cipher(bits, !convoy_seals);
    EVP_CIPHER_CTX *from = EVP_CIPHER_CTX_new(), *to = EVP_CIPHER_CTX_new();
    unsigned char key[32], iv[16], aad[400], tag[16];
    int out;

    for (int round = 0; round < 300; round++) {
        unsigned len = below(round % 3 ? 700 : 20000), aad_len = below(round % 2 ? 40 : 400);
        int iv_len = below(3) || !bits ? 12 : 1 + (int)below(16), forged = below(4) == 0, early = below(2);

        fill(key, 32), fill(iv, 16), fill(aad, aad_len), fill(text, len);
        memcpy(record, text, len);
        CHECK(EVP_EncryptInit_ex(from, seal, NULL, NULL, NULL) && EVP_DecryptInit_ex(to, open, NULL, NULL, NULL));
        CHECK(EVP_CIPHER_CTX_ctrl(from, EVP_CTRL_AEAD_SET_IVLEN, iv_len, NULL) == 1);
        CHECK(EVP_CIPHER_CTX_ctrl(to, EVP_CTRL_AEAD_SET_IVLEN, iv_len, NULL) == 1);
        CHECK(EVP_EncryptInit_ex(from, NULL, NULL, key, NULL) && EVP_EncryptInit_ex(from, NULL, NULL, NULL, iv));
        CHECK(EVP_DecryptInit_ex(to, NULL, NULL, NULL, iv) && EVP_DecryptInit_ex(to, NULL, NULL, key, NULL));
        message(&from, aad, aad_len, record, len);
        CHECK(EVP_CipherFinal_ex(from, record + len, &out) && out == 0);
        CHECK(EVP_CIPHER_CTX_ctrl(from, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1);
        tag[below(16)] ^= forged ? 1 << below(8) : 0;
        if (early)
            CHECK(EVP_CIPHER_CTX_ctrl(to, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1);
        message(&to, aad, aad_len, record, len);
        if (!early)
            CHECK(EVP_CIPHER_CTX_ctrl(to, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1);
        CHECK(memcmp(record, text, len) == 0);
        CHECK(EVP_CipherFinal_ex(to, record + len, &out) == !forged);
    }
    EVP_CIPHER_CTX_free(from), EVP_CIPHER_CTX_free(to), EVP_CIPHER_free(seal), EVP_CIPHER_free(open);
}

/* Without an IV one is drawn, and can be asked for. */
static void drawn_iv(void)
{
    EVP_CIPHER *convoy = cipher(256, 1), *other = cipher(256, 0);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char key[32], iv[2][12], tag[16], byte[2] = {1, 1};
    int out;

    fill(key, 32);
    for (int i = 0; i < 2; i++) {
        CHECK(EVP_CIPHER_CTX_reset(context) && EVP_EncryptInit_ex(context, convoy, NULL, key, NULL));
        CHECK(EVP_EncryptUpdate(context, byte + i, &out, byte + i, 1));
        CHECK(EVP_EncryptFinal_ex(context, NULL, &out));
        CHECK(EVP_CIPHER_CTX_get_updated_iv(context, iv[i], 12));
    }
    CHECK(memcmp(iv[0], iv[1], 12) != 0);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1);
    CHECK(EVP_CIPHER_CTX_reset(context) && EVP_DecryptInit_ex(context, other, NULL, key, iv[1]));
    CHECK(EVP_DecryptUpdate(context, byte + 1, &out, byte + 1, 1) && byte[1] == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1);
    CHECK(EVP_DecryptFinal_ex(context, NULL, &out));
    EVP_CIPHER_CTX_free(context), EVP_CIPHER_free(convoy), EVP_CIPHER_free(other);
}

int main(void)
{
    EVP_CIPHER *chacha = cipher(0, 1);

    ERR_clear_error();
    for (unsigned bits = chacha ? 0 : 128; bits <= 256; bits += bits ? 64 : 128)
        for (int convoy_seals = 0; convoy_seals < 2; convoy_seals++) {
            records(bits, convoy_seals);
            messages(bits, convoy_seals);
        }
    numbers_once();
    drawn_iv();
    EVP_CIPHER_free(chacha);
    puts("records and messages agree both ways");
    return 0;
}
