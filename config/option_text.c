/*
 * One value given as text instead of in a file: defaults, and key=value of ublkctl. Read as YAML
 * reads what stands after the colon, so that a default in a table is what one would write. Text
 * without any sign of YAML's is its own value: defaults are set for every map that is read.
 */
#include <string.h>

#include "config/option_internal.h"

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

static int parse(struct option_text *t, const char *key, const char *text, struct config_pos pos,
		 struct config_errors *e)
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
		return parse(t, key, text, pos, e);
	t->plain = (struct yaml_node){ .kind = YAML_SCALAR, .pos = pos, .text = (char *)text };
	t->node = &t->plain;
	return 0;
}

void option_text_fini(struct option_text *t)
{
	yaml_doc_free(&t->doc);
}
