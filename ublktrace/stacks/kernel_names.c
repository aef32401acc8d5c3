/*
 * Names of the kernel's functions by address: a sorted table. Main thread; owns its copies of
 * names. Failure modes: out of memory; addresses that are hidden from this process.
 */
#include "ublktrace/stacks/kernel_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct name {
	uint64_t address;
	char *text;
};

struct kernel_names {
	struct name *name;
	size_t nr, room;
};

static int kernel_names_compare(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static int kernel_names_add(struct kernel_names *n, uint64_t address, const char *text)
{
	if (n->nr == n->room) {
		size_t room = n->room ? 2 * n->room : 65536;
		struct name *name = reallocarray(n->name, room, sizeof(*name));

		if (!name)
			return -ENOMEM;
		n->name = name;
		n->room = room;
	}
	n->name[n->nr].address = address;
	n->name[n->nr].text = strdup(text);
	if (!n->name[n->nr].text)
		return -ENOMEM;
	n->nr++;
	return 0;
}

int kernel_names_read(FILE *f, struct kernel_names **ret_names)
{
	struct kernel_names *n = calloc(1, sizeof(*n));
	char line[512], text[256], type;
	uint64_t address;
	int err = n ? 0 : -ENOMEM;

	while (!err && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 " %c %255s", &address, &type, text) == 3 && address &&
		    strchr("tTwW", type))
			err = kernel_names_add(n, address, text);
	if (!err && !n->nr)
		err = -EACCES;
	if (err) {
		kernel_names_free(n);
		return err;
	}
	qsort(n->name, n->nr, sizeof(*n->name), kernel_names_compare);
	*ret_names = n;
	return 0;
}

const char *kernel_names_find(const struct kernel_names *n, uint64_t address)
{
	size_t low = 0, high = n->nr;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (n->name[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? n->name[low - 1].text : NULL;
}

void kernel_names_free(struct kernel_names *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n->nr; i++)
		free(n->name[i].text);
	free(n->name);
	free(n);
}
