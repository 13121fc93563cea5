/* Every function of every table of Convoy's provider, called as libcrypto calls it, but without libcrypto: in the middle
 * of what is told of below, which EVP cannot show.
 *
 *   entries LIBRARY stack      how much stack each takes below its caller: at most STACK_MOST bytes
 *   entries LIBRARY cancel     with a cancellation of the thread pending, which no function acts on
 *   entries LIBRARY memory     with each allocation failing in turn: the function fails, and nothing is lost
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/params.h>

/* 0, as an int or as a pointer. */
#define HAS_FAILED(result) ((int)(result) == 0)
#include "../../../lab/c/limits.h"

#define STACK_MOST 8192
/* Lanes of wide registers lie there side by side. */
#define STACK_OF_SEVERAL 16384
#define TEXT_MOST (140 << 10)

/* ---- The side of libcrypto. ---- */

static unsigned long errors;
static const char *stats;

static void new_error(const OSSL_CORE_HANDLE *handle)
{
    (void)handle;
    errors++;
}

static void set_error_debug(const OSSL_CORE_HANDLE *handle, const char *file, int line, const char *func)
{
    (void)handle, (void)file, (void)line, (void)func;
}

static void vset_error(const OSSL_CORE_HANDLE *handle, uint32_t reason, const char *format, va_list arguments)
{
    (void)handle, (void)reason, (void)format, (void)arguments;
}

static int configured(const OSSL_CORE_HANDLE *handle, OSSL_PARAM *params)
{
    (void)handle;
    for (; params->key; params++)
        if (!strcmp(params->key, "stats") && stats)
            *(const char **)params->data = stats;
        else if (!strcmp(params->key, "offer"))
            *(const char **)params->data = "all";
    return 1;
}

static const OSSL_DISPATCH core[] = {{OSSL_FUNC_CORE_GET_PARAMS, (function *)configured},
                                     {OSSL_FUNC_CORE_NEW_ERROR, (function *)new_error},
                                     {OSSL_FUNC_CORE_SET_ERROR_DEBUG, (function *)set_error_debug},
                                     {OSSL_FUNC_CORE_VSET_ERROR, (function *)vset_error},
                                     {0, NULL}};

static word entry(const OSSL_DISPATCH *table, int id)
{
    for (; table->function_id; table++)
        if (table->function_id == id)
            return (word)table->function;
    CHECK(!"the table has the function");
    return 0;
}

/* ---- Calls of a cipher's table. ---- */

static const OSSL_DISPATCH *table;
static word provider;
static unsigned char key[32], iv[12], aad[300], text[TEXT_MOST], out[TEXT_MOST + 4096], tag[16];

static word new_context(void)
{
    word context = CALL("newctx", entry(table, OSSL_FUNC_CIPHER_NEWCTX), provider);
    CHECK(context);
    return context;
}

static void free_context(word context)
{
    CALL("freectx", entry(table, OSSL_FUNC_CIPHER_FREECTX), context);
}

static word duplicate(word context)
{
    word copy = CALL("dupctx", entry(table, OSSL_FUNC_CIPHER_DUPCTX), context);
    CHECK(copy);
    return copy;
}

static int init(word context, int seals, const unsigned char *secret, size_t len, size_t iv_len)
{
    int id = seals ? OSSL_FUNC_CIPHER_ENCRYPT_INIT : OSSL_FUNC_CIPHER_DECRYPT_INIT;
    return (int)CALL(seals ? "encrypt init" : "decrypt init", entry(table, id), context, P(secret), len,
                     P(iv_len ? iv : NULL), iv_len);
}

static int update(word context, const unsigned char *from, unsigned char *to, size_t len)
{
    size_t made = 77;
    return (int)CALL("update", entry(table, OSSL_FUNC_CIPHER_UPDATE), context, P(to), P(&made), len, P(from), len);
}

static int one_shot(word context, const unsigned char *from, unsigned char *to, size_t len)
{
    size_t made = 77;
    return (int)CALL("cipher", entry(table, OSSL_FUNC_CIPHER_CIPHER), context, P(to), P(&made), len, P(from), len);
}

