/*
 * Compressed clusters: of each queue the last one, unpacked, as requests for its parts follow each
 * other. The queue's reactor. Owns two buffers, which cost memory only when they are used.
 *
 * Happy path: ask -> the packed bytes are read, in pieces that the child takes -> unpacked -> those
 * that asked look again. One is read at a time; others wait for their turn.
 *
 * Failure modes: a stream that is broken or too short fails the requests for this cluster.
 */
#include "backends/qcow2/qcow2.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/counter.h"
#include "base/log.h"
#include "base/util.h"

struct qcow2_unpacked {
	struct qcow2_queue *q;
	struct qcow2_decompress *decompress;
	uint8_t *cluster, *packed;
	size_t packed_bytes, cluster_bytes;
	uint64_t entry;		/* of cluster; 0: none */
	uint64_t wanted;	/* being read */
	uint64_t at, end, next; /* of the image: what is read for it */
	struct qcow2_io *user;	/* whose buffer reads it; NULL: nobody's */
	struct list_node waiting;
};

static void *pages_new(size_t bytes)
{
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

int qcow2_unpacked_init(struct qcow2_queue *q)
{
	const struct qcow2_header *h = &q->d->header;
	struct qcow2_unpacked *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	q->unpacked = u;
	u->q = q;
	list_init(&u->waiting);
	u->cluster_bytes = qcow2_cluster_bytes(&h->g);
	/* What an entry can say at most, and whole blocks around it. */
	u->packed_bytes =
		2 * u->cluster_bytes + 2 * q->queue->device->open_params.logical_block_bytes;
	u->decompress = qcow2_decompress_new(h->compression);
	u->cluster = pages_new(u->cluster_bytes);
	u->packed = pages_new(u->packed_bytes);
	return u->decompress && u->cluster && u->packed ? 0 : -ENOMEM;
}

void qcow2_unpacked_fini(struct qcow2_queue *q)
{
	struct qcow2_unpacked *u = q->unpacked;

	if (!u)
		return;
	qcow2_decompress_free(u->decompress);
	if (u->cluster)
		munmap(u->cluster, u->cluster_bytes);
	if (u->packed)
		munmap(u->packed, u->packed_bytes);
	free(u);
	q->unpacked = NULL;
}

const uint8_t *qcow2_unpacked_find(const struct qcow2_queue *q, uint64_t entry)
{
	return q->unpacked->entry == entry ? q->unpacked->cluster : NULL;
}

static void tell_all(struct qcow2_unpacked *u, struct qcow2_io *first, int result)
{
	struct list_node waiting;
	struct list_node *node;

	/* Those that begin to wait meanwhile wait for the next one. */
	list_init(&waiting);
	list_splice(&waiting, &u->waiting);
	first->answer = result;
	qcow2_bounce_looked(first);
	while ((node = list_pop_front(&waiting))) {
		struct qcow2_io *s = list_entry(node, struct qcow2_io, waiting);

		/* Perhaps it wants another cluster, and asks for that. */
		s->answer = 0;
		qcow2_bounce_looked(s);
	}
}

static void unpack(struct qcow2_unpacked *u, int result)
{
	const struct qcow2_header *h = &u->q->d->header;
	struct qcow2_io *s = u->user;
	uint64_t at, bytes;

	qcow2_compressed_range(&h->g, u->wanted, &at, &bytes);
	u->user = NULL;
	u->entry = 0;
	if (result == 0)
		result = qcow2_decompress(u->decompress, u->cluster, u->cluster_bytes,
					  u->packed + (at - u->at), MIN(bytes, u->end - at));
	if (result == 0)
		u->entry = u->wanted;
	else
		log_limited(LOG_LEVEL_ERROR, "a compressed cluster cannot be read",
			    "node=%s image_offset_bytes=%llu", u->q->queue->device->name,
			    (unsigned long long)at);
	tell_all(u, s, result);
}

static void read_next(struct qcow2_unpacked *u);

static void packed_read(struct qcow2_own *own, int result)
{
	struct qcow2_io *s = own->arg;
	struct qcow2_unpacked *u = qcow2_queue_of(s)->unpacked;

	if (result < 0 || u->next == u->end)
		unpack(u, result);
	else
		read_next(u);
}

static void read_next(struct qcow2_unpacked *u)
{
	uint64_t bytes = MIN(u->end - u->next, u->q->d->chunk_bytes);
	uint8_t *to = u->packed + (u->next - u->at);
	uint64_t from = u->next;

	u->next += bytes;
	qcow2_own_submit(u->user->bounce.own, u->q->d->data_idx, BACKEND_READ, from, to, bytes,
			 packed_read);
}

void qcow2_unpacked_ask(struct qcow2_io *s, uint64_t entry)
{
	struct qcow2_queue *q = qcow2_queue_of(s);
	struct qcow2_unpacked *u = q->unpacked;
	uint32_t block = q->queue->device->open_params.logical_block_bytes;
	uint64_t at, bytes;

	if (u->user) {
		list_push_back(&u->waiting, &s->waiting);
		return;
	}
	counter_add(&q->unpacks, 1);
	u->user = s;
	u->wanted = entry;
	qcow2_compressed_range(&q->d->header.g, entry, &at, &bytes);
	u->at = u->next = round_down(at, block);
	/* The sectors of the last one may end beyond the image. */
	u->end = MIN(round_up(at + bytes, block), q->d->data_bytes);
	read_next(u);
}
