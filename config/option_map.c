/*
 * OPTION_MAP: a map with a table of its own. The field is a pointer to a struct that the table
 * fills, owned; NULL: there is no such map. Any thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "config/option_internal.h"

static void free_map(const struct option *o, void *map)
{
	if (map)
		option_free(o->table, map);
	free(map);
}

int option_map_set(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e)
{
	void *map;
	int err;

	if (value->kind != YAML_MAP)
		return option_wrong_kind(o, value, e);
	map = calloc(1, o->table_bytes);
	if (!map)
		return -ENOMEM;
	err = option_parse(o->table, value, NULL, map, o->table_bytes, e);
	if (err) {
		free_map(o, map);
		return err;
	}
	option_map_release(o, field);
	*(void **)field = map;
	return 0;
}

void option_map_release(const struct option *o, void *field)
{
	free_map(o, *(void **)field);
}

bool option_map_equal(const struct option *o, const void *a, const void *b)
{
	const void *x = *(void *const *)a, *y = *(void *const *)b;

	return x && y ? option_equal(o->table, x, y) : x == y;
}
