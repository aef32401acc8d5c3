/* Pure functions; any thread. */
#include "ublk/data_path.h"

#include <errno.h>
#include <stdio.h>

#include "storage/metadata.h"
#include "storage/spec.h"
#include "storage/zones.h"
#include "ublk/ublk_abi.h"

#define ZERO_COPY_FLAGS (UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG | UBLK_F_USER_COPY)

const char *const data_path_names[] = { "auto", "copy", "zero_copy", "user_copy", NULL };
const char *const batch_choice_names[] = { "auto", "on", "off", NULL };

/*
 * Zero copy asks for USER_COPY too: a request whose pages could not be registered (the table of
 * buffers is full, memory is short) is moved by hand.
 */
static uint64_t flags_of(enum data_path path)
{
	switch (path) {
	case DATA_PATH_ZERO_COPY:
		return ZERO_COPY_FLAGS;
	case DATA_PATH_USER_COPY:
		return UBLK_F_USER_COPY;
	default:
		return 0;
	}
}

uint64_t data_path_flags(const struct data_choice *choice)
{
	return flags_of(choice->path) | (choice->batch ? UBLK_F_BATCH_IO : 0) |
	       (choice->zoned ? UBLK_F_ZONED : 0) | (choice->integrity ? UBLK_F_INTEGRITY : 0) |
	       (choice->shmem ? UBLK_F_SHMEM_ZC : 0);
}

void data_path_of_flags(struct data_choice *ret_choice, uint64_t flags)
{
	ret_choice->batch = flags & UBLK_F_BATCH_IO;
	ret_choice->zoned = flags & UBLK_F_ZONED;
	ret_choice->integrity = flags & UBLK_F_INTEGRITY;
	ret_choice->shmem = flags & UBLK_F_SHMEM_ZC;
	ret_choice->path = flags & UBLK_F_AUTO_BUF_REG ? DATA_PATH_ZERO_COPY
			   : flags & UBLK_F_USER_COPY  ? DATA_PATH_USER_COPY
						       : DATA_PATH_COPY;
}

/* What the driver does not have for zones (ublk_ctrl_add_dev), or this server. */
static int check_zoned(enum data_path wish, enum batch_choice batch,
		       char error[static DATA_PATH_ERROR_BYTES])
{
	if (wish != DATA_PATH_AUTO && wish != DATA_PATH_USER_COPY) {
		snprintf(error, DATA_PATH_ERROR_BYTES,
			 "data_path: %s is impossible with zones: their requests go by user_copy; "
			 "set data_path: auto",
			 data_path_names[wish]);
		return -EINVAL;
	}
	if (batch != BATCH_ON)
		return 0;
	snprintf(error, DATA_PATH_ERROR_BYTES,
		 "batch: on is impossible with zones: each of their requests is answered by a "
		 "command of its own; set batch: auto");
	return -EINVAL;
}

int data_path_check(enum data_path wish, enum batch_choice batch, const struct backend_spec *spec,
		    char error[static DATA_PATH_ERROR_BYTES])
{
	char backend[BACKEND_SPEC_TEXT_BYTES];

	if (backend_spec_is_zoned(spec))
		return check_zoned(wish, batch, error);
	if (wish == DATA_PATH_COPY && backend_spec_has_integrity(spec)) {
		snprintf(error, DATA_PATH_ERROR_BYTES,
			 "data_path: copy is impossible with integrity: the driver wants user_copy "
			 "or zero_copy for metadata; set data_path: auto");
		return -EINVAL;
	}
	if (wish != DATA_PATH_ZERO_COPY || (backend_spec_data(spec) & BACKEND_DATA_FIXED))
		return 0;
	snprintf(error, DATA_PATH_ERROR_BYTES,
		 "data_path: zero_copy is impossible with the backend %s: it needs the bytes in "
		 "memory, not in a buffer of the ring; set data_path: auto",
		 backend_spec_text(spec, backend));
	return -EINVAL;
}

