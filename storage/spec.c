/*
 * From a map of the configuration to a tree of backends. Main thread. Owns the specs it makes, each
 * with the struct that the backend's own option table fills.
 *
 * Happy path: find the type -> its options by its table -> its check -> the same for each child,
 * below the keys that the type has for them. Failure modes: every error found is added with its
 * position; what is below is looked at all the same, so that the user sees all errors at once.
 */
#include "storage/spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"
#include "storage/word.h"

/* What `type` may say: the registry, as an option like any other. */
static void spec_type_option(struct option ret_table[static 2],
			     const char *names[static BACKEND_REGISTRY_MAX + 1])
{
	size_t nr = 0;

	while (nr < BACKEND_REGISTRY_MAX && backend_registry[nr]) {
		names[nr] = backend_registry[nr]->name;
		nr++;
	}
	names[nr] = NULL;
	ret_table[0] = (struct option){ .name = "type", .type = OPTION_ENUM, .values = names };
	ret_table[1] = (struct option)OPTION_END;
}

/* NULL: no such backend, and told. A plain null is the name of the null backend. */
static const struct backend *spec_find_type(const struct yaml_node *map, struct config_errors *e)
{
	const struct yaml_node *type = yaml_get(map, "type");
	const char *names[BACKEND_REGISTRY_MAX + 1];
	struct option table[2];
	int idx = -1;

	spec_type_option(table, names);
	if (!type) {
		config_errors_add(e, map->pos, "backend: \"type\" is missing");
		return NULL;
	}
	if (type->kind != YAML_SCALAR) {
		config_errors_add(e, type->pos, "type: expected the name of a backend");
		return NULL;
	}
	if (option_set(table, "type", type->text, type->pos, &idx, e) < 0 || idx < 0)
		return NULL;
	return backend_registry[idx];
}

/* The keys that are not in the option table: the type and the children. */
static void spec_other_keys(const struct backend *ops,
			    const char *keys[static BACKEND_CHILD_OPTIONS_MAX + 3])
{
	size_t nr = 0;

	keys[nr++] = "type";
	/* One that no child stands below is told once, by spec_parse_children. */
	keys[nr++] = "backend";
	for (const struct backend_child_option *c = ops->children; c && c->name; c++) {
		ASSERT(nr < BACKEND_CHILD_OPTIONS_MAX + 2);
		keys[nr++] = c->name;
	}
	keys[nr] = NULL;
}

/* Everything of this level but what is below it. */
static int spec_parse_options(struct backend_spec *spec, const struct yaml_node *map,
			      struct config_errors *e)
{
	const char *other[BACKEND_CHILD_OPTIONS_MAX + 3];
	size_t bytes = spec->ops->config_bytes;
	/* Never NULL, also for a backend without options. */
	void *config = calloc(1, bytes + 1);
	unsigned *refs = calloc(1, sizeof(*refs));
	int ret;

	if (!config || !refs) {
		free(config);
		free(refs);
		return -ENOMEM;
	}
	*refs = 1;
	spec->config = config;
	spec->config_refs = refs;
	spec_other_keys(spec->ops, other);
	ret = option_parse(spec->ops->options, map, other, config, bytes, e);
	if (ret == 0 && spec->ops->check)
		spec->ops->check(config, map, e);
	if (spec->ops->path_option)
		spec->path_pos = yaml_pos(map, spec->ops->path_option->name);
	else if (spec->ops->places && spec->ops->uri)
		spec->path_pos = yaml_pos(map, spec->ops->uri->option->name);
	return ret;
}

/* What the recursion shares. */
struct parsing {
	struct config_errors *e;
	unsigned node_nr, leaf_nr;
};

static int spec_parse_node(struct parsing *p, struct backend_spec **ret_spec,
			   const struct yaml_node *map, unsigned level);

/* -ENOMEM before anything else. */
static int worse_error(int a, int b)
{
	return a == 0 || b == -ENOMEM ? b : a;
}

/* One child more, behind the others. */
static int spec_parse_child(struct parsing *p, const struct backend_spec ***end,
			    const struct backend_child_option *as, unsigned idx,
			    const struct yaml_node *map, unsigned level)
{
	struct backend_spec *child = NULL;
	int ret;

	if (level > BACKEND_DEPTH_MAX) {
		config_errors_add(p->e, map->pos, "%s: more than %d above each other", as->name,
				  BACKEND_DEPTH_MAX);
		return -EINVAL;
	}
	ret = spec_parse_node(p, &child, map, level);
	if (!child)
		return ret;
	if (child->ops && (child->ops->is_zoned || child->ops->has_integrity)) {
		config_errors_add(p->e, map->pos,
				  "%s: %s stands at the top of its device: put what is over it "
				  "below it",
				  as->name, child->ops->name);
		ret = worse_error(ret, -EINVAL);
	}
	if (child->ops && as->is_bytewise && !child->ops->is_bytewise) {
		config_errors_add(p->e, map->pos,
				  "%s: %s keeps nothing that is smaller than a block: use file, or "
				  "mem",
				  as->name, child->ops->name);
		ret = worse_error(ret, -EINVAL);
	}
	child->as = as;
	child->as_idx = idx;
	**end = child;
	*end = &child->sibling;
	return ret;
}

