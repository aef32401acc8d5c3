/* See mounts.h. Failure mode: a line that is not understood is passed over. */
#include "host/mounts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sysfs.h"

/* Blanks and backslashes are written as \ooo. In place. */
static void mounts_unescape(char *text)
{
	char *out = text;

	for (const char *in = text; *in; out++) {
		unsigned octal;

		if (in[0] == '\\' && sscanf(in + 1, "%3o", &octal) == 1) {
			*out = (char)octal;
			in += 4;
		} else {
			*out = *in++;
		}
	}
	*out = '\0';
}

static char *next_field(char **rest)
{
	return strsep(rest, " \n");
}

/* "36 35 259:0 / /mnt rw,noatime shared:1 master:2 - ext4 /dev/ublkb0 rw" */
static bool mounts_parse(char *line, struct mount_info *m)
{
	char *rest = line, *field[6], *tag, *text;

	for (size_t i = 0; i < 6; i++) {
		field[i] = next_field(&rest);
		if (!field[i])
			return false;
	}
	*m = (struct mount_info){ .id = atoi(field[0]), .parent = atoi(field[1]) };
	while ((tag = next_field(&rest)) && strcmp(tag, "-") != 0) {
		m->shared |= strncmp(tag, "shared:", 7) == 0;
		m->slave |= strncmp(tag, "master:", 7) == 0;
	}
	m->type = next_field(&rest);
	text = next_field(&rest);
	if (!text || !sysfs_parse_dev(field[2], &m->dev))
		return false;
	mounts_unescape(field[3]);
	mounts_unescape(field[4]);
	mounts_unescape(text);
	m->options = next_field(&rest);
	if (!m->options)
		m->options = "";
	m->root = field[3];
	m->point = field[4];
	m->source = text;
	return true;
}

int mounts_read(const char *mountinfo_path, bool (*fn)(const struct mount_info *mount, void *arg),
		void *arg)
{
	FILE *file = fopen(mountinfo_path, "re");
	char *line = NULL;
	size_t bytes = 0;
	bool more = true;
	struct mount_info m;

	if (!file)
		return -errno;
	while (more && getline(&line, &bytes, file) >= 0)
		if (mounts_parse(line, &m))
			more = fn(&m, arg);
	free(line);
	fclose(file);
	return 0;
}
