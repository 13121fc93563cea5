/* What Convoy calls of DPDK's cryptodev library. No type of DPDK crosses this line, so that one build of Convoy
 * serves every release of DPDK for which this file is compiled. One call hands over, or takes back, a burst. */
#ifndef CONVOY_CRYPTODEV_H
#define CONVOY_CRYPTODEV_H

#include <stdint.h>

/* Changes with every change of this file. */
#define CONVOY_CRYPTODEV_ABI 2

enum ccd_aead { CCD_AEAD_NONE, CCD_AES_GCM, CCD_CHACHA20_POLY1305 };
/* CCD_IDLE does no work, for measurements of everything else. */
enum ccd_cipher { CCD_CIPHER_NONE, CCD_AES_CBC, CCD_IDLE };
enum ccd_auth { CCD_AUTH_NONE, CCD_HMAC_SHA1, CCD_HMAC_SHA256, CCD_HMAC_SHA384, CCD_HMAC_SHA512 };
enum ccd_status { CCD_DONE, CCD_BAD_ICV, CCD_REJECTED };

struct ccd_device {
	int32_t id;
	uint32_t is_hardware;
	char driver[48];
};

/* An AEAD, or a cipher (or none) with a MAC. Lengths in bytes. */
struct ccd_key {
	uint8_t aead, cipher, auth, opens;
	uint8_t icv, aad_length, key_length, mac_length;
	uint8_t key[32], mac[64];
};

/* src and dst are where the header begins, which a MAC covers in front of the text; an AEAD has none. */
struct ccd_job {
	uint64_t cookie;
	void *session;
	const uint8_t *src;
	uint8_t *dst;
	uint32_t header, text;
	uint8_t is_aead, opens, icv, aad_length;
	/* Work on a copy of the packet: for devices that cannot reach memory of the host's own. */
	uint8_t by_copy;
	uint8_t reserved[3];
	uint8_t iv[16], aad[24];
};

struct ccd_done {
	uint64_t cookie;
	uint32_t status, reserved;
};

struct ccd_queue;

uint32_t ccd_abi(void);
const char *ccd_version(void);

/* Once in a process. 0, or -errno. */
int ccd_init(int argc, char **argv);

/* Brings a device into being if it is virtual, and sets it up, stopped. 0, or -errno. */
int ccd_open(const char *name, uint16_t queues, uint32_t descriptors, uint32_t sessions, struct ccd_device *device);
int ccd_start(int id);
void ccd_stop(int id);

/* Whether the device knows the algorithms with these lengths. */
int ccd_knows(int id, const struct ccd_key *key);
/* NULL when it does not take the key; *is_full says whether for want of room. */
void *ccd_session(int id, const struct ccd_key *key, int *is_full);
void ccd_session_free(int id, void *session);

/* room: most bytes of a packet that is worked on by copy. */
struct ccd_queue *ccd_queue_open(int id, uint16_t number, uint32_t jobs, uint32_t room);
/* What the device may still hold is never used again. */
void ccd_queue_close(struct ccd_queue *queue);
/* Takes as many as there is room for, in order. What can never run is taken, and comes back rejected. */
uint32_t ccd_submit(struct ccd_queue *queue, const struct ccd_job *jobs, uint32_t count);
uint32_t ccd_poll(struct ccd_queue *queue, struct ccd_done *done, uint32_t count);
uint32_t ccd_in_flight(const struct ccd_queue *queue);

#endif
