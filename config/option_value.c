/*
 * One option's value: what each type accepts, how it lies in the struct, how it is freed and
 * compared. A type is one row of kinds[]. The text decides, not its quotes: "128" is a number.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/util.h"
#include "config/option_internal.h"

static const char *kind_noun(const struct yaml_node *node)
{
	return node->kind == YAML_MAP ? "map" : node->kind == YAML_LIST ? "list" : "text";
}

int option_wrong_kind(const struct option *o, const struct yaml_node *node, struct config_errors *e)
{
	config_errors_add(e, node->pos, "%s: expected %s, not a %s", o->name,
			  option_kind_of(o)->noun, kind_noun(node));
	return -EINVAL;
}

/* "<name>: "<text>" <what>" */
static int wrong_text(const struct option *o, const struct yaml_node *node, const char *what,
		      struct config_errors *e)
{
	char text[CONFIG_EXCERPT_BYTES];

	config_errors_add(e, node->pos, "%s: \"%s\" %s", o->name, config_excerpt(node->text, text),
			  what);
	return -EINVAL;
}

/* ---- OPTION_STRING ---- */

static int check_length(const struct option *o, const struct yaml_node *node,
			struct config_errors *e)
{
	size_t bytes = strlen(node->text);

	if (bytes < o->min && bytes == 0)
		config_errors_add(e, node->pos, "%s: must not be empty", o->name);
	else if (bytes < o->min)
		config_errors_add(e, node->pos, "%s: %zu bytes are below the minimum %zu", o->name,
				  bytes, (size_t)o->min);
	else if (o->max != 0 && bytes > o->max)
		config_errors_add(e, node->pos, "%s: %zu bytes are above the maximum %zu", o->name,
				  bytes, (size_t)o->max);
	else
		return 0;
	return -EINVAL;
}

static int set_string(const struct option *o, struct yaml_node *node, void *field,
		      struct config_errors *e)
{
	char *copy;

	if (node->kind != YAML_SCALAR)
		return option_wrong_kind(o, node, e);
	if (check_length(o, node, e))
		return -EINVAL;
	copy = strdup(node->text);
	if (!copy)
		return -ENOMEM;
	free(*(char **)field);
	*(char **)field = copy;
	return 0;
}

static void release_string(void *field)
{
	free(*(char **)field);
}

static bool equal_string(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return x && y ? strcmp(x, y) == 0 : x == y;
}

/* ---- OPTION_BOOL ---- */

static int set_bool(const struct option *o, struct yaml_node *node, void *field,
		    struct config_errors *e)
{
	static const char *const words[][3] = { { "false", "no", "off" }, { "true", "yes", "on" } };

	if (node->kind != YAML_SCALAR)
		return option_wrong_kind(o, node, e);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		for (size_t j = 0; j < ARRAY_SIZE(words[i]); j++)
			if (strcasecmp(node->text, words[i][j]) == 0) {
				*(bool *)field = i == 1;
				return 0;
			}
	return wrong_text(o, node, "is neither true nor false", e);
}

static bool equal_bool(const void *a, const void *b)
{
	return *(const bool *)a == *(const bool *)b;
}

/* ---- OPTION_UINT, OPTION_SIZE, OPTION_DURATION ---- */

static int beyond(const struct option *o, const struct yaml_node *node, const char *side,
		  uint64_t limit, struct config_errors *e)
{
	char text[CONFIG_EXCERPT_BYTES], limit_text[OPTION_NUMBER_BYTES];

	config_errors_add(e, node->pos, "%s: %s is %s %s", o->name,
			  config_excerpt(node->text, text), side,
			  option_format_number(o->type, limit, limit_text));
	return -EINVAL;
}

static int not_power_of_two(const struct option *o, const struct yaml_node *node, uint64_t number,
			    struct config_errors *e)
{
	uint64_t below = number ? 1ull << log2_floor(number) : 1;
	char text[CONFIG_EXCERPT_BYTES], low[OPTION_NUMBER_BYTES], high[OPTION_NUMBER_BYTES];

	config_excerpt(node->text, text);
	option_format_number(o->type, below, low);
	option_format_number(o->type, below << 1, high);
	if (number == 0 || below << 1 == 0)
		config_errors_add(e, node->pos, "%s: %s is not a power of two (nearest: %s)",
				  o->name, text, low);
	else
		config_errors_add(e, node->pos, "%s: %s is not a power of two (nearest: %s, %s)",
				  o->name, text, low, high);
	return -EINVAL;
}

static int not_a_number(const struct option *o, const struct yaml_node *node,
			struct config_errors *e)
{
	if (o->type == OPTION_SIZE)
		return wrong_text(o, node, "is not a size (examples: 4096, 64k, 1MiB, 10G)", e);
	if (o->type == OPTION_DURATION)
		return wrong_text(o, node, "is not a duration (examples: 500ms, 10s, 2m, 1h)", e);
	return wrong_text(o, node, "is not a number (examples: 128, 0x80)", e);
}

