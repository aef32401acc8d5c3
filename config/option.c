/*
 * A map read by a table: defaults, then what the map says, then what it does not say but must.
 * Every error is told and the reading goes on, so that one run shows all. Any thread. The only
 * failure besides the configuration's own is -ENOMEM.
 */
#include "config/option.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "config/option_internal.h"

/* The walk stands at the row; walk->row is NULL: there is none. */
static void option_find(struct option_walk *walk, const struct option *table, const char *name)
{
	option_for_each (walk, table)
		if (strcmp(walk->row->name, name) == 0)
			return;
}

static void *field_at(const struct option_walk *walk, void *out)
{
	return (char *)out + walk->offset;
}

static bool is_skipped(const char *const *skip, const char *name)
{
	for (; skip && *skip; skip++)
		if (strcmp(*skip, name) == 0)
			return true;
	return false;
}

static int tell_unknown(const struct option *table, const char *const *skip, const char *name,
			struct config_pos pos, struct config_errors *e)
{
	struct option_nearest n = { .word = name };
	char hint[OPTION_HINT_BYTES], excerpt[CONFIG_EXCERPT_BYTES];
	struct option_walk walk;

	option_for_each (&walk, table)
		if (!(walk.row->flags & OPTION_HIDDEN))
			option_nearest_try(&n, walk.row->name);
	for (; skip && *skip; skip++)
		option_nearest_try(&n, *skip);
	config_errors_add(e, pos, "unknown key \"%s\"%s", config_excerpt(name, excerpt),
			  option_nearest_hint(&n, hint));
	return -EINVAL;
}

/* The worse of two results: no memory, then refused, then done. */
static int worse(int a, int b)
{
	if (a == -ENOMEM || b == -ENOMEM)
		return -ENOMEM;
	return a ? a : b;
}

static int set_defaults(const struct option *table, void *out)
{
	struct option_walk walk;

	option_for_each (&walk, table)
		if (option_value_reset(walk.row, field_at(&walk, out)))
			return -ENOMEM;
	return 0;
}

static int set_pair(const struct option *table, const char *const *skip,
		    const struct yaml_pair *pair, void *out, struct config_errors *e)
{
	const char *name = pair->key->text;
	struct option_walk walk;

	if (is_skipped(skip, name))
		return 0;
	option_find(&walk, table, name);
	if (!walk.row)
		return tell_unknown(table, skip, name, pair->key->pos, e);
	return option_value_set(walk.row, pair->value, pair->key->pos, field_at(&walk, out), e);
}

static int set_pairs(const struct option *table, const char *const *skip,
		     const struct yaml_node *map, void *out, struct config_errors *e)
{
	int err = 0;

	for (size_t i = 0; i < map->map.nr && err != -ENOMEM; i++)
		err = worse(err, set_pair(table, skip, &map->map.pairs[i], out, e));
	return err;
}

static int check_required(const struct option *table, const struct yaml_node *map,
			  struct config_pos pos, struct config_errors *e)
{
	struct option_walk walk;
	int err = 0;

	option_for_each (&walk, table) {
		if (!(walk.row->flags & OPTION_REQUIRED) || yaml_get(map, walk.row->name))
			continue;
		config_errors_add(e, pos, "\"%s\" is missing", walk.row->name);
		err = -EINVAL;
	}
	return err;
}

int option_parse(const struct option *table, const struct yaml_node *map, const char *const *skip,
		 void *out, size_t bytes, struct config_errors *e)
{
	struct config_pos pos = map ? map->pos : (struct config_pos){ 0 };
	int err;

	memset(out, 0, bytes);
	err = set_defaults(table, out);
	if (err)
		return err;
	if (map && map->kind == YAML_MAP)
		err = set_pairs(table, skip, map, out, e);
	else if (map && !yaml_is_null(map)) {
		config_errors_add(e, pos, "expected a map of options");
		return -EINVAL;
	}
	return worse(err, check_required(table, map, pos, e));
}

/*
 * A value given as text instead of in a file: a default, or key=value of ublkctl. Read as YAML
 * reads what stands after the colon, so that a default in a table is what one would write. Text
 * without any sign of YAML's is its own value: defaults are set for every map that is read.
 */
static bool is_plain(const char *text)
{
	return text[strcspn(text, "[]{}\"'&*!|>%@`#,:?\\ \t\r\n")] == '\0';
}

static void tell_again(const struct config_errors *inner, const char *key, struct config_pos pos,
		       struct config_errors *e)
{
	for (size_t i = 0; i < inner->nr; i++)
		config_errors_add(e, pos, "%s: %s", key, inner->list[i].message);
}

static int option_text_parse(struct option_text *t, const char *key, const char *text,
			     struct config_pos pos, struct config_errors *e)
{
	struct config_errors inner;
	int err;

	config_errors_init(&inner, key);
	err = yaml_parse_value(&t->doc, text, strlen(text), &inner);
	tell_again(&inner, key, pos, e);
	config_errors_fini(&inner);
	for (size_t i = 0; i < t->doc.all_nr; i++)
		t->doc.all[i]->pos = pos;
	t->node = t->doc.root;
	return err;
}

int option_text_init(struct option_text *t, const char *key, const char *text,
		     struct config_pos pos, struct config_errors *e)
{
	memset(t, 0, sizeof(*t));
	if (!is_plain(text))
		return option_text_parse(t, key, text, pos, e);
	t->plain = (struct yaml_node){ .kind = YAML_SCALAR, .pos = pos, .text = (char *)text };
	t->node = &t->plain;
	return 0;
}

void option_text_fini(struct option_text *t)
{
	yaml_doc_free(&t->doc);
}

static int option_set_text(const struct option *o, const char *text, struct config_pos pos,
			   void *field, struct config_errors *e)
{
	struct option_text t;
	int err = option_text_init(&t, o->name, text, pos, e);

	if (!err)
		err = option_value_set(o, t.node, pos, field, e);
	option_text_fini(&t);
	return err;
}

int option_set(const struct option *table, const char *key, const char *text, struct config_pos pos,
	       void *out, struct config_errors *e)
{
	struct option_walk walk;

	option_find(&walk, table, key);
	if (!walk.row)
		return tell_unknown(table, NULL, key, pos, e);
	if (walk.row->type != OPTION_NODE)
		return option_set_text(walk.row, text, pos, field_at(&walk, out), e);
	config_errors_add(e, pos, "%s: can only be given in a file", key);
	return -EINVAL;
}

void option_free(const struct option *table, void *out)
{
	struct option_walk walk;

	option_for_each (&walk, table)
		option_value_clear(walk.row, field_at(&walk, out));
}

bool option_equal(const struct option *table, const void *a, const void *b)
{
	struct option_walk walk;

	option_for_each (&walk, table)
		if (!option_value_equal(walk.row, (const char *)a + walk.offset,
					(const char *)b + walk.offset))
			return false;
	return true;
}
