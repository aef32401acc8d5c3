/*
 * A YAML document as a tree that remembers where each node stood, so that every later message can
 * say file:line:column. Read with libyaml's event API under fixed limits: a hostile document costs
 * bounded time and memory. Anchors and aliases work: an alias is the same node again (a reference,
 * not a copy); merge keys (<<: *x) are honoured in mappings. Duplicate keys are errors.
 * Any thread, one document at a time.
 */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "config/errors.h"

#define YAML_FILE_BYTES_MAX (4u << 20)
/* Levels of maps and lists, aliases expanded: what recursing over the tree can cost. */
#define YAML_DEPTH_MAX 80
/*
 * Nodes counted with aliases expanded: what walking the tree can cost. A scalar counts once more
 * for each YAML_NODE_TEXT_BYTES of its text, so that copying what the tree says is bounded too.
 */
#define YAML_NODES_MAX 100000
#define YAML_NODE_TEXT_BYTES 128

enum yaml_kind { YAML_SCALAR, YAML_MAP, YAML_LIST };

struct yaml_pair {
	struct yaml_node *key; /* always a scalar */
	struct yaml_node *value;
};

struct yaml_node {
	enum yaml_kind kind;
	struct config_pos pos;
	bool quoted; /* scalars: '...' or "..." or a block scalar, or tagged !!str */
	union {
		char *text; /* YAML_SCALAR: valid UTF-8 without NUL */
		struct {
			struct yaml_pair *pairs; /* in the order of the file, merged ones last */
			size_t nr;
		} map;
		struct {
			struct yaml_node **items;
			size_t nr;
		} list;
	};
};

struct yaml_doc {
	struct yaml_node *root; /* a map; an empty document is an empty map */
	struct yaml_node **all; /* every node once, for freeing */
	size_t all_nr;
};

/*
 * Reads text (bytes long, not necessarily terminated) as exactly one document. Returns 0, or
 * -EINVAL with errors added, or -ENOMEM. The caller frees doc in every case: after -EINVAL,
 * doc->root is NULL where the text could not be read to its end, and otherwise (duplicate keys,
 * foreign tags) the tree without what was wrong, so that the caller can go on and tell all errors
 * of the file at once.
 */
int yaml_parse(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e);

/*
 * The same, but the root may be of any kind: for a single value, as after the colon. No text at
 * all is a null scalar.
 */
int yaml_parse_value(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e);

/*
 * Reads a regular file or a pipe, at most YAML_FILE_BYTES_MAX. Also -errno of open and read, with
 * the error added.
 */
int yaml_parse_file(struct yaml_doc *doc, const char *path, struct config_errors *e);

/* The same, but the root may be of any kind, as of yaml_parse_value; a pipe is refused. */
int yaml_parse_value_file(struct yaml_doc *doc, const char *path, struct config_errors *e);

/* Accepts a zeroed or already freed doc. */
void yaml_doc_free(struct yaml_doc *doc);

/*
 * Inline, and so without a symbol: libyaml exports a yaml_free of its own, which a function of that
 * name in a program would replace inside libyaml.
 */
static inline void yaml_free(struct yaml_doc *doc)
{
	yaml_doc_free(doc);
}

/* The value of key in a map, or NULL; also when map is NULL or no map. */
struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);

/* Where the value of key stands, or the map that lacks it; nowhere without a map. */
struct config_pos yaml_pos(const struct yaml_node *map, const char *key);

/* true for a plain (unquoted) null: "~", "null", "" */
bool yaml_is_null(const struct yaml_node *node);

#endif
