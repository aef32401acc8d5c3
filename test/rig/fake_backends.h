/*
 * A registry of the test's own, in the place of backends/registry.c: the real one would tie these
 * tests to what backends there are. The linker takes these definitions before the library's.
 */
#ifndef TEST_RIG_FAKE_BACKENDS_H
#define TEST_RIG_FAKE_BACKENDS_H

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
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

static unsigned fake_client_nr = 2;

static void fake_library(struct backend_library_look *ret_look)
{
	*ret_look = (struct backend_library_look){
		.name = "libfake", .client_nr = fake_client_nr, .image_nr = 3, .thread_nr = 29
	};
}

static const struct backend fake_null = { .name = "null",
					  .options = fake_null_options,
					  .open = fake_null_open,
					  .library = fake_library };

#ifdef FAKE_PROBES
/* One that asks its server when it opens: what its path says comes of it. */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/util.h"
#include "storage/visit.h"

static atomic_uint fake_asked, fake_ended; /* questions that were begun, and that have ended */
static atomic_uint fake_bad_times;	   /* how often flaky... fails before it is good */
static sem_t fake_answer_sem;		   /* one post lets one slow... or stuck... go on */
static char fake_found[64] = "nothing";	   /* what the last net that was asked for had */

static atomic_int fake_nets;	     /* that are open */
static atomic_bool fake_close_waits; /* closing one lasts as long as this is set */
static atomic_bool fake_absent;	     /* what /dev/... names is not there */
static int64_t fake_limit_ns;	     /* when one that is asked ends, as it says, from then; 0 */

static void fake_net_close(struct backend_device *device)
{
	/* Also after a failed open, which set nothing. */
	if (device->limits.size_bytes == 0)
		return;
	while (atomic_load(&fake_close_waits))
		usleep(1000);
	atomic_fetch_sub(&fake_nets, 1);
}

struct fake_net_device {
	struct backend_visit *visit; /* while it asks */
	struct timer look;	     /* for the answer */
};

/* "stuck...": on a helper, as long as the test wants. */
static int fake_net_open(struct backend_device *device)
{
	const struct fake_config *config = device->config;

	if (strncmp(config->path, "stuck", 5) == 0) {
		atomic_fetch_add(&fake_asked, 1);
		while (sem_wait(&fake_answer_sem) < 0)
			;
		atomic_fetch_add(&fake_ended, 1);
	}
	if (strncmp(config->path, "/dev/", 5) == 0 && atomic_load(&fake_absent))
		return backend_fail(device, -ENOENT, "%s does not exist", config->path);
	atomic_fetch_add(&fake_nets, 1);
	return fake_open(device);
}

static void fake_net_answer(struct fake_net_device *net, int ret)
{
	const struct fake_config *config = net->visit->device->config;

	atomic_fetch_add(&fake_ended, 1);
	if (ret == 0)
		snprintf(fake_found, sizeof(fake_found), "%s", config->path);
	backend_visit_done(net->visit, ret);
}

static void fake_net_look(struct timer *timer)
{
	struct fake_net_device *net = container_of(timer, struct fake_net_device, look);

	if (sem_trywait(&fake_answer_sem) == 0)
		fake_net_answer(net, 0);
	else
		reactor_timer_arm(net->visit->reactor, timer, ring_clock_ns() + NS_PER_MS);
}

static const char *fake_net_waits_for(const struct backend_visit *visit, char *buf, size_t bytes)
{
	const struct fake_config *config = visit->device->config;

	snprintf(buf, bytes, "waiting for %s", config->path);
	return buf;
}

static void fake_net_ask(struct backend_visit *visit)
{
	const struct fake_config *config = visit->device->config;
	struct fake_net_device *net = visit->device->priv;
	bool bad = strncmp(config->path, "bad", 3) == 0;

	net->visit = visit;
	visit->doing = "asking its server";
	visit->waits_for = fake_net_waits_for;
	visit->ends_ns = fake_limit_ns ? ring_clock_ns() + (uint64_t)fake_limit_ns : 0;
	if (strncmp(config->path, "stuck", 5) != 0)
		atomic_fetch_add(&fake_asked, 1);
	else
		atomic_fetch_sub(&fake_ended, 1);
	if (strncmp(config->path, "flaky", 5) == 0 && fake_bad_times > 0) {
		fake_bad_times--;
		bad = true;
	}
	if (strncmp(config->path, "slow", 4) == 0) {
		timer_init(&net->look, fake_net_look);
		fake_net_look(&net->look);
	} else {
		fake_net_answer(net,
				bad ? backend_fail(visit->device, -ECONNREFUSED,
						   "no server at %s: is it started?", config->path)
				    : 0);
	}
}

static void fake_net_cancel(struct backend_visit *visit)
{
	struct fake_net_device *net = visit->device->priv;

	reactor_timer_cancel(visit->reactor, &net->look);
	fake_net_answer(net, -ECANCELED);
}

/* "lossy...": its storage does not take all. */
static void fake_net_last_word(struct backend_visit *visit)
{
	const struct fake_config *config = visit->device->config;
	bool loses = strncmp(config->path, "lossy", 5) == 0;

	backend_visit_done(visit, loses ? backend_fail(visit->device, -EIO, "2 blocks") : 0);
}

static const struct backend fake_net = { .name = "net",
					 .options = fake_file_options,
					 .path_option = &fake_file_options[0],
					 .config_bytes = sizeof(struct fake_config),
					 .device_bytes = sizeof(struct fake_net_device),
					 .open = fake_net_open,
					 .open_async = fake_net_ask,
					 .close_async = fake_net_last_word,
					 .cancel_async = fake_net_cancel,
					 .close = fake_net_close };

/* Several devices can open it at a time: its path is the place of its bytes. */
static unsigned fake_places(const struct backend_device *device,
			    uint64_t ret_places[static BACKEND_PLACES_MAX])
{
	const struct fake_config *config = device->config;

	ret_places[0] = hash_text(HASH_START, config->path);
	return 1;
}

static const struct backend fake_export = { .name = "export",
					    .options = fake_file_options,
					    .config_bytes = sizeof(struct fake_config),
					    .open = fake_open,
					    .places = fake_places };
/* It has some of the bytes below it alone. */
static const struct backend_child_option fake_child[] = {
	{ .name = "backend", .nr_min = 1, .nr_max = 1 }, { .name = NULL }
};
static const struct backend fake_keeper = {
	.name = "keeper", .options = fake_null_options, .children = fake_child, .alone_below = true
};

const struct backend *const backend_registry[] = { &fake_null,	 &fake_mem,    &fake_file,
						   &fake_export, &fake_keeper, &fake_net,
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
