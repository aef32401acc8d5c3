/*
 * A registry of the test's own, in the place of backends/registry.c: the real one would tie these
 * tests to what backends there are. The linker takes these definitions before the library's.
 */
#ifndef TEST_FAKE_BACKENDS_H
#define TEST_FAKE_BACKENDS_H

#include <string.h>

#include "backends/backend.h"

struct fake_config {
	char *path;
	uint64_t size_bytes;
	bool create;
};

static const struct option fake_mem_options[] = { { .name = "size",
						    .type = OPTION_SIZE,
						    .offset = offsetof(struct fake_config,
								       size_bytes),
						    .min = 4096,
						    .flags = OPTION_REQUIRED,
						    .help = "Size." },
						  OPTION_END };

static const struct option fake_file_options[] = { { .name = "path",
						     .type = OPTION_STRING,
						     .offset = offsetof(struct fake_config, path),
						     .min = 1,
						     .flags = OPTION_REQUIRED,
						     .help = "Path." },
						   { .name = "create",
						     .type = OPTION_BOOL,
						     .offset = offsetof(struct fake_config, create),
						     .help = "Create." },
						   OPTION_END };

static const struct option fake_null_options[] = { OPTION_END };

static const struct backend fake_mem = { .name = "mem",
					 .options = fake_mem_options,
					 .config_bytes = sizeof(struct fake_config) };
static const struct backend fake_file = { .name = "file",
					  .options = fake_file_options,
					  .config_bytes = sizeof(struct fake_config) };
static const struct backend fake_null = { .name = "null", .options = fake_null_options };

const struct backend *const backend_registry[] = { &fake_null, &fake_mem, &fake_file, NULL };

const struct backend *backend_find(const char *name)
{
	for (const struct backend *const *b = backend_registry; *b; b++)
		if (strcmp((*b)->name, name) == 0)
			return *b;
	return NULL;
}

#endif
