/*
 * Owns a FILE, growing buffers, copies of texts. One thread.
 *
 * Happy path: write, close; a text is found by a hash and one comparison. Failure modes: a full
 * disk, which out_close tells, and what comes after is not written; a full table of texts, and the
 * caller writes the text itself.
 */
#include "tracefile/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

void out_write(struct out *o, const void *data, size_t bytes)
{
	if (!o->err && fwrite(data, 1, bytes, o->file) != bytes)
		o->err = errno ? -errno : -EIO;
}

int out_close(struct out *o)
{
	if (fclose(o->file) != 0 && !o->err)
		o->err = -errno;
	return o->err;
}

void bytes_put(struct bytes *b, const void *data, size_t nr)
{
	if (nr == 0)
		return;
	if (b->room - b->nr < nr) {
		b->room = (b->nr + nr) * 2;
		b->data = memory_resize(b->data, b->room, 1);
	}
	memcpy(b->data + b->nr, data, nr);
	b->nr += nr;
}

void bytes_free(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){ 0 };
}

/* ---- texts ---- */

struct text_entry {
	struct text_entry *next;
	uint32_t number;
	char text[];
};

uint32_t text_number(struct text_table *t, const char *text, uint32_t nr_max, bool *ret_new)
{
	uint64_t hash = hash_text(HASH_START, text);
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

static void text_list_free(void *value, void *arg)
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
	map_each(&t->texts, text_list_free, NULL);
	map_free(&t->texts);
	*t = (struct text_table){ 0 };
}

/* ---- the clock ---- */

uint64_t trace_clock_file_ns(const struct trace_clock *c, uint64_t time_ns)
{
	if (c->from_boot)
		return time_ns + (uint64_t)c->boot_offset_ns;
	return time_ns > c->start_ns ? time_ns - c->start_ns : 0;
}