static int final(word context)
{
    size_t made = 77;
    return (int)CALL("final", entry(table, OSSL_FUNC_CIPHER_FINAL), context, P(out), P(&made), 16);
}

static int param(word context, int sets, const char *name, unsigned kind, void *data, size_t size)
{
    OSSL_PARAM params[2] = {{name, kind, data, size, OSSL_PARAM_UNMODIFIED}, {NULL, 0, NULL, 0, 0}};
    char what[64];

    snprintf(what, sizeof what, "%s %s", sets ? "set" : "get", name);
    return (int)CALL(what, entry(table, sets ? OSSL_FUNC_CIPHER_SET_CTX_PARAMS : OSSL_FUNC_CIPHER_GET_CTX_PARAMS),
                     context, P(params));
}

static int octets(word context, int sets, const char *name, void *data, size_t size)
{
    return param(context, sets, name, OSSL_PARAM_OCTET_STRING, data, size);
}

static size_t number(word context, const char *name)
{
    size_t value = 0;
    CHECK(param(context, 0, name, OSSL_PARAM_UNSIGNED_INTEGER, &value, sizeof value) == 1);
    return value;
}

/* A message, its text in parts of some size; forged or not. */
static void message(size_t key_len, size_t len, size_t part, size_t aad_len, int is_forged)
{
    word seals = new_context(), opens = new_context(), copy;
    size_t at, now;

    fill(text, len, (unsigned)len);
    CHECK(init(seals, 1, key, key_len, 12) == 1 && init(opens, 0, key, key_len, 12) == 1);
    for (int i = 0; i < 2; i++) {
        CHECK(update(i ? opens : seals, aad, NULL, aad_len) == 1);
        for (at = 0; at < len; at += now) {
            now = len - at < part ? len - at : part;
            if (i)
                CHECK(update(opens, out + at, out + at, now) == 1);
            else
                CHECK(update(seals, text + at, out + at, now) == 1);
            if (at == 0 && now < len) {
                copy = duplicate(i ? opens : seals);
                free_context(i ? opens : seals);
                *(i ? &opens : &seals) = copy;
            }
        }
        if (i)
            break;
        CHECK(final(seals) == 1);
        CHECK(octets(seals, 0, "tag", tag, 16) == 1);
        add(out, len), add(tag, 16);
        tag[3] ^= (unsigned char)is_forged;
        CHECK(octets(opens, 1, "tag", tag, 16) == 1);
    }
    CHECK(final(opens) == !is_forged && memcmp(out, text, len) == 0);
    free_context(seals), free_context(opens);
}

/* The same by one-shot calls. */
static void one_shots(size_t key_len, size_t len, int is_forged)
{
    word seals = new_context(), opens = new_context();

    fill(text, len, (unsigned)len);
    CHECK(init(seals, 1, key, key_len, 12) == 1 && init(opens, 0, key, key_len, 12) == 1);
    CHECK(one_shot(seals, aad, NULL, 20) == 1 && one_shot(seals, text, out, len) == 1);
    CHECK(one_shot(seals, NULL, NULL, 0) == 1 && octets(seals, 0, "tag", tag, 16) == 1);
    add(out, len), add(tag, 16);
    tag[15] ^= (unsigned char)is_forged;
    CHECK(octets(opens, 1, "tag", tag, 16) == 1);
    CHECK(one_shot(opens, aad, NULL, 20) == 1 && one_shot(opens, out, out, len) == 1);
    CHECK(one_shot(opens, NULL, NULL, 0) == !is_forged);
    free_context(seals), free_context(opens);
}

