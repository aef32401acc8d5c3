/*
 * Documents: from text or file to a tree, and asking the tree. Any thread. The happy path: size,
 * yaml_scan, yaml_build. Everything that can be wrong with a text is told through config_errors;
 * the return value only says that something was.
 */
#include "config/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"
#include "config/yaml_internal.h"

static const struct config_pos whole_file = { .line = 0, .column = 0 };

static void node_free(struct yaml_node *node)
{
	if (node->kind == YAML_SCALAR)
		free(node->text);
	else if (node->kind == YAML_MAP)
		free(node->map.pairs);
	else
		free(node->list.items);
	free(node);
}

void yaml_doc_free(struct yaml_doc *doc)
{
	for (size_t i = 0; i < doc->all_nr; i++)
		node_free(doc->all[i]);
	free(doc->all);
	memset(doc, 0, sizeof(*doc));
}

bool yaml_is_null(const struct yaml_node *node)
{
	static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };

	if (node->kind != YAML_SCALAR || node->quoted)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(nulls); i++)
		if (strcmp(node->text, nulls[i]) == 0)
			return true;
	return false;
}

struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
	if (!map || map->kind != YAML_MAP)
		return NULL;
	for (size_t i = 0; i < map->map.nr; i++)
		if (strcmp(map->map.pairs[i].key->text, key) == 0)
			return map->map.pairs[i].value;
	return NULL;
}

struct config_pos yaml_pos(const struct yaml_node *map, const char *key)
{
	const struct yaml_node *value = yaml_get(map, key);

	if (value)
		return value->pos;
	return map ? map->pos : (struct config_pos){ 0 };
}

static int yaml_refuse_size(struct config_errors *e)
{
	config_errors_add(e, whole_file, "larger than %u MiB: this is no configuration",
			  YAML_FILE_BYTES_MAX >> 20);
	return -EINVAL;
}

int yaml_parse_value(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e)
{
	int err;

	memset(doc, 0, sizeof(*doc));
	if (bytes > YAML_FILE_BYTES_MAX)
		return yaml_refuse_size(e);
	if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		bytes -= 3;
	}
	err = yaml_scan(text, bytes, e);
	return err ? err : yaml_build(doc, text, bytes, e);
}

/* Puts a fresh empty map in the place of the root. */
static int set_empty_map(struct yaml_doc *doc)
{
	struct yaml_node *map = calloc(1, sizeof(*map));
	struct yaml_node **all = reallocarray(doc->all, doc->all_nr + 1, sizeof(*all));

	if (all)
		doc->all = all;
	if (!map || !all) {
		free(map);
		return -ENOMEM;
	}
	map->kind = YAML_MAP;
	map->pos = (struct config_pos){ .line = 1, .column = 1 };
	doc->root = all[doc->all_nr++] = map;
	return 0;
}

int yaml_parse(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e)
{
	int err = yaml_parse_value(doc, text, bytes, e);

	if (!doc->root || doc->root->kind == YAML_MAP)
		return err;
	if (yaml_is_null(doc->root))
		return set_empty_map(doc) ? -ENOMEM : err;
	config_errors_add(e, doc->root->pos, "expected a map at the top, as in devices: ...");
	doc->root = NULL;
	return -EINVAL;
}

static int yaml_fail_errno(struct config_errors *e, const char *what, int err)
{
	config_errors_add(e, whole_file, "%s: %s (%s)", what, strerror(-err), errname(err));
	return err;
}

/*
 * Looked at before it is opened: opening a device may already do something, and a pipe waits for
 * its writer.
 */
static int yaml_check_kind(const struct stat *st, bool pipe, struct config_errors *e)
{
	if (S_ISDIR(st->st_mode))
		return yaml_fail_errno(e, "cannot read", -EISDIR);
	if (!S_ISREG(st->st_mode) && !(pipe && S_ISFIFO(st->st_mode))) {
		config_errors_add(e, whole_file,
				  pipe ? "neither a regular file nor a pipe" : "no regular file");
		return -EINVAL;
	}
	if (S_ISREG(st->st_mode) && st->st_size > YAML_FILE_BYTES_MAX)
		return yaml_refuse_size(e);
	return 0;
}

static int yaml_open_file(const char *path, bool pipe, int *ret_fd, struct config_errors *e)
{
	struct stat st;
	int fd, err;

	if (stat(path, &st) < 0)
		return yaml_fail_errno(e, "cannot open", -errno);
	err = yaml_check_kind(&st, pipe, e);
	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return yaml_fail_errno(e, "cannot open", -errno);
	*ret_fd = fd;
	return 0;
}

/* buf holds one byte above the limit, so that a growing file or a pipe is seen to be too large. */
static int yaml_read_all(int fd, char *buf, size_t *ret_bytes, struct config_errors *e)
{
	size_t bytes = 0;
	ssize_t n;

	do {
		n = read(fd, buf + bytes, YAML_FILE_BYTES_MAX + 1 - bytes);
		if (n < 0 && errno != EINTR)
			return yaml_fail_errno(e, "cannot read", -errno);
		bytes += n > 0 ? (size_t)n : 0;
	} while (n != 0 && bytes <= YAML_FILE_BYTES_MAX);
	*ret_bytes = bytes;
	return 0;
}

typedef int yaml_parse_fn(struct yaml_doc *doc, const char *text, size_t bytes,
			  struct config_errors *e);

static int parse_fd(struct yaml_doc *doc, int fd, yaml_parse_fn *parse, struct config_errors *e)
{
	char *buf = malloc(YAML_FILE_BYTES_MAX + 1);
	size_t bytes = 0;
	int err;

	if (!buf)
		return -ENOMEM;
	err = yaml_read_all(fd, buf, &bytes, e);
	if (!err)
		err = parse(doc, buf, bytes, e);
	free(buf);
	return err;
}

static int parse_path(struct yaml_doc *doc, const char *path, bool pipe, yaml_parse_fn *parse,
		      struct config_errors *e)
{
	int fd = -1, err;

	memset(doc, 0, sizeof(*doc));
	err = yaml_open_file(path, pipe, &fd, e);
	if (err)
		return err;
	err = parse_fd(doc, fd, parse, e);
	close(fd);
	return err;
}

int yaml_parse_file(struct yaml_doc *doc, const char *path, struct config_errors *e)
{
	return parse_path(doc, path, true, yaml_parse, e);
}

int yaml_parse_value_file(struct yaml_doc *doc, const char *path, struct config_errors *e)
{
	return parse_path(doc, path, false, yaml_parse_value, e);
}