static int check_number(const struct option *o, const struct yaml_node *node, uint64_t number,
			struct config_errors *e)
{
	if (number < o->min)
		return beyond(o, node, "below the minimum", o->min, e);
	if (o->max != 0 && number > o->max)
		return beyond(o, node, "above the maximum", o->max, e);
	if (o->flags & OPTION_POWER_OF_TWO && !is_power_of_two(number))
		return not_power_of_two(o, node, number, e);
	return 0;
}

static int set_number(const struct option *o, struct yaml_node *node, void *field,
		      struct config_errors *e)
{
	uint64_t number = 0;
	int err;

	if (node->kind != YAML_SCALAR)
		return option_wrong_kind(o, node, e);
	if (node->text[0] == '-' &&
	    option_parse_number(o->type, node->text + 1, &number) != -EINVAL)
		return beyond(o, node, "below the minimum", o->min, e);
	err = option_parse_number(o->type, node->text, &number);
	if (err == -ERANGE)
		return beyond(o, node, "above the maximum", o->max ? o->max : UINT64_MAX, e);
	if (err)
		return not_a_number(o, node, e);
	if (check_number(o, node, number, e))
		return -EINVAL;
	*(uint64_t *)field = number;
	return 0;
}

static bool equal_number(const void *a, const void *b)
{
	return *(const uint64_t *)a == *(const uint64_t *)b;
}

/* ---- OPTION_RATIO: a part of a whole, "0.25" or "25%" ---- */

/* Digits and a point, perhaps an exponent: no sign, no hex, no "inf". */
static int ratio_parse(const char *text, double *ret_ratio)
{
	double number;
	char *end;

	if (strspn(text, "0123456789.eE-%") != strlen(text) || *text == '-')
		return -EINVAL;
	number = strtod(text, &end);
	if (end == text)
		return -EINVAL;
	if (strcmp(end, "%") == 0)
		number /= 100.;
	else if (*end != '\0')
		return -EINVAL;
	*ret_ratio = number;
	return 0;
}

static int set_ratio(const struct option *o, struct yaml_node *value, void *field,
		     struct config_errors *e)
{
	char text[CONFIG_EXCERPT_BYTES];
	double ratio;

	if (value->kind != YAML_SCALAR)
		return option_wrong_kind(o, value, e);
	if (ratio_parse(value->text, &ratio) < 0) {
		config_errors_add(e, value->pos, "%s: \"%s\" is not a ratio (examples: 0.25, 25%%)",
				  o->name, config_excerpt(value->text, text));
		return -EINVAL;
	}
	if (ratio > 1.) {
		config_errors_add(e, value->pos, "%s: %s is above the maximum 1 (100%%)", o->name,
				  config_excerpt(value->text, text));
		return -EINVAL;
	}
	*(double *)field = ratio;
	return 0;
}

/* Both are what the same text gives, or not. */
static bool equal_ratio(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(double)) == 0;
}

/* ---- OPTION_ENUM ---- */

static int enum_index(const struct option *o, const char *text)
{
	for (int i = 0; o->values[i]; i++)
		if (strcmp(text, o->values[i]) == 0)
			return i;
	return -1;
}

static void join_values(const struct option *o, char *buf, size_t buf_bytes)
{
	size_t len = 0;

	buf[0] = '\0';
	for (int i = 0; o->values[i] && len < buf_bytes; i++)
		len += (size_t)snprintf(buf + len, buf_bytes - len, "%s%s", i ? ", " : "",
					o->values[i]);
}

int option_enum_find(const struct option *o, const char *text, struct config_pos pos,
		     struct config_errors *e)
{
	char excerpt[CONFIG_EXCERPT_BYTES], hint[OPTION_HINT_BYTES], all[200];
	struct option_nearest n = { .word = text };
	int idx = enum_index(o, text);

	if (idx >= 0)
		return idx;
	for (int i = 0; o->values[i]; i++)
		option_nearest_try(&n, o->values[i]);
	join_values(o, all, sizeof(all));
	config_errors_add(e, pos, "%s: \"%s\" is not one of %s%s", o->name,
			  config_excerpt(text, excerpt), all, option_nearest_hint(&n, hint));
	return -EINVAL;
}

static int set_enum(const struct option *o, struct yaml_node *node, void *field,
		    struct config_errors *e)
{
	int idx;

	if (node->kind != YAML_SCALAR)
		return option_wrong_kind(o, node, e);
	idx = option_enum_find(o, node->text, node->pos, e);
	if (idx < 0)
		return idx;
	*(int *)field = idx;
	return 0;
}

static bool equal_enum(const void *a, const void *b)
{
	return *(const int *)a == *(const int *)b;
}

/* ---- OPTION_NODE ---- */

static int set_node(const struct option *o, struct yaml_node *node, void *field,
		    struct config_errors *e)
{
	if (node->kind == YAML_SCALAR)
		return option_wrong_kind(o, node, e);
	*(struct yaml_node **)field = node;
	return 0;
}

static bool node_equal(const struct yaml_node *a, const struct yaml_node *b);

