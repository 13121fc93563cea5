/* Every function of the C library, for every tier that there is, as programs call it that are short of something.
 *
 *   entries stack      how much stack each takes below its caller: at most what the header says
 *   entries cancel     with a cancellation of the thread pending, which no function acts on
 *   entries memory     with each allocation failing in turn: CONVOY_ERR_MEMORY, and nothing is lost
 */
#define _GNU_SOURCE
#include "convoy_crypto.h"

#define HAS_FAILED(result) ((int)(result) == CONVOY_ERR_MEMORY)
#include "../../../lab/c/limits.h"

#define JOBS 130
#define ROOM 9000

#define F(function) #function, (word)function
#define OK(...) CHECK((int)CALL(__VA_ARGS__) == CONVOY_OK)

static int tier;
static unsigned char key[32], iv[16], aad[40], text[ROOM], out[ROOM + 16], tag[64];
static struct convoy_aes_enc_key enc;
static struct convoy_aes_dec_key dec;
static struct convoy_hmac_key hmac;
static struct convoy_xcbc_key xcbc;
static struct convoy_cmac_key cmac;

static const size_t LENS[] = {0, 1, 16, 64, 100, 512, 1420, ROOM};
static const uint32_t HMACS[] = {CONVOY_HASH_HMAC_MD5,    CONVOY_HASH_HMAC_SHA1,   CONVOY_HASH_HMAC_SHA224,
                                 CONVOY_HASH_HMAC_SHA256, CONVOY_HASH_HMAC_SHA384, CONVOY_HASH_HMAC_SHA512};

/* A text of three segments, the last of which ends where the text does. */
static void cut(struct convoy_segment segments[3], const unsigned char *from, unsigned char *to, size_t len)
{
    size_t ends[4] = {0, len / 5, len / 2, len};
    for (int i = 0; i < 3; i++)
        segments[i] = (struct convoy_segment){from + ends[i], to + ends[i], ends[i + 1] - ends[i]};
}

/* A message of an AEAD at once, in segments and in parts. */
static void messages(struct convoy_aead_key *aead)
{
    for (size_t i = 0; i < sizeof LENS / sizeof *LENS; i++)
        for (int is_forged = 0; is_forged < 2; is_forged++) {
            int right = is_forged ? CONVOY_ERR_FORGED : CONVOY_OK;
            size_t len = LENS[i], at, now;
            unsigned char block[16];
            struct convoy_segment segments[3];
            OK(F(convoy_aead_encrypt), P(aead), P(iv), P(aad), 20, P(text), P(out), len, P(tag), 16);
            add(out, len), add(tag, 16);
            tag[1] ^= (unsigned char)is_forged;
            CHECK((int)CALL(F(convoy_aead_decrypt), P(aead), P(iv), P(aad), 20, P(out), P(out), len, P(tag), 16)
                  == right);
            cut(segments, text, out, len);
            OK(F(convoy_aead_encrypt_segments), P(aead), P(iv), 12, P(aad), 20, P(segments), 3, P(tag), 16);
            tag[1] ^= (unsigned char)is_forged;
            cut(segments, out, out, len);
            CHECK((int)CALL(F(convoy_aead_decrypt_segments), P(aead), P(iv), 12, P(aad), 20, P(segments), 3, P(tag), 16)
                  == right);
            for (int decrypts = 0; decrypts < 2; decrypts++) {
                struct convoy_aead_stream *stream = NULL;
                uint32_t way = decrypts ? CONVOY_DIRECTION_DECRYPT : CONVOY_DIRECTION_ENCRYPT;
                OK(F(convoy_aead_init), P(aead), way, P(iv), 12, P(aad), 40, P(&stream));
                for (at = 0; at < len; at += now) {
                    now = len - at < 40 ? len - at : 40;
                    OK(F(convoy_aead_update), P(stream), P((decrypts ? out : text) + at), P(out + at), now);
                }
                if (decrypts)
                    tag[0] ^= (unsigned char)is_forged;
                CHECK((int)CALL(F(convoy_aead_finalize), P(stream), P(tag), 16) == (decrypts ? right : CONVOY_OK));
                /* What was finished takes no more, and writes nothing. */
                memset(block, 0x77, sizeof block);
                CHECK((int)CALL(F(convoy_aead_update), P(stream), P(text), P(block), 16) == CONVOY_ERR_STATE);
                CHECK(block[0] == 0x77 && block[15] == 0x77);
                CALL(F(convoy_aead_stream_free), P(stream));
            }
        }
}

