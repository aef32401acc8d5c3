/*
 * Names and configurations that nobody writes by hand. Pure.
 *
 * Happy path: the last part of the word is found, its characters are made those of names, and a
 * number is added until nobody has the name. Failure modes: none for a name, whatever the word is;
 * a word that is not UTF-8 cannot stand in a configuration.
 */
#include "ublkctl/attach_words.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "net/uri.h"

/* More than a name takes: a letter has up to 4 bytes. */
#define DECODED_BYTES (4u * (SETTINGS_NAME_MAX + 2))

/* Behind QEMU's "nbd:". */
#define QEMU_UNIX "unix:"
#define NBD_SCHEME "nbd:"

/* A range of the word. */
struct attach_part {
	const char *at;
	size_t len;
};

static struct attach_part attach_part(const char *at, const char *end)
{
	return (struct attach_part){ .at = at, .len = (size_t)(end - at) };
}

/* What stands behind the last '/', apart from those at the end. */
static struct attach_part last_part(struct attach_part path)
{
	const char *end = path.at + path.len, *at;

	while (end > path.at && end[-1] == '/')
		end--;
	at = end;
	while (at > path.at && at[-1] != '/')
		at--;
	return attach_part(at, end);
}

/* "user@host:1234" -> "host"; "[::1]:1234" -> "[::1" */
static struct attach_part host_part(struct attach_part authority)
{
	const char *end = authority.at + authority.len;
	const char *user_end = memchr(authority.at, '@', authority.len);
	const char *at = user_end ? user_end + 1 : authority.at;
	const char *host_end = memchr(at, *at == '[' ? ']' : ':', (size_t)(end - at));

	return attach_part(at, host_end ? host_end : end);
}

/* Of an NVMe subsystem, "/nqn.2024-01.com.example:disk/1" -> "disk"; empty: there is none. */
static struct attach_part subsystem_part(struct attach_part path)
{
	const char *at = path.at + 1, *end, *colon;

	if (path.len < 2)
		return attach_part(path.at, path.at);
	end = memchr(at, '/', path.len - 1);
	if (!end)
		end = path.at + path.len;
	colon = memrchr(at, ':', (size_t)(end - at));
	return attach_part(colon ? colon + 1 : at, end);
}

/* RFC 3986, 2.4: split first, decoded then. What is no escape stays; a NUL ends nothing. */
static struct attach_part decoded(struct attach_part part, char buf[static DECODED_BYTES])
{
	size_t len = 0;

	for (size_t i = 0; i < part.len && len < DECODED_BYTES; i++) {
		bool has_two = part.at[i] == '%' && part.len - i > 2;
		int high = has_two ? hex_value(part.at[i + 1]) : -1;
		int low = has_two ? hex_value(part.at[i + 2]) : -1;

		if (high < 0 || low < 0) {
			buf[len++] = part.at[i];
			continue;
		}
		buf[len++] = (char)(high * 16 + low);
		i += 2;
	}
	return (struct attach_part){ .at = buf, .len = len };
}

/* "//host/path" -> the subsystem, or the path's last part; without a path the host. */
static struct attach_part authority_part(const char *at, bool is_nvme)
{
	const char *authority = at + 2;
	const char *path = authority + strcspn(authority, "/?#");
	struct attach_part whole = attach_part(path, path + strcspn(path, "?#"));
	struct attach_part part = is_nvme ? subsystem_part(whole) : last_part(whole);

	return part.len > 0 ? part : host_part(attach_part(authority, path));
}

/* Of no slashes: "pool/image" -> "image"; of QEMU's NBD the export, where it has a name. */
static struct attach_part word_part(const char *at)
{
	static const char export[] = ":exportname=";
	const char *sign = strstr(at, export);

	if (sign)
		at = sign + strlen(export);
	else if (strncmp(at, QEMU_UNIX, strlen(QEMU_UNIX)) == 0)
		at += strlen(QEMU_UNIX);
	return last_part(attach_part(at, at + strlen(at)));
}

/* Behind the scheme's colon: with slashes as above, else the last part; the backend, if empty. */
static struct attach_part uri_part(const struct word *word, const char *uri,
				   char buf[static DECODED_BYTES])
{
	const char *at = uri + strcspn(uri, ":") + 1;
	struct attach_part part =
		strncmp(at, "//", 2) == 0
			? decoded(authority_part(at, strncasecmp(uri, "nvme", 4) == 0), buf)
			: word_part(at);

	if (part.len == 0)
		part = (struct attach_part){ .at = word->backend->name,
					     .len = strlen(word->backend->name) };
	return part;
}

/* ---- sockets ---- */

