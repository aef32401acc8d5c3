/*
 * Owns copies of the texts. One thread. Happy path: a hash and one comparison. Failure mode: the
 * table is full, and the caller writes the text itself.
 */
#include "tracefile/text_table.h"

#include <stdlib.h>
#include <string.h>

struct text_entry {
	struct text_entry *next;
	uint32_t number;
	char text[];
};

/* FNV-1a */
static uint64_t text_hash(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
	return hash;
}

uint32_t text_number(struct text_table *t, const char *text, uint32_t nr_max, bool *ret_new)
{
	uint64_t hash = text_hash(text);
	struct text_entry *first = map_get(&t->texts, hash, 0), *e;
	size_t bytes = strlen(text) + 1;

	*ret_new = false;
	for (e = first; e; e = e->next)
		if (!strcmp(e->text, text))
			return e->number;
	if (t->nr == nr_max)
		return 0;
	e = memory_zalloc(sizeof(*e) + bytes);
	e->next = first;
	e->number = ++t->nr;
	memcpy(e->text, text, bytes);
	map_put(&t->texts, hash, 0, e);
	*ret_new = true;
	return e->number;
}

static void free_list(void *value, void *arg)
{
	struct text_entry *e = value, *next;

	(void)arg;
	for (; e; e = next) {
		next = e->next;
		free(e);
	}
}

void text_table_free(struct text_table *t)
{
	map_each(&t->texts, free_list, NULL);
	map_free(&t->texts);
	*t = (struct text_table){ 0 };
}
