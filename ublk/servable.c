/*
 * Happy path: a device that ublkd has added itself. Failure modes: one that another program, or a
 * newer ublkd, has added and marked as this one does.
 */
#include "ublk/servable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ublk/control.h"
#include "ublk/data_path.h"
#include "ublk/ublk_abi.h"

/* Each of these asks for commands, or for bytes in requests, that ublkd does not know. */
#define NOT_SERVED (UBLK_F_NEED_GET_DATA | UBLK_F_UNPRIVILEGED_DEV)

#define DATA_FLAGS                                                                                 \
	(UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG | UBLK_F_USER_COPY | UBLK_F_BATCH_IO |     \
	 UBLK_F_ZONED | UBLK_F_INTEGRITY | UBLK_F_SHMEM_ZC)

/* A way of the data that no data_path has: nobody would move the bytes. */
static uint64_t wrong_data_flags(uint64_t flags)
{
	struct data_choice choice;

	data_path_of_flags(&choice, flags);
	if (choice.shmem && (choice.zoned || choice.path != DATA_PATH_USER_COPY))
		return flags & DATA_FLAGS;
	if (choice.zoned && (choice.batch || choice.path != DATA_PATH_USER_COPY))
		return flags & DATA_FLAGS;
	if (choice.integrity && (choice.zoned || choice.path == DATA_PATH_COPY))
		return flags & DATA_FLAGS;
	return data_path_flags(&choice) == (flags & DATA_FLAGS) ? 0 : flags & DATA_FLAGS;
}

static void append_names(char *text, size_t bytes, uint64_t flags)
{
	for (unsigned bit = 0; ctl_feature_name(bit); bit++) {
		size_t len = strlen(text);

		if (flags >> bit & 1)
			snprintf(text + len, bytes - len, "%s%s", len ? " with " : "",
				 ctl_feature_name(bit));
	}
}

int servable_check(uint64_t flags, char error[static SERVABLE_ERROR_BYTES])
{
	uint64_t wrong = flags & NOT_SERVED ? flags & NOT_SERVED : wrong_data_flags(flags);
	char names[96] = "";

	if (!wrong)
		return 0;
	append_names(names, sizeof(names), wrong);
	snprintf(
		error, SERVABLE_ERROR_BYTES,
		"the device in the driver has %s, which this ublkd does not serve: another program "
		"or a newer ublkd has made it; let that serve it, or give the device up with "
		"ublkctl del",
		names);
	return -EOPNOTSUPP;
}
