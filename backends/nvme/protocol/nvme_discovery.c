/*
 * The discovery log page. Owns struct nvme_discovery; the owner's thread.
 *
 * Happy path: header (generation, number) -> entries, as many at a time as a transfer has room for
 * -> header again -> DONE. Failure modes: more entries than the limit, a generation that changes
 * with every round, a short answer: FAILED with words. The model is libnvme's
 * nvmf_get_discovery_log.
 */
#include "backends/nvme/protocol/nvme_discovery.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/printable.h"
#include "base/util.h"

__attribute__((format(printf, 3, 4))) static void discovery_fail(struct nvme_discovery *d, int err,
								 const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(d->error, sizeof(d->error), fmt, args);
	va_end(args);
	d->err = err;
	d->step = NVME_DISCOVERY_FAILED;
}

static void discovery_ask(struct nvme_discovery *d, uint64_t at_bytes, uint32_t bytes)
{
	d->request = (struct nvme_log_request){
		.log = NVME_LOG_DISCOVERY,
		/* The event of a change stays until the last header was read. */
		.retain = true,
		.at_bytes = at_bytes,
		.bytes = bytes,
	};
}

/* The header has as many bytes as an entry. */
static void discovery_ask_header(struct nvme_discovery *d)
{
	discovery_ask(d, 0, NVME_DISCOVERY_ENTRY_BYTES);
	d->request.retain = !d->has_generation;
}

static void discovery_ask_next(struct nvme_discovery *d)
{
	uint64_t left = (d->entries_nr - d->next_idx) * NVME_DISCOVERY_ENTRY_BYTES;

	if (left == 0)
		return discovery_ask_header(d);
	discovery_ask(d, (uint64_t)(d->next_idx + 1) * NVME_DISCOVERY_ENTRY_BYTES,
		      (uint32_t)MIN(left, (uint64_t)d->piece_bytes));
}

static void discovery_take_header(struct nvme_discovery *d, const uint8_t *data)
{
	uint64_t generation = nvme_get64(data), nr = nvme_get64(data + 8);
	unsigned format = nvme_get16(data + 16);

	if (d->has_generation && d->generation == generation && d->entries_nr == nr) {
		d->step = NVME_DISCOVERY_DONE;
		return;
	}
	if (format != 0)
		return discovery_fail(d, -EOPNOTSUPP,
				      "the discovery log page has format %u: only 0 is known",
				      format);
	if (nr > NVME_DISCOVERY_ENTRIES_MAX)
		return discovery_fail(d, -EOPNOTSUPP,
				      "the discovery log page has %llu entries, above the limit of "
				      "%u",
				      (unsigned long long)nr, NVME_DISCOVERY_ENTRIES_MAX);
	if (d->rounds_nr++ == NVME_DISCOVERY_ROUNDS_MAX)
		return discovery_fail(d, -EPROTO,
				      "the discovery log page changed %u times while it was read",
				      NVME_DISCOVERY_ROUNDS_MAX);
	if (d->has_generation)
		d->on_entry(d->ctx, 0, NULL);
	d->has_generation = true;
	d->generation = generation;
	d->entries_nr = nr;
	d->next_idx = 0;
	discovery_ask_next(d);
}

static void discovery_take_entries(struct nvme_discovery *d, const uint8_t *data, uint32_t bytes)
{
	struct nvme_discovery_entry entry;

	for (uint32_t at = 0; at < bytes; at += NVME_DISCOVERY_ENTRY_BYTES) {
		nvme_discovery_decode(data + at, &entry);
		d->on_entry(d->ctx, d->next_idx++, &entry);
	}
	discovery_ask_next(d);
}

enum nvme_discovery_step nvme_discovery_feed(struct nvme_discovery *d, const uint8_t *data,
					     uint32_t bytes)
{
	ASSERT(d->step == NVME_DISCOVERY_READ && bytes <= d->request.bytes);
	if (bytes < d->request.bytes)
		discovery_fail(d, -EPROTO,
			       "%u bytes of the discovery log page came, asked for "
			       "were %u",
			       bytes, d->request.bytes);
	else if (d->request.at_bytes == 0)
		discovery_take_header(d, data);
	else
		discovery_take_entries(d, data, bytes);
	return d->step;
}

void nvme_discovery_init(struct nvme_discovery *d, uint32_t max_transfer_bytes,
			 void (*on_entry)(void *ctx, uint32_t idx,
					  const struct nvme_discovery_entry *entry),
			 void *ctx)
{
	ASSERT(max_transfer_bytes >= NVME_DISCOVERY_PIECE_BYTES);
	*d = (struct nvme_discovery){
		.step = NVME_DISCOVERY_READ,
		.piece_bytes = (uint32_t)round_down(MIN(max_transfer_bytes, 1u << 20),
						    NVME_DISCOVERY_ENTRY_BYTES),
		.on_entry = on_entry,
		.ctx = ctx,
	};
	discovery_ask_header(d);
}

/* ---- an entry ---- */

static void discovery_text(char *buf, size_t buf_bytes, const uint8_t *at, size_t bytes)
{
	size_t nr = strnlen((const char *)at, bytes);

	while (nr > 0 && at[nr - 1] == ' ')
		nr--;
	printable(buf, buf_bytes, at, nr);
}

void nvme_discovery_decode(const uint8_t at[static NVME_DISCOVERY_ENTRY_BYTES],
			   struct nvme_discovery_entry *ret)
{
	/* TREQ bits 1:0: 1 required; TSAS of TCP: SECTYPE, 0 none: TCP 3.1.1. */
	bool required = (at[3] & 3) == 1;
	bool secure = at[0] == NVME_TRTYPE_TCP && at[768] != 0;

	*ret = (struct nvme_discovery_entry){
		.trtype = at[0],
		.adrfam = at[1],
		.subtype = at[2],
		.tls = required || secure,
		.port_id = nvme_get16(at + 4),
		.cntlid = nvme_get16(at + 6),
	};
	discovery_text(ret->trsvcid, sizeof(ret->trsvcid), at + 32, 32);
	discovery_text(ret->subnqn, sizeof(ret->subnqn), at + 256, 256);
	discovery_text(ret->traddr, sizeof(ret->traddr), at + 512, 256);
}

const char *nvme_trtype_name(uint8_t trtype)
{
	switch (trtype) {
	case NVME_TRTYPE_RDMA:
		return "rdma";
	case NVME_TRTYPE_FC:
		return "fc";
	case NVME_TRTYPE_TCP:
		return "tcp";
	case NVME_TRTYPE_LOOP:
		return "loop";
	default:
		return "unknown";
	}
}

const char *nvme_adrfam_name(uint8_t adrfam)
{
	switch (adrfam) {
	case NVME_ADRFAM_IPV4:
		return "ipv4";
	case NVME_ADRFAM_IPV6:
		return "ipv6";
	case NVME_ADRFAM_IB:
		return "ib";
	case NVME_ADRFAM_FC:
		return "fc";
	default:
		return "unknown";
	}
}

const char *nvme_subtype_name(uint8_t subtype)
{
	switch (subtype) {
	case NVME_SUBTYPE_REFERRAL:
		return "referral";
	case NVME_SUBTYPE_NVME:
		return "nvme subsystem";
	case NVME_SUBTYPE_CURRENT:
		return "current discovery subsystem";
	default:
		return "unknown";
	}
}
