/* Vectors of AEADs through EVP on Convoy's provider: each sealed and opened in one part and in many, in place and
 * elsewhere, the tag set before the text and behind it.
 *
 *   vectors FILE [ChaCha20-Poly1305]    AES-GCM if nothing is named; a vector a line: NAME KEY IV AAD TEXT SEALED TAG good|bad, in hexadecimal, "-" for nothing
 */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 70000

struct bytes {
    unsigned char at[ROOM];
    size_t len;
};

static char name[200];
static struct bytes key, iv, aad, text, sealed, tag;
static int is_good;

static void fail(const char *what, size_t part, int in_place)
{
    printf("%s, parts of %zu, %s: %s\n", name, part, in_place ? "in place" : "elsewhere", what);
    exit(1);
}

static void parse(const char *hex, struct bytes *bytes)
{
    unsigned byte;
    bytes->len = 0;
    for (; hex[0] != '-' && hex[0] && sscanf(hex, "%2x", &byte) == 1; hex += 2) {
        if (bytes->len == ROOM)
            fail("too long", 0, 0);
        bytes->at[bytes->len++] = (unsigned char)byte;
    }
}

/* Text or, without an output, additional data in parts. */
static int feed(EVP_CIPHER_CTX *context, unsigned char *out, const unsigned char *in, size_t len, size_t part)
{
    int made;
    for (size_t at = 0, now; at < len; at += now) {
        now = len - at < part ? len - at : part;
        if (EVP_CipherUpdate(context, out ? out + at : NULL, &made, in + at, (int)now) != 1)
            return 0;
        if (made != (int)now)
            fail("a length is wrong", part, out == in);
    }
    return 1;
}

/* 1: sealed or opened, and authentic. 0: not authentic. -1: the IV is refused. */
static int run(EVP_CIPHER *cipher, int seals, size_t part, int in_place, int tag_last, unsigned char *out,
               unsigned char *made)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    const struct bytes *input = seals ? &text : &sealed;
    int len, good;

    if (EVP_CipherInit_ex(context, cipher, NULL, NULL, NULL, seals) != 1)
        fail("no context", part, in_place);
    if (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IVLEN, (int)iv.len, NULL) != 1) {
        EVP_CIPHER_CTX_free(context);
        return -1;
    }
    if (EVP_CipherInit_ex(context, NULL, NULL, key.at, iv.at, seals) != 1)
        fail("key or IV refused", part, in_place);
    if (!seals && !tag_last && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, (int)tag.len, tag.at) != 1)
        fail("the tag is refused", part, in_place);
    if (in_place)
        memcpy(out, input->at, input->len);
    if (!feed(context, NULL, aad.at, aad.len, part) ||
        !feed(context, out, in_place ? out : input->at, input->len, part))
        fail("a part is refused", part, in_place);
    if (!seals && tag_last && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, (int)tag.len, tag.at) != 1)
        fail("the tag is refused", part, in_place);
    good = EVP_CipherFinal_ex(context, out + input->len, &len) == 1;
    if (seals && (!good || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, (int)tag.len, made) != 1))
        fail("no tag", part, in_place);
    EVP_CIPHER_CTX_free(context);
    return good;
}

int main(int argc, char **argv)
{
    static const size_t parts[] = {ROOM, 1, 7, 16, 33, 64, 257};
    static unsigned char out[ROOM + 32], made[16];
    static char line[10 * ROOM], hex[6][2 * ROOM], word[8];
    long vectors = 0, forged = 0, refused = 0, ways = 0;
    EVP_CIPHER *ciphers[3];
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;

    if (!file)
        return puts("vectors FILE"), 2;
    int count = argc > 2 ? 1 : 3;
    for (int i = 0; i < count; i++) {
        static const char *const names[] = {"AES-128-GCM", "AES-192-GCM", "AES-256-GCM"};
        ciphers[i] = EVP_CIPHER_fetch(NULL, argc > 2 ? argv[2] : names[i], NULL);
        if (!ciphers[i] || strcmp(OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(ciphers[i])), "convoy"))
            return puts("Convoy's provider is not loaded"), 2;
    }
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%199s %139999s %139999s %139999s %139999s %139999s %139999s %7s", name, hex[0], hex[1], hex[2],
                   hex[3], hex[4], hex[5], word) != 8)
            return printf("not a vector: %.60s\n", line), 2;
        parse(hex[0], &key), parse(hex[1], &iv), parse(hex[2], &aad);
        parse(hex[3], &text), parse(hex[4], &sealed), parse(hex[5], &tag);
        is_good = strcmp(word, "good") == 0;
        EVP_CIPHER *cipher = ciphers[argc > 2 ? 0 : key.len / 8 - 2];
        int has_iv = 1;
        for (size_t i = 0; i < sizeof parts / sizeof *parts && has_iv; i++) {
            for (int way = 0; way < 4 && has_iv; way++) {
                int in_place = way & 1, result;
                if (is_good && (has_iv = run(cipher, 1, parts[i], in_place, 0, out, made) >= 0) &&
                    (memcmp(out, sealed.at, sealed.len) || memcmp(made, tag.at, tag.len)))
                    fail("sealed to something else", parts[i], in_place);
                memset(out, 0, sealed.len);
                result = run(cipher, 0, parts[i], in_place, way >> 1, out, NULL);
                if (result < 0)
                    has_iv = 0;
                else if (result != is_good)
                    fail(is_good ? "taken for a forgery" : "a forgery is taken", parts[i], in_place);
                else if (is_good && memcmp(out, text.at, text.len))
                    fail("opened to something else", parts[i], in_place);
                ways++;
            }
        }
        vectors++, forged += !is_good;
        if (!has_iv) {
            printf("refused: %s, an IV of %zu bytes\n", name, iv.len);
            /* As by the default provider: it takes 1 to 128 bytes, of ChaCha20-Poly1305 12. */
            if (argc > 2 ? iv.len == 12 : iv.len > 0 && iv.len <= 128)
                fail("this IV must be taken", 0, 0);
            refused++;
        }
    }
    fclose(file);
    for (int i = 0; i < count; i++)
        EVP_CIPHER_free(ciphers[i]);
    printf("%ld vectors, %ld of them forgeries, %ld refused; %ld ways\n", vectors, forged, refused, ways);
    return 0;
}