/* Parameters that there are, and refused calls. */
static void odds(size_t key_len)
{
    static const char *const NAMES[] = {"keylen", "ivlen", "taglen", "tlsaadpad"};
    word context = new_context();
    unsigned char byte = 0x5a;

    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        number(context, NAMES[i]);
    CHECK(update(context, &byte, out, 1) == 0 && one_shot(context, &byte, out, 1) == 0);
    CHECK(init(context, 1, key, 5, 0) == 0 && init(context, 1, key, key_len, 0) == 1);
    octets(context, 0, "iv", out, 16), octets(context, 0, "updated-iv", out, 16);
    octets(context, 1, "tag", tag, 16), octets(context, 1, "tag", tag, 17), octets(context, 1, "tlsaad", aad, 3);
    octets(context, 1, "tlsivfixed", iv, 4), octets(context, 0, "tlsivgen", out, 12);
    octets(context, 1, "tlsivinv", iv, 8);
    free_context(context);
}

/* Records of TLS 1.2 of an AEAD, which have `front` bytes of the nonce with them. */
static void records(size_t key_len, size_t fixed, size_t front, size_t len, int is_forged)
{
    word seals = new_context(), opens = new_context();
    unsigned char header[13] = {0, 0, 0, 0, 0, 0, 0, 9, 23, 3, 3, 0, 0};
    size_t said = len + front, whole = len + front + 16;

    CHECK(init(seals, 1, key, key_len, 0) == 1 && init(opens, 0, key, key_len, 0) == 1);
    CHECK(octets(seals, 1, "tlsivfixed", iv, fixed) == 1 && octets(opens, 1, "tlsivfixed", iv, fixed) == 1);
    header[11] = (unsigned char)(said >> 8), header[12] = (unsigned char)said;
    CHECK(octets(seals, 1, "tlsaad", header, 13) == 1 && number(seals, "tlsaadpad") == 16);
    fill(out, whole, (unsigned)len);
    CHECK(update(seals, out, out, whole) == 1);
    add(out, whole);
    said += 16;
    header[11] = (unsigned char)(said >> 8), header[12] = (unsigned char)said;
    CHECK(octets(opens, 1, "tlsaad", header, 13) == 1);
    out[whole - 1] ^= (unsigned char)is_forged;
    CHECK(update(opens, out, out, whole) == !is_forged);
    free_context(seals), free_context(opens);
}

/* Records of AES-CBC with HMAC. */
static void composite(size_t key_len, size_t mac_len, size_t len, int is_forged)
{
    word seals = new_context(), opens = new_context(), copy;
    unsigned char header[13] = {0, 0, 0, 0, 0, 0, 0, 9, 23, 3, 3, 0, 0}, chain[16];
    size_t said = len + 16, whole = 16 + (len + mac_len + 16) / 16 * 16;

    memcpy(chain, iv, 12), memset(chain + 12, 3, 4);
    for (int i = 0; i < 2; i++) {
        word context = i ? opens : seals;
        int id = i ? OSSL_FUNC_CIPHER_DECRYPT_INIT : OSSL_FUNC_CIPHER_ENCRYPT_INIT;
        CHECK((int)CALL("init", entry(table, id), context, P(key), key_len, P(chain), 16) == 1);
        CHECK(octets(context, 1, "mackey", aad, mac_len) == 1 && octets(context, 1, "mackey", aad, 100) == 1);
    }
    header[11] = (unsigned char)(said >> 8), header[12] = (unsigned char)said;
    CHECK(octets(seals, 1, "tlsaad", header, 13) == 1);
    CHECK(number(seals, "tlsaadpad") == whole - said);
    fill(out, whole, (unsigned)len);
    CHECK(update(seals, out, out, whole) == 1);
    add(out, whole);
    said = whole;
    header[11] = (unsigned char)(said >> 8), header[12] = (unsigned char)said;
    copy = duplicate(opens);
    free_context(opens), opens = copy;
    CHECK(octets(opens, 1, "tlsaad", header, 13) == 1);
    out[whole - 20] ^= (unsigned char)is_forged;
    CHECK(one_shot(opens, out, out, whole) == !is_forged);
    CHECK(update(seals, text, out, 160) == 1 && update(seals, text, out, 7) == 0 && final(seals) == 1);
    octets(seals, 0, "iv", out, 16), octets(seals, 0, "updated-iv", out, 16);
    free_context(seals), free_context(opens);
}

