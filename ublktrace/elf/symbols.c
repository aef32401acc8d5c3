/*
 * Looks for a few names in lists of all of the kernel's functions. The compiler may give a function
 * whose parameters it changed a suffix (NAME.isra.0, .constprop.0, .part.0; gcc's -fipa-sra and
 * its kin), of which the type in BTF is no longer true.
 *
 * Happy path: one pass over the text, a binary search for each line. Failure modes: a line of
 * another form is skipped. Main thread.
 */
#include "ublktrace/elf/symbols.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int symbol_compare(const void *a, const void *b)
{
	return strcmp(((const struct symbol *)a)->name, ((const struct symbol *)b)->name);
}

void symbols_sort(struct symbol *symbols, size_t nr)
{
	qsort(symbols, nr, sizeof(*symbols), symbol_compare);
}

struct symbol *symbols_find(struct symbol *symbols, size_t nr, const char *name)
{
	if (!nr)
		return NULL;
	return bsearch(&(struct symbol){ .name = name }, symbols, nr, sizeof(*symbols),
		       symbol_compare);
}

/* Cuts the first word off *text; NULL at the end of the line. */
static char *symbol_cut_word(char **text)
{
	char *start = *text + strspn(*text, " \t\n"), *end = start + strcspn(start, " \t\n");

	if (!*start)
		return NULL;
	*text = *end ? end + 1 : end;
	*end = 0;
	return start;
}

/* Whether the module at the end of a line, "[ublk_drv]" or none, may be that of s. */
static bool module_fits(const struct symbol *s, const char *brackets)
{
	size_t bytes = s->module ? strlen(s->module) : 0;

	if (!brackets || brackets[0] != '[')
		return true;
	return bytes && !strncmp(brackets + 1, s->module, bytes) && brackets[1 + bytes] == ']';
}

/* The symbol that is meant by a name with or without a suffix. */
static struct symbol *find_base(struct symbol *symbols, size_t nr, const char *name)
{
	char base[SYMBOL_BYTES];
	size_t bytes = strcspn(name, ".");

	if (bytes >= sizeof(base) || strlen(name) >= sizeof(base))
		return NULL;
	memcpy(base, name, bytes);
	base[bytes] = 0;
	return symbols_find(symbols, nr, base);
}

static void symbol_take(struct symbol *s, const char *name)
{
	if (strstr(name, ".cold"))
		return;
	if (s->found[0] && strcmp(s->name, name) != 0)
		return;
	snprintf(s->found, sizeof(s->found), "%s", name);
}

/* "ffffffffc0a3f5d0 t ublk_queue_rq	[ublk_drv]" */
static void kallsyms_line(char *line, struct symbol *symbols, size_t nr)
{
	const char *address = symbol_cut_word(&line), *type = symbol_cut_word(&line),
		   *name = symbol_cut_word(&line);
	struct symbol *s;

	if (!address || !type || !name || !strchr("tTwW", type[0]))
		return;
	s = find_base(symbols, nr, name);
	if (s && module_fits(s, symbol_cut_word(&line)))
		symbol_take(s, name);
}

/* "ublk_queue_rq [ublk_drv]" */
static void traceable_line(char *line, struct symbol *symbols, size_t nr)
{
	const char *name = symbol_cut_word(&line);
	struct symbol *s = name ? find_base(symbols, nr, name) : NULL;

	if (s && !strcmp(s->found, name) && module_fits(s, symbol_cut_word(&line)))
		s->traceable = true;
}

static void each_line(FILE *f, struct symbol *symbols, size_t nr,
		      void (*fn)(char *line, struct symbol *symbols, size_t nr))
{
	char *line = NULL;
	size_t bytes = 0;

	while (getline(&line, &bytes, f) > 0)
		fn(line, symbols, nr);
	free(line);
}

void symbols_read_kallsyms(FILE *f, struct symbol *symbols, size_t nr)
{
	each_line(f, symbols, nr, kallsyms_line);
}

void symbols_read_traceable(FILE *f, struct symbol *symbols, size_t nr)
{
	each_line(f, symbols, nr, traceable_line);
}
