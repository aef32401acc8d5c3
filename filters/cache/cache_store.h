/*
 * The store of a cache that no daemon has open: what is dirty in it, and two ways out when the
 * origin has been changed without the cache. Any thread; each call may block.
 */
#ifndef FILTERS_CACHE_CACHE_STORE_H
#define FILTERS_CACHE_CACHE_STORE_H

#include "filters/cache/cache_format.h"

#define CACHE_STORE_WORDS_BYTES 256u

struct cache_store {
	int fd; /* -1: none */
	struct cache_header header;
};

/*
 * Opens a file or a block device, locked against a daemon that would serve it; writes: to be
 * changed. Returns 0, or -errno with words: -EBUSY: a daemon has it. To be closed in any case.
 */
int cache_store_open(struct cache_store *s, const char *path, bool writes,
		     char words[static CACHE_STORE_WORDS_BYTES]);
void cache_store_close(struct cache_store *s);

/* What each slot holds that the index says to have any, in the order of slots. 0 or -errno. */
int cache_store_walk(const struct cache_store *s,
		     void (*fn)(void *arg, const struct cache_entry *entry), void *arg);

/* All that it holds is forgotten, durably. 0 or -errno. */
int cache_store_forget(struct cache_store *s);
/*
 * The next open takes the origin as it is: what is dirty is written over it. What is clean is
 * forgotten first, as the origin has something else there. Durably; 0 or -errno, and what is dirty
 * is there still.
 */
int cache_store_accept(struct cache_store *s);

#endif
