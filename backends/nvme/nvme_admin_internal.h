/* Shared by nvme_admin.c and nvme_admin_command.c only. */
#ifndef BACKENDS_NVME_NVME_ADMIN_INTERNAL_H
#define BACKENDS_NVME_NVME_ADMIN_INTERNAL_H

#include "backends/nvme/nvme_admin.h"
#include "backends/nvme/protocol/nvme_receive.h"
#include "net/stream.h"
#include "net/tls_start.h"

/* Answers are a page at most, of data and a few PDUs around it. */
#define ADMIN_RECEIVE_BYTES (8u << 10)
/* Head, data and digest of each command, and of one that was answered before its end was seen. */
#define PIECES (2u * COMMAND_NR * 3u)
enum command { ASK, EVENT, KEEP_ALIVE, ABORT, SHUTDOWN, COMMAND_NR };

#define COMMAND_BITS 3u
_Static_assert(COMMAND_NR <= 1u << COMMAND_BITS, "its index is in the identifier");

enum admin_state { IDLE, CONNECTING, SECURING, ICREQ, BRINGING_UP, READY, LEAVING, CLOSING };

struct admin_command {
	struct nvme_slot slot;
	uint16_t cid; /* with a number, so that no late answer is taken for one of now */
	uint64_t deadline_ns;
	uint8_t *buf; /* where its data come to */
	uint8_t head[NVME_PDU_HEAD_BYTES_MAX], digest[NVME_DIGEST_BYTES];
};

struct nvme_admin {
	struct stream stream;
	enum admin_state state;
	struct nvme_admin_params params;
	struct tls_start tls;
	struct nvme_receive receive;
	struct nvme_fabrics fabrics;
	struct admin_command command[COMMAND_NR];
	uint16_t cid_nr;
	nvme_admin_answer *answer; /* to what is asked; NULL: nothing is */
	struct timer limit, pause, keepalive;
	bool told;	   /* the end has been said, or nobody wants to know */
	bool begins_again; /* when it is closed */
	bool leaves;	   /* frees itself when it is closed */
	struct sockaddr_storage address;
	socklen_t address_bytes;
	enum net_end end;
	int err;
	char words[NVME_FABRICS_ERROR_BYTES];
	struct iovec pieces[PIECES];
	uint8_t received[ADMIN_RECEIVE_BYTES], plain[STREAM_PLAIN_BYTES];
};

/* nvme_admin_command.c */
/*
 * A command of this kind, of which none is under way. out: goes in the capsule. in_bytes: come to
 * in. limit_ns 0: as long as it takes.
 */
void nvme_admin_send(struct nvme_admin *a, enum command idx, uint8_t *sqe, const void *out,
		     uint32_t out_bytes, void *in, uint32_t in_bytes, uint64_t limit_ns);
/* For nvme_receive_init. */
struct nvme_slot *nvme_admin_lookup(void *ctx, uint16_t cid);
void nvme_admin_wait_for_event(struct nvme_admin *a);
void nvme_admin_keep_alive_later(struct nvme_admin *a);
void nvme_admin_on_keepalive(struct timer *timer);
/* Of the commands under way; UINT64_MAX: none. */
uint64_t nvme_admin_next_deadline_ns(const struct nvme_admin *a);

#endif
