/*
 * What an NVMe/TCP target offers: an association that is brought up, asked, and ended. Before a
 * device is opened, and for ublkctl nvme-discover.
 */
#ifndef BACKENDS_NVME_NVME_EXAMINE_H
#define BACKENDS_NVME_NVME_EXAMINE_H

#include "backends/nvme/protocol/nvme_discovery.h"
#include "backends/nvme/protocol/nvme_fabrics.h"
#include "net/address.h"
#include "net/tls.h"
#include "reactor/reactor.h"

struct nvme_examine_params {
	struct nvme_fabrics_config fabrics; /* ADMIN, or DISCOVERY; copied, its texts outlive it */
	bool header_digest, data_digest;
	const struct tls_credentials *tls; /* NULL: no TLS */
	const char *whom;		   /* for words: net_host_format; outlives the question */
	const struct net_addresses *addresses; /* copied; where to try, in this order */
	uint64_t timeout_ns;		       /* for all of it */
	/* DISCOVERY: as nvme_discovery_init has it. */
	void (*on_entry)(void *arg, uint32_t idx, const struct nvme_discovery_entry *entry);
};

struct nvme_examine;

/*
 * found: with ret 0, as nvme_fabrics has it when it is DONE. words: with ret < 0 for the user:
 * whom, what, the cure. Both are gone when it returns. It is over afterwards: no forget.
 */
typedef void nvme_examine_fn(void *arg, int ret, const struct nvme_fabrics *found,
			     const char *words);

/*
 * Tries one address after the other until one answers, each with its share of the time. Reactor
 * thread. Returns 0: fn is called once later, from a turn, never from inside this call; or -ENOMEM,
 * -ENOBUFS.
 */
int nvme_examine_begin(struct nvme_examine **ret_examine, struct reactor *reactor,
		       const struct nvme_examine_params *params, nvme_examine_fn *fn, void *arg);

/* fn is not called any more; what is under way ends by itself soon. Accepts NULL. */
void nvme_examine_forget(struct nvme_examine *e);

/* What it waits for, in words, static or in buf. */
const char *nvme_examine_doing(const struct nvme_examine *e, char *buf, size_t bytes);

/*
 * Any thread without a reactor of its own, which may wait: finds the addresses of the host and
 * asks, on a small reactor made for it; params without whom and addresses. Returns 0, or -errno
 * with words for the user.
 */
int nvme_examine_wait(const struct net_host *host, const struct nvme_examine_params *params,
		      void *arg, char *error, size_t error_bytes);

#endif