static bool list_equal(const struct yaml_node *a, const struct yaml_node *b)
{
	if (a->list.nr != b->list.nr)
		return false;
	for (size_t i = 0; i < a->list.nr; i++)
		if (!node_equal(a->list.items[i], b->list.items[i]))
			return false;
	return true;
}

/* Keys are unique: as many pairs, and each of a in b, is all. */
static bool map_equal(const struct yaml_node *a, const struct yaml_node *b)
{
	if (a->map.nr != b->map.nr)
		return false;
	for (size_t i = 0; i < a->map.nr; i++) {
		const struct yaml_node *other = yaml_get(b, a->map.pairs[i].key->text);

		if (!other || !node_equal(a->map.pairs[i].value, other))
			return false;
	}
	return true;
}

/* Recurses at most YAML_DEPTH_MAX deep. Quotes and the order of keys say nothing. */
static bool node_equal(const struct yaml_node *a, const struct yaml_node *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == YAML_SCALAR)
		return strcmp(a->text, b->text) == 0;
	return a->kind == YAML_LIST ? list_equal(a, b) : map_equal(a, b);
}

static bool equal_node(const void *a, const void *b)
{
	const struct yaml_node *x = *(struct yaml_node *const *)a;
	const struct yaml_node *y = *(struct yaml_node *const *)b;

	return x && y ? node_equal(x, y) : x == y;
}

/* ---- all of them ---- */

static const struct option_kind kinds[] = {
	[OPTION_STRING] = { "a text", sizeof(char *), set_string, release_string, equal_string },
	[OPTION_BOOL] = { "true or false", sizeof(bool), set_bool, NULL, equal_bool },
	[OPTION_UINT] = { "a number", sizeof(uint64_t), set_number, NULL, equal_number },
	[OPTION_SIZE] = { "a size", sizeof(uint64_t), set_number, NULL, equal_number },
	[OPTION_DURATION] = { "a duration", sizeof(uint64_t), set_number, NULL, equal_number },
	[OPTION_ENUM] = { "a text", sizeof(int), set_enum, NULL, equal_enum },
	[OPTION_SET] = { "names", sizeof(uint64_t), option_set_set, NULL, equal_number },
	[OPTION_RATIO] = { "a number", sizeof(double), set_ratio, NULL, equal_ratio },
	[OPTION_CPUS] = { "CPUs", sizeof(struct option_cpus), option_cpus_set, option_cpus_release,
			  option_cpus_equal },
	[OPTION_OUTAGE_TIMEOUT] = { "fail, forever, or {queue: TIME}", sizeof(uint64_t),
				    option_outage_timeout_set, NULL, equal_number },
	[OPTION_MAP] = { "a map", sizeof(void *), option_map_set, NULL, NULL },
	[OPTION_NODE] = { "a map or a list", sizeof(struct yaml_node *), set_node, NULL,
			  equal_node },
};

const struct option_kind *option_kind_of(const struct option *o)
{
	ASSERT(o->type < ARRAY_SIZE(kinds));
	return &kinds[o->type];
}

/* Texts and names may be the word null: there, only nothing at all and ~ are no value. */
static bool is_unset(const struct option *o, const struct yaml_node *node)
{
	if (!yaml_is_null(node))
		return false;
	if (o->type == OPTION_ENUM)
		return enum_index(o, node->text) < 0;
	if (o->type == OPTION_STRING)
		return node->text[0] == '\0' || node->text[0] == '~';
	return true;
}

int option_value_set(const struct option *o, struct yaml_node *value, struct config_pos key_pos,
		     void *field, struct config_errors *e)
{
	if (!is_unset(o, value))
		return option_kind_of(o)->set(o, value, field, e);
	if (!(o->flags & OPTION_REQUIRED))
		return option_value_reset(o, field);
	config_errors_add(e, key_pos, "%s: has no value", o->name);
	return -EINVAL;
}

void option_value_clear(const struct option *o, void *field)
{
	const struct option_kind *kind = option_kind_of(o);

	if (o->type == OPTION_MAP)
		option_map_release(o, field);
	else if (kind->release)
		kind->release(field);
	memset(field, 0, kind->bytes);
}

bool option_value_equal(const struct option *o, const void *a, const void *b)
{
	return o->type == OPTION_MAP ? option_map_equal(o, a, b) : option_kind_of(o)->equal(a, b);
}

int option_value_reset(const struct option *o, void *field)
{
	static const struct config_pos nowhere;
	struct config_errors e;
	struct option_text t;
	int err;

	option_value_clear(o, field);
	if (!o->def)
		return 0;
	ASSERT(o->type != OPTION_NODE); /* it would be borrowed from a document that is gone */
	config_errors_init(&e, "default");
	err = option_text_init(&t, o->name, o->def, nowhere, &e);
	if (!err)
		err = option_kind_of(o)->set(o, t.node, field, &e);
	option_text_fini(&t);
	config_errors_fini(&e);
	ASSERT(err != -EINVAL); /* a table whose default is no value of its own type */
	return err;
}
