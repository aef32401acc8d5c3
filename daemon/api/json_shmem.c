/* The memory that clients share with a device as JSON. Main thread. */
#include "daemon/api/json_shmem.h"

#include "ublk/shmem.h"

json_t *json_shmem(const struct device *device)
{
	struct device_shmem_look look;
	struct device_info info;
	json_t *all;

	device_info(device, &info);
	if (!(info.flags & UBLK_F_SHMEM_ZC))
		return NULL;
	all = json_array();
	for (unsigned i = 0; i < SHMEM_BUFFERS_MAX; i++)
		if (device_shmem_look(device, i, &look))
			json_array_append_new(
				all, json_pack("{s:i, s:I, s:s, s:b, s:b, s:b}", "buffer", (int)i,
					       "bytes", (json_int_t)look.bytes, "file", look.file,
					       "read_only", look.read_only, "torn", look.torn,
					       "leaving", look.leaving));
	return all;
}
