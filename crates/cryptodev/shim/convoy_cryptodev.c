/* The only file that knows DPDK's types; see the header. */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cryptodev.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#include "convoy_cryptodev.h"

/* Since this release a session belongs to a device, as it is used here. */
#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

#define BURST 64
/* Data lengths of an mbuf have 16 bits. */
#define LONGEST UINT16_MAX

/* An operation and all that it points to, in memory that a device can reach. */
struct slot {
	struct rte_crypto_op op;
	struct rte_crypto_sym_op sym;
	uint8_t iv[16], aad[32], digest[64];
	struct rte_mbuf source, result;
	uint64_t cookie;
	/* Where results go that the device does not write there itself. */
	uint8_t *packet, *icv_place;
	uint32_t packet_length, icv_length;
	uint8_t *room;
} __rte_cache_aligned;

struct ccd_queue {
	struct slot *slots;
	uint8_t *rooms;
	uint32_t *unused;
	struct ccd_done *rejected;
	uint32_t count, unused_count, rejected_count, room;
	uint16_t number;
	uint8_t device;
};

static struct rte_mempool *session_pools[RTE_CRYPTO_MAX_DEVS];

/* Frames belong to Convoy: DPDK frees none of them. */
static void keep(void *address, void *opaque)
{
	(void)address;
	(void)opaque;
}

static struct rte_mbuf_ext_shared_info owner = { .free_cb = keep };

uint32_t ccd_abi(void)
{
	return CONVOY_CRYPTODEV_ABI;
}

const char *ccd_version(void)
{
	return rte_version();
}

int ccd_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

int ccd_open(const char *name, uint16_t queues, uint32_t descriptors, uint32_t sessions, struct ccd_device *device)
{
	struct rte_cryptodev_info info;
	struct rte_cryptodev_config config = { .nb_queue_pairs = queues };
	struct rte_cryptodev_qp_conf queue = { .nb_descriptors = descriptors };
	char pool[32];
	int id = rte_cryptodev_get_dev_id(name), rc;

	if (id < 0) {
		/* A device on a bus is there since the start, or not at all. */
		if (strchr(name, ':'))
			return -ENODEV;
		rc = rte_eal_hotplug_add("vdev", name, "");
		if (rc)
			return rc < 0 ? rc : -rc;
		id = rte_cryptodev_get_dev_id(name);
		if (id < 0)
			return -ENODEV;
	}
	rte_cryptodev_info_get(id, &info);
	if (queues > info.max_nb_queue_pairs)
		return -ENOSPC;
	memset(device, 0, sizeof *device);
	device->id = id;
	device->is_hardware = !!(info.feature_flags & RTE_CRYPTODEV_FF_HW_ACCELERATED);
	snprintf(device->driver, sizeof device->driver, "%s", info.driver_name);
	config.socket_id = rte_cryptodev_socket_id(id);
	rc = rte_cryptodev_configure(id, &config);
	if (rc)
		return rc;
	if (!session_pools[id]) {
		snprintf(pool, sizeof pool, "convoy_sessions_%d", id);
		session_pools[id] = rte_cryptodev_sym_session_pool_create(pool, sessions,
			rte_cryptodev_sym_get_private_session_size(id), 0, 0, SOCKET_ID_ANY);
		if (!session_pools[id])
			return -ENOMEM;
	}
	queue.mp_session = session_pools[id];
	for (uint16_t number = 0; number < queues; number++) {
		rc = rte_cryptodev_queue_pair_setup(id, number, &queue, config.socket_id);
		if (rc)
			return rc;
	}
	return 0;
}

int ccd_start(int id)
{
	return rte_cryptodev_start(id);
}

void ccd_stop(int id)
{
	rte_cryptodev_stop(id);
}

static enum rte_crypto_aead_algorithm aead_of(const struct ccd_key *key)
{
	return key->aead == CCD_AES_GCM ? RTE_CRYPTO_AEAD_AES_GCM : RTE_CRYPTO_AEAD_CHACHA20_POLY1305;
}

static enum rte_crypto_auth_algorithm auth_of(const struct ccd_key *key)
{
	switch (key->auth) {
	case CCD_HMAC_SHA1:
		return RTE_CRYPTO_AUTH_SHA1_HMAC;
	case CCD_HMAC_SHA256:
		return RTE_CRYPTO_AUTH_SHA256_HMAC;
	case CCD_HMAC_SHA384:
		return RTE_CRYPTO_AUTH_SHA384_HMAC;
	default:
		return RTE_CRYPTO_AUTH_SHA512_HMAC;
	}
}