static int spec_parse_list(struct parsing *p, const struct backend_spec ***end,
			   const struct backend_child_option *as, const struct yaml_node *list,
			   unsigned level)
{
	int ret = 0;

	if (list->kind != YAML_LIST) {
		config_errors_add(p->e, list->pos, "%s: expected a list of backends", as->name);
		return -EINVAL;
	}
	if (list->list.nr < as->nr_min || list->list.nr > as->nr_max) {
		config_errors_add(p->e, list->pos, "%s: %zu backends, and it takes %u to %u",
				  as->name, list->list.nr, as->nr_min, as->nr_max);
		return -EINVAL;
	}
	for (unsigned i = 0; i < list->list.nr; i++)
		ret = worse_error(ret, spec_parse_child(p, end, as, i, list->list.items[i], level));
	return ret;
}

/* One of the words of `as`, in the place of a backend. */
static int spec_parse_word(struct parsing *p, struct backend_spec *spec,
			   const struct backend_child_option *as, const struct yaml_node *word)
{
	const struct option table[] = {
		{ .name = as->name, .type = OPTION_ENUM, .values = as->words }, OPTION_END
	};
	int idx = -1, ret = option_set(table, as->name, word->text, word->pos, &idx, p->e);

	if (ret == 0)
		spec->word[as - spec->ops->children] = as->words[idx];
	return ret;
}

/* What stands below one key of the children's. */
static int spec_parse_key(struct parsing *p, struct backend_spec *spec,
			  const struct backend_spec ***end, const struct backend_child_option *as,
			  const struct yaml_node *below, unsigned level)
{
	if (as->words && below->kind == YAML_SCALAR)
		return spec_parse_word(p, spec, as, below);
	return as->nr_max > 1 ? spec_parse_list(p, end, as, below, level)
			      : spec_parse_child(p, end, as, 0, below, level);
}

static int spec_parse_children(struct parsing *p, struct backend_spec *spec,
			       const struct yaml_node *map, unsigned level)
{
	const struct backend_spec **end = &spec->child;
	const struct backend *ops = spec->ops;
	const struct yaml_node *below;
	int ret = 0;

	for (const struct backend_child_option *as = ops->children; as && as->name; as++) {
		below = yaml_get(map, as->name);
		if (!below && as->nr_min > 0) {
			config_errors_add(p->e, map->pos,
					  "\"%s\" is missing: %s stands over other backends",
					  as->name, ops->name);
			ret = worse_error(ret, -EINVAL);
		} else if (below) {
			ret = worse_error(ret, spec_parse_key(p, spec, &end, as, below, level + 1));
		}
	}
	below = yaml_get(map, "backend");
	if (below && !ops->children) {
		config_errors_add(p->e, below->pos,
				  "backend: %s is no filter, nothing can stand below it",
				  ops->name);
		ret = worse_error(ret, -EINVAL);
	}
	return ret;
}

static int spec_count(struct parsing *p, const struct backend_spec *spec,
		      const struct yaml_node *map)
{
	bool leaf = spec->ops && !spec->ops->children;

	p->node_nr++;
	p->leaf_nr += leaf;
	if (p->node_nr <= BACKEND_NODES_MAX && p->leaf_nr <= BACKEND_LEAVES_MAX)
		return 0;
	/* Told once; what is below is not looked at, for aliases make few lines a large tree. */
	if (p->node_nr == BACKEND_NODES_MAX + 1 || (leaf && p->leaf_nr == BACKEND_LEAVES_MAX + 1))
		config_errors_add(p->e, map->pos,
				  "backend: more than %d backends in one device, or more than %d "
				  "of them with nothing below",
				  BACKEND_NODES_MAX, BACKEND_LEAVES_MAX);
	return -EINVAL;
}

