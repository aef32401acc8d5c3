/*
 * Loads librbd and librados. Owns the table, for the life of the process.
 *
 * Happy path: dlopen of both, each call of the table looked up. Failure modes: a library, or a call
 * in an old one, is missing: told each time, and tried anew the next time.
 */
#include "backends/rbd/ceph_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "backends/rbd/rbd_config.h"
#include "base/util.h"

struct ceph_symbol {
	const char *name;
	size_t offset;
};

#define CEPH_SYMBOL(call) { #call, offsetof(struct ceph_api, call) },

static const struct ceph_symbol rados_symbols[] = { CEPH_RADOS_CALLS(CEPH_SYMBOL) };
static const struct ceph_symbol rbd_symbols[] = { CEPH_RBD_CALLS(CEPH_SYMBOL) };

static pthread_mutex_t api_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ceph_api api_loaded;
static const struct ceph_api *api_used;

static int api_load(const char *library, const char *package, const struct ceph_symbol *symbol,
		    size_t nr, char *error, size_t error_bytes)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);

	if (!handle) {
		snprintf(error, error_bytes, "Ceph's library is missing: install %s (%s)", package,
			 dlerror());
		return -ENOENT;
	}
	for (size_t i = 0; i < nr; i++) {
		void *address = dlsym(handle, symbol[i].name);

		if (!address) {
			snprintf(error, error_bytes,
				 "%s has no %s: install %s of Ceph 16.2 (Pacific) or later",
				 library, symbol[i].name, package);
			return -ENOENT;
		}
		*(void **)((char *)&api_loaded + symbol[i].offset) = address;
	}
	return 0;
}

int ceph_api_get(const struct ceph_api **ret_api, char *error, size_t error_bytes)
{
	int ret = 0;

	pthread_mutex_lock(&api_lock);
	if (!api_used) {
		ret = api_load("librados.so.2", "librados2", rados_symbols,
			       ARRAY_SIZE(rados_symbols), error, error_bytes);
		if (ret == 0)
			ret = api_load("librbd.so.1", "librbd1", rbd_symbols,
				       ARRAY_SIZE(rbd_symbols), error, error_bytes);
		if (ret == 0)
			api_used = &api_loaded;
	}
	*ret_api = api_used;
	pthread_mutex_unlock(&api_lock);
	return ret;
}

void ceph_api_use(const struct ceph_api *api)
{
	api_used = api;
}

static int api_check(char *error, size_t error_bytes)
{
	const struct ceph_api *api;

	return ceph_api_get(&api, error, error_bytes);
}

int (*const ceph_library_check)(char *error, size_t error_bytes) = api_check;
