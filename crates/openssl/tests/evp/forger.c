/* A client that shakes hands with a server on a UNIX socket up to its last message, and forges that: its Finished does not
 * verify. Such a client has proved nothing.
 *
 *   forger SOCKET TIMES
 */
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s\n", __LINE__, #what);                                                                \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static void send_all(int socket, BIO *from, int is_forged)
{
    char *bytes;
    long len = BIO_get_mem_data(from, &bytes);

    if (is_forged && len > 0)
        bytes[len - 1] ^= 1;
    CHECK(send(socket, bytes, (size_t)len, MSG_NOSIGNAL) == len);
    CHECK(BIO_reset(from) == 1);
}

static void forge(SSL_CTX *context, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int stream = socket(AF_UNIX, SOCK_STREAM, 0), done;
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL *ssl = SSL_new(context);
    char bytes[20000];
    ssize_t len;

    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    CHECK(stream >= 0 && connect(stream, (struct sockaddr *)&address, sizeof address) == 0);
    SSL_set_bio(ssl, in, out), SSL_set_connect_state(ssl);
    while ((done = SSL_do_handshake(ssl)) != 1) {
        CHECK(SSL_get_error(ssl, done) == SSL_ERROR_WANT_READ);
        send_all(stream, out, 0);
        len = recv(stream, bytes, sizeof bytes, 0);
        CHECK(len > 0 && BIO_write(in, bytes, (int)len) == len);
    }
    send_all(stream, out, 1);
    /* An alert, or the end of the connection. */
    while (recv(stream, bytes, sizeof bytes, 0) > 0)
        ;
    close(stream), SSL_free(ssl);
}

int main(int argc, char **argv)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());

    CHECK(argc == 3 && context && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION));
    for (int i = 0; i < atoi(argv[2]); i++)
        forge(context, argv[1]);
    SSL_CTX_free(context);
    return 0;
}
