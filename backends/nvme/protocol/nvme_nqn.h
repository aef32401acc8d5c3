/* NVMe qualified names: Base 4.5. Pure, any thread. */
#ifndef BACKENDS_NVME_NVME_NQN_H
#define BACKENDS_NVME_NVME_NQN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/nvme/protocol/nvme_proto.h"

/*
 * Whether these bytes can be in the field of an NQN: 1 to 223 of UTF-8 without control characters.
 * Returns 0, or -EINVAL with words.
 */
int nvme_nqn_check(const char *nqn, char *error, size_t error_bytes);

/*
 * Of one that was checked: NULL, or in static words what keeps it from being one that Base 4.5
 * describes: "nqn.YYYY-MM.DOMAIN", perhaps with ":ANYTHING", without spaces; with the form
 * "nqn.2014-08.org.nvmexpress:uuid:" a UUID. Linux' target and host, and tutorials, have others.
 */
const char *nvme_nqn_strange(const char *nqn);

bool nvme_nqn_is_discovery(const char *nqn);

/* "nqn.2014-08.org.nvmexpress:uuid:..." of a host: Base 4.5, the second form. Returns buf. */
#define NVME_NQN_OF_UUID_BYTES 69u
char *nvme_nqn_of_uuid(const uint8_t uuid[16], char buf[static NVME_NQN_OF_UUID_BYTES]);

/* The UUID of a name of that form. Returns 0, or -ENOENT: it is of the other form. */
int nvme_nqn_uuid(const char *nqn, uint8_t ret_uuid[16]);

#endif
