/* Between the sources of the stripe. */
#ifndef FILTERS_STRIPE_STRIPE_H
#define FILTERS_STRIPE_STRIPE_H

#include "filters/stripe/stripe_label.h"
#include "storage/visit.h"

enum stripe_verify { STRIPE_VERIFY_OFF, STRIPE_VERIFY_ON, STRIPE_VERIFY_IGNORE };

struct stripe_config {
	uint64_t chunk_bytes;
	int verify; /* enum stripe_verify */
};

static inline bool stripe_is_labelled(const struct stripe_config *config)
{
	return config->verify == STRIPE_VERIFY_ON;
}

struct stripe_visit;

struct stripe_device {
	unsigned shift; /* of chunk_bytes */
	unsigned child_nr;
	unsigned first_row;	    /* of data: the one before has labels */
	struct stripe_visit *visit; /* while it is being opened */
};

/* stripe_open.c: looks at the labels of the backends, and makes those of a new set. */
void stripe_open_async(struct backend_visit *visit);
/* Whatever is left of that. */
void stripe_open_end(struct stripe_device *d);

#endif
