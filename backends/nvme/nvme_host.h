/* Who this host is, to targets. */
#ifndef BACKENDS_NVME_NVME_HOST_H
#define BACKENDS_NVME_NVME_HOST_H

#include "backends/nvme/protocol/nvme_uri.h"

/*
 * Fills what the user did not say of the host: the files in /etc/nvme, as nvme-cli makes them, else
 * names made from this machine's identifier. A thread that may wait: it reads files. Returns 0, or
 * -errno with words: -ENOENT, the host has no name.
 */
int nvme_host_complete(struct nvme_uri *uri, char *error, size_t error_bytes);

#endif
