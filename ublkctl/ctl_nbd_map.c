/*
 * `ublkctl nbd-info --map`: what of an export is data, hole or zeroes, in the form of nbdinfo
 * --map, so that scripts for the one read the other. Owns the extents until they are printed. Main
 * thread of ublkctl.
 */
#include "ublkctl/ctl_nbd_map.h"

#include <errno.h>
#include <stdio.h>

#include "backends/nbd/nbd_examine.h"
#include "base/util.h"
#include "ublkctl/ctl_print.h"

/* For the handshake, and for each answer. */
#define TIMEOUT_NS (30 * NS_PER_SEC)

static const char *const descriptions[] = {
	[0] = "data",
	[NBD_STATE_HOLE] = "hole",
	[NBD_STATE_ZERO] = "zero",
	[NBD_STATE_HOLE | NBD_STATE_ZERO] = "hole,zero",
};

/* Flags that a later protocol may add mean nothing here. */
static const char *describe(uint64_t flags)
{
	return descriptions[flags % ARRAY_SIZE(descriptions)];
}

static void print_extent(void *arg, uint64_t offset_bytes, uint64_t length_bytes, uint64_t flags)
{
	(void)arg;
	printf("%12llu %12llu %4llu  %s\n", (unsigned long long)offset_bytes,
	       (unsigned long long)length_bytes, (unsigned long long)flags, describe(flags));
}

static void collect_extent(void *arg, uint64_t offset_bytes, uint64_t length_bytes, uint64_t flags)
{
	json_array_append_new(arg,
			      json_pack("{s:I, s:I, s:I, s:s}", "offset", (json_int_t)offset_bytes,
					"length", (json_int_t)length_bytes, "type",
					(json_int_t)flags, "description", describe(flags)));
}

int ctl_nbd_map(const struct nbd_uri *uri, const struct tls_credentials *tls, bool json,
		char *error, size_t error_bytes)
{
	const struct nbd_handshake_config wish = {
		.mode = NBD_HANDSHAKE_GO,
		.tls = uri->tls,
		.export_name = uri->export_name,
	};
	json_t *extents = json_array();
	const struct nbd_examine probe = {
		.uri = uri,
		.tls = tls,
		.wish = &wish,
		.timeout_ns = TIMEOUT_NS,
		.on_extent = json ? collect_extent : print_extent,
		.arg = extents,
	};
	struct nbd_export export;
	int ret = nbd_examine(&probe, &export, error, error_bytes);

	if (ret == 0 && json)
		ctl_print_json(extents);
	json_decref(extents);
	return ret;
}
