/* Processes that fork in the middle: of a message, of a connection, and while threads encrypt.
 *
 *   forks       key.pem and cert.pem lie in the working folder
 */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s\n", __LINE__, #what);                                                                \
            ERR_print_errors_fp(stdout);                                                                             \
            fflush(stdout);                                                                                          \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

#define LEN 300000

static unsigned char data[LEN], got[LEN];

static void ends_well(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Text and tag of a message, the second half of which comes after a fork. */
static void message(const char *properties, int forks, unsigned char out[1016])
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", properties);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char key[32] = {7}, iv[12] = {9}, made[1016];
    int n, ends[2] = {-1, -1};
    pid_t child = 0;

    CHECK(cipher && EVP_EncryptInit_ex(context, cipher, NULL, key, iv) == 1);
    CHECK(EVP_EncryptUpdate(context, out, &n, data, 501) == 1 && n == 501);
    CHECK(pipe(ends) == 0 && (!forks || (child = fork()) >= 0));
    CHECK(EVP_EncryptUpdate(context, out + 501, &n, data + 501, 499) == 1 && n == 499);
    CHECK(EVP_EncryptFinal_ex(context, out + 1000, &n) == 1);
    CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, out + 1000) == 1);
    EVP_CIPHER_CTX_free(context), EVP_CIPHER_free(cipher);
    if (forks && !child)
        _exit(write(ends[1], out, 1016) != 1016);
    if (forks) {
        CHECK(read(ends[0], made, 1016) == 1016 && !memcmp(made, out, 1016));
        ends_well(child);
    }
    close(ends[0]), close(ends[1]);
}

static void send_all(SSL *to, int len)
{
    for (int at = 0; at < len;) {
        int part = SSL_write(to, data + at, len - at > 9000 ? 9000 : len - at);
        CHECK(part > 0);
        at += part;
    }
}

static void receive_all(SSL *from, int len)
{
    for (int at = 0; at < len;) {
        int part = SSL_read(from, got + at, len - at);
        CHECK(part > 0);
        at += part;
    }
    CHECK(!memcmp(data, got, (size_t)len));
}

/* A server that hands a connection on to a child, as those do that have a process for each. */
static void connection(int version)
{
    int ends[2];
    pid_t client, child;
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *ssl;

    CHECK(context && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(SSL_CTX_set_min_proto_version(context, version) && SSL_CTX_set_max_proto_version(context, version));
    CHECK(SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-GCM-SHA256"));
    CHECK(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256"));
    CHECK(SSL_CTX_use_certificate_file(context, "cert.pem", SSL_FILETYPE_PEM) == 1);
    CHECK(SSL_CTX_use_PrivateKey_file(context, "key.pem", SSL_FILETYPE_PEM) == 1);
    CHECK((client = fork()) >= 0);
    CHECK((ssl = SSL_new(context)) && SSL_set_fd(ssl, ends[client == 0]) == 1);
    close(ends[client != 0]);
    if (client == 0) {
        CHECK(SSL_connect(ssl) == 1);
        send_all(ssl, 1000);
        receive_all(ssl, 40000);
        receive_all(ssl, LEN);
        send_all(ssl, LEN);
        _exit(0);
    }
    CHECK(SSL_accept(ssl) == 1);
    receive_all(ssl, 1000);
    send_all(ssl, 40000);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        send_all(ssl, LEN);
        receive_all(ssl, LEN);
        _exit(0);
    }
    SSL_set_quiet_shutdown(ssl, 1);
    close(ends[0]), SSL_free(ssl), SSL_CTX_free(context);
    ends_well(child), ends_well(client);
}

static volatile int stops;

static void *encrypt(void *cipher)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char key[16] = {1}, iv[12] = {2}, out[1000];
    int n;
    for (long i = 0; !stops; i++) {
        iv[0] = (unsigned char)i;
        CHECK(EVP_EncryptInit_ex(context, i ? NULL : cipher, NULL, i % 100 ? NULL : key, iv) == 1);
        CHECK(EVP_EncryptUpdate(context, out, &n, data, 1000) == 1 && EVP_EncryptFinal_ex(context, out, &n) == 1);
    }
    EVP_CIPHER_CTX_free(context);
    return NULL;
}

/* The child finds its contexts as they were, whatever other threads were at. */
static void under_threads(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    pthread_t threads[3];
    unsigned char expected[1016], made[1016];

    message(NULL, 0, expected);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, encrypt, cipher) == 0);
    for (int i = 0; i < 100; i++) {
        message(NULL, 1, made);
        CHECK(!memcmp(expected, made, 1016));
    }
    stops = 1;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    EVP_CIPHER_free(cipher);
}

int main(void)
{
    unsigned char ours[1016], theirs[1016];
    for (int i = 0; i < LEN; i++)
        data[i] = (unsigned char)(i * 7 + (i >> 8));
    message("provider=convoy", 1, ours), message("provider=default", 0, theirs);
    CHECK(!memcmp(ours, theirs, 1016));
    for (int i = 0; i < 20; i++)
        connection(TLS1_2_VERSION), connection(TLS1_3_VERSION);
    under_threads();
    puts("a message, 40 connections and 100 forks under threads");
    return 0;
}