static int spec_parse_node(struct parsing *p, struct backend_spec **ret_spec,
			   const struct yaml_node *map, unsigned level)
{
	struct backend_spec *spec;
	int ret;

	ASSERT(map != NULL);
	if (map->kind != YAML_MAP) {
		config_errors_add(p->e, map->pos,
				  "backend: expected a map, for example {type: mem, size: 1GiB}");
		return -EINVAL;
	}
	spec = calloc(1, sizeof(*spec));
	if (!spec)
		return -ENOMEM;
	*ret_spec = spec;
	spec->ops = spec_find_type(map, p->e);
	ret = spec->ops ? spec_count(p, spec, map) : -EINVAL;
	if (ret < 0)
		return ret;
	ret = spec_parse_options(spec, map, p->e);
	return ret == -ENOMEM ? ret : worse_error(ret, spec_parse_children(p, spec, map, level));
}

int backend_spec_parse(struct backend_spec **ret_spec, const struct yaml_node *map,
		       struct config_errors *e)
{
	struct parsing p = { .e = e };
	size_t before_nr = e->nr + e->dropped_nr;
	int ret;

	*ret_spec = NULL;
	ret = spec_parse_node(&p, ret_spec, map, 1);
	/* A check adds errors, and says nothing else. */
	return ret == 0 && e->nr + e->dropped_nr > before_nr ? -EINVAL : ret;
}

int backend_spec_from_text(struct backend_spec **ret_spec, const char *yaml, char *error,
			   size_t error_bytes)
{
	struct backend_spec *spec = NULL;
	struct config_errors e;
	struct yaml_doc doc;
	char *words;
	int ret;

	config_errors_init(&e, "backend");
	ret = yaml_parse(&doc, yaml, strlen(yaml), &e);
	if (ret == 0)
		ret = backend_spec_parse(&spec, doc.root, &e);
	words = ret < 0 ? config_errors_text(&e) : NULL;
	if (ret < 0) {
		snprintf(error, error_bytes, "%s", words && *words ? words : errname(ret));
		error[strcspn(error, "\n")] = '\0';
		backend_spec_free(spec);
	}
	free(words);
	yaml_doc_free(&doc);
	config_errors_fini(&e);
	*ret_spec = ret < 0 ? NULL : spec;
	return ret;
}

