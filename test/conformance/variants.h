/* What the suite runs on: every backend of the registry in every way that changes its code path. */
#ifndef TEST_VARIANTS_H
#define TEST_VARIANTS_H

#include "model.h"
#include "rig.h"

struct variant {
	const char *name;
	const char *backend;
	const char *yaml;	    /* %s: variant_path */
	const char *const *filters; /* over it, as in struct rig_params */
	uint32_t block_bytes;
	bool read_only;
	bool is_persistent; /* its bytes are there after a close */
	bool direct;	    /* must end up with O_DIRECT: the fixture demands it */
	enum model_content content;
	const char *allocates; /* whose I/O needs memory that is not ours, and what checks ours */
	/* Makes what the backend opens, at variant_path; returns a reason to skip, or NULL. */
	const char *(*setup)(void);
	void (*teardown)(void);
};

extern const struct variant variants[];
extern const unsigned variant_nr;

/* A directory of this run, on the file system of TMPDIR, and the file of the present variant. */
extern char variant_dir[512];
extern char variant_path[600];

/* In the registry or among the tests' own; aborts when there is none. */
const struct backend *variant_backend(const struct variant *variant);

/* A variant from a row of the registry (test_options), in static storage; false: it has none. */
bool variant_of_row(const struct backend *ops, struct variant *ret_variant);

bool variant_has(const struct variant *variant, const char *backend);

/* Rig parameters; the text is in static storage. */
struct rig_params variant_params(const struct variant *variant, unsigned queue_nr, unsigned depth);

#endif
