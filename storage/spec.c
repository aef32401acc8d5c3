/*
 * From a map of the configuration to a stack of backends. Main thread. Owns the specs it makes,
 * each with the struct that the backend's own option table fills.
 *
 * Happy path: find the type -> its options by its table -> its check -> the same for the nested
 * `backend:`. Failure modes: every error found is added with its position; what is below is looked
 * at all the same, so that the user sees all errors at once.
 */
#include "storage/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/errname.h"
#include "base/util.h"

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

/* Everything of this level but what is below it. */
static int spec_parse_options(struct backend_spec *spec, const struct yaml_node *map,
			      struct config_errors *e)
{
	static const char *const skip[] = { "type", "backend", NULL };
	size_t bytes = spec->ops->config_bytes;
	/* Never NULL, also for a backend without options. */
	void *config = calloc(1, bytes + 1);
	int ret;

	spec->config = config;
	if (!config)
		return -ENOMEM;
	ret = option_parse(spec->ops->options, map, skip, config, bytes, e);
	if (ret == 0 && spec->ops->check)
		spec->ops->check(config, map, e);
	return ret;
}

static int spec_parse_level(struct backend_spec **ret_spec, const struct yaml_node *map,
			    unsigned level, struct config_errors *e);

/* Of a filter, or of what has something below it all the same. */
static int spec_parse_child(struct backend_spec *spec, const struct yaml_node *map, unsigned level,
			    struct config_errors *e)
{
	const struct yaml_node *below = yaml_get(map, "backend");
	struct backend_spec *child = NULL;
	int ret = -EINVAL;

	if (!below)
		config_errors_add(e, map->pos,
				  "\"backend\" is missing: %s is a filter over another backend",
				  spec->ops->name);
	else if (!spec->ops->is_filter)
		config_errors_add(e, below->pos,
				  "backend: %s is no filter, nothing can stand below it",
				  spec->ops->name);
	else if (level == BACKEND_STACK_MAX)
		config_errors_add(e, below->pos, "backend: more than %d above each other",
				  BACKEND_STACK_MAX);
	else
		ret = spec_parse_level(&child, below, level + 1, e);
	spec->child = child;
	return ret;
}

static int spec_parse_level(struct backend_spec **ret_spec, const struct yaml_node *map,
			    unsigned level, struct config_errors *e)
{
	struct backend_spec *spec;
	int ret, child_ret = 0;

	ASSERT(map != NULL);
	if (map->kind != YAML_MAP) {
		config_errors_add(e, map->pos,
				  "backend: expected a map, for example {type: mem, size: 1GiB}");
		return -EINVAL;
	}
	spec = calloc(1, sizeof(*spec));
	if (!spec)
		return -ENOMEM;
	*ret_spec = spec;
	spec->ops = spec_find_type(map, e);
	if (!spec->ops)
		return -EINVAL;
	ret = spec_parse_options(spec, map, e);
	if (ret != -ENOMEM && (spec->ops->is_filter || yaml_get(map, "backend")))
		child_ret = spec_parse_child(spec, map, level, e);
	return ret == -ENOMEM || child_ret == 0 ? ret : child_ret;
}

int backend_spec_parse(struct backend_spec **ret_spec, const struct yaml_node *map,
		       struct config_errors *e)
{
	size_t before_nr = e->nr + e->dropped_nr;
	int ret;

	*ret_spec = NULL;
	ret = spec_parse_level(ret_spec, map, 1, e);
	/* A check adds errors, and says nothing else. */
	return ret == 0 && e->nr + e->dropped_nr > before_nr ? -EINVAL : ret;
}

/* The specs are const to everybody but their maker. */
void backend_spec_free(struct backend_spec *spec)
{
	while (spec) {
		struct backend_spec *child = (struct backend_spec *)(uintptr_t)spec->child;
		void *config = (void *)(uintptr_t)spec->config;

		if (config)
			option_free(spec->ops->options, config);
		free(config);
		free(spec);
		spec = child;
	}
}