int ccd_knows(int id, const struct ccd_key *key)
{
	struct rte_cryptodev_sym_capability_idx index;
	const struct rte_cryptodev_symmetric_capability *found;

	if (key->aead) {
		index.type = RTE_CRYPTO_SYM_XFORM_AEAD;
		index.algo.aead = aead_of(key);
		found = rte_cryptodev_sym_capability_get(id, &index);
		return found && !rte_cryptodev_sym_capability_check_aead(found, key->key_length, key->icv,
			key->aad_length, 12);
	}
	if (key->cipher == CCD_IDLE) {
		index.type = RTE_CRYPTO_SYM_XFORM_CIPHER;
		index.algo.cipher = RTE_CRYPTO_CIPHER_NULL;
		return rte_cryptodev_sym_capability_get(id, &index) != NULL;
	}
	if (key->cipher) {
		index.type = RTE_CRYPTO_SYM_XFORM_CIPHER;
		index.algo.cipher = RTE_CRYPTO_CIPHER_AES_CBC;
		found = rte_cryptodev_sym_capability_get(id, &index);
		if (!found || rte_cryptodev_sym_capability_check_cipher(found, key->key_length, 16))
			return 0;
	}
	index.type = RTE_CRYPTO_SYM_XFORM_AUTH;
	index.algo.auth = auth_of(key);
	found = rte_cryptodev_sym_capability_get(id, &index);
	return found && !rte_cryptodev_sym_capability_check_auth(found, key->mac_length, key->icv, 0);
}

void *ccd_session(int id, const struct ccd_key *key, int *is_full)
{
	struct rte_crypto_sym_xform cipher, auth, *first;
	void *session;

	*is_full = !rte_mempool_avail_count(session_pools[id]);
	if (*is_full)
		return NULL;
	memset(&cipher, 0, sizeof cipher);
	memset(&auth, 0, sizeof auth);
	auth.type = RTE_CRYPTO_SYM_XFORM_AUTH;
	auth.auth.op = key->opens ? RTE_CRYPTO_AUTH_OP_VERIFY : RTE_CRYPTO_AUTH_OP_GENERATE;
	auth.auth.algo = auth_of(key);
	auth.auth.key.data = key->mac;
	auth.auth.key.length = key->mac_length;
	auth.auth.digest_length = key->icv;
	if (key->aead) {
		cipher.type = RTE_CRYPTO_SYM_XFORM_AEAD;
		cipher.aead.op = key->opens ? RTE_CRYPTO_AEAD_OP_DECRYPT : RTE_CRYPTO_AEAD_OP_ENCRYPT;
		cipher.aead.algo = aead_of(key);
		cipher.aead.key.data = key->key;
		cipher.aead.key.length = key->key_length;
		cipher.aead.iv.offset = offsetof(struct slot, iv);
		cipher.aead.iv.length = 12;
		cipher.aead.digest_length = key->icv;
		cipher.aead.aad_length = key->aad_length;
		first = &cipher;
	} else if (key->cipher == CCD_IDLE) {
		cipher.type = RTE_CRYPTO_SYM_XFORM_CIPHER;
		cipher.cipher.op = RTE_CRYPTO_CIPHER_OP_ENCRYPT;
		cipher.cipher.algo = RTE_CRYPTO_CIPHER_NULL;
		first = &cipher;
	} else if (key->cipher) {
		cipher.type = RTE_CRYPTO_SYM_XFORM_CIPHER;
		cipher.cipher.op = key->opens ? RTE_CRYPTO_CIPHER_OP_DECRYPT : RTE_CRYPTO_CIPHER_OP_ENCRYPT;
		cipher.cipher.algo = RTE_CRYPTO_CIPHER_AES_CBC;
		cipher.cipher.key.data = key->key;
		cipher.cipher.key.length = key->key_length;
		cipher.cipher.iv.offset = offsetof(struct slot, iv);
		cipher.cipher.iv.length = 16;
		if (key->opens) {
			auth.next = &cipher;
			first = &auth;
		} else {
			cipher.next = &auth;
			first = &cipher;
		}
	} else {
		first = &auth;
	}
	session = rte_cryptodev_sym_session_create(id, first, session_pools[id]);
	explicit_bzero(&cipher, sizeof cipher);
	explicit_bzero(&auth, sizeof auth);
	return session;
}

void ccd_session_free(int id, void *session)
{
	rte_cryptodev_sym_session_free(id, session);
}

