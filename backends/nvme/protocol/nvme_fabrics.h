/*
 * How a host brings up a queue of an NVMe controller over fabrics, from Connect to the first I/O: a
 * state machine over commands and completions, without sockets or PDUs. Pure, any thread, no
 * allocation; the owner moves commands and keeps the time.
 *
 * ADMIN, in this order: Connect; DH-HMAC-CHAP, if the target asks for it; the properties CAP, VS,
 * CC; CC.EN = 0 and CSTS.RDY = 0 if it was enabled; CC.EN = 1, CSTS.RDY = 1; Identify Controller;
 * its limits; Set Features (queues); the namespace, by its number or searched for among all; its
 * identifiers; Identify Namespace; its ANA state; Set Features (events).
 * DISCOVERY: the same without queues and namespaces. IO: Connect and DH-HMAC-CHAP alone.
 *
 *	nvme_fabrics_init(&f, &config);
 *	for (;;)
 *		switch (f.step) {
 *		case NVME_FABRICS_COMMAND:
 *			send f.sqe (nvme_command_set_cid first) with the f.out_bytes of f.data in
 *			the capsule; what it reads, f.in_bytes (fewer if f.short_ok), goes to
 *			f.data. Then
 *			nvme_fabrics_completed(&f, &cqe, bytes that came)
 *		case NVME_FABRICS_PAUSE:
 *			after f.pause_ms: nvme_fabrics_paused(&f)
 *		case NVME_FABRICS_DONE:
 *			f.controller, f.namespace: of IO only controller.no_sq_flow
 *		case NVME_FABRICS_FAILED:
 *			f.error in words, f.err; f.may_retry: it can be better later
 *		}
 *	and at any time: nvme_fabrics_gone, when the connection ended or an answer is late
 *
 * Nothing of what a controller says is trusted: counts have limits, lists must ascend, texts are
 * cut and made printable.
 */
#ifndef BACKENDS_NVME_NVME_FABRICS_H
#define BACKENDS_NVME_NVME_FABRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_auth.h"
#include "backends/nvme/protocol/nvme_identify.h"
#include "backends/nvme/protocol/nvme_namespace.h"
#include "backends/nvme/protocol/nvme_proto.h"

/* Limits: beyond each, it fails and says so. */
#define NVME_FABRICS_NAMESPACES_MAX 4096u /* looked at in a search */
#define NVME_FABRICS_ANA_GROUPS_MAX 256u
#define NVME_FABRICS_DATA_BYTES                                                                    \
	(NVME_ANA_HEAD_BYTES + NVME_FABRICS_ANA_GROUPS_MAX * NVME_ANA_GROUP_BYTES)

#define NVME_FABRICS_ERROR_BYTES 640 /* two NQNs, and what is said of them */
#define NVME_FABRICS_PAUSE_MS 50u
#define NVME_FABRICS_ADMIN_ENTRIES 32u /* as Linux' NVME_AQ_DEPTH */

enum nvme_fabrics_mode { NVME_FABRICS_ADMIN, NVME_FABRICS_DISCOVERY, NVME_FABRICS_IO };

struct nvme_fabrics_config {
	enum nvme_fabrics_mode mode;
	/* Texts are the owner's, and stay; nvme_nqn_check has seen them. */
	const char *subsystem_nqn, *host_nqn;
	uint8_t host_id[16];
	bool sq_flow;	       /* wanted; without it a controller may use C2HData's SUCCESS */
	uint32_t kato_ms;      /* ADMIN, DISCOVERY: 0 for none */
	uint32_t queues_nr;    /* ADMIN: I/O queues wanted, 1 to 65535 */
	uint32_t entries_nr;   /* ADMIN, IO: of an I/O queue, 2 to 65536; IO: as controller says */
	struct nvme_want want; /* ADMIN */
	uint16_t cntlid, qid;  /* IO: of the controller, and from 1 */
	/*
	 * DH-HMAC-CHAP (nvme_dhchap_key.h), in all modes; the owner's, and stay. host_key: what
	 * this host proves when the target asks for that, NULL: nothing. controller_key, with
	 * host_key only: what every controller must prove, NULL: nothing.
	 */
	const struct nvme_dhchap_key *host_key, *controller_key;
};

