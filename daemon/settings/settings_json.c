/*
 * A device's configuration as JSON, to be kept and read back by the same parser. Main thread.
 * Scalars become strings (to an option table "128" is a number too), a plain null stays one; what
 * an alias or a merge key stood for is written out. Failure mode: out of memory, NULL.
 */
#include "daemon/settings/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "config/yaml.h"

static json_t *yaml_to_json(const struct yaml_node *node);

static json_t *yaml_map_to_json(const struct yaml_node *node)
{
	json_t *map = json_object();

	for (size_t i = 0; i < node->map.nr; i++) {
		const char *key = node->map.pairs[i].key->text;

		if (json_object_set_new(map, key, yaml_to_json(node->map.pairs[i].value)) < 0) {
			json_decref(map);
			return NULL;
		}
	}
	return map;
}

static json_t *yaml_list_to_json(const struct yaml_node *node)
{
	json_t *list = json_array();

	for (size_t i = 0; i < node->list.nr; i++)
		if (json_array_append_new(list, yaml_to_json(node->list.items[i])) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* As deep as YAML_DEPTH_MAX. */
static json_t *yaml_to_json(const struct yaml_node *node)
{
	switch (node->kind) {
	case YAML_MAP:
		return yaml_map_to_json(node);
	case YAML_LIST:
		return yaml_list_to_json(node);
	default:
		return yaml_is_null(node) ? json_null() : json_string(node->text);
	}
}

json_t *device_settings_json(const struct device_settings *d)
{
	return yaml_to_json(d->map);
}

/* What JSON has in a string as it is, and YAML refuses or takes for the end of a line. */
static unsigned special_char(const char *text, size_t *ret_bytes)
{
	static const struct {
		const char *bytes;
		unsigned code;
	} single[] = { { "\x7f", 0x7f },	   { "\xe2\x80\xa8", 0x2028 },
		       { "\xe2\x80\xa9", 0x2029 }, { "\xef\xbb\xbf", 0xfeff },
		       { "\xef\xbf\xbe", 0xfffe }, { "\xef\xbf\xbf", 0xffff } };
	unsigned char c0 = (unsigned char)text[0], c1 = c0 ? (unsigned char)text[1] : 0;

	*ret_bytes = 2;
	if (c0 == 0xc2 && c1 >= 0x80 && c1 < 0xa0)
		return c1;
	for (size_t i = 0; i < ARRAY_SIZE(single); i++) {
		*ret_bytes = strlen(single[i].bytes);
		if (strncmp(text, single[i].bytes, *ret_bytes) == 0)
			return single[i].code;
	}
	*ret_bytes = 1;
	return 0;
}

char *device_json_text(const json_t *device)
{
	char *json = json_dumps(device, JSON_COMPACT | JSON_ENCODE_ANY), *text = NULL;
	size_t text_bytes, bytes;
	FILE *out = json ? open_memstream(&text, &text_bytes) : NULL;

	for (const char *at = json; out && *at; at += bytes) {
		unsigned code = special_char(at, &bytes);

		if (code)
			fprintf(out, "\\u%04x", code);
		else
			fputc(*at, out);
	}
	free(json);
	if (out && fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