/* An mbuf that describes memory of others. */
static void describe(struct rte_mbuf *mbuf)
{
	mbuf->nb_segs = 1;
	rte_mbuf_refcnt_set(mbuf, 1);
	mbuf->ol_flags = RTE_MBUF_F_EXTERNAL;
	mbuf->shinfo = &owner;
	mbuf->buf_len = LONGEST;
}

struct ccd_queue *ccd_queue_open(int id, uint16_t number, uint32_t jobs, uint32_t room)
{
	struct ccd_queue *queue = calloc(1, sizeof *queue);

	if (!queue)
		return NULL;
	queue->device = id;
	queue->number = number;
	queue->count = queue->unused_count = jobs;
	queue->room = RTE_ALIGN_CEIL(room, RTE_CACHE_LINE_SIZE);
	queue->slots = rte_zmalloc("convoy", (size_t)jobs * sizeof *queue->slots, RTE_CACHE_LINE_SIZE);
	queue->rooms = rte_zmalloc("convoy", (size_t)jobs * queue->room, RTE_CACHE_LINE_SIZE);
	queue->unused = calloc(jobs, sizeof *queue->unused);
	queue->rejected = calloc(jobs, sizeof *queue->rejected);
	if (!queue->slots || !queue->rooms || !queue->unused || !queue->rejected) {
		ccd_queue_close(queue);
		return NULL;
	}
	/* Asked of the start of an allocation only: inside one, the answer is a crash in some releases. */
	rte_iova_t slots = rte_malloc_virt2iova(queue->slots);
	for (uint32_t i = 0; i < jobs; i++) {
		struct slot *slot = &queue->slots[i];
		queue->unused[i] = jobs - 1 - i;
		slot->op.type = RTE_CRYPTO_OP_TYPE_SYMMETRIC;
		slot->op.sess_type = RTE_CRYPTO_OP_WITH_SESSION;
		slot->op.phys_addr = slots + i * sizeof *slot;
		slot->room = queue->rooms + (size_t)i * queue->room;
		describe(&slot->source);
		describe(&slot->result);
	}
	return queue;
}

void ccd_queue_close(struct ccd_queue *queue)
{
	if (!queue)
		return;
	if (queue->unused_count == queue->count) {
		/* Nonces begin with a salt, which is secret, and rooms have held packets. */
		if (queue->slots)
			explicit_bzero(queue->slots, (size_t)queue->count * sizeof *queue->slots);
		if (queue->rooms)
			explicit_bzero(queue->rooms, (size_t)queue->count * queue->room);
		rte_free(queue->slots);
		rte_free(queue->rooms);
	}
	free(queue->unused);
	free(queue->rejected);
	free(queue);
}

uint32_t ccd_in_flight(const struct ccd_queue *queue)
{
	return queue->count - queue->unused_count + queue->rejected_count;
}

static inline uint32_t covered_by(const struct ccd_job *job)
{
	return job->header + job->text;
}

/* Drivers check little on their fast path: what they must not see never gets there. */
static inline int can_run(const struct ccd_queue *queue, const struct ccd_job *job)
{
	uint64_t length = (uint64_t)job->header + job->text + sizeof ((struct slot *)0)->digest + 4;

	if (!job->session || length > LONGEST || job->icv > sizeof ((struct slot *)0)->digest)
		return 0;
	return !job->by_copy || length <= queue->room;
}

static inline void point(struct rte_mbuf *mbuf, const uint8_t *bytes, uint32_t length)
{
	mbuf->buf_addr = (void *)(uintptr_t)bytes;
	rte_mbuf_iova_set(mbuf, (rte_iova_t)(uintptr_t)bytes);
	mbuf->data_len = length;
	mbuf->pkt_len = length;
}