/* Several records in one call. Their IVs are random. */
static void several(size_t key_len, unsigned records, size_t len)
{
    word context = new_context();
    unsigned char header[13] = {0, 0, 0, 0, 0, 0, 0, 9, 23, 3, 3, 0, 0};
    OSSL_PARAM plan[] = {{"tls1multi_aad", OSSL_PARAM_OCTET_STRING, header, len, 0},
                         {"tls1multi_interleave", OSSL_PARAM_UNSIGNED_INTEGER, &records, sizeof records, 0},
                         {NULL, 0, NULL, 0, 0}};
    OSSL_PARAM work[] = {{"tls1multi_enc", OSSL_PARAM_OCTET_STRING, out, len, 0},
                         {"tls1multi_encin", OSSL_PARAM_OCTET_STRING, text, len, 0},
                         {"tls1multi_interleave", OSSL_PARAM_UNSIGNED_INTEGER, &records, sizeof records, 0},
                         {NULL, 0, NULL, 0, 0}};
    word set = entry(table, OSSL_FUNC_CIPHER_SET_CTX_PARAMS);

    CHECK((int)CALL("init", entry(table, OSSL_FUNC_CIPHER_ENCRYPT_INIT), context, P(key), key_len) == 1);
    CHECK(octets(context, 1, "mackey", aad, 20) == 1);
    CHECK((int)CALL("plan several", set, context, P(plan)) == 1);
    CHECK(number(context, "tls1multi_aadpacklen") > len && number(context, "tls1multi_aadpacklen") < sizeof out);
    CHECK((int)CALL("seal several", set, context, P(work)) == 1);
    free_context(context);
}

/* ---- Scenarios. ---- */

static const size_t LENS[] = {0, 1, 16, 40, 64, 100, 300, 1424, 4096, 16384};

static void each_entry_of(const OSSL_ALGORITHM *algorithm)
{
    size_t key_len = 16, mac_len = 20;
    int is_chacha;

    table = algorithm->implementation;
    subject = algorithm->algorithm_names;
    is_chacha = !strncmp(subject, "ChaCha", 6);
    if (is_chacha || strstr(subject, "AES-256"))
        key_len = 32;
    else if (strstr(subject, "AES-192"))
        key_len = 24;
    if (strstr(subject, "SHA256"))
        mac_len = 32;
    CALL("gettable", entry(table, OSSL_FUNC_CIPHER_GETTABLE_PARAMS), provider);
    CALL("gettable of context", entry(table, OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS), 0, provider);
    CALL("settable of context", entry(table, OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS), 0, provider);
    {
        size_t value = 0;
        OSSL_PARAM params[2] = {{"keylen", OSSL_PARAM_UNSIGNED_INTEGER, &value, sizeof value, 0}, {NULL, 0, NULL, 0, 0}};
        CHECK((int)CALL("get", entry(table, OSSL_FUNC_CIPHER_GET_PARAMS), P(params)) == 1);
        CHECK(value == key_len);
    }
    for (size_t i = 0; i < sizeof LENS / sizeof *LENS; i++)
        for (int is_forged = 0; is_forged < 2; is_forged++) {
            size_t len = LENS[i];
            if (strstr(subject, "HMAC")) {
                composite(key_len, mac_len, len, is_forged);
                continue;
            }
            message(key_len, len, TEXT_MOST, 13, is_forged);
            message(key_len, len, 7, 300, is_forged);
            message(key_len, len, 64, 5, is_forged);
            message(key_len, len, 1024, 0, is_forged);
            one_shots(key_len, len, is_forged);
            records(key_len, is_chacha ? 12 : 4, is_chacha ? 0 : 8, len, is_forged);
        }
    if (strstr(subject, "HMAC")) {
        several(key_len, 4, 4 * 4096), several(key_len, 8, 8 * 16384);
        return;
    }
    odds(key_len);
}

static const OSSL_DISPATCH *provided;

