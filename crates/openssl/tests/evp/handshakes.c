/* Handshakes in memory, with data both ways: threads that share one SSL_CTX for each side and version. Memory must not
 * grow with their number.
 *
 *   handshakes NUMBER THREADS [watched]     key.pem and cert.pem lie in the working folder; of what watches memory itself,
 *                                           no growth is judged
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s\n", __LINE__, #what);                                                                \
            ERR_print_errors_fp(stdout);                                                                             \
            fflush(stdout);                                                                                          \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define VERSIONS 2
#define LEN 40000

static SSL_CTX *servers[VERSIONS], *clients[VERSIONS];
static long each;

static void pass(SSL *from, SSL *to, const unsigned char *data, unsigned char *got)
{
    int sent = 0, read = 0;
    while (read < LEN) {
        if (sent < LEN) {
            int part = SSL_write(from, data + sent, LEN - sent > 17000 ? 17000 : LEN - sent);
            if (part > 0)
                sent += part;
            else
                CHECK(SSL_get_error(from, part) == SSL_ERROR_WANT_WRITE);
        }
        for (int part; (part = SSL_read(to, got + read, LEN - read)) > 0;)
            read += part;
    }
    CHECK(memcmp(data, got, LEN) == 0);
}

static void *run(void *number)
{
    unsigned char *data = malloc(LEN), *got = malloc(LEN);
    for (int i = 0; i < LEN; i++)
        data[i] = (unsigned char)(i * 7 + (i >> 8) + (int)(long)number);
    for (long i = 0; i < each; i++) {
        int version = (int)((i + (long)number) % VERSIONS);
        SSL *server = SSL_new(servers[version]), *client = SSL_new(clients[version]);
        BIO *left, *right;
        CHECK(server && client && BIO_new_bio_pair(&left, 1 << 16, &right, 1 << 16));
        SSL_set_bio(server, left, left), SSL_set_bio(client, right, right);
        SSL_set_accept_state(server), SSL_set_connect_state(client);
        for (int turns = 0; !SSL_is_init_finished(server) || !SSL_is_init_finished(client); turns++) {
            CHECK(turns < 20);
            int a = SSL_do_handshake(client), b = SSL_do_handshake(server);
            CHECK(a == 1 || SSL_get_error(client, a) == SSL_ERROR_WANT_READ);
            CHECK(b == 1 || SSL_get_error(server, b) == SSL_ERROR_WANT_READ);
        }
        CHECK(strstr(SSL_get_cipher(client), version ? "TLS_AES" : "ECDHE") != NULL);
        pass(client, server, data, got), pass(server, client, data, got);
        SSL_free(server), SSL_free(client);
    }
    free(data), free(got);
    return NULL;
}

static long resident(void)
{
    long whole, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &whole, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
    long number = argc > 1 ? atol(argv[1]) : 300, threads = argc > 2 ? atol(argv[2]) : 4, sizes[3];
    pthread_t running[64];

    CHECK(threads > 0 && threads <= 64);
    for (int i = 0; i < VERSIONS; i++) {
        int version = i ? TLS1_3_VERSION : TLS1_2_VERSION;
        servers[i] = SSL_CTX_new(TLS_server_method()), clients[i] = SSL_CTX_new(TLS_client_method());
        CHECK(SSL_CTX_use_certificate_file(servers[i], "cert.pem", SSL_FILETYPE_PEM) == 1);
        CHECK(SSL_CTX_use_PrivateKey_file(servers[i], "key.pem", SSL_FILETYPE_PEM) == 1);
        CHECK(SSL_CTX_set_min_proto_version(clients[i], version) && SSL_CTX_set_max_proto_version(clients[i], version));
        CHECK(SSL_CTX_set_cipher_list(clients[i], "ECDHE-ECDSA-AES128-GCM-SHA256"));
        CHECK(SSL_CTX_set_ciphersuites(clients[i], "TLS_AES_256_GCM_SHA384"));
        SSL_CTX_set_session_cache_mode(servers[i], SSL_SESS_CACHE_OFF);
    }
    each = number / threads / 3;
    for (int third = 0; third < 3; third++) {
        for (long i = 0; i < threads; i++)
            CHECK(pthread_create(&running[i], NULL, run, (void *)i) == 0);
        for (long i = 0; i < threads; i++)
            CHECK(pthread_join(running[i], NULL) == 0);
        sizes[third] = resident();
    }
    printf("%ld handshakes in %ld threads; resident after each third: %ld %ld %ld KiB\n", each * threads * 3, threads,
           sizes[0], sizes[1], sizes[2]);
    for (int i = 0; i < VERSIONS; i++)
        SSL_CTX_free(servers[i]), SSL_CTX_free(clients[i]);
    /* A context that leaked in each handshake would be more. What watches memory has some of its own. */
    if (argc > 3)
        return 0;
    return sizes[2] - sizes[1] > 256 + each * threads / 2;
}
