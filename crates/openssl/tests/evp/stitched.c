/* Vectors of the composites of AES-CBC and HMAC on Convoy's provider, as OpenSSL's own test runs its: a record sealed and
 * opened, in place and elsewhere, and the IV for the next one.
 *
 *   stitched FILE      a vector a line: CIPHER VERSION KEY MACKEY IV AAD TEXT SEALED NEXTIV
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 2000

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("vector %d, line %d: %s\n", number, __LINE__, #what);                                             \
            ERR_print_errors_fp(stdout);                                                                             \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static int number;

static int parse(const char *hex, unsigned char *bytes)
{
    unsigned byte;
    int len = 0;
    for (; len < ROOM && sscanf(hex, "%2x", &byte) == 1; hex += 2)
        bytes[len++] = (unsigned char)byte;
    return len;
}

int main(int argc, char **argv)
{
    static unsigned char key[ROOM], mac[ROOM], iv[ROOM], aad[ROOM], text[ROOM], sealed[ROOM], next[ROOM], out[ROOM];
    static char line[20 * ROOM], hex[7][2 * ROOM + 1], name[40];
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;

    if (!file)
        return puts("stitched FILE"), 2;
    while (fgets(line, sizeof line, file)) {
        int version, len, made, end;
        number++;
        CHECK(sscanf(line, "%39s %i %4000s %4000s %4000s %4000s %4000s %4000s %4000s", name, &version, hex[0], hex[1],
                     hex[2], hex[3], hex[4], hex[5], hex[6]) == 9);
        int mac_len = (parse(hex[0], key), parse(hex[1], mac));
        parse(hex[2], iv), parse(hex[3], aad), parse(hex[6], next);
        len = parse(hex[4], text);
        CHECK(parse(hex[5], sealed) == len);
        EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, name, NULL);
        CHECK(cipher && !strcmp(OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(cipher)), "convoy"));
        for (int way = 0; way < 4; way++) {
            int seals = way & 1, in_place = way >> 1;
            unsigned char header[13], updated[16];
            const unsigned char *from = seals ? text : sealed;
            EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
            OSSL_PARAM versions[2] = {OSSL_PARAM_construct_int(OSSL_CIPHER_PARAM_TLS_VERSION, &version),
                                      OSSL_PARAM_construct_end()};
            OSSL_PARAM headers[2] = {
                OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TLS1_AAD, header, sizeof header),
                OSSL_PARAM_construct_end()};

            memcpy(header, aad, 13);
            CHECK(EVP_CipherInit_ex(context, cipher, NULL, key, iv, seals) == 1);
            CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_MAC_KEY, mac_len, mac) == 1);
            CHECK(EVP_CIPHER_CTX_set_params(context, versions) == 1);
            CHECK(EVP_CIPHER_CTX_set_params(context, headers) == 1);
            CHECK(EVP_CIPHER_CTX_set_padding(context, 0) == 1);
            memset(out, 0, sizeof out);
            if (in_place)
                memcpy(out, from, len);
            CHECK(EVP_CipherUpdate(context, out, &made, in_place ? out : from, len) == 1);
            CHECK(EVP_CipherFinal_ex(context, out + len, &end) == 1 && end == 0);
            if (seals) {
                CHECK(made == len && memcmp(out, sealed, len) == 0);
            } else {
                /* The text alone, behind an explicit IV. */
                int front = version >= 0x0302 ? 16 : 0;
                CHECK(made > 0 && made + front <= len && memcmp(out + front, text + front, made) == 0);
            }
            CHECK(EVP_CIPHER_CTX_get_updated_iv(context, updated, 16) == 1 && memcmp(updated, next, 16) == 0);
            EVP_CIPHER_CTX_free(context);
        }
        EVP_CIPHER_free(cipher);
    }
    fclose(file);
    printf("%d vectors, each sealed and opened in place and elsewhere\n", number);
    return 0;
}
