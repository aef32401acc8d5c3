/*
 * A device's configuration as JSON, to be kept and read back by the same parser. Main thread.
 * Scalars become strings (to an option table "128" is a number too), a plain null stays one; what
 * an alias or a merge key stood for is written out. Failure mode: out of memory, NULL.
 */
#include "daemon/settings.h"

#include "config/yaml.h"

static json_t *json_of(const struct yaml_node *node);

static json_t *json_of_map(const struct yaml_node *node)
{
	json_t *map = json_object();

	/* The first of a key is the one that counts: merged pairs come last. */
	for (size_t i = 0; i < node->map.nr; i++) {
		const char *key = node->map.pairs[i].key->text;

		if (!json_object_get(map, key) &&
		    json_object_set_new(map, key, json_of(node->map.pairs[i].value)) < 0) {
			json_decref(map);
			return NULL;
		}
	}
	return map;
}

static json_t *json_of_list(const struct yaml_node *node)
{
	json_t *list = json_array();

	for (size_t i = 0; i < node->list.nr; i++)
		if (json_array_append_new(list, json_of(node->list.items[i])) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* As deep as YAML_DEPTH_MAX. */
static json_t *json_of(const struct yaml_node *node)
{
	switch (node->kind) {
	case YAML_MAP:
		return json_of_map(node);
	case YAML_LIST:
		return json_of_list(node);
	default:
		return yaml_is_null(node) ? json_null() : json_string(node->text);
	}
}

json_t *device_settings_json(const struct device_settings *d)
{
	return json_of(d->map);
}
