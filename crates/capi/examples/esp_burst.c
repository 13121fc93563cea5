/*
 * A burst of ESP packets through the job manager: AES-128-CBC with HMAC-SHA-1-96 (RFC 3602, 2404),
 * encrypted, verified and decrypted; then one message through AES-GCM, directly.
 *
 * Build it against an installed library:
 *
 *     cc esp_burst.c $(pkg-config --cflags --libs convoy_crypto)
 */

#include <convoy_crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PACKETS = 200, HEADER = 8, IV = 16, ICV = 12, MOST = 1408 };

/* An ESP packet: SPI and sequence number, IV, payload, ICV. */
struct packet {
    uint8_t bytes[HEADER + IV + MOST + ICV];
    size_t payload;
};

/* What all packets of one SA share. */
struct keys {
    convoy_aes_enc_key enc;
    convoy_aes_dec_key dec;
    convoy_hmac_key hmac;
};

static void check(int result, const char *what)
{
    if (result != CONVOY_OK) {
        fprintf(stderr, "%s: %s\n", what, convoy_strerror(result));
        exit(1);
    }
}

static void require(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

static void fill(struct packet *packet, unsigned number)
{
    size_t i;
    packet->payload = 16 * (1 + number * 37 % (MOST / 16));
    for (i = 0; i < HEADER + IV + packet->payload; i++) {
        packet->bytes[i] = (uint8_t)(number * 31 + i * 7);
    }
}

/* Fills a job in: cipher on the payload, MAC over header, IV and payload. */
static void describe(convoy_job *job, struct packet *packet, const struct keys *keys, int encrypt,
                     uint8_t *tag)
{
    job->src = packet->bytes;
    job->dst = packet->bytes;
    job->cipher_mode = CONVOY_CIPHER_CBC;
    job->cipher_offset = HEADER + IV;
    job->cipher_len = packet->payload;
    job->iv = packet->bytes + HEADER;
    job->iv_len = IV;
    job->hash_alg = CONVOY_HASH_HMAC_SHA1;
    job->hash_key.hmac = &keys->hmac;
    job->hash_len = HEADER + IV + packet->payload;
    job->tag = tag;
    job->tag_len = ICV;
    job->user_data = packet;
    if (encrypt) {
        job->cipher_direction = CONVOY_DIRECTION_ENCRYPT;
        job->chain_order = CONVOY_ORDER_CIPHER_HASH;
        job->cipher_key.enc = &keys->enc;
    } else {
        job->cipher_direction = CONVOY_DIRECTION_DECRYPT;
        job->chain_order = CONVOY_ORDER_HASH_CIPHER;
        job->cipher_key.dec = &keys->dec;
    }
}

/* Packets come back in the order in which they went in. */
static void expect(const convoy_job *job, struct packet *packets, unsigned *returned)
{
    require(job->status == CONVOY_STATUS_COMPLETED, "a job was not completed");
    require(job->user_data == &packets[*returned], "a job came back out of order");
    ++*returned;
}

static void encrypt_all(convoy_mgr *mgr, struct packet *packets, const struct keys *keys)
{
    unsigned i, returned = 0;
    convoy_job *done;
    for (i = 0; i < PACKETS; i++) {
        struct packet *packet = &packets[i];
        uint8_t *icv = packet->bytes + HEADER + IV + packet->payload;
        describe(convoy_get_next_job(mgr), packet, keys, 1, icv);
        done = convoy_submit_job(mgr);
        while (done != NULL) {
            expect(done, packets, &returned);
            done = convoy_get_completed_job(mgr);
        }
    }
    printf("%u packets came back while %zu are in line\n", returned, convoy_queue_size(mgr));
    while ((done = convoy_flush_job(mgr)) != NULL) {
        expect(done, packets, &returned);
    }
    require(returned == PACKETS && convoy_queue_size(mgr) == 0, "jobs were lost");
}

/* The same the other way, as an array of jobs. Each packet's MAC is compared before it is used. */
static unsigned decrypt_all(convoy_mgr *mgr, struct packet *packets, const struct keys *keys)
{
    static uint8_t computed[PACKETS][ICV];
    static convoy_job jobs[PACKETS];
    unsigned i, authentic = 0;
    memset(jobs, 0, sizeof jobs);
    for (i = 0; i < PACKETS; i++) {
        describe(&jobs[i], &packets[i], keys, 0, computed[i]);
    }
    require(convoy_submit_burst(mgr, jobs, PACKETS) == PACKETS, "the burst was not completed");
    for (i = 0; i < PACKETS; i++) {
        const uint8_t *icv = packets[i].bytes + HEADER + IV + packets[i].payload;
        authentic += convoy_tags_match(computed[i], icv, ICV);
    }
    return authentic;
}

static void one_message(void)
{
    /* Test case 2 of the specification of GCM: one block of zeros under a key of zeros. */
    static const uint8_t expected[32] = {
        0x03, 0x88, 0xda, 0xce, 0x60, 0xb6, 0xa3, 0x92, 0xf3, 0x28, 0xc2, 0xb9, 0x71, 0xb2, 0xfe, 0x78,
        0xab, 0x6e, 0x47, 0xd4, 0x2c, 0xec, 0x13, 0xbd, 0xf5, 0x3a, 0x67, 0xb2, 0x12, 0x57, 0xbd, 0xdf,
    };
    uint8_t zeros[16] = {0}, out[32];
    convoy_aead_key *key;
    check(convoy_gcm_key_new(CONVOY_TIER_AUTO, zeros, 16, &key), "convoy_gcm_key_new");
    check(convoy_aead_encrypt(key, zeros, NULL, 0, zeros, out, 16, out + 16, 16),
          "convoy_aead_encrypt");
    require(memcmp(out, expected, 32) == 0, "AES-GCM differs from its specification");
    check(convoy_aead_decrypt(key, zeros, NULL, 0, out, out, 16, out + 16, 16),
          "convoy_aead_decrypt");
    require(memcmp(out, zeros, 16) == 0, "AES-GCM does not decrypt what it encrypted");
    out[31] ^= 1;
    require(convoy_aead_decrypt(key, zeros, NULL, 0, out, out, 16, out + 16, 16) == CONVOY_ERR_FORGED,
            "a forged message was taken");
    convoy_aead_key_free(key);
}

int main(void)
{
    static struct packet packets[PACKETS], originals[PACKETS];
    static const uint8_t aes_key[16] = "cipher key here", mac_key[20] = "and a key for a MAC";
    struct keys *keys;
    convoy_mgr *mgr;
    unsigned i, authentic;

    /* Keys are aligned; their types say so, and malloc would not do it. */
    static struct keys memory;
    keys = &memory;
    check(convoy_aes_keyexp_128(aes_key, &keys->enc, &keys->dec), "convoy_aes_keyexp_128");
    check(convoy_hmac_keyexp(CONVOY_HASH_HMAC_SHA1, mac_key, sizeof mac_key, &keys->hmac),
          "convoy_hmac_keyexp");
    check(convoy_mgr_new(CONVOY_TIER_AUTO, &mgr), "convoy_mgr_new");
    printf("libconvoy_crypto %s on tier %s\n", convoy_version(),
           convoy_tier_name(convoy_mgr_tier(mgr)));

    for (i = 0; i < PACKETS; i++) {
        fill(&packets[i], i);
    }
    memcpy(originals, packets, sizeof packets);
    encrypt_all(mgr, packets, keys);
    for (i = 0; i < PACKETS; i++) {
        require(memcmp(packets[i].bytes + HEADER + IV, originals[i].bytes + HEADER + IV,
                       packets[i].payload) != 0, "a payload was not encrypted");
    }
    packets[7].bytes[HEADER + IV] ^= 1;
    authentic = decrypt_all(mgr, packets, keys);
    for (i = 0; i < PACKETS; i++) {
        int same = memcmp(packets[i].bytes + HEADER + IV, originals[i].bytes + HEADER + IV,
                          packets[i].payload) == 0;
        require(same == (i != 7), "a payload did not come back");
    }
    printf("%u of %d packets are authentic; one was touched\n", authentic, PACKETS);
    require(authentic == PACKETS - 1, "the MACs say otherwise");

    one_message();
    convoy_mgr_free(mgr);
    convoy_wipe(keys, sizeof *keys);
    printf("good\n");
    return 0;
}
