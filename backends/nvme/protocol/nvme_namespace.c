/*
 * Names of namespaces, and whether one can be a block device. Owns nothing; any thread.
 *
 * Failure modes of nvme_namespace_judge: words, with the cure.
 */
#include "backends/nvme/protocol/nvme_namespace.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

#include "base/util.h"

/* ---- text ---- */

int nvme_hex_parse(const char *text, uint8_t *ret_bytes, size_t bytes)
{
	if (strnlen(text, 2 * bytes + 1) != 2 * bytes)
		return -EINVAL;
	for (size_t i = 0; i < bytes; i++) {
		int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		ret_bytes[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

int nvme_uuid_parse(const char *text, uint8_t ret_uuid[16])
{
	static const uint8_t dashes[] = { 8, 13, 18, 23 };
	char digits[33];
	size_t nr = 0;

	if (strnlen(text, 37) != 36)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(dashes); i++)
		if (text[dashes[i]] != '-')
			return -EINVAL;
	for (size_t i = 0; i < 36; i++)
		if (i != 8 && i != 13 && i != 18 && i != 23)
			digits[nr++] = text[i];
	digits[nr] = '\0';
	return nvme_hex_parse(digits, ret_uuid, 16);
}

int nvme_want_parse_nsid(const char *text, uint32_t *ret_nsid)
{
	uint64_t n = 0;

	for (const char *at = text; *at; at++) {
		if (*at < '0' || *at > '9')
			return -EINVAL;
		n = n * 10 + (unsigned)(*at - '0');
		if (n >= NVME_NSID_ALL)
			return -EINVAL;
	}
	if (n == 0)
		return -EINVAL;
	*ret_nsid = (uint32_t)n;
	return 0;
}

static const char *namespace_behind(const char *text, const char *prefix)
{
	size_t nr = strlen(prefix);

	return strncasecmp(text, prefix, nr) == 0 ? text + nr : NULL;
}

int nvme_want_parse(const char *text, struct nvme_want *ret)
{
	struct nvme_want want = { .by = NVME_WANT_UUID };
	const char *at;

	if (*text == '\0') {
		*ret = (struct nvme_want){ .by = NVME_WANT_ONLY };
		return 0;
	}
	at = namespace_behind(text, "urn:uuid:");
	at = at ? at : namespace_behind(text, "uuid.");
	if (nvme_uuid_parse(at ? at : text, want.id) == 0)
		goto found;
	at = namespace_behind(text, "nguid.");
	at = at ? at : namespace_behind(text, "eui.");
	want.by = NVME_WANT_NGUID;
	/* Linux' wwid shows an NGUID as eui. too. */
	if (at && nvme_hex_parse(at, want.id, 16) == 0)
		goto found;
	at = namespace_behind(text, "eui.");
	want.by = NVME_WANT_EUI64;
	if (at && nvme_hex_parse(at, want.id, 8) == 0)
		goto found;
	want = (struct nvme_want){ .by = NVME_WANT_NSID };
	if (nvme_want_parse_nsid(text, &want.nsid) < 0)
		return -EINVAL;
found:
	*ret = want;
	return 0;
}

static void namespace_put_hex(char *buf, const uint8_t *bytes, size_t nr, bool dashes)
{
	for (size_t i = 0; i < nr; i++) {
		if (dashes && (i == 4 || i == 6 || i == 8 || i == 10))
			*buf++ = '-';
		snprintf(buf, 3, "%02x", bytes[i]);
		buf += 2;
	}
}

const char *nvme_want_format(const struct nvme_want *want, char *buf, size_t buf_bytes)
{
	char hex[40] = "";

	switch (want->by) {
	case NVME_WANT_ONLY:
		snprintf(buf, buf_bytes, "the only namespace");
		break;
	case NVME_WANT_NSID:
		snprintf(buf, buf_bytes, "nsid %u", want->nsid);
		break;
	case NVME_WANT_UUID:
		namespace_put_hex(hex, want->id, 16, true);
		snprintf(buf, buf_bytes, "uuid %s", hex);
		break;
	case NVME_WANT_NGUID:
		namespace_put_hex(hex, want->id, 16, false);
		snprintf(buf, buf_bytes, "nguid %s", hex);
		break;
	case NVME_WANT_EUI64:
		namespace_put_hex(hex, want->id, 8, false);
		snprintf(buf, buf_bytes, "eui64 %s", hex);
		break;
	}
	return buf;
}

static bool namespace_id_is(const uint8_t *id, const uint8_t *want, size_t bytes)
{
	static const uint8_t none[16];

	return memcmp(id, none, bytes) != 0 && memcmp(id, want, bytes) == 0;
}

bool nvme_want_matches(const struct nvme_want *want, uint32_t nsid, const struct nvme_ids *ids)
{
	switch (want->by) {
	case NVME_WANT_NSID:
		return want->nsid == nsid;
	case NVME_WANT_UUID:
		return ids->has_uuid && namespace_id_is(ids->uuid, want->id, 16);
	case NVME_WANT_NGUID:
		return ids->has_nguid && namespace_id_is(ids->nguid, want->id, 16);
	case NVME_WANT_EUI64:
		return ids->has_eui64 && namespace_id_is(ids->eui64, want->id, 8);
	default:
		return true;
	}
}

/* ---- what it must be like ---- */

static int judge_format(const struct nvme_id_namespace *id, uint32_t nsid, char *error,
			size_t error_bytes)
{
	if (id->nsze == 0) {
		snprintf(error, error_bytes,
			 "namespace %u does not exist, is not enabled, or is not attached to this "
			 "controller: look with nvme list-ns at the target",
			 nsid);
		return -ENOENT;
	}
	if (id->format_idx > id->nlbaf) {
		snprintf(error, error_bytes, "namespace %u has format %u of %u", nsid,
			 id->format_idx, id->nlbaf + 1u);
		return -EPROTO;
	}
	if (id->ms != 0 || (id->dps & 7) != 0) {
		snprintf(error, error_bytes,
			 "namespace %u has %u bytes of metadata with each block%s, which is not "
			 "supported: format it without metadata and protection",
			 nsid, id->ms, id->dps & 7 ? ", and protection information" : "");
		return -EOPNOTSUPP;
	}
	if (id->lbads != 9 && id->lbads != 12) {
		snprintf(error, error_bytes,
			 "namespace %u has blocks of 2^%u bytes: format it with blocks of 512 or "
			 "4096",
			 nsid, id->lbads);
		return -EOPNOTSUPP;
	}
	if (id->nsze > (uint64_t)INT64_MAX >> id->lbads) {
		snprintf(error, error_bytes,
			 "namespace %u is larger than any block device: %llu "
			 "blocks of %u",
			 nsid, (unsigned long long)id->nsze, 1u << id->lbads);
		return -EOPNOTSUPP;
	}
	return 0;
}

int nvme_namespace_judge(const uint8_t data[static NVME_IDENTIFY_BYTES], uint32_t nsid,
			 uint16_t awupf, struct nvme_namespace *ret, char *error,
			 size_t error_bytes)
{
	struct nvme_id_namespace id;
	uint32_t block, atomic;
	int err;

	nvme_identify_namespace(data, &id);
	err = judge_format(&id, nsid, error, error_bytes);
	if (err < 0)
		return err;
	block = 1u << id.lbads;
	/* From 0; Linux' nvme_configure_atomic_write. */
	atomic = (id.nsfeat & NVME_NSFEAT_ATOMICS) && id.nawupf ? id.nawupf : awupf;
	ret->nsid = nsid;
	ret->block_bytes = block;
	ret->size_bytes = id.nsze << id.lbads;
	/* 16 bits of blocks of 4096 fit. */
	ret->boundary_bytes = id.noiob * block;
	ret->atomic_write_bytes = (atomic + 1) * block;
	ret->write_granularity_bytes = 0;
	ret->write_align_bytes = 0;
	ret->optimal_write_bytes = 0;
	ret->discard_granularity_bytes = 0;
	ret->discard_align_bytes = 0;
	if (id.nsfeat & NVME_NSFEAT_OPTPERF) {
		ret->write_granularity_bytes = (id.npwg + 1u) * block;
		ret->write_align_bytes = (id.npwa + 1u) * block;
		/* From 0, and 0 also of a target that knows none: nvmet_bdev_set_limits. */
		ret->optimal_write_bytes = id.nows ? (id.nows + 1u) * block : 0;
		ret->discard_granularity_bytes = (id.npdg + 1u) * block;
		ret->discard_align_bytes = (id.npda + 1u) * block;
	}
	ret->read_only = id.nsattr & NVME_NSATTR_WRITE_PROTECTED;
	ret->shared = id.nmic & NVME_NMIC_SHARED;
	ret->zeroes_deallocate = id.dlfeat & NVME_DLFEAT_WRITE_ZEROES_DEALLOCATES;
	ret->deallocated_are_zeroes =
		(id.dlfeat & NVME_DLFEAT_READ_MASK) == NVME_DLFEAT_READ_ZEROES;
	ret->ana_group = id.anagrpid;
	return 0;
}
