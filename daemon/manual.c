/*
 * Writes the option reference into a manual page, at build time, from the tables that the parser
 * uses: `ublkd-manual PAGE.in > PAGE`. A line "@daemon@", "@device@" or "@backends@" of the
 * template becomes the options of that table, "@filters@" the names of the filters; all other lines
 * are copied.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/exit_code.h"
#include "daemon/settings/settings.h"
#include "storage/node.h"

/* The keys below which other backends stand. */
static void write_children(const struct backend *ops)
{
	for (const struct backend_child_option *c = ops->children; c && c->name; c++) {
		printf(".TP\n\\fB%s\\fR (", c->name);
		if (c->nr_max > 1)
			printf("list of %u to %u backends", c->nr_min, c->nr_max);
		else
			fputs("backend", stdout);
		for (unsigned i = 0; c->words && c->words[i]; i++)
			printf("%s%s", c->words[i + 1] ? ", " : " or ", c->words[i]);
		printf("%s)\n%s\n", c->nr_min > 0 ? "; required" : "", c->help);
	}
}

static void write_backends(void)
{
	for (const struct backend *const *b = backend_registry; *b; b++) {
		printf(".SS type: %s\n%s\n", (*b)->name, (*b)->summary);
		option_write_man((*b)->options, stdout);
		write_children(*b);
	}
}

/* Those over one backend: .RB ( throttle ", " delay ) */
static void write_filters(void)
{
	const char *between = ".RB ( ";

	for (const struct backend *const *b = backend_registry; *b; b++) {
		if ((*b)->children != backend_one_child)
			continue;
		printf("%s%s", between, (*b)->name);
		between = " \", \" ";
	}
	puts(" )");
}

static void write_manual_line(const char *line)
{
	if (strcmp(line, "@daemon@\n") == 0)
		option_write_man(settings_daemon_options, stdout);
	else if (strcmp(line, "@device@\n") == 0)
		option_write_man(settings_device_options, stdout);
	else if (strcmp(line, "@backends@\n") == 0)
		write_backends();
	else if (strcmp(line, "@filters@\n") == 0)
		write_filters();
	else
		fputs(line, stdout);
}

int main(int argc, char **argv)
{
	FILE *page = argc == 2 ? fopen(argv[1], "re") : NULL;
	char line[4096];

	if (!page) {
		fprintf(stderr, "usage: ublkd-manual PAGE.in > PAGE\n");
		return EXIT_USAGE;
	}
	while (fgets(line, sizeof(line), page))
		write_manual_line(line);
	fclose(page);
	return fflush(stdout) == 0 ? EXIT_DONE : EXIT_REFUSED;
}