static int check_kernel(enum data_path wish, uint64_t features,
			char error[static DATA_PATH_ERROR_BYTES])
{
	uint64_t missing = flags_of(wish) & ~features;

	if (missing == 0)
		return 0;
	snprintf(error, DATA_PATH_ERROR_BYTES,
		 "data_path: %s needs a kernel whose ublk driver has %s (%s); set data_path: auto",
		 data_path_names[wish],
		 missing & UBLK_F_AUTO_BUF_REG ? "AUTO_BUF_REG" : "USER_COPY",
		 missing & UBLK_F_AUTO_BUF_REG ? "Linux 6.16" : "Linux 6.5");
	return -EOPNOTSUPP;
}

#define ZONED_FLAGS (UBLK_F_ZONED | UBLK_F_USER_COPY)

static int choose_zoned(struct data_choice *ret_choice, uint64_t features,
			char error[static DATA_PATH_ERROR_BYTES])
{
	if ((features & ZONED_FLAGS) != ZONED_FLAGS) {
		snprintf(error, DATA_PATH_ERROR_BYTES,
			 "zones need a kernel whose ublk driver has ZONED (Linux 6.6) and that is "
			 "built with CONFIG_BLK_DEV_ZONED");
		return -EOPNOTSUPP;
	}
	*ret_choice = (struct data_choice){ .path = DATA_PATH_USER_COPY, .zoned = true };
	return 0;
}

#define INTEGRITY_FLAGS (UBLK_F_INTEGRITY | UBLK_F_USER_COPY)

static int check_integrity(uint64_t features, char error[static DATA_PATH_ERROR_BYTES])
{
	if ((features & INTEGRITY_FLAGS) == INTEGRITY_FLAGS)
		return 0;
	snprintf(error, DATA_PATH_ERROR_BYTES,
		 "metadata need a kernel whose ublk driver has INTEGRITY (Linux 7.0) and that is "
		 "built with CONFIG_BLK_DEV_INTEGRITY; set backend: to what stands in data:, "
		 "without them");
	return -EOPNOTSUPP;
}

/* docs/performance.md has the measurements behind this order. */
static enum data_path best_path(const struct backend_spec *spec, uint64_t features)
{
	uint8_t data = backend_spec_data(spec);

	if ((data & BACKEND_DATA_FIXED) && (features & ZERO_COPY_FLAGS) == ZERO_COPY_FLAGS)
		return DATA_PATH_ZERO_COPY;
	if ((data & BACKEND_DATA_MOVES) && (features & UBLK_F_USER_COPY))
		return DATA_PATH_USER_COPY;
	return backend_spec_has_integrity(spec) ? DATA_PATH_USER_COPY : DATA_PATH_COPY;
}

/* Where the backend gains nothing by them, one command for each tag costs less at depth 1. */
static bool best_batch(enum batch_choice wish, const struct backend_spec *spec, uint64_t features)
{
	if (wish == BATCH_AUTO)
		return backend_spec_batches(spec) && (features & UBLK_F_BATCH_IO);
	return wish == BATCH_ON;
}

int data_path_choose(struct data_choice *ret_choice, enum data_path wish, enum batch_choice batch,
		     const struct backend_spec *spec, uint64_t features,
		     char error[static DATA_PATH_ERROR_BYTES])
{
	int ret = data_path_check(wish, batch, spec, error);

	if (ret == 0)
		ret = check_kernel(wish, features, error);
	if (ret == 0 && backend_spec_has_integrity(spec))
		ret = check_integrity(features, error);
	if (ret < 0)
		return ret;
	if (backend_spec_is_zoned(spec))
		return choose_zoned(ret_choice, features, error);
	if (batch == BATCH_ON && !(features & UBLK_F_BATCH_IO)) {
		snprintf(error, DATA_PATH_ERROR_BYTES,
			 "batch: on needs a kernel whose ublk driver has BATCH_IO (Linux 7.0); set "
			 "batch: auto");
		return -EOPNOTSUPP;
	}
	*ret_choice = (struct data_choice){
		.path = wish == DATA_PATH_AUTO ? best_path(spec, features) : wish,
		.batch = best_batch(batch, spec, features),
		.integrity = backend_spec_has_integrity(spec),
	};
	return 0;
}