/* Where the path of an NBD server's socket begins that is no absolute one; NULL: there is none. */
static const char *relative_socket(const char *uri, bool *ret_is_qemu)
{
	static const char qemu[] = NBD_SCHEME QEMU_UNIX, key[] = "socket=";
	const char *at = uri + strlen(qemu);

	*ret_is_qemu = strncasecmp(uri, NBD_SCHEME, strlen(NBD_SCHEME)) == 0 &&
		       strncmp(uri + strlen(NBD_SCHEME), QEMU_UNIX, strlen(QEMU_UNIX)) == 0;
	if (!*ret_is_qemu) {
		at = strncasecmp(uri, "nbd", 3) == 0 ? strchr(uri, '?') : NULL;
		while (at && strncmp(at + 1, key, strlen(key)) != 0)
			at = strchr(at + 1, '&');
		if (!at)
			return NULL;
		at += 1 + strlen(key);
	}
	/* "%2F" is a slash, too; of no path the daemon says what is missing. */
	return *at == '/' || strncasecmp(at, "%2f", 3) == 0 || strchr("&#:", *at) ? NULL : at;
}

int attach_absolute_socket(const char *uri, const char *folder, char *to, size_t bytes)
{
	bool is_qemu;
	const char *socket = relative_socket(uri, &is_qemu);
	char escaped[3 * PATH_MAX + 5];
	int n;

	if (!socket)
		return (size_t)snprintf(to, bytes, "%s", uri) < bytes ? 0 : -ENAMETOOLONG;
	if (strcmp(folder, "/") == 0)
		folder = "";
	if (!is_qemu) {
		n = uri_escape(folder, strlen(folder), "-._~/", escaped, sizeof(escaped));
		if (n < 0)
			return n;
		folder = escaped;
	}
	n = snprintf(to, bytes, "%.*s%s/%s", (int)(socket - uri), uri, folder, socket);
	return (size_t)n < bytes ? 0 : -ENAMETOOLONG;
}

/* ---- names ---- */

/* One '-' for each character, of however many bytes, that a name may not have. */
static void make_name(struct attach_part part, char name[static SETTINGS_NAME_MAX + 1])
{
	size_t len = 0;

	for (size_t i = 0; i < part.len && len < SETTINGS_NAME_MAX; i++) {
		char c = part.at[i];
		bool continues = ((unsigned char)c & 0xc0) == 0x80 && i > 0;

		if (continues)
			continue;
		if (!c || !strchr(SETTINGS_NAME_CHARACTERS, c))
			c = '-';
		/* A dot is refused there, and a dash looks like an option. */
		if (len > 0 || (c != '.' && c != '-'))
			name[len++] = c;
	}
	name[len] = '\0';
	if (len == 0)
		strcpy(name, "disk");
}

void attach_name(const struct word *word, const char *value,
		 bool (*taken)(const char *name, const void *arg), const void *arg,
		 char ret_name[static SETTINGS_NAME_MAX + 1])
{
	char base[SETTINGS_NAME_MAX + 1], suffix[16], buf[DECODED_BYTES];

	make_name(word->is_uri ? uri_part(word, value, buf)
			       : last_part(attach_part(value, value + strlen(value))),
		  base);
	strcpy(ret_name, base);
	for (unsigned i = 2; taken(ret_name, arg); i++) {
		snprintf(suffix, sizeof(suffix), "-%u", i);
		snprintf(ret_name, SETTINGS_NAME_MAX + 1, "%.*s%s",
			 (int)(SETTINGS_NAME_MAX - strlen(suffix)), base, suffix);
	}
}

/* In double quotes, whatever is in it. NULL: not UTF-8, or out of memory. */
static char *yaml_quoted(const char *text)
{
	json_t *string = json_string(text);
	char *quoted = string ? device_json_text(string) : NULL;

	json_decref(string);
	return quoted;
}

/* Each in double quotes; folder NULL: none. */
static void write_yaml(FILE *out, const struct attach_device *d, const char *name,
		       const char *value, const char *folder)
{
	fprintf(out, "name: %s\n", name);
	if (d->queues)
		fprintf(out, "queues: %lu\n", d->queues);
	if (d->block_bytes)
		fprintf(out, "block_size: %u\n", d->block_bytes);
	if (d->read_only)
		fprintf(out, "read_only: true\n");
	fprintf(out, "backend:\n  type: %s\n",
		d->word.format ? d->word.format->name : d->word.backend->name);
	if (d->word.format)
		fprintf(out, "  backing: auto\n");
	if (d->word.format && folder)
		fprintf(out, "  backing_folder: %s\n", folder);
	if (d->word.format)
		fprintf(out, "  data:\n    type: %s\n  ", d->word.backend->name);
	fprintf(out, "  %s: %s\n", d->word.option->name, value);
}

char *attach_yaml(const struct attach_device *d)
{
	char *folder = d->backing_folder ? yaml_quoted(d->backing_folder) : NULL;
	char *name = yaml_quoted(d->name), *value = yaml_quoted(d->value), *text = NULL;
	bool is_text = name && value && (folder || !d->backing_folder);
	size_t bytes;
	FILE *out = is_text ? open_memstream(&text, &bytes) : NULL;

	if (out)
		write_yaml(out, d, name, value, folder);
	free(folder);
	free(name);
	free(value);
	if (out && fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
