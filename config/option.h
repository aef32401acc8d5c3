/*
 * Option tables: what may stand in a map of the configuration, of which type, within which limits,
 * and where in a struct it goes. One table serves the parser, `--check-config`, "did you mean" and
 * the option reference of ublkd.yaml(5). Any thread, one at a time.
 */
#ifndef CONFIG_OPTION_H
#define CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/errors.h"
#include "config/yaml.h"

enum option_type {
	OPTION_STRING, /* char *, owned by the struct; min/max: length in bytes */
	OPTION_BOOL,   /* bool: true/false, yes/no, on/off */
	OPTION_UINT,   /* uint64_t: decimal or 0x */
	OPTION_SIZE, /* uint64_t bytes: 4096, 4k, 1MiB, 10G: k, Ki, KiB (M, G, T ...) are powers of
			1024 */
	OPTION_DURATION, /* uint64_t ns: 10s, 500ms, 2m, 1h, 100us; a bare number is seconds */
	OPTION_ENUM,	 /* int: index in values */
	OPTION_SET,	 /* uint64_t: bits of values, at most 64: [read, write], or with commas */
	OPTION_RATIO,	 /* double, 0 to 1: 0.25, 25% */
	OPTION_CPUS,	 /* struct option_cpus: auto, [0, 1], or 0-3,6 */
	OPTION_OUTAGE_TIMEOUT, /* uint64_t ns: {queue: 30s}, fail (0) or forever (OPTION_FOREVER) */
	OPTION_MAP,	       /* struct that `table` fills *, owned; NULL: not given */
	OPTION_NODE,	       /* struct yaml_node *: any map or list, borrowed from the document */
	/*
	 * No option: the rows of `table` stand here, as if they were this table's own. Their
	 * offsets count from `offset`. No name, default, flags or help; nothing else stands for it.
	 */
	OPTION_GROUP,
};

#define OPTION_FOREVER UINT64_MAX

enum option_flags {
	OPTION_REQUIRED = 1u << 0,
	OPTION_POWER_OF_TWO = 1u << 1, /* OPTION_UINT, OPTION_SIZE */
	OPTION_HIDDEN = 1u << 2,       /* left out of the reference: for tests */
};

struct option_cpus {
	bool is_auto;
	unsigned nr;
	unsigned *cpu;
};

struct option {
	const char *name;
	enum option_type type;
	size_t offset;		    /* in the struct that option_parse fills */
	uint64_t min, max;	    /* numbers, sizes, ns, string length; max 0: no limit */
	const char *const *values;  /* OPTION_ENUM, OPTION_SET: names, NULL at the end */
	const struct option *table; /* OPTION_MAP: what may stand in it; OPTION_GROUP: its rows */
	size_t table_bytes;	    /* OPTION_MAP: of the struct that it fills */
	const char *def; /* as one would write it in YAML; NULL: zero. Not for OPTION_NODE */
	unsigned flags;
	const char *help; /* one or two sentences, plain text, for the manual */
};

/* Tables end with an entry that has no name and is no group. */
#define OPTION_END                                                                                 \
	{                                                                                          \
		.name = NULL                                                                       \
	}

/* Groups in each other, the outermost table counted too. */
#define OPTION_GROUP_DEPTH_MAX 4

/*
 * The one way to go through a table: its rows in order, those of a group where the group stands.
 *
 *	option_for_each(&walk, table)
 *		use walk.row and, in the struct that the table fills, the field at walk.offset
 *
 * walk.row is NULL behind the last one. Row names are unique in a table with all its groups
 * (test_option_tables).
 */
struct option_walk {
	const struct option *row;
	size_t offset;
	unsigned depth;
	struct {
		const struct option *next;
		size_t offset; /* of the struct that this group's rows fill */
	} group[OPTION_GROUP_DEPTH_MAX];
};

void option_walk_begin(struct option_walk *walk, const struct option *table);
void option_walk_next(struct option_walk *walk);

#define option_for_each(walk, table)                                                               \
	for (option_walk_begin(walk, table); (walk)->row; option_walk_next(walk))

/*
 * Fills *out (zeroed here, `bytes` long) from map by table: defaults first, then what the map says.
 * Every error found is added (unknown key with "did you mean", wrong type, out of range, missing;
 * given twice is yaml_parse's). Keys named in `skip` (NULL-terminated, may be NULL) belong to
 * somebody else and are passed over. Returns 0, -EINVAL when errors were added, or -ENOMEM; the
 * caller frees *out with option_free in every case.
 *
 * map may be NULL or a null: as if it were empty, so that what yaml_get found, or not, can be
 * passed on. A null as value is as if the key were left out, and an error where the option is
 * required. For OPTION_STRING and for an OPTION_ENUM that has it, the word null is a text like any
 * other. Quotes change nothing else: "128" is a number too.
 */
int option_parse(const struct option *table, const struct yaml_node *map, const char *const *skip,
		 void *out, size_t bytes, struct config_errors *e);

/*
 * Sets one option from text, as after the colon in YAML; for `ublkctl ... key=value`. Returns 0,
 * -EINVAL with the error added at pos, or -ENOMEM. No OPTION_NODE: it would outlive its document.
 */
int option_set(const struct option *table, const char *key, const char *text, struct config_pos pos,
	       void *out, struct config_errors *e);

/*
 * The longest time that an OPTION_OUTAGE_TIMEOUT may say from now on: a longer default becomes
 * this, a longer value is an error. 0: any. Not while another thread parses.
 */
void option_outage_timeout_limit(uint64_t max_ns);

/* Frees strings and lists inside *out and zeroes them. Accepts a zeroed struct. */
void option_free(const struct option *table, void *out);

/* True when both structs say the same; OPTION_NODE is compared by content. */
bool option_equal(const struct option *table, const void *a, const void *b);

/* Parse helpers, also for others. Return 0 or -EINVAL (not a size), -ERANGE (does not fit). */
int option_parse_size(const char *text, uint64_t *ret_bytes);
int option_parse_duration(const char *text, uint64_t *ret_ns);

/* "1GiB", "1536KiB", "4097": the shortest exact form. Returns buf. */
char *option_format_size(uint64_t bytes, char *buf, size_t buf_bytes);

/*
 * The nearest of `nr` names (by stride bytes apart, each a const char *) to word, or NULL when none
 * is near: for "did you mean".
 */
const char *option_nearest(const char *word, const void *names, size_t stride, size_t nr);

/* The reference of one table as man(7) source: .TP per option with type, default, limits, help. */
void option_write_man(const struct option *table, FILE *out);

#endif
