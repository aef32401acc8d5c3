/*
 * Reads the discovery log page (Base 5.16.1.23) in pieces, by Get Log Page on the admin queue of a
 * discovery controller that nvme_fabrics brought up. Pure, any thread, no allocation.
 *
 *	nvme_discovery_init(&d, max_transfer_bytes, on_entry, ctx);
 *	while (d.step == NVME_DISCOVERY_READ)
 *		nvme_command_get_log(sqe, &d.request); d.request.bytes of it come to `data`
 *		nvme_discovery_feed(&d, data, bytes that came)
 *
 * As Linux' and libnvme's: the header is read first and again at the end; if its generation has
 * changed meanwhile, all is read once more: on_entry is called without an entry, so that what came
 * before is forgotten, then from index 0 on.
 */
#ifndef BACKENDS_NVME_NVME_DISCOVERY_H
#define BACKENDS_NVME_NVME_DISCOVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_command.h"

/* Limits: beyond each, it fails and says so. */
#define NVME_DISCOVERY_ENTRIES_MAX 4096u
#define NVME_DISCOVERY_ROUNDS_MAX 10u
/* A header or entries: the owner's buffer has at least these. */
#define NVME_DISCOVERY_PIECE_BYTES 4096u

enum nvme_trtype {
	NVME_TRTYPE_RDMA = 1,
	NVME_TRTYPE_FC = 2,
	NVME_TRTYPE_TCP = 3,
	NVME_TRTYPE_LOOP = 254
};
enum nvme_adrfam {
	NVME_ADRFAM_IPV4 = 1,
	NVME_ADRFAM_IPV6 = 2,
	NVME_ADRFAM_IB = 3,
	NVME_ADRFAM_FC = 4
};
enum nvme_subtype { NVME_SUBTYPE_REFERRAL = 1, NVME_SUBTYPE_NVME = 2, NVME_SUBTYPE_CURRENT = 3 };

/* Texts are printable, without the spaces at their end. */
struct nvme_discovery_entry {
	uint8_t trtype, adrfam, subtype; /* enums above, or what is not known */
	bool tls; /* TREQ: a secure channel is required, or the entry's type */
	uint16_t port_id, cntlid;
	char trsvcid[33], traddr[257];
	char subnqn[NVME_NQN_FIELD_BYTES + 1];
};

enum nvme_discovery_step { NVME_DISCOVERY_READ, NVME_DISCOVERY_DONE, NVME_DISCOVERY_FAILED };

struct nvme_discovery {
	enum nvme_discovery_step step;
	struct nvme_log_request request; /* READ: what to ask for */
	uint64_t entries_nr;		 /* DONE */
	char error[160];		 /* FAILED; the error is -EPROTO, or -EOPNOTSUPP */
	int err;
	/* The reader's. */
	uint64_t generation;
	uint32_t piece_bytes;
	uint32_t next_idx, rounds_nr;
	bool has_generation;
	void (*on_entry)(void *ctx, uint32_t idx, const struct nvme_discovery_entry *entry);
	void *ctx;
};

/*
 * max_transfer_bytes: of the controller and of the owner's buffer; at least
 * NVME_DISCOVERY_PIECE_BYTES.
 */
void nvme_discovery_init(struct nvme_discovery *d, uint32_t max_transfer_bytes,
			 void (*on_entry)(void *ctx, uint32_t idx,
					  const struct nvme_discovery_entry *entry),
			 void *ctx);

enum nvme_discovery_step nvme_discovery_feed(struct nvme_discovery *d, const uint8_t *data,
					     uint32_t bytes);

void nvme_discovery_decode(const uint8_t at[static NVME_DISCOVERY_ENTRY_BYTES],
			   struct nvme_discovery_entry *ret);

/* "tcp", "ipv4", "nvme subsystem"; "unknown". */
const char *nvme_trtype_name(uint8_t trtype);
const char *nvme_adrfam_name(uint8_t adrfam);
const char *nvme_subtype_name(uint8_t subtype);

#endif