static OSSL_provider_init_fn *start;

/* Opening a library is a place where a cancelled thread ends, so it comes first. */
static void open_library(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW);

    if (!handle)
        printf("%s\n", dlerror());
    CHECK(handle);
    *(void **)&start = dlsym(handle, "OSSL_provider_init");
    CHECK(start);
}

static void load(void)
{
    const char *name = NULL;
    OSSL_PARAM params[2] = {{"name", OSSL_PARAM_UTF8_PTR, &name, 0, 0}, {NULL, 0, NULL, 0, 0}};

    subject = "the provider";
    CHECK((int)CALL("init", (word)start, P(&core), P(core), P(&provided), P(&provider)) == 1);
    CALL("gettable", entry(provided, OSSL_FUNC_PROVIDER_GETTABLE_PARAMS), provider);
    CHECK((int)CALL("get", entry(provided, OSSL_FUNC_PROVIDER_GET_PARAMS), provider, P(params)) == 1);
    CHECK(name && !strcmp(name, "Convoy"));
}

static void each_entry(void)
{
    int no_cache = 7;
    const OSSL_ALGORITHM *all = (const OSSL_ALGORITHM *)CALL(
        "query", entry(provided, OSSL_FUNC_PROVIDER_QUERY_OPERATION), provider, OSSL_OP_CIPHER, P(&no_cache));

    CHECK(all && no_cache == 0);
    for (; all->algorithm_names; all++)
        each_entry_of(all);
}

static void load_and_call(void)
{
    load();
    each_entry();
}

static size_t its_key, its_mac;

static void whole_message(void)
{
    message(its_key, 300, TEXT_MOST, 13, 0);
}

static void parts(void)
{
    message(its_key, 3000, 7, 300, 0);
}

static void forged(void)
{
    message(its_key, 300, 64, 40, 1);
}

static void record(void)
{
    int is_chacha = its_mac == 0;
    records(its_key, is_chacha ? 12 : 4, is_chacha ? 0 : 8, 100, 0);
}

static void composites(void)
{
    composite(its_key, its_mac, 300, 0);
    several(its_key, 4, 4 * 4096);
}

static void load_and_tear_down(void)
{
    load();
    CALL("teardown", entry(provided, OSSL_FUNC_PROVIDER_TEARDOWN), provider);
}

static void each_allocation(void)
{
    const OSSL_ALGORITHM *all;
    int no_cache;

    short_of_memory("loading", load_and_tear_down);
    load();
    all = (const OSSL_ALGORITHM *)CALL("query", entry(provided, OSSL_FUNC_PROVIDER_QUERY_OPERATION), provider,
                                       OSSL_OP_CIPHER, P(&no_cache));
    for (; all->algorithm_names; all++) {
        const char *name = all->algorithm_names;
        int is_chacha = !strncmp(name, "ChaCha", 6);
        table = all->implementation, subject = name;
        its_key = is_chacha || strstr(name, "AES-256") ? 32 : strstr(name, "AES-192") ? 24 : 16;
        its_mac = is_chacha ? 0 : strstr(name, "SHA256") ? 32 : 20;
        if (strstr(name, "HMAC")) {
            short_of_memory("records", composites);
            continue;
        }
        short_of_memory("a message", whole_message);
        short_of_memory("a message in parts", parts);
        short_of_memory("a forged message", forged);
        short_of_memory("a record", record);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    stats = getenv("STATS_FILE");
    open_library(argv[1]);
    fill(key, sizeof key, 1), fill(iv, sizeof iv, 2), fill(aad, sizeof aad, 3), fill(text, sizeof text, 4);
    if (!strcmp(argv[2], "stack")) {
        mode = STACK;
        load_and_call();
        return !stack_within(STACK_MOST, "seal several", STACK_OF_SEVERAL);
    }
    if (!strcmp(argv[2], "cancel")) {
        mode = CANCEL;
        cancelled(load_and_call);
        return 0;
    }
    mode = MEMORY;
    each_allocation();
    return 0;
}