static void aeads(void)
{
    for (size_t bytes = 16; bytes <= 32; bytes += 8)
        for (int is_gmac = 0; is_gmac < 2; is_gmac++) {
            struct convoy_aead_key *aead = NULL;
            if (is_gmac)
                OK(F(convoy_gmac_key_new), (word)tier, P(key), bytes, P(&aead));
            else
                OK(F(convoy_gcm_key_new), (word)tier, P(key), bytes, P(&aead));
            messages(aead);
            CALL(F(convoy_aead_key_free), P(aead));
        }
    {
        struct convoy_aead_key *aead = NULL;
        OK(F(convoy_chacha20_poly1305_key_new), (word)tier, P(key), P(&aead));
        messages(aead);
        CALL(F(convoy_aead_key_free), P(aead));
    }
    for (size_t i = 0; i < sizeof LENS / sizeof *LENS; i++) {
        OK(F(convoy_aes_keyexp_enc_128), P(key), P(&enc));
        OK(F(convoy_ccm_encrypt), P(&enc), P(iv), 11, P(aad), 8, P(text), P(out), LENS[i], P(tag), 16);
        OK(F(convoy_ccm_decrypt), P(&enc), P(iv), 11, P(aad), 8, P(out), P(out), LENS[i], P(tag), 16);
        tag[0] ^= 1;
        CHECK((int)CALL(F(convoy_ccm_decrypt), P(&enc), P(iv), 11, P(aad), 8, P(text), P(out), LENS[i], P(tag), 16)
              == CONVOY_ERR_FORGED);
    }
}

static void keys(void)
{
    unsigned char block[128] = {7}, pads[2][64];

    OK(F(convoy_aes_keyexp_enc_192), P(key), P(&enc));
    OK(F(convoy_aes_keyexp_enc_256), P(key), P(&enc));
    OK(F(convoy_aes_keyexp_192), P(key), P(&enc), P(&dec));
    OK(F(convoy_aes_keyexp_256), P(key), P(&enc), P(&dec));
    OK(F(convoy_hmac_md5_one_block), P(block), P(tag));
    OK(F(convoy_hmac_sha1_one_block), P(block), P(tag));
    OK(F(convoy_hmac_sha224_one_block), P(block), P(tag));
    OK(F(convoy_hmac_sha256_one_block), P(block), P(tag));
    OK(F(convoy_hmac_sha384_one_block), P(block), P(tag));
    OK(F(convoy_hmac_sha512_one_block), P(block), P(tag));
    for (size_t i = 0; i < sizeof HMACS / sizeof *HMACS; i++) {
        OK(F(convoy_hmac_ipad_opad), HMACS[i], P(text), 200, P(pads[0]), P(pads[1]));
        OK(F(convoy_hmac_key_set), HMACS[i], P(pads[0]), P(pads[1]), P(&hmac));
        OK(F(convoy_hmac_keyexp), HMACS[i], P(text), 200, P(&hmac));
    }
    OK(F(convoy_xcbc_keyexp), P(key), P(&xcbc));
    OK(F(convoy_cmac_keyexp), P(key), 32, P(&cmac));
    CHECK((int)CALL(F(convoy_tags_match), P(key), P(key), 32) == 1);
    OK(F(convoy_wipe), P(tag), sizeof tag);
    CALL(F(convoy_version)), CALL(F(convoy_strerror), (word)-3), CALL(F(convoy_tier_best));
    CALL(F(convoy_tier_available), (word)tier), CALL(F(convoy_tier_name), (word)tier);
}

/* Many jobs of one kind and all lengths, at once and one after another. */
static void run_jobs(struct convoy_mgr *mgr, const struct convoy_job *kind)
{
    static struct convoy_job jobs[JOBS];
    static unsigned char packets[JOBS][2048], tags[JOBS][64];
    size_t done = 0;

    for (int i = 0; i < JOBS; i++) {
        size_t len = kind->cipher_mode == CONVOY_CIPHER_CBC ? 16 * (size_t)(i % 100) : (size_t)i * 15;
        jobs[i] = *kind;
        jobs[i].src = jobs[i].dst = packets[i];
        jobs[i].cipher_len = kind->cipher_mode == CONVOY_CIPHER_NULL ? 0 : len;
        jobs[i].hash_len = kind->hash_alg == CONVOY_HASH_NULL ? 0 : len;
        jobs[i].tag = tags[i];
        fill(packets[i], 2048, (unsigned)i + 1);
    }
    CHECK(CALL(F(convoy_submit_burst), P(mgr), P(jobs), JOBS) == JOBS);
    for (int i = 0; i < JOBS; i++)
        add(packets[i], 2048), add(tags[i], kind->tag_len);
    for (int i = 0; i < JOBS; i++) {
        struct convoy_job *job = (struct convoy_job *)CALL(F(convoy_get_next_job), P(mgr));
        *job = jobs[i];
        for (job = (struct convoy_job *)CALL(F(convoy_submit_job), P(mgr)); job;
             job = (struct convoy_job *)CALL(F(convoy_get_completed_job), P(mgr)))
            done++;
    }
    CALL(F(convoy_queue_size), P(mgr));
    while (CALL(F(convoy_flush_job), P(mgr)))
        done++;
    CHECK(done == JOBS);
}