static void spec_put_config(struct backend_spec *spec)
{
	void *config = (void *)(uintptr_t)spec->config;

	if (!spec->config_refs || __atomic_sub_fetch(spec->config_refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	option_free(spec->ops->options, config);
	free(config);
	free(spec->config_refs);
}

/* The specs are const to everybody but their maker. */
void backend_spec_free(struct backend_spec *spec)
{
	while (spec) {
		struct backend_spec *sibling = (struct backend_spec *)(uintptr_t)spec->sibling;

		backend_spec_free((struct backend_spec *)(uintptr_t)spec->child);
		spec_put_config(spec);
		free(spec);
		spec = sibling;
	}
}

/* ---- copies ---- */

/* With all that follow. NULL: there is none, or no memory. */
static struct backend_spec *specs_copy(const struct backend_spec *first)
{
	struct backend_spec *all = NULL;
	const struct backend_spec **end = NULL;

	for (const struct backend_spec *spec = first; spec; spec = spec->sibling) {
		struct backend_spec *copy = backend_spec_copy(spec);

		if (!copy) {
			backend_spec_free(all);
			return NULL;
		}
		if (end)
			*end = copy;
		else
			all = copy;
		end = &copy->sibling;
	}
	return all;
}

struct backend_spec *backend_spec_copy(const struct backend_spec *spec)
{
	struct backend_spec *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *spec;
	copy->sibling = NULL;
	copy->child = specs_copy(spec->child);
	if (spec->child && !copy->child) {
		free(copy);
		return NULL;
	}
	if (copy->config_refs)
		__atomic_add_fetch(copy->config_refs, 1, __ATOMIC_RELAXED);
	return copy;
}

/* ---- sizes ---- */

unsigned backend_spec_child_nr(const struct backend_spec *spec)
{
	unsigned nr = 0;

	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		nr++;
	return nr;
}

const char *backend_spec_word(const struct backend_spec *spec,
			      const struct backend_child_option *as)
{
	return spec->word[as - spec->ops->children];
}

/* A leaf, or a node whose size is not made of its children's. */
static bool spec_sizes_itself(const struct backend_spec *spec)
{
	return !spec->child || spec->ops->sizes_itself;
}

/* The field of the size option of such a one; NULL: it has none. */
static uint64_t *spec_size_field(const struct backend_spec *spec)
{
	const struct option *o =
		spec->ops && spec_sizes_itself(spec) ? spec->ops->size_option : NULL;

	return o ? (uint64_t *)((uintptr_t)spec->config + o->offset) : NULL;
}

/* By the size options of all that size themselves; 0: one has none, or it is 0. */
static uint64_t spec_size(const struct backend_spec *spec)
{
	uint64_t smallest_bytes = UINT64_MAX;
	const uint64_t *field = spec_size_field(spec);

	if (spec_sizes_itself(spec))
		return field ? *field : 0;
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		smallest_bytes = MIN(smallest_bytes, spec_size(child));
	return smallest_bytes && spec->ops->size_over
		       ? spec->ops->size_over(spec->config, backend_spec_child_nr(spec),
					      smallest_bytes)
		       : smallest_bytes;
}

void backend_spec_set_size(struct backend_spec *spec, uint64_t size_bytes)
{
	uint64_t *field = spec_size_field(spec);

	if (field)
		*field = size_bytes;
	if (!spec->ops || spec_sizes_itself(spec))
		return;
	if (spec->ops->size_below)
		size_bytes = spec->ops->size_below(spec->config, backend_spec_child_nr(spec),
						   size_bytes);
	for (const struct backend_spec *child = spec->child; child; child = child->sibling)
		backend_spec_set_size((struct backend_spec *)(uintptr_t)child, size_bytes);
}

static bool spec_options_equal(const struct backend_spec *a, const struct backend_spec *b,
			       bool but_sizes)
{
	uint64_t *size_a = but_sizes ? spec_size_field(a) : NULL, *size_b, b_bytes;
	bool equal;

	if (!size_a)
		return option_equal(a->ops->options, a->config, b->config);
	size_b = spec_size_field(b);
	b_bytes = *size_b;
	/* Compared as if b were of a's size; nobody else looks meanwhile. */
	*size_b = *size_a;
	equal = option_equal(a->ops->options, a->config, b->config);
	*size_b = b_bytes;
	return equal;
}

static bool spec_equal(const struct backend_spec *a, const struct backend_spec *b, bool but_sizes)
{
	const struct backend_spec *child_a, *child_b;

	if (a->ops != b->ops || a->as != b->as || a->as_idx != b->as_idx ||
	    memcmp(a->word, b->word, sizeof(a->word)) != 0 || !spec_options_equal(a, b, but_sizes))
		return false;
	but_sizes = but_sizes && !a->ops->sizes_itself;
	child_a = a->child;
	child_b = b->child;
	for (; child_a && child_b; child_a = child_a->sibling, child_b = child_b->sibling)
		if (!spec_equal(child_a, child_b, but_sizes))
			return false;
	return child_a == child_b;
}

bool backend_spec_equal(const struct backend_spec *a, const struct backend_spec *b)
{
	return spec_equal(a, b, false);
}

bool backend_spec_resized(const struct backend_spec *a, const struct backend_spec *b,
			  uint64_t *ret_a_bytes, uint64_t *ret_b_bytes)
{
	uint64_t a_bytes = spec_size(a), b_bytes = spec_size(b);

	if (a_bytes == b_bytes || !spec_equal(a, b, true))
		return false;
	*ret_a_bytes = a_bytes;
	*ret_b_bytes = b_bytes;
	return true;
}

/* ---- in words ---- */

struct text {
	char *buf;
	size_t len;
};

static __attribute__((format(printf, 2, 3))) void text_add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (t->len < BACKEND_SPEC_TEXT_BYTES)
		t->len += (size_t)vsnprintf(t->buf + t->len, BACKEND_SPEC_TEXT_BYTES - t->len, fmt,
					    ap);
	va_end(ap);
}

/* Neighbours that read the same are counted: "3 file". */
static void add_spec_text(struct text *t, const struct backend_spec *spec);

static bool same_text(const struct backend_spec *a, const struct backend_spec *b)
{
	return !a->child && !b->child && a->ops == b->ops;
}

static void add_children_text(struct text *t, const struct backend_spec *child)
{
	const char *comma = "";

	while (child) {
		const struct backend_spec *next = child->sibling;
		unsigned nr = 1;

		for (; next && same_text(child, next); next = next->sibling)
			nr++;
		text_add(t, "%s", comma);
		comma = ", ";
		if (nr > 1)
			text_add(t, "%u ", nr);
		add_spec_text(t, child);
		child = next;
	}
}

static void add_spec_text(struct text *t, const struct backend_spec *spec)
{
	bool many = spec->child && spec->child->sibling;

	if (!spec->ops)
		return;
	text_add(t, "%s", spec->ops->name);
	if (spec->child)
		text_add(t, many ? " > (" : " > ");
	add_children_text(t, spec->child);
	if (many)
		text_add(t, ")");
}

const char *backend_spec_text(const struct backend_spec *spec,
			      char buf[static BACKEND_SPEC_TEXT_BYTES])
{
	struct text t = { .buf = buf };

	buf[0] = '\0';
	if (spec)
		add_spec_text(&t, spec);
	return buf;
}
