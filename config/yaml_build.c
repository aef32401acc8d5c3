/*
 * From libyaml's events to the tree. The happy path: one event, one node, attached to the map or
 * list on top of the stack. Nesting and cost are checked before a node is made, so that memory and
 * time are bounded by what was accepted, not by what was sent. Errors that leave the shape of the
 * document known (duplicate keys, foreign tags) are told and passed; all others end the reading.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/util.h"
#include "config/yaml_internal.h"

/* A node while the tree grows, and what it is worth as the target of an alias. */
struct yaml_built {
	struct yaml_node node; /* first: yaml_doc_free frees the whole by it */
	size_t cost;	       /* nodes in it, aliases expanded */
	unsigned height;       /* levels of containers in it, a scalar has 0 */
	bool is_open;	       /* its end was not seen yet */
};

/* One open map or list. */
struct frame {
	struct yaml_built *built;
	struct yaml_node *key; /* of a map: read, its value not yet */
	size_t capacity;       /* of pairs or items */
	size_t cost_before;
};

struct build {
	struct yaml_doc *doc;
	const char *text;
	size_t bytes;
	struct config_errors *e;
	void *anchors; /* of tsearch(3) */
	struct frame stack[YAML_DEPTH_MAX];
	unsigned depth;
	size_t cost;
	size_t all_capacity;
	bool was_document;
	bool was_told; /* an error that did not end the reading */
};

/* ---- anchors by name, in a balanced tree of tsearch(3): a hostile file may have many ---- */

struct anchor {
	struct yaml_built *node;
	char name[];
};

static int anchor_compare(const void *a, const void *b)
{
	return strcmp(((const struct anchor *)a)->name, ((const struct anchor *)b)->name);
}

static struct anchor *anchor_create(const char *name, struct yaml_built *node)
{
	size_t bytes = strlen(name) + 1;
	struct anchor *a = malloc(sizeof(*a) + bytes);

	if (!a)
		return NULL;
	a->node = node;
	memcpy(a->name, name, bytes);
	return a;
}

static int anchors_set(void **tree, const char *name, struct yaml_built *node)
{
	struct anchor *fresh = anchor_create(name, node);
	struct anchor **found;

	if (!fresh)
		return -ENOMEM;
	found = tsearch(fresh, tree, anchor_compare);
	if (!found) {
		free(fresh);
		return -ENOMEM;
	}
	if (*found != fresh) {
		(*found)->node = node;
		free(fresh);
	}
	return 0;
}

static int name_compare(const void *name, const void *anchor)
{
	return strcmp(name, ((const struct anchor *)anchor)->name);
}

static struct yaml_built *anchors_get(void *const *tree, const char *name)
{
	struct anchor **found = tfind(name, tree, name_compare);

	return found ? (*found)->node : NULL;
}

/* ---- the tree ---- */

static struct config_pos event_pos(const yaml_event_t *event)
{
	return (struct config_pos){ .line = (unsigned)event->start_mark.line + 1,
				    .column = (unsigned)event->start_mark.column + 1 };
}

static int build_fail(struct build *b, struct config_pos pos, const char *what)
{
	config_errors_add(b->e, pos, "%s", what);
	return -EINVAL;
}

/* The array of nr elements with room for one more, or NULL: out of memory, array as it was. */
static void *build_grow(void *array, size_t nr, size_t *capacity, size_t element_bytes)
{
	size_t wanted = *capacity ? *capacity * 2 : 8;

	if (nr < *capacity)
		return array;
	array = reallocarray(array, wanted, element_bytes);
	if (array)
		*capacity = wanted;
	return array;
}

static int pay(struct build *b, size_t cost, struct config_pos pos)
{
	if (cost > YAML_NODES_MAX - b->cost) {
		config_errors_add(b->e, pos,
				  "too large: above %d values, each alias counted with all it "
				  "stands for",
				  YAML_NODES_MAX);
		return -EINVAL;
	}
	b->cost += cost;
	return 0;
}

static int node_create(struct build *b, enum yaml_kind kind, struct config_pos pos,
		       struct yaml_built **ret_built)
{
	struct yaml_doc *doc = b->doc;
	struct yaml_built *built;
	struct yaml_node **all;