static void managers(void)
{
    struct convoy_mgr *mgr = NULL;
    struct convoy_aead_key *aead = NULL;
    struct convoy_job kind;

    OK(F(convoy_mgr_new), (word)tier, P(&mgr));
    CALL(F(convoy_mgr_tier), P(mgr));
    OK(F(convoy_aes_keyexp_128), P(key), P(&enc), P(&dec));
    for (uint32_t way = CONVOY_DIRECTION_ENCRYPT; way <= CONVOY_DIRECTION_DECRYPT; way++) {
        memset(&kind, 0, sizeof kind);
        kind.iv = iv, kind.iv_len = 16, kind.cipher_direction = way, kind.hash_alg = CONVOY_HASH_NULL;
        kind.cipher_mode = CONVOY_CIPHER_CBC;
        if (way == CONVOY_DIRECTION_ENCRYPT)
            kind.cipher_key.enc = &enc;
        else
            kind.cipher_key.dec = &dec;
        run_jobs(mgr, &kind);
        kind.cipher_mode = CONVOY_CIPHER_CTR, kind.cipher_key.enc = &enc;
        run_jobs(mgr, &kind);
        kind.cipher_mode = CONVOY_CIPHER_CCM, kind.iv_len = 11, kind.aad = aad, kind.aad_len = 8, kind.tag_len = 16;
        run_jobs(mgr, &kind);
        for (int which = 0; which < 3; which++) {
            if (which == 0)
                OK(F(convoy_gcm_key_new), (word)tier, P(key), 16, P(&aead));
            else if (which == 1)
                OK(F(convoy_gmac_key_new), (word)tier, P(key), 16, P(&aead));
            else
                OK(F(convoy_chacha20_poly1305_key_new), (word)tier, P(key), P(&aead));
            kind.cipher_mode = CONVOY_CIPHER_AEAD, kind.iv_len = 12, kind.cipher_key.aead = aead;
            run_jobs(mgr, &kind);
            CALL(F(convoy_aead_key_free), P(aead));
        }
    }
    memset(&kind, 0, sizeof kind);
    kind.cipher_mode = CONVOY_CIPHER_NULL;
    for (size_t i = 0; i < sizeof HMACS / sizeof *HMACS; i++) {
        OK(F(convoy_hmac_keyexp), HMACS[i], P(key), 32, P(&hmac));
        kind.hash_alg = HMACS[i], kind.hash_key.hmac = &hmac, kind.tag_len = 12;
        run_jobs(mgr, &kind);
    }
    kind.hash_alg = CONVOY_HASH_AES_XCBC, kind.hash_key.xcbc = &xcbc;
    run_jobs(mgr, &kind);
    kind.hash_alg = CONVOY_HASH_AES_CMAC, kind.hash_key.cmac = &cmac;
    run_jobs(mgr, &kind);
    CALL(F(convoy_mgr_free), P(mgr));
}

static void each_tier(void)
{
    for (tier = CONVOY_TIER_PORTABLE; tier <= CONVOY_TIER_VAES512; tier++) {
        if (convoy_tier_available(tier) != CONVOY_OK)
            continue;
        subject = convoy_tier_name(tier);
        keys(), aeads(), managers();
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    fill(key, sizeof key, 1), fill(iv, sizeof iv, 2), fill(aad, sizeof aad, 3), fill(text, sizeof text, 4);
    subject = "the library";
    if (!strcmp(argv[1], "stack")) {
        mode = STACK;
        each_tier();
        return !stack_within(CONVOY_STACK, "", 0);
    }
    if (!strcmp(argv[1], "cancel")) {
        mode = CANCEL;
        cancelled(each_tier);
        return 0;
    }
    mode = MEMORY;
    /* Keys that take no memory are set up first. */
    keys();
    for (tier = CONVOY_TIER_PORTABLE; tier <= CONVOY_TIER_VAES512; tier++) {
        if (convoy_tier_available(tier) != CONVOY_OK)
            continue;
        subject = convoy_tier_name(tier);
        short_of_memory("AEADs", aeads);
        short_of_memory("a manager", managers);
    }
    return 0;
}
