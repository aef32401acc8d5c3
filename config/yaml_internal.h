/* Between yaml.c, yaml_scan.c, yaml_build.c and yaml_anchor.c only. */
#ifndef CONFIG_YAML_INTERNAL_H
#define CONFIG_YAML_INTERNAL_H

#include "config/yaml.h"

/*
 * libyaml clears its buffer of pending white space, at its full capacity, once per word: a long run
 * of white space makes every later word of the same scalar cost as much as the run is long.
 */
#define YAML_BLANK_RUN_MAX 1024
/*
 * What must hold before libyaml may see the text: valid UTF-8, characters YAML allows, and none of
 * the shapes that libyaml is slow on (long runs of white space; %TAG, whose prefix it copies for
 * every tag that uses it). Returns 0 or -EINVAL with the first error added.
 */
int yaml_scan(const char *text, size_t bytes, struct config_errors *e);

/* Fills a zeroed doc. Returns as yaml_parse_value. */
int yaml_build(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e);

/* A node while the tree grows, and what it is worth as the target of an alias. */
struct yaml_built {
	struct yaml_node node; /* first: yaml_doc_free frees the whole by it */
	size_t cost;	       /* nodes in it, aliases expanded */
	unsigned height;       /* levels of containers in it, a scalar has 0 */
	bool is_open;	       /* its end was not seen yet */
};

/* Anchors by name; zeroed is empty. */
struct yaml_anchors {
	void *tree; /* of tsearch(3) */
};

/* A name given again means the newer node from here on. Returns 0 or -ENOMEM. */
int yaml_anchors_set(struct yaml_anchors *a, const char *name, struct yaml_built *node);
struct yaml_built *yaml_anchors_get(const struct yaml_anchors *a, const char *name);
void yaml_anchors_fini(struct yaml_anchors *a);

/* Sorts out one finished map: see yaml_map.c. Returns 0, -EINVAL (told, map usable) or -ENOMEM. */
int yaml_map_finish(struct yaml_node *map, struct config_errors *e);

#endif
