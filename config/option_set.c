/* OPTION_SET: some of a few names: a list, or the names with commas between them. */
#include <errno.h>
#include <string.h>

#include "config/option_internal.h"

#define NAME_BYTES 64

static int add_name(const struct option *o, const char *name, struct config_pos pos, uint64_t *set,
		    struct config_errors *e)
{
	int idx = option_enum_find(o, name, pos, e);

	if (idx < 0)
		return -EINVAL;
	*set |= 1ull << idx;
	return 0;
}

/* "read, write". The first wrong one ends it: the text may be megabytes of commas. */
static int add_names(const struct option *o, const struct yaml_node *node, uint64_t *set,
		     struct config_errors *e)
{
	const char *text = node->text;
	int err;

	do {
		char name[NAME_BYTES];
		size_t len;

		text += strspn(text, " ");
		len = strcspn(text, ",");
		snprintf(name, sizeof(name), "%.*s", (int)(len < NAME_BYTES ? len : NAME_BYTES),
			 text);
		text += len;
		for (len = strlen(name); len > 0 && name[len - 1] == ' '; len--)
			name[len - 1] = '\0';
		err = add_name(o, name, node->pos, set, e);
	} while (err == 0 && *text++ == ',');
	return err;
}

static int add_list(const struct option *o, const struct yaml_node *list, uint64_t *set,
		    struct config_errors *e)
{
	int err = 0;

	if (list->list.nr == 0) {
		config_errors_add(e, list->pos, "%s: the list is empty", o->name);
		return -EINVAL;
	}
	for (size_t i = 0; i < list->list.nr; i++) {
		const struct yaml_node *item = list->list.items[i];

		if (item->kind == YAML_SCALAR) {
			err = add_name(o, item->text, item->pos, set, e) ? -EINVAL : err;
			continue;
		}
		config_errors_add(e, item->pos, "%s: expected a name", o->name);
		err = -EINVAL;
	}
	return err;
}

int option_set_set(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e)
{
	uint64_t set = 0;
	int err;

	if (value->kind == YAML_MAP)
		return option_wrong_kind(o, value, e);
	err = value->kind == YAML_LIST ? add_list(o, value, &set, e) : add_names(o, value, &set, e);
	if (err == 0)
		*(uint64_t *)field = set;
	return err;
}