static inline void fill(struct slot *slot, const struct ccd_job *job)
{
	struct rte_crypto_sym_op *sym = &slot->sym;
	uint32_t covered = covered_by(job);
	/* What a MAC covers behind the text and nobody sends: the high half of a sequence number. */
	uint32_t behind = job->is_aead ? 0 : job->aad_length;
	rte_iova_t here = slot->op.phys_addr;

	slot->cookie = job->cookie;
	slot->op.status = RTE_CRYPTO_OP_STATUS_NOT_PROCESSED;
	memcpy(slot->iv, job->iv, sizeof slot->iv);
	/* The ICV has a place of its own, so that it never overlaps with what is hashed. */
	slot->icv_length = job->icv;
	slot->icv_place = job->opens ? NULL : job->dst + covered;
	if (job->opens)
		memcpy(slot->digest, job->src + covered, job->icv);
	sym->session = job->session;
	sym->m_src = &slot->source;
	if (job->by_copy) {
		memcpy(slot->room, job->src, covered);
		memcpy(slot->room + covered, job->aad, behind);
		point(&slot->source, slot->room, covered + behind);
		sym->m_dst = NULL;
		slot->packet = job->dst;
		slot->packet_length = covered;
	} else {
		point(&slot->source, job->src, covered);
		point(&slot->result, job->dst, covered);
		/* A MAC is computed where the text is written. */
		memcpy(job->dst, job->src, job->header);
		sym->m_dst = &slot->result;
		slot->packet = NULL;
	}
	if (job->is_aead) {
		memcpy(slot->aad, job->aad, sizeof job->aad);
		sym->aead.data.offset = 0;
		sym->aead.data.length = job->text;
		sym->aead.aad.data = slot->aad;
		sym->aead.aad.phys_addr = here + offsetof(struct slot, aad);
		sym->aead.digest.data = slot->digest;
		sym->aead.digest.phys_addr = here + offsetof(struct slot, digest);
	} else {
		sym->cipher.data.offset = job->header;
		sym->cipher.data.length = job->text;
		sym->auth.data.offset = 0;
		sym->auth.data.length = covered + behind;
		sym->auth.digest.data = slot->digest;
		sym->auth.digest.phys_addr = here + offsetof(struct slot, digest);
	}
}

static void reject(struct ccd_queue *queue, uint64_t cookie)
{
	queue->rejected[queue->rejected_count++] = (struct ccd_done){ .cookie = cookie, .status = CCD_REJECTED };
}

uint32_t ccd_submit(struct ccd_queue *queue, const struct ccd_job *jobs, uint32_t count)
{
	struct rte_crypto_op *ops[BURST];
	uint32_t taken = 0;

	while (taken < count) {
		uint32_t room = queue->count - ccd_in_flight(queue), ready = 0, accepted;

		if (!room)
			break;
		if (!can_run(queue, &jobs[taken])) {
			reject(queue, jobs[taken++].cookie);
			continue;
		}
		while (ready < RTE_MIN(RTE_MIN(count - taken, room), (uint32_t)BURST)) {
			const struct ccd_job *job = &jobs[taken + ready];
			struct slot *slot = &queue->slots[queue->unused[queue->unused_count - 1 - ready]];

			if (!can_run(queue, job))
				break;
			fill(slot, job);
			ops[ready++] = &slot->op;
		}
		accepted = rte_cryptodev_enqueue_burst(queue->device, queue->number, ops, ready);
		queue->unused_count -= accepted;
		taken += accepted;
		if (accepted < ready) {
			uint8_t status = ops[accepted]->status;

			/* The queue is full; or this one can never run, of which the driver says why in its status. */
			if (status == RTE_CRYPTO_OP_STATUS_NOT_PROCESSED || status == RTE_CRYPTO_OP_STATUS_SUCCESS)
				break;
			reject(queue, jobs[taken++].cookie);
		}
	}
	return taken;
}

uint32_t ccd_poll(struct ccd_queue *queue, struct ccd_done *done, uint32_t count)
{
	struct rte_crypto_op *ops[BURST];
	uint32_t got = 0;

	while (queue->rejected_count && got < count)
		done[got++] = queue->rejected[--queue->rejected_count];
	while (got < count) {
		uint32_t want = RTE_MIN(count - got, (uint32_t)BURST);
		uint32_t found = rte_cryptodev_dequeue_burst(queue->device, queue->number, ops, want);

		for (uint32_t i = 0; i < found; i++) {
			struct slot *slot = (struct slot *)ops[i];

			/* Some drivers keep a ring over a close, with what an earlier queue left in it. */
			if (slot < queue->slots || slot >= queue->slots + queue->count)
				continue;
			uint8_t status = slot->op.status;
			uint32_t told = status == RTE_CRYPTO_OP_STATUS_SUCCESS ? CCD_DONE :
				status == RTE_CRYPTO_OP_STATUS_AUTH_FAILED ? CCD_BAD_ICV : CCD_REJECTED;
			if (told == CCD_DONE && slot->packet)
				memcpy(slot->packet, slot->room, slot->packet_length);
			if (told == CCD_DONE && slot->icv_place)
				memcpy(slot->icv_place, slot->digest, slot->icv_length);
			done[got++] = (struct ccd_done){ .cookie = slot->cookie, .status = told };
			queue->unused[queue->unused_count++] = slot - queue->slots;
		}
		if (found < want)
			break;
	}
	return got;
}
