/*
 * A registry of the test's own, in the place of backends/registry.c: the real one would tie these
 * tests to what backends there are. The linker takes these definitions before the library's.
 */
#ifndef TEST_RIG_FAKE_BACKENDS_H
#define TEST_RIG_FAKE_BACKENDS_H

#include <stdio.h>
#include <string.h>

#include "storage/backend.h"

struct fake_outage {
	uint64_t wait_ns;
};

struct fake_config {
	char *path;
	uint64_t size_bytes;
	bool create;
	struct fake_outage outage;
};

static const struct option fake_outage_options[] = {
	{ .name = "wait",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct fake_outage, wait_ns),
	  .def = "5s" },
	OPTION_END,
};

static const struct option fake_mem_options[] = { { .name = "size",
						    .type = OPTION_SIZE,
						    .offset = offsetof(struct fake_config,
								       size_bytes),
						    .min = 4096,
						    .flags = OPTION_REQUIRED,
						    .help = "Size." },
						  { .type = OPTION_GROUP,
						    .offset = offsetof(struct fake_config, outage),
						    .table = fake_outage_options },
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

static int fake_open(struct backend_device *device)
{
	const struct fake_config *config = device->config;

	device->limits.size_bytes = config && config->size_bytes ? config->size_bytes : 1 << 20;
	return 0;
}

static const struct backend fake_mem = { .name = "mem",
					 .options = fake_mem_options,
					 .size_option = &fake_mem_options[0],
					 .config_bytes = sizeof(struct fake_config),
					 .open = fake_open };
static const struct backend fake_file = { .name = "file",
					  .options = fake_file_options,
					  .path_option = &fake_file_options[0],
					  .config_bytes = sizeof(struct fake_config),
					  .open = fake_open };

static int fake_null_open(struct backend_device *device)
{
	device->limits.size_bytes = 1 << 20;
	return 0;
}

static const struct backend fake_null = { .name = "null",
					  .options = fake_null_options,
					  .open = fake_null_open };

#ifdef FAKE_PROBES
/* One that asks before it is opened: what its path says comes of it. For tests of threads. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_uint fake_asked, fake_ended; /* examinations that were begun, and that have ended */
static atomic_int fake_founds;		   /* of what they found, what was not freed */
static atomic_uint fake_bad_times;	   /* how often flaky... fails before it is good */
static sem_t fake_answer_sem;		   /* one post lets one slow... go on */

static int fake_found_by(const struct fake_config *fake, void **ret_found, char *error,
			 size_t error_bytes)
{
	bool bad = strncmp(fake->path, "bad", 3) == 0;

	if (strncmp(fake->path, "slow", 4) == 0)
		while (sem_wait(&fake_answer_sem) < 0)
			;
	if (strncmp(fake->path, "flaky", 5) == 0 && atomic_load(&fake_bad_times) > 0) {
		atomic_fetch_sub(&fake_bad_times, 1);
		bad = true;
	}
	if (bad) {
		snprintf(error, error_bytes, "no server at %s: is it started?", fake->path);
		return -ECONNREFUSED;
	}
	*ret_found = strdup(fake->path);
	atomic_fetch_add(&fake_founds, 1);
	return 0;
}

static int fake_examine(const void *config, void **ret_found, char *error, size_t error_bytes)
{
	int ret;

	atomic_fetch_add(&fake_asked, 1);
	ret = fake_found_by(config, ret_found, error, error_bytes);
	atomic_fetch_add(&fake_ended, 1);
	return ret;
}

static void fake_examine_free(void *found)
{
	if (found)
		atomic_fetch_sub(&fake_founds, 1);
	free(found);
}

static pthread_mutex_t fake_found_lock = PTHREAD_MUTEX_INITIALIZER;
static char fake_found[64] = "nothing"; /* what the examination of the last net had found */

static atomic_int fake_nets;	     /* that are open */
static atomic_bool fake_close_waits; /* closing one lasts as long as this is set */
static atomic_bool fake_absent;	     /* what /dev/... names is not there */

static void fake_net_close(struct backend_device *device)
{
	/* Also after a failed open, which set nothing. */
	if (device->limits.size_bytes == 0)
		return;
	while (atomic_load(&fake_close_waits))
		usleep(1000);
	atomic_fetch_sub(&fake_nets, 1);
}

static int fake_net_open(struct backend_device *device)
{
	const struct fake_config *config = device->config;

	if (strncmp(config->path, "/dev/", 5) == 0 && atomic_load(&fake_absent))
		return backend_fail(device, -ENOENT, "%s does not exist", config->path);
	atomic_fetch_add(&fake_nets, 1);
	pthread_mutex_lock(&fake_found_lock);
	snprintf(fake_found, sizeof(fake_found), "%s", (const char *)device->open_params.found);
	pthread_mutex_unlock(&fake_found_lock);
	return fake_open(device);
}

static const struct backend fake_net = { .name = "net",
					 .options = fake_file_options,
					 .path_option = &fake_file_options[0],
					 .config_bytes = sizeof(struct fake_config),
					 .open = fake_net_open,
					 .close = fake_net_close,
					 .examine = fake_examine,
					 .found_free = fake_examine_free };

const struct backend *const backend_registry[] = { &fake_null, &fake_mem, &fake_file, &fake_net,
						   NULL };
#else
const struct backend *const backend_registry[] = { &fake_null, &fake_mem, &fake_file, NULL };
#endif

const struct backend *backend_find(const char *name)
{
	for (const struct backend *const *b = backend_registry; *b; b++)
		if (strcmp((*b)->name, name) == 0)
			return *b;
	return NULL;
}

#endif
