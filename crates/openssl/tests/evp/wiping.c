/* What Convoy's provider leaves in memory that it gives back: this program's own free() looks at every block. The key,
 * the key of the hash, the last round key and keystream are looked for, and must not be found.
 */
/* AES on single blocks is plain enough to tell what is looked for. */
#define OPENSSL_API_COMPAT 0x10100000L
#include <malloc.h>
#include <openssl/aes.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s\n", __LINE__, #what);                                                                \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define SECRETS 12

extern void __libc_free(void *block);

/* Halves of 16 bytes, so that a schedule in another order of blocks is seen as well. */
static unsigned char secrets[SECRETS][8];
static int known, is_watching;
static long blocks, found[SECRETS];

void free(void *block)
{
    if (block && is_watching) {
        size_t len = malloc_usable_size(block);
        blocks++;
        for (int i = 0; i < known; i++)
            for (size_t at = 0; at + 8 <= len; at++)
                if (!memcmp((char *)block + at, secrets[i], 8)) {
                    found[i]++;
                    break;
                }
    }
    __libc_free(block);
}

static void look_for(const unsigned char *sixteen)
{
    CHECK(known + 2 <= SECRETS);
    memcpy(secrets[known++], sixteen, 8);
    memcpy(secrets[known++], sixteen + 8, 8);
}

/* Compilers leave out what is written to blocks that are freed next. */
static void (*volatile give_back)(void *) = free;

static unsigned char key[32], iv[12], text[4096], fixed[12];

/* A context with the key, that has got so far. */
static EVP_CIPHER_CTX *context(EVP_CIPHER *cipher, int seals, size_t len)
{
    EVP_CIPHER_CTX *made = EVP_CIPHER_CTX_new();
    int n;
    CHECK(EVP_CipherInit_ex(made, cipher, NULL, key, len ? iv : NULL, seals) == 1);
    if (len) {
        memset(text, 0, sizeof text);
        CHECK(EVP_CipherUpdate(made, NULL, &n, (const unsigned char *)"header", 6) == 1);
        CHECK(EVP_CipherUpdate(made, text, &n, text, (int)len) == 1);
    }
    return made;
}

static void record(EVP_CIPHER_CTX *context, int fixed_len)
{
    unsigned char aad[13] = {0, 0, 0, 0, 0, 0, 0, 1, 23, 3, 3, 0, 108}, bytes[124] = {0};
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_IV_FIXED, fixed_len, fixed) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_TLS1_AAD, 13, aad) == 16);
    CHECK(EVP_Cipher(context, bytes, bytes, 124) > 0);
}

/* Contexts of a cipher come and go, and nothing that is looked for may be found. Gives how many contexts there were. */
static unsigned long come_and_go(EVP_CIPHER *cipher, int fixed_len)
{
    unsigned long contexts = 0;

    blocks = 0;
    is_watching = 1;
    /* It would be seen. */
    for (int i = 0; i < known; i++) {
        unsigned char *held = malloc(100);
        memset(held, 1, 100), memcpy(held + 51, secrets[i], 8);
        give_back(held);
        CHECK(found[i] == 1);
        found[i] = 0;
    }

    for (int seals = 0; seals < 2; seals++) {
        static const size_t lens[] = {0, 40, 64, 1000, 4096};
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            EVP_CIPHER_CTX *one = context(cipher, seals, lens[i]), *copy = EVP_CIPHER_CTX_new();
            int n, ends = lens[i] == 64;
            CHECK(EVP_CIPHER_CTX_copy(copy, one) == 1);
            if (lens[i] == 40)
                CHECK(EVP_CipherUpdate(one, text, &n, text, 1) == 1);
            if (ends)
                EVP_CipherFinal_ex(one, text, &n);
            if (seals && !lens[i])
                record(one, fixed_len);
            EVP_CIPHER_CTX_free(one), EVP_CIPHER_CTX_free(copy);
            contexts += 2;
        }
        /* Another key in the place of the first. */
        EVP_CIPHER_CTX *one = context(cipher, seals, 40);
        unsigned char other[32] = {1};
        CHECK(EVP_CipherInit_ex(one, NULL, NULL, other, iv, seals) == 1);
        EVP_CIPHER_CTX_free(one);
        contexts++;
    }
    is_watching = 0;
    for (int i = 0; i < known; i++)
        if (found[i])
            printf("secret %d was left %ld times\n", i, found[i]);
    printf("%s: %lu contexts, %ld blocks given back\n", EVP_CIPHER_get0_name(cipher), contexts, blocks);
    for (int i = 0; i < known; i++)
        CHECK(found[i] == 0);
    return contexts;
}

/* The key, the end of the MAC's, and keystream of the first block of text, of which a part is used. */
static void chacha(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "ChaCha20-Poly1305", "provider=convoy");
    EVP_CIPHER *plain = EVP_CIPHER_fetch(NULL, "ChaCha20", "provider=default");
    EVP_CIPHER_CTX *made = EVP_CIPHER_CTX_new();
    unsigned char stream[128] = {0}, counter[16] = {0};
    int n;

    ERR_clear_error();
    if (cipher && plain) {
        memcpy(counter + 4, iv, 12);
        CHECK(EVP_EncryptInit_ex(made, plain, NULL, key, counter) == 1);
        CHECK(EVP_EncryptUpdate(made, stream, &n, stream, sizeof stream) == 1);
        known = 0;
        look_for(key), look_for(key + 16), look_for(stream + 16), look_for(stream + 64 + 48);
        /* A context has blocks for itself and its key. */
        CHECK(come_and_go(cipher, 12) * 2 < (unsigned long)blocks);
    }
    EVP_CIPHER_CTX_free(made), EVP_CIPHER_free(cipher), EVP_CIPHER_free(plain);
}

int main(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    unsigned char block[16] = {0}, counter[16] = {0}, reversed[16];
    AES_KEY schedule;

    CHECK(cipher && !strcmp(OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(cipher)), "convoy"));
    for (int i = 0; i < 32; i++)
        key[i] = (unsigned char)(0x91 + 7 * i);
    memset(iv, 0x3c, sizeof iv);
    look_for(key);
    CHECK(AES_set_encrypt_key(key, 128, &schedule) == 0);
    AES_encrypt(block, block, &schedule);
    /* The key of the hash is kept as its powers, the first of them with its bytes reversed, or doubled: those that are
     * not the plain one are left to the crypto library's own test. */
    for (int i = 0; i < 16; i++)
        reversed[i] = block[15 - i];
    look_for(block), look_for(reversed);
    /* Keystream of the third block of text, of which half is used. */
    memcpy(counter, iv, 12), counter[15] = 4;
    AES_encrypt(counter, counter, &schedule);
    CHECK(known == 6);
    memcpy(secrets[known++], counter + 8, 8);
    OPENSSL_cleanse(&schedule, sizeof schedule);

    /* A context has blocks for itself, its key and its tables. */
    CHECK(come_and_go(cipher, 4) * 3 < (unsigned long)blocks);
    EVP_CIPHER_free(cipher);
    chacha();
    return 0;
}
