/*
 * The admin queue of one association with an NVMe controller: a connection of its own, brought up,
 * kept alive, and asked one question at a time. The I/O queue of the association is another
 * connection, and somebody else's; when one of the two ends the other must be closed, too (Base
 * 3.3.2.2 has a controller end the association then).
 *
 *   IDLE --begin--> CONNECTING --> (SECURING -->) ICREQ --> BRINGING_UP --> READY
 *     ^________________________ CLOSING <__________|____________|
 *     ^_ CLOSING <-- LEAVING (shutdown is being said) <-- close _/
 *
 * Reactor thread; all memory comes from nvme_admin_new. What the owner is told it is told from a
 * turn, never from inside of its own calls.
 */
#ifndef BACKENDS_NVME_NVME_ADMIN_H
#define BACKENDS_NVME_NVME_ADMIN_H

#include <sys/socket.h>

#include "backends/nvme/protocol/nvme_fabrics.h"
#include "backends/nvme/protocol/nvme_pdu.h"
#include "net/session_look.h"
#include "net/tls.h"
#include "reactor/reactor.h"

struct nvme_admin;

struct nvme_admin_ops {
	/* The controller has answered a command of the bring-up, and more follow. NULL: no matter.
	 */
	void (*progress)(void *arg);
	/* It is READY: nvme_admin_found says what was found. May ask, and close. */
	void (*ready)(void *arg);
	/*
	 * It ended by itself, and is idle; words for people, gone when this returns. With
	 * NET_END_UNREACHABLE nobody accepted the connection. May begin again.
	 */
	void (*ended)(void *arg, enum net_end end, int err, const char *words);
	/* The controller reports an event: dword 0 of its completion. May ask. NULL: none wanted.
	 */
	void (*event)(void *arg, uint32_t result);
};

struct nvme_admin_params {
	const struct nvme_admin_ops *ops;
	void *arg;
	unsigned queue_idx, leg;	    /* of the stream, for traces */
	struct nvme_fabrics_config fabrics; /* ADMIN or DISCOVERY; its kato_ms is kept */
	bool header_digest, data_digest;
	const struct tls_credentials *tls; /* NULL: no TLS */
	uint64_t timeout_ns;		   /* of connecting, and of each answer */
};

/* Returns 0, -ENOMEM or -ENOBUFS. params are copied; texts of fabrics stay the owner's. */
int nvme_admin_new(struct nvme_admin **ret_admin, struct reactor *reactor,
		   const struct nvme_admin_params *params);

/*
 * Idle, or closed by nvme_admin_close: connects to this address, when its last connection is gone.
 * `ready` or `ended` follows.
 */
void nvme_admin_begin(struct nvme_admin *a, const struct sockaddr *address,
		      socklen_t address_bytes);

/* Says shutdown, if it can, and closes. The owner is told nothing until it begins again. */
void nvme_admin_close(struct nvme_admin *a);

/* As nvme_admin_close, and it frees itself (reactor_leave_begin). Accepts NULL. */
void nvme_admin_forget(struct nvme_admin *a);

/* READY, and its stream has not ended in this turn: what it can be asked goes out. */
bool nvme_admin_is_ready(const struct nvme_admin *a);

/* What it waits for: "connecting", "waiting for the target's answer to Identify Controller". */
const char *nvme_admin_doing(const struct nvme_admin *a, char *buf, size_t bytes);

/* From READY until it begins again: the controller and the namespace, as they were found. */
const struct nvme_fabrics *nvme_admin_found(const struct nvme_admin *a);

/* bytes: that came into buf; all that were asked for if the status is success. */
typedef void nvme_admin_answer(void *arg, const struct nvme_cqe *cqe, uint32_t bytes);

/*
 * READY, and no other question under way: a command of nvme_command.h without data of its own; what
 * it answers goes to buf, which stays the caller's until fn. When the connection ends, `ended`
 * follows instead.
 */
void nvme_admin_ask(struct nvme_admin *a, uint8_t *sqe, void *buf, uint32_t bytes,
		    nvme_admin_answer *fn);

bool nvme_admin_is_asking(const struct nvme_admin *a);

/* READY: asks the controller to end a command of this queue; its answer is waited for. */
void nvme_admin_abort(struct nvme_admin *a, uint16_t qid, uint16_t cid);

#endif
