/* What tree.c, life.c and visit.c share: devices that are not open yet, and parts that wait. */
#ifndef STORAGE_LIFE_INTERNAL_H
#define STORAGE_LIFE_INTERNAL_H

#include "reactor/reactor.h"
#include "storage/life.h"
#include "storage/visit.h"

/* ---- chain.c ---- */

/* Whether a node of the tree may find children by itself. Any thread. */
bool backend_spec_resolves(const struct backend_spec *spec);

/*
 * A helper. The same tree with what its nodes find, for a device with these params: the caller's,
 * and not to be used after spec is freed. Returns 0, or -errno with words.
 */
int backend_resolve(const struct backend_spec *spec, const struct backend_open_params *params,
		    struct backend_spec **ret_spec, char *error, size_t error_bytes);

/* ---- tree.c: any thread that has the tree to itself ---- */

/*
 * All devices of a tree, none of them open; spec, name and what they point at must outlive them.
 * Returns NULL when there is no memory.
 */
struct backend_device *backend_tree_new(const struct backend_spec *spec, const char *name,
					const struct backend_open_params *open_params);
/* Frees the devices; each has been closed, or never opened. */
void backend_tree_free(struct backend_device *device);

/* The part of an open that may block; its children are open. 0, or -errno with device->error. */
int backend_device_open(struct backend_device *device);
/* The end of an open: what it found must make sense. The same. */
int backend_device_opened(struct backend_device *device);
/* Closes it, if backend_device_open was called. */
void backend_device_close(struct backend_device *device);

/* The message of a failed device, with its path behind the name of the root. */
void backend_device_words(const struct backend_device *device, char *buf, size_t bytes);

/* ---- resize.c: as backend_grow, of one node ---- */

/* The part that may block. Returns 0 or -errno, with words in device->error. */
int backend_device_grow(struct backend_device *device, uint64_t size_bytes);
/* What the children of a node of this size must have. */
uint64_t backend_size_below(const struct backend_device *device, uint64_t size_bytes);

/* ---- visit.c ---- */

struct visit_child;

/* A part that waits; life.c's, embedded in the walk. */
struct visit {
	struct backend_visit visit; /* what the node sees */
	/* From a turn, never from inside of visit_begin. May begin another one. */
	void (*done)(struct visit *v, int ret);
	void (*cancel)(struct backend_visit *visit); /* the node's; or NULL */
	uint64_t since_ns;
	bool active, in_call, answered;
	bool cancelled; /* nobody waits for it any more */
	bool expired;	/* the same, by its deadline, with words */
	int ret;
	unsigned busy_nr; /* requests to children under way */
	struct visit_child *child;
	struct timer deadline;
	struct task end;
	char waited_for[BACKEND_ERROR_BYTES / 2];
};

typedef void visit_start_fn(struct backend_visit *visit);

/*
 * Calls the node's function. Returns true when the part has ended inside of the call, with
 * *ret_ret; false: v->done follows. The fields visit, done and cancel are set, all else is zeroed.
 */
bool visit_begin(struct visit *v, visit_start_fn *start, int *ret_ret);

/* Asks the part to end soon. Harmless when none is under way. */
void visit_cancel(struct visit *v);

#endif
