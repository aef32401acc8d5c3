/* The node and its metadata, each with options as from a file. */
#include "test/sim/tree/top.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "storage/registry.h"
#include "test/sim/client.h"
#include "test/sim/tree/filters.h"

#define MEM_BYTES_MIN 4096u

const struct backend_spec *sim_top_make(struct sim_top *t, const struct backend_spec *data,
					uint64_t size_bytes, uint32_t block_bytes)
{
	uint64_t bytes = MAX(size_bytes / block_bytes * CLIENT_METADATA_BYTES, MEM_BYTES_MIN);
	char yaml[64];

	sim_top_fini(t);
	snprintf(yaml, sizeof(yaml), "size: %llu\n", (unsigned long long)bytes);
	t->metadata_config = sim_parse_options(&backend_mem, yaml);
	t->config = sim_parse_options(&backend_integrity, "checksum: crc\n");
	t->data = *data;
	t->data.as = &backend_integrity.children[0];
	t->data.sibling = &t->metadata;
	t->metadata = (struct backend_spec){ .ops = &backend_mem,
					     .config = t->metadata_config,
					     .as = &backend_integrity.children[1] };
	t->spec = (struct backend_spec){ .ops = &backend_integrity,
					 .config = t->config,
					 .child = &t->data };
	return &t->spec;
}

void sim_top_fini(struct sim_top *t)
{
	if (!t->config)
		return;
	option_free(backend_integrity.options, t->config);
	option_free(backend_mem.options, t->metadata_config);
	free(t->config);
	free(t->metadata_config);
	*t = (struct sim_top){ 0 };
}