/* What was found out about the controller. */
struct nvme_controller {
	uint16_t cntlid;
	bool no_sq_flow; /* SQHD says nothing; of this queue */
	uint32_t vs;
	uint64_t cap;
	struct nvme_id_controller id;
	uint32_t max_transfer_bytes; /* of one command (MDTS); UINT32_MAX: no limit */
	uint32_t capsule_data_bytes; /* in a capsule of an I/O queue (IOCCSZ); 0: none */
	uint32_t queues_nr;	     /* I/O queues granted, at most as wanted */
	uint32_t entries_nr;	     /* for Connect of an I/O queue */
	uint32_t commands_nr; /* under way at a time on it (MAXCMD, and one less than entries) */
	/* Of WRITE_ZEROES and DSM: as for max_transfer_bytes, and always within a command's fields.
	 */
	uint32_t max_zeroes_bytes;
	uint32_t max_ranges_nr, max_range_blocks;
	uint64_t max_discard_blocks; /* of all ranges of a command; UINT64_MAX: no limit */
	bool has_write_cache;	     /* VWC: FLUSH means something */
	bool has_deallocate, has_write_zeroes; /* ONCS */
	bool has_ana;
	uint32_t events; /* NVME_AEN_* that were switched on */
};

enum nvme_fabrics_step {
	NVME_FABRICS_COMMAND,
	NVME_FABRICS_PAUSE,
	NVME_FABRICS_DONE,
	NVME_FABRICS_FAILED,
};

/*
 * For nvme_fabrics*.c, but for what has a comment that says so. It stays where it is until DONE or
 * FAILED; an owner that forgets it earlier calls nvme_fabrics_gone, for there are secrets in it.
 */
struct nvme_fabrics {
	struct nvme_fabrics_config config;
	enum nvme_fabrics_step step; /* the owner's, and so are the next six */
	uint8_t sqe[NVME_SQE_BYTES];
	uint32_t out_bytes, in_bytes;
	bool short_ok; /* fewer than in_bytes are a success too, as in nvme_slot.h */
	uint32_t pause_ms;
	struct nvme_controller controller; /* when DONE */
	struct nvme_namespace namespace;
	/*
	 * When FAILED, printable words, and why: -EPROTO the controller broke the protocol,
	 * -ENOENT no such subsystem or namespace, -EACCES this host is refused or the controller
	 * does not prove itself, -EOPNOTSUPP the controller cannot what is needed, -EBUSY,
	 * -ETIMEDOUT, -ECONNRESET, or of nvme_status.h.
	 */
	char error[NVME_FABRICS_ERROR_BYTES];
	int err;
	bool may_retry;

	uint8_t state;
	uint32_t cc;	   /* as it was written last */
	uint32_t ready_ms; /* CAP.TO: all */
	uint32_t left_ms;  /* ... and what is left of it */
	/* Of a search. */
	uint32_t candidates_nr, candidate_idx, looked_nr;
	uint32_t candidates[NVME_LIST_NR];
	struct nvme_auth auth;
	uint8_t data[NVME_FABRICS_DATA_BYTES]; /* the owner's as said above */
};

void nvme_fabrics_init(struct nvme_fabrics *f, const struct nvme_fabrics_config *config);

/*
 * in_bytes: that came for f->data; all f->in_bytes if the status is success and not f->short_ok.
 * Returns the step.
 */
enum nvme_fabrics_step nvme_fabrics_completed(struct nvme_fabrics *f, const struct nvme_cqe *cqe,
					      uint32_t in_bytes);
enum nvme_fabrics_step nvme_fabrics_paused(struct nvme_fabrics *f);

/*
 * The connection ended (-ECONNRESET ...) or an answer is late (-ETIMEDOUT): FAILED with what this
 * means here, or DONE as it was.
 */
enum nvme_fabrics_step nvme_fabrics_gone(struct nvme_fabrics *f, int err);

/*
 * Asks for the ANA states of all groups, of NVME_FABRICS_ANA_GROUPS_MAX at most. Returns the bytes
 * of the answer.
 */
uint32_t nvme_fabrics_ana_command(const struct nvme_controller *controller,
				  uint8_t sqe[static NVME_SQE_BYTES]);

/* Why Identify Controller, Connect or a namespace does not do; for nvme_fabrics.c. 0 or -errno. */
int nvme_fabrics_judge_controller(struct nvme_fabrics *f);
void nvme_fabrics_judge_limits(struct nvme_fabrics *f);
int nvme_fabrics_judge_connect(struct nvme_fabrics *f, const struct nvme_cqe *cqe);
int nvme_fabrics_judge_command_set(struct nvme_fabrics *f);

/*
 * For nvme_fabrics.c: result is that of Connect. Return 1: f->sqe is a command, with the lengths of
 * f->auth; 0: authenticated, or nobody wants that; -errno with words in f->error.
 */
int nvme_fabrics_auth_start(struct nvme_fabrics *f, uint32_t result);
int nvme_fabrics_auth_completed(struct nvme_fabrics *f, const struct nvme_cqe *cqe,
				uint32_t in_bytes);

#endif
