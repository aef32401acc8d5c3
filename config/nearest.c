/*
 * "Did you mean": the edit distance (insert, delete, replace, swap two neighbours) between a word
 * and the names that would have been right. Both are short, or they are not compared at all.
 */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "config/option_internal.h"

#define NAME_BYTES_MAX 32

struct distance {
	const char *a, *b;
	unsigned cell[NAME_BYTES_MAX + 1][NAME_BYTES_MAX + 1];
};

static unsigned cell_value(const struct distance *d, size_t i, size_t j)
{
	unsigned differ = d->a[i - 1] != d->b[j - 1];
	unsigned best = d->cell[i - 1][j - 1] + differ;

	best = MIN(best, d->cell[i - 1][j] + 1);
	best = MIN(best, d->cell[i][j - 1] + 1);
	if (i > 1 && j > 1 && d->a[i - 1] == d->b[j - 2] && d->a[i - 2] == d->b[j - 1])
		best = MIN(best, d->cell[i - 2][j - 2] + 1);
	return best;
}

static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	struct distance d = { .a = a, .b = b };

	for (size_t i = 0; i <= a_len; i++)
		d.cell[i][0] = (unsigned)i;
	for (size_t j = 0; j <= b_len; j++)
		d.cell[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++)
		for (size_t j = 1; j <= b_len; j++)
			d.cell[i][j] = cell_value(&d, i, j);
	return d.cell[a_len][b_len];
}

void option_nearest_try(struct option_nearest *n, const char *name)
{
	size_t word_len = strnlen(n->word, NAME_BYTES_MAX + 1);
	size_t name_len = strnlen(name, NAME_BYTES_MAX + 1);
	unsigned found;

	if (word_len > NAME_BYTES_MAX || name_len > NAME_BYTES_MAX)
		return;
	found = distance(n->word, word_len, name, name_len);
	/* One slip in three letters, rounded up; never a word with nothing in common. */
	if (found > (MAX(word_len, name_len) + 2) / 3 || found >= MAX(word_len, name_len))
		return;
	if (n->best && n->distance <= found)
		return;
	n->best = name;
	n->distance = found;
}

const char *option_nearest_hint(const struct option_nearest *n, char buf[static OPTION_HINT_BYTES])
{
	buf[0] = '\0';
	if (n->best)
		snprintf(buf, OPTION_HINT_BYTES, " (did you mean \"%s\"?)", n->best);
	return buf;
}

const char *option_nearest(const char *word, const void *names, size_t stride, size_t nr)
{
	struct option_nearest n = { .word = word };

	for (size_t i = 0; i < nr; i++) {
		const char *name;

		memcpy(&name, (const char *)names + i * stride, sizeof(name));
		if (name)
			option_nearest_try(&n, name);
	}
	return n.best;
}