bool backend_spec_equal(const struct backend_spec *a, const struct backend_spec *b)
{
	for (; a && b; a = a->child, b = b->child)
		if (a->ops != b->ops || !option_equal(a->ops->options, a->config, b->config))
			return false;
	return a == b;
}

/* The field of the lowest backend's size option; NULL: it has none. */
static uint64_t *spec_size_field(const struct backend_spec *spec)
{
	const struct backend_spec *bottom = backend_spec_bottom(spec, NULL);
	const struct option *o = bottom && bottom->ops ? bottom->ops->size_option : NULL;

	return o ? (uint64_t *)((uintptr_t)bottom->config + o->offset) : NULL;
}

const char *backend_spec_path(const struct backend_spec *spec)
{
	const struct backend_spec *bottom = backend_spec_bottom(spec, NULL);
	const struct option *o = bottom && bottom->ops ? bottom->ops->path_option : NULL;

	return o && bottom->config ? *(char *const *)((uintptr_t)bottom->config + o->offset) : NULL;
}

bool backend_spec_resized(const struct backend_spec *a, const struct backend_spec *b,
			  uint64_t *ret_a_bytes, uint64_t *ret_b_bytes)
{
	uint64_t *size_a = spec_size_field(a), *size_b = spec_size_field(b);
	uint64_t a_bytes, b_bytes;
	bool equal;

	if (!size_a || !size_b || *size_a == *size_b)
		return false;
	a_bytes = *size_a;
	b_bytes = *size_b;
	/* Compared as if b were of a's size; nobody else looks meanwhile. */
	*size_b = a_bytes;
	equal = backend_spec_equal(a, b);
	*size_b = b_bytes;
	*ret_a_bytes = a_bytes;
	*ret_b_bytes = b_bytes;
	return equal;
}

void backend_spec_set_size(struct backend_spec *spec, uint64_t size_bytes)
{
	uint64_t *size = spec_size_field(spec);

	if (size)
		*size = size_bytes;
}

const char *backend_spec_text(const struct backend_spec *spec,
			      char buf[static BACKEND_SPEC_TEXT_BYTES])
{
	size_t len = 0;

	buf[0] = '\0';
	for (; spec && spec->ops && len < BACKEND_SPEC_TEXT_BYTES; spec = spec->child)
		len += (size_t)snprintf(buf + len, BACKEND_SPEC_TEXT_BYTES - len, "%s%s",
					len ? " > " : "", spec->ops->name);
	return buf;
}

const struct backend_spec *backend_spec_bottom(const struct backend_spec *spec,
					       const struct yaml_node **map)
{
	while (spec && spec->child) {
		spec = spec->child;
		if (map)
			*map = yaml_get(*map, "backend");
	}
	return spec;
}

uint8_t backend_spec_data(const struct backend_spec *spec)
{
	uint8_t data = BACKEND_DATA_ANY;

	for (; spec; spec = spec->child)
		data &= spec->ops->data;
	return data;
}

bool backend_spec_is_examined(const struct backend_spec *spec)
{
	return backend_spec_bottom(spec, NULL)->ops->examine != NULL;
}

int backend_spec_examine(const struct backend_spec *spec, void **ret_found, char *error,
			 size_t error_bytes)
{
	const struct backend_spec *bottom = backend_spec_bottom(spec, NULL);
	int ret;

	error[0] = '\0';
	ret = bottom->ops->examine(bottom->config, ret_found, error, error_bytes);
	if (ret < 0 && error[0] == '\0')
		snprintf(error, error_bytes, "%s: %s", bottom->ops->name, errname(ret));
	return ret;
}

void backend_spec_examine_free(const struct backend_spec *spec, void *found)
{
	const struct backend *ops = backend_spec_bottom(spec, NULL)->ops;

	if (ops->found_free)
		ops->found_free(found);
}
