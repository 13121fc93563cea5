/* Servers that call libssl in asynchronous jobs (SSL_MODE_ASYNC), and threads with little stack. A job of libcrypto's has
 * 32 KiB of stack from malloc(3); here a page lies below it that nobody may touch. Clients send good records and forged
 * ones: the first are read, the others refused, and the server goes on.
 */
#include <limits.h>
#include <openssl/async.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s: %s\n", __LINE__, suite, #what);                                                     \
            ERR_print_errors_fp(stdout);                                                                             \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define JOB 32768
#define GUARD 65536

static const char *suite = "none";
static unsigned char *jobs[64];
static size_t job_count;

static void *allocate(size_t len, const char *file, int line)
{
    (void)file, (void)line;
    if (len == JOB && job_count < sizeof jobs / sizeof *jobs) {
        unsigned char *place = mmap(NULL, GUARD + JOB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED || mprotect(place, GUARD, PROT_NONE))
            return NULL;
        return jobs[job_count++] = place + GUARD;
    }
    return malloc(len);
}

static void *reallocate(void *block, size_t len, const char *file, int line)
{
    (void)file, (void)line;
    return realloc(block, len);
}

static void give_back(void *block, const char *file, int line)
{
    (void)file, (void)line;
    for (size_t i = 0; i < job_count; i++)
        if (block == jobs[i])
            return;
    free(block);
}

/* Calls until no job is paused. */
static int go_on(SSL *ssl, int (*step)(SSL *))
{
    int done;

    do
        done = step(ssl);
    while (done <= 0 && SSL_get_error(ssl, done) == SSL_ERROR_WANT_ASYNC);
    return done;
}

static SSL_CTX *context(int is_server)
{
    SSL_CTX *made = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());

    CHECK(made);
    if (strncmp(suite, "TLS_", 4)) {
        CHECK(SSL_CTX_set_max_proto_version(made, TLS1_2_VERSION) && SSL_CTX_set_cipher_list(made, suite));
        /* Composites are for what is not negotiated. */
        SSL_CTX_set_options(made, SSL_OP_NO_ENCRYPT_THEN_MAC);
    } else {
        CHECK(SSL_CTX_set_ciphersuites(made, suite));
    }
    if (is_server) {
        CHECK(SSL_CTX_use_certificate_file(made, "cert.pem", SSL_FILETYPE_PEM) == 1);
        CHECK(SSL_CTX_use_PrivateKey_file(made, "key.pem", SSL_FILETYPE_PEM) == 1);
        SSL_CTX_set_mode(made, SSL_MODE_ASYNC);
    }
    return made;
}

/* A connection, good records, and a forged one. */
static void connection(size_t len)
{
    static unsigned char text[20000], read[20000];
    SSL_CTX *server_context = context(1), *client_context = context(0);
    SSL *server = SSL_new(server_context), *client = SSL_new(client_context);
    BIO *up = BIO_new(BIO_s_mem()), *down = BIO_new(BIO_s_mem());
    BUF_MEM *sent;
    int got = 0;

    CHECK(server && client && up && down && BIO_up_ref(up) && BIO_up_ref(down));
    SSL_set_bio(server, up, down), SSL_set_bio(client, down, up);
    SSL_set_accept_state(server), SSL_set_connect_state(client);
    for (int i = 0; i < 20 && !(SSL_is_init_finished(server) && SSL_is_init_finished(client)); i++)
        go_on(client, SSL_do_handshake), go_on(server, SSL_do_handshake);
    CHECK(SSL_is_init_finished(server));
    for (int is_forged = 0; is_forged < 2; is_forged++) {
        CHECK(SSL_write(client, text, (int)len) == (int)len);
        if (is_forged) {
            BIO_get_mem_ptr(up, &sent);
            sent->data[sent->length - 3] ^= 1;
        }
        do
            got = SSL_read(server, read, sizeof read);
        while (got <= 0 && SSL_get_error(server, got) == SSL_ERROR_WANT_ASYNC);
        CHECK(is_forged ? got < 0 && SSL_get_error(server, got) == SSL_ERROR_SSL : got == (int)len);
        ERR_clear_error();
    }
    SSL_free(server), SSL_free(client), SSL_CTX_free(server_context), SSL_CTX_free(client_context);
}

static EVP_CIPHER *cipher;

/* Opens a forged message; the result is whether it was refused. */
static void *forged(void *unused)
{
    unsigned char key[32] = {1}, iv[12] = {2}, text[64] = {3}, tag[16] = {4};
    int len, is_refused;
    EVP_CIPHER_CTX *made = EVP_CIPHER_CTX_new();

    is_refused = made && EVP_DecryptInit_ex(made, cipher, NULL, key, iv) == 1
                 && EVP_DecryptUpdate(made, text, &len, text, sizeof text) == 1
                 && EVP_CIPHER_CTX_ctrl(made, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1
                 && EVP_DecryptFinal_ex(made, text, &len) <= 0;
    EVP_CIPHER_CTX_free(made);
    return is_refused ? &cipher : unused;
}

int main(void)
{
    static const char *const SUITES[] = {"TLS_AES_128_GCM_SHA256",       "TLS_AES_256_GCM_SHA384",
                                         "TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256",
                                         "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA",
                                         "ECDHE-ECDSA-AES256-SHA",       "ECDHE-ECDSA-AES128-SHA256"};
    static const char *const CIPHERS[] = {"AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305"};

    if (!CRYPTO_set_mem_functions(allocate, reallocate, give_back) || !ASYNC_is_capable())
        return 77;
    for (size_t i = 0; i < sizeof SUITES / sizeof *SUITES; i++) {
        suite = SUITES[i];
        connection(1), connection(1000), connection(16384);
    }
    CHECK(job_count > 0);
    printf("%zu suites in %zu jobs\n", sizeof SUITES / sizeof *SUITES, job_count);
    for (size_t i = 0; i < sizeof CIPHERS / sizeof *CIPHERS; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        void *result = NULL;
        suite = CIPHERS[i];
        cipher = EVP_CIPHER_fetch(NULL, suite, NULL);
        CHECK(cipher && pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN > 16384 ? PTHREAD_STACK_MIN : 16384) == 0);
        CHECK(pthread_create(&thread, &attributes, forged, NULL) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == &cipher);
        EVP_CIPHER_free(cipher);
    }
    puts("forged messages were refused on threads of 16 KiB");
    return 0;
}