	all = build_grow(doc->all, doc->all_nr, &b->all_capacity, sizeof(*all));
	if (!all)
		return -ENOMEM;
	doc->all = all;
	built = calloc(1, sizeof(*built));
	if (!built)
		return -ENOMEM;
	built->node.kind = kind;
	built->node.pos = pos;
	doc->all[doc->all_nr++] = &built->node;
	*ret_built = built;
	return 0;
}

static struct frame *build_top(struct build *b)
{
	return b->depth ? &b->stack[b->depth - 1] : NULL;
}

/* The next node is a key: it stands in a map, and no key waits for its value. */
static bool expects_key(struct build *b)
{
	struct frame *f = build_top(b);

	return f && f->built->node.kind == YAML_MAP && !f->key;
}

static int attach_to_map(struct frame *f, struct yaml_node *node)
{
	struct yaml_node *map = &f->built->node;
	struct yaml_pair *pairs;

	if (!f->key) {
		f->key = node;
		return 0;
	}
	pairs = build_grow(map->map.pairs, map->map.nr, &f->capacity, sizeof(*pairs));
	if (!pairs)
		return -ENOMEM;
	map->map.pairs = pairs;
	pairs[map->map.nr++] = (struct yaml_pair){ .key = f->key, .value = node };
	f->key = NULL;
	return 0;
}

static int attach_to_list(struct frame *f, struct yaml_node *node)
{
	struct yaml_node *list = &f->built->node;
	struct yaml_node **items;

	items = build_grow(list->list.items, list->list.nr, &f->capacity, sizeof(*items));
	if (!items)
		return -ENOMEM;
	list->list.items = items;
	items[list->list.nr++] = node;
	return 0;
}

static int build_attach(struct build *b, struct yaml_built *built)
{
	struct frame *f = build_top(b);

	if (!f) {
		b->doc->root = &built->node;
		return 0;
	}
	f->built->height = MAX(f->built->height, built->height + 1);
	if (f->built->node.kind == YAML_MAP)
		return attach_to_map(f, &built->node);
	return attach_to_list(f, &built->node);
}

static int set_anchor(struct build *b, const yaml_char_t *anchor, struct yaml_built *built)
{
	return anchor ? anchors_set(&b->anchors, (const char *)anchor, built) : 0;
}

static void check_tag(struct build *b, enum yaml_kind kind, const yaml_char_t *tag,
		      struct config_pos pos)
{
	if (!yaml_tag_check(kind, (const char *)tag, pos, b->e))
		b->was_told = true;
}

static int scalar_fill(struct yaml_node *node, const yaml_event_t *event)
{
	node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
		       yaml_tag_is_string((const char *)event->data.scalar.tag);
	node->text = strndup((const char *)event->data.scalar.value, event->data.scalar.length);
	return node->text ? 0 : -ENOMEM;
}

static int build_scalar(struct build *b, const yaml_event_t *event)
{
	struct config_pos pos = event_pos(event);
	size_t bytes = event->data.scalar.length;
	struct yaml_built *built;
	int err;

	if (memchr(event->data.scalar.value, '\0', bytes))
		return build_fail(b, pos, "a NUL character (\\0) inside the text");
	err = pay(b, 1 + bytes / YAML_NODE_TEXT_BYTES, pos);
	if (err)
		return err;
	check_tag(b, YAML_SCALAR, event->data.scalar.tag, pos);
	err = node_create(b, YAML_SCALAR, pos, &built);
	if (err)
		return err;
	built->cost = 1 + bytes / YAML_NODE_TEXT_BYTES;
	err = scalar_fill(&built->node, event);
	if (err)
		return err;
	err = set_anchor(b, event->data.scalar.anchor, built);
	return err ? err : build_attach(b, built);
}

/* What is wrong with this alias here, or NULL. */
static const char *alias_problem(struct build *b, const struct yaml_built *target)
{
	if (!target)
		return "no anchor of this name above";
	if (target->is_open)
		return "an alias inside its own anchor has no end";
	if (expects_key(b) && target->node.kind != YAML_SCALAR)
		return "a key must be a text, not a map or a list";
	if (b->depth + target->height > YAML_DEPTH_MAX)
		return "nested too deep with what the alias stands for (at most 80 levels)";
	return NULL;
}

