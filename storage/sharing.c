/*
 * Which trees two configurations share, and the storage that leaves of this process have open. Any
 * thread. Owns the list of claims, under a lock of its own; each is its leaf's until
 * backend_unclaim.
 *
 * Happy path: backend_claim when a leaf is open -> backend_claim_alone -> backend_unclaim.
 * Failure mode: another one has it: -EBUSY, with its name and the cure.
 */
#include "storage/sharing.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/spec.h"

static const char *shared_name_of(const struct backend_spec *spec)
{
	return spec->ops && spec->ops->shared && spec->child ? spec->ops->shared->name(spec->config)
							     : NULL;
}

/* Whether a node of this tree shares something under this name: something else than other_than. */
static bool shares(const struct backend_spec *spec, const char *name,
		   const struct backend_spec *other_than)
{
	const char *here = shared_name_of(spec);

	if (here && strcmp(here, name) == 0 &&
	    (!other_than || !backend_spec_equal(spec->child, other_than)))
		return true;
	for (const struct backend_spec *c = spec->child; c; c = c->sibling)
		if (shares(c, name, other_than))
			return true;
	return false;
}

const struct backend_spec *backend_spec_shares(const struct backend_spec *a,
					       const struct backend_spec *b, bool only_another)
{
	const struct backend_spec *found = NULL;
	const char *name = shared_name_of(a);

	if (name && shares(b, name, only_another ? a->child : NULL))
		return a;
	for (const struct backend_spec *c = a->child; c && !found; c = c->sibling)
		found = backend_spec_shares(c, b, only_another);
	return found;
}

/* ---- one storage in several devices ---- */

struct backend_claim {
	struct list_node node;
	const struct backend_device *leaf;
	uint64_t place[BACKEND_PLACES_MAX];
	unsigned place_nr;
	bool writes;
	bool keeps; /* a node above the leaf does */
	bool alone;
};

static pthread_mutex_t claims_lock = PTHREAD_MUTEX_INITIALIZER;
struct list_node backend_claims = LIST_INIT(backend_claims);

unsigned backend_places_by_identity(const struct backend_device *leaf,
				    uint64_t ret_places[static BACKEND_PLACES_MAX])
{
	char text[BACKEND_IDENTITY_BYTES];

	backend_identity(leaf, text);
	ret_places[0] = hash_text(HASH_START, text);
	return 1;
}

static bool claim_shares_place(const struct backend_claim *a, const struct backend_claim *b)
{
	for (unsigned i = 0; i < a->place_nr; i++)
		for (unsigned j = 0; j < b->place_nr; j++)
			if (a->place[i] == b->place[j])
				return true;
	return false;
}

/* NULL: nobody. The lock is held. */
static const struct backend_claim *claim_in_the_way(const struct backend_claim *c)
{
	list_for_each (node, &backend_claims) {
		const struct backend_claim *other = list_entry(node, struct backend_claim, node);

		if ((c->writes || other->writes) && (c->keeps || other->keeps || other->alone) &&
		    claim_shares_place(c, other))
			return other;
	}
	return NULL;
}

static const struct backend_device *claim_top(const struct backend_claim *c)
{
	const struct backend_device *top = c->leaf;

	while (top->parent)
		top = top->parent;
	return top;
}

static int claim_refuse(struct backend_device *device, const struct backend_claim *c,
			const struct backend_claim *other)
{
	const char *name = claim_top(other)->name;

	if (claim_top(other) == claim_top(c))
		return backend_fail(device, -EBUSY,
				    "is the storage of %s too: they would destroy each other's "
				    "data",
				    other->leaf->name);
	return backend_fail(
		device, -EBUSY,
		"its storage is also that of device \"%s\", %s: stop that one first (ublkctl del "
		"%s), and start this one when it is gone",
		name,
		other->alone   ? "which was to be stopped and is still there"
		: other->keeps ? "which has data or state of it elsewhere (a cache, an image)"
			       : "and would change behind a cache or an image of this one",
		name);
}

static bool claim_keeps(const struct backend_device *leaf)
{
	for (const struct backend_device *d = leaf->parent; d; d = d->parent)
		if (d->ops->alone_below)
			return true;
	return false;
}

int backend_claim(struct backend_device *device)
{
	const struct backend_claim *other;
	struct backend_claim *c;
	int ret = 0;

	if (!device->ops->places)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->leaf = device;
	c->place_nr = device->ops->places(device, c->place);
	c->writes =
		!device->open_params.read_only && !(device->limits.caps & BACKEND_CAP_READ_ONLY);
	c->keeps = claim_keeps(device);
	pthread_mutex_lock(&claims_lock);
	other = claim_in_the_way(c);
	if (other)
		ret = claim_refuse(device, c, other);
	else
		list_push_back(&backend_claims, &c->node);
	pthread_mutex_unlock(&claims_lock);
	if (ret == 0)
		device->claim = c;
	else
		free(c);
	return ret;
}

void backend_unclaim(struct backend_device *device)
{
	struct backend_claim *c = device->claim;

	device->claim = NULL;
	if (!c)
		return;
	pthread_mutex_lock(&claims_lock);
	list_remove(&c->node);
	pthread_mutex_unlock(&claims_lock);
	free(c);
}

static void claim_alone_below(const struct backend_device *device, bool alone)
{
	if (device->claim)
		device->claim->alone = alone;
	for (const struct backend_device *c = device->child; c; c = c->sibling)
		claim_alone_below(c, alone);
}

void backend_claim_alone(const struct backend_device *top, bool alone)
{
	if (!top)
		return;
	pthread_mutex_lock(&claims_lock);
	claim_alone_below(top, alone);
	pthread_mutex_unlock(&claims_lock);
}
