/*
 * A finished map: keys given twice, and merge keys. Both are one question, "which pair of a key
 * counts": the first one written in the map itself, then those of the merged maps in their order.
 * Answered by sorting, since a hostile map may have as many keys as a document may have nodes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/yaml_internal.h"

struct key_ref {
	const char *text;
	size_t idx; /* in pairs */
};

static bool is_merge(const struct yaml_pair *pair)
{
	return !pair->key->quoted && strcmp(pair->key->text, "<<") == 0;
}

static int append_pairs(struct yaml_node *map, const struct yaml_node *from)
{
	size_t nr = map->map.nr + from->map.nr;
	struct yaml_pair *pairs;

	if (from->map.nr == 0)
		return 0;
	pairs = reallocarray(map->map.pairs, nr, sizeof(*pairs));
	if (!pairs)
		return -ENOMEM;
	memcpy(pairs + map->map.nr, from->map.pairs, from->map.nr * sizeof(*pairs));
	map->map.pairs = pairs;
	map->map.nr = nr;
	return 0;
}

static int merge_one(struct yaml_node *map, const struct yaml_node *from, struct config_errors *e)
{
	if (from->kind == YAML_MAP)
		return append_pairs(map, from);
	config_errors_add(e, from->pos, "<<: takes a map or a list of maps, as in <<: *anchor");
	return -EINVAL;
}

static int merge_value(struct yaml_node *map, const struct yaml_node *value,
		       struct config_errors *e)
{
	int err = 0;

	if (value->kind != YAML_LIST)
		return merge_one(map, value, e);
	for (size_t i = 0; i < value->list.nr && err == 0; i++)
		err = merge_one(map, value->list.items[i], e);
	return err;
}

/* Appends what the merge keys among the first own_nr pairs name. */
static int merge_all(struct yaml_node *map, size_t own_nr, struct config_errors *e)
{
	int err = 0;

	for (size_t i = 0; i < own_nr && err != -ENOMEM; i++) {
		int one = 0;

		if (is_merge(&map->map.pairs[i]))
			one = merge_value(map, map->map.pairs[i].value, e);
		err = one ? one : err;
	}
	return err;
}

static int key_ref_compare(const void *a, const void *b)
{
	const struct key_ref *x = a, *y = b;
	int order = strcmp(x->text, y->text);

	return order ? order : (x->idx > y->idx) - (x->idx < y->idx);
}

static struct key_ref *refs_create(const struct yaml_node *map)
{
	struct key_ref *refs = calloc(map->map.nr, sizeof(*refs));

	if (!refs)
		return NULL;
	for (size_t i = 0; i < map->map.nr; i++)
		refs[i] = (struct key_ref){ .text = map->map.pairs[i].key->text, .idx = i };
	qsort(refs, map->map.nr, sizeof(*refs), key_ref_compare);
	return refs;
}

static void tell_twice(const struct yaml_node *first, const struct yaml_node *again,
		       struct config_errors *e)
{
	char key[CONFIG_EXCERPT_BYTES];

	config_errors_add(e, again->pos, "key \"%s\" is given twice (first on line %u)",
			  config_excerpt(again->text, key), first->pos.line);
}

/* Takes the key of each pair that does not count; tells those among the first own_nr. */
static int drop_twice(struct yaml_node *map, size_t own_nr, struct config_errors *e)
{
	struct key_ref *refs = refs_create(map);
	size_t first = 0;
	int err = 0;

	if (!refs)
		return -ENOMEM;
	for (size_t i = 1; i < map->map.nr; i++) {
		struct yaml_pair *again = &map->map.pairs[refs[i].idx];

		if (strcmp(refs[first].text, refs[i].text) != 0) {
			first = i;
			continue;
		}
		if (refs[i].idx < own_nr) {
			tell_twice(map->map.pairs[refs[first].idx].key, again->key, e);
			err = -EINVAL;
		}
		again->key = NULL;
	}
	free(refs);
	return err;
}

static void compact(struct yaml_node *map)
{
	size_t kept = 0;

	for (size_t i = 0; i < map->map.nr; i++) {
		struct yaml_pair *pair = &map->map.pairs[i];

		if (pair->key && !is_merge(pair))
			map->map.pairs[kept++] = *pair;
	}
	map->map.nr = kept;
}

int yaml_map_finish(struct yaml_node *map, struct config_errors *e)
{
	size_t own_nr = map->map.nr;
	int merge_err, twice_err;

	if (own_nr == 0)
		return 0;
	merge_err = merge_all(map, own_nr, e);
	if (merge_err == -ENOMEM)
		return merge_err;
	twice_err = drop_twice(map, own_nr, e);
	if (twice_err == -ENOMEM)
		return twice_err;
	compact(map);
	return merge_err ? merge_err : twice_err;
}