static int build_alias(struct build *b, const yaml_event_t *event)
{
	const char *name = (const char *)event->data.alias.anchor;
	struct yaml_built *target = anchors_get(&b->anchors, name);
	const char *problem = alias_problem(b, target);
	char excerpt[CONFIG_EXCERPT_BYTES];
	int err;

	if (problem) {
		config_errors_add(b->e, event_pos(event), "*%s: %s", config_excerpt(name, excerpt),
				  problem);
		return -EINVAL;
	}
	err = pay(b, target->cost, event_pos(event));
	return err ? err : build_attach(b, target);
}

/* A map or a list begins. It is attached when it ends: its height is known then. */
static int build_start(struct build *b, enum yaml_kind kind, struct config_pos pos,
		       const yaml_char_t *tag, const yaml_char_t *anchor)
{
	struct frame *f = &b->stack[b->depth];
	size_t cost_before = b->cost;
	int err;

	if (expects_key(b))
		return build_fail(b, pos, "a key must be a text, not a map or a list");
	if (b->depth == YAML_DEPTH_MAX)
		return build_fail(b, pos, "nested too deep (at most 80 levels)");
	err = pay(b, 1, pos);
	if (err)
		return err;
	check_tag(b, kind, tag, pos);
	*f = (struct frame){ .cost_before = cost_before };
	err = node_create(b, kind, pos, &f->built);
	if (err)
		return err;
	f->built->is_open = true;
	f->built->height = 1;
	b->depth++;
	return set_anchor(b, anchor, f->built);
}

static int build_end(struct build *b)
{
	struct frame *f = build_top(b);
	struct yaml_built *built = f->built;
	int err = 0;

	if (built->node.kind == YAML_MAP)
		err = yaml_map_finish(&built->node, b->e);
	if (err == -ENOMEM)
		return err;
	if (err)
		b->was_told = true;
	built->cost = b->cost - f->cost_before;
	built->is_open = false;
	b->depth--;
	return build_attach(b, built);
}

static int build_document(struct build *b, const yaml_event_t *event)
{
	if (b->was_document)
		return build_fail(b, event_pos(event), "a second document: one file holds one");
	b->was_document = true;
	return 0;
}

static int build_event(struct build *b, const yaml_event_t *event)
{
	struct config_pos pos = event_pos(event);

	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		return build_document(b, event);
	case YAML_SCALAR_EVENT:
		return build_scalar(b, event);
	case YAML_ALIAS_EVENT:
		return build_alias(b, event);
	case YAML_MAPPING_START_EVENT:
		return build_start(b, YAML_MAP, pos, event->data.mapping_start.tag,
				   event->data.mapping_start.anchor);
	case YAML_SEQUENCE_START_EVENT:
		return build_start(b, YAML_LIST, pos, event->data.sequence_start.tag,
				   event->data.sequence_start.anchor);
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
		return build_end(b);
	default:
		return 0;
	}
}

static int read_events(struct build *b, yaml_parser_t *parser)
{
	yaml_event_type_t type;
	yaml_event_t event;
	int err;

	do {
		if (!yaml_parser_parse(parser, &event))
			return yaml_syntax_error(parser, b->text, b->bytes, b->e);
		type = event.type;
		err = build_event(b, &event);
		yaml_event_delete(&event);
	} while (err == 0 && type != YAML_STREAM_END_EVENT);
	return err;
}

/* An empty document says what an empty value says. */
static int add_null_root(struct build *b)
{
	struct yaml_built *built;

	if (node_create(b, YAML_SCALAR, (struct config_pos){ .line = 1, .column = 1 }, &built))
		return -ENOMEM;
	built->node.text = strdup("");
	if (!built->node.text)
		return -ENOMEM;
	b->doc->root = &built->node;
	return 0;
}

int yaml_build(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e)
{
	struct build b = { .doc = doc, .text = text, .bytes = bytes, .e = e };
	yaml_parser_t parser;
	int err;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	/* Said, not guessed: yaml_scan has checked that it is UTF-8. */
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
	err = read_events(&b, &parser);
	if (!err && !doc->root)
		err = add_null_root(&b);
	tdestroy(b.anchors, free);
	yaml_parser_delete(&parser);
	if (err)
		yaml_doc_free(doc);
	return err == 0 && b.was_told ? -EINVAL : err;
}
