/*
 * Which namespace of a subsystem is wanted, and what is known of the one that was found. Pure, any
 * thread.
 */
#ifndef BACKENDS_NVME_NVME_NAMESPACE_H
#define BACKENDS_NVME_NVME_NAMESPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_identify.h"

enum nvme_want_by {
	NVME_WANT_ONLY, /* the subsystem must have exactly one */
	NVME_WANT_NSID,
	NVME_WANT_UUID,
	NVME_WANT_NGUID,
	NVME_WANT_EUI64,
};

struct nvme_want {
	enum nvme_want_by by;
	uint32_t nsid;
	uint8_t id[16]; /* EUI64: the first 8 */
};

/* 32 hex digits in the form 8-4-4-4-12; without dashes where `dashes` is false. 0 or -EINVAL. */
int nvme_uuid_parse(const char *text, uint8_t ret_uuid[16]);
int nvme_hex_parse(const char *text, uint8_t *ret_bytes, size_t bytes);

/*
 * As Linux names namespaces in sysfs (wwid), and shorter: "7" (nsid), "uuid.UUID", "urn:uuid:UUID"
 * or a UUID alone, "nguid.32 DIGITS", "eui.16 or 32 DIGITS", "" (the only one). Returns 0, or
 * -EINVAL.
 */
int nvme_want_parse(const char *text, struct nvme_want *ret);
int nvme_want_parse_nsid(const char *text, uint32_t *ret_nsid);

#define NVME_WANT_TEXT_BYTES 48u
/* "the namespace with uuid 5a..."; returns buf. */
const char *nvme_want_format(const struct nvme_want *want, char *buf, size_t buf_bytes);

/* All-zero identifiers are none: NVM 4.1.5.1. */
bool nvme_want_matches(const struct nvme_want *want, uint32_t nsid, const struct nvme_ids *ids);

/* Sizes in bytes; 0: the controller says nothing. */
struct nvme_namespace {
	uint32_t nsid;
	uint32_t block_bytes; /* 512 or 4096 */
	uint64_t size_bytes;
	uint32_t boundary_bytes; /* NOIOB: I/O should not cross a multiple of it */
	uint32_t write_granularity_bytes, write_align_bytes;	 /* NPWG, NPWA */
	uint32_t optimal_write_bytes;				 /* NOWS */
	uint32_t discard_granularity_bytes, discard_align_bytes; /* NPDG, NPDA */
	uint32_t atomic_write_bytes; /* AWUPF or NAWUPF; at least a block */
	bool read_only;		     /* write protected */
	bool shared;		     /* other controllers have it too */
	bool zeroes_deallocate;	     /* WRITE_ZEROES may deallocate (DLFEAT) */
	bool deallocated_are_zeroes;
	uint32_t ana_group;
	uint8_t ana_state; /* enum nvme_ana_state; 0: the controller does no ANA */
	struct nvme_ids ids;
};

/*
 * Judges Identify data of namespace `nsid`, also when it has changed: fills all of *ret but ids and
 * ana_state. awupf: the controller's. Returns 0; -ENOENT (no such namespace), -EOPNOTSUPP
 * (metadata, block size, size), -EPROTO, with words.
 */
int nvme_namespace_judge(const uint8_t data[static NVME_IDENTIFY_BYTES], uint32_t nsid,
			 uint16_t awupf, struct nvme_namespace *ret, char *error,
			 size_t error_bytes);

#endif
