/*
 * From the YAML tree to settings: what the tables of settings_options.c parse, and the checks that
 * need more than one value. The backend's own options are parsed by the table it declares.
 *
 * Happy path: settings_load reads the file, parses `daemon:` and each of `devices:`, then those of
 * the snippets (settings_snippets.c), and compares all devices with each other. Failure modes:
 * every error found is added with its position, and the rest is still looked at, so that the user
 * sees all of them at once. Main thread.
 */
#include "daemon/settings/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/util.h"
#include "config/yaml.h"
#include "daemon/settings/listen_address.h"
#include "daemon/settings/settings_internal.h"
#include "host/cpus.h"
#include "storage/sharing.h"
#include "ublk/data_path.h"
#include "ublk/shmem.h"

struct top_options {
	struct yaml_node *daemon, *devices;
};

static const struct option top_options[] = { { .name = "daemon",
					       .type = OPTION_NODE,
					       .offset = offsetof(struct top_options, daemon),
					       .help = "Settings of the daemon." },
					     { .name = "devices",
					       .type = OPTION_NODE,
					       .offset = offsetof(struct top_options, devices),
					       .help = "The list of devices." },
					     OPTION_END };

void document_put(struct document *doc)
{
	if (!doc || __atomic_sub_fetch(&doc->refs, 1, __ATOMIC_ACQ_REL))
		return;
	yaml_free(&doc->yaml);
	free(doc->file);
	free(doc);
}

struct document *document_new(const char *file)
{
	struct document *doc = calloc(1, sizeof(*doc));

	if (!doc)
		return NULL;
	doc->refs = 1;
	doc->file = file ? strdup(file) : NULL;
	if (!file || doc->file)
		return doc;
	free(doc);
	return NULL;
}

const char *settings_name_wrong(const char *name)
{
	/* It becomes the name of files: its note, its symlink in /dev/ublkd. */
	if (name[0] == '.' || name[0] == '\0')
		return "begins with a dot: begin it with a letter or a digit";
	if (name[strspn(name, SETTINGS_NAME_CHARACTERS)])
		return "has other characters than letters, digits, '.', '_' and '-'";
	return NULL;
}

static void check_name(const struct device_settings *d, struct config_errors *e)
{
	const char *name = d->options.name;
	const char *wrong = name && name[0] ? settings_name_wrong(name) : NULL;

	if (wrong)
		config_errors_add(e, d->pos, "name: \"%s\" %s", name, wrong);
}

static void check_numbers(const struct device_settings *d, const struct yaml_node *map,
			  struct config_errors *e)
{
	const struct device_options *o = &d->options;
	unsigned cpu_nr = cpu_possible_nr();

	if (o->queues > cpu_nr)
		config_errors_add(e, yaml_pos(map, "queues"),
				  "queues: %llu is more than one per CPU; this machine has %u",
				  (unsigned long long)o->queues, cpu_nr);
	if (o->max_io_bytes % 4096)
		config_errors_add(e, yaml_pos(map, "max_io"),
				  "max_io: %llu is not a multiple of 4096",
				  (unsigned long long)o->max_io_bytes);
}

static void check_data_path(const struct device_settings *d, struct config_errors *e)
{
	char error[DATA_PATH_ERROR_BYTES];

	if (data_path_check((enum data_path)d->options.data_path,
			    (enum batch_choice)d->options.batch, d->backend, error) < 0)
		config_errors_add(e, d->data_path_pos, "%s", error);
}

/* What the driver has is known when the device starts. */
static void check_shmem(const struct device_settings *d, struct config_errors *e)
{
	char error[SHMEM_ERROR_BYTES];

	if (d->options.shmem_bytes > 0 &&
	    shmem_check((enum data_path)d->options.data_path, d->backend, ~0ull, error) < 0)
		config_errors_add(e, d->shmem_pos, "%s", error);
}

/* A device whose own nodes share different things under one name would wait for itself. */
static void check_shared_within(const struct device_settings *d, struct config_errors *e)
{
	const struct backend_spec *shared = backend_spec_shares(d->backend, d->backend, true);

	if (shared)
		config_errors_add(e, d->pos,
				  "shared: \"%s\" has another backend in the same device: say the "
				  "same one, or use another name",
				  shared->ops->shared->name(shared->config));
}

static int parse_backend(struct device_settings *d, struct config_errors *e)
{
	const struct yaml_node *map = d->options.backend;
	int ret;

	if (!map)
		return -EINVAL; /* told by option_parse */
	ret = backend_spec_parse(&d->backend, map, e);
	backend_spec_text(d->backend, d->stack);
	if (ret < 0)
		return ret;
	check_data_path(d, e);
	check_shmem(d, e);
	check_shared_within(d, e);
	ret = settings_resource_read(d);
	if (ret == 0)
		settings_check_files(d, e);
	return ret;
}

static int fill_device(struct device_settings *d, const struct yaml_node *map,
		       struct config_errors *e)
{
	int ret, backend_ret;

	d->map = map;
	d->pos = yaml_pos(map, "name");
	d->id_pos = yaml_pos(map, "id");
	d->shmem_pos = yaml_pos(map, "shared_memory");
	d->data_path_pos =
		yaml_pos(map, settings_is_given(map, "data_path") ? "data_path" : "batch");
	ret = option_parse(settings_device_options, map, NULL, &d->options, sizeof(d->options), e);
	if (ret == -ENOMEM)
		return ret;
	d->id = settings_is_given(map, "id") ? (int64_t)d->options.id : -1;
	check_name(d, e);
	check_numbers(d, map, e);
	backend_ret = parse_backend(d, e);
	settings_check_unprivileged(d, map, e);
	return ret < 0 ? ret : backend_ret;
}

static int settings_parse_device(struct settings *s, struct document *doc,
				 const struct yaml_node *map, struct config_errors *e)
{
	struct device_settings *d;

	if (map->kind != YAML_MAP) {
		config_errors_add(e, map->pos, "expected a device: a map with name and backend");
		return -EINVAL;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	__atomic_add_fetch(&doc->refs, 1, __ATOMIC_RELAXED);
	d->refs = 1;
	d->document = doc;
	s->devices[s->device_nr++] = d;
	return fill_device(d, map, e);
}

/* Of a device in the same file the line says it. */
static void settings_where(const struct device_settings *d, const struct document *seen_from,
			   char *words, size_t bytes)
{
	if (d->document == seen_from || !d->document->file)
		snprintf(words, bytes, "line %u", d->pos.line);
	else
		snprintf(words, bytes, "%s:%u:%u", d->document->file, d->pos.line, d->pos.column);
}

/* Of the devices from first_idx on, with each other and with all before them. */
static void check_conflicts(const struct settings *s, size_t first_idx, struct config_errors *e)
{
	char where[PATH_MAX + 32];

	for (size_t i = first_idx; i < s->device_nr; i++)
		for (size_t k = 0; k < i; k++) {
			const struct device_settings *other = s->devices[k];

			ASSERT(other != NULL);
			settings_where(other, s->devices[i]->document, where, sizeof(where));
			device_settings_conflict(s->devices[i], other, where, e);
		}
}

/* Behind those that there are. */
static int settings_parse_list(struct settings *s, struct document *doc,
			       struct yaml_node *const *items, size_t nr, struct config_errors *e)
{
	size_t first_idx = s->device_nr, room_nr = SETTINGS_DEVICES_MAX - first_idx;
	struct device_settings **devices;

	if (nr > room_nr) {
		config_errors_add(e, items[room_nr]->pos, "more than %d devices",
				  SETTINGS_DEVICES_MAX);
		nr = room_nr;
	}
	devices = reallocarray(s->devices, first_idx + nr + 1, sizeof(*devices));
	if (!devices)
		return -ENOMEM;
	s->devices = devices;
	for (size_t i = 0; i < nr; i++)
		if (settings_parse_device(s, doc, items[i], e) == -ENOMEM)
			return -ENOMEM;
	check_conflicts(s, first_idx, e);
	return 0;
}

static int parse_devices(struct settings *s, struct document *doc, const struct yaml_node *node,
			 struct config_errors *e)
{
	if (!node)
		return 0;
	if (node->kind != YAML_LIST) {
		config_errors_add(e, node->pos, "devices: expected a list (\"- name: ...\")");
		return -EINVAL;
	}
	return settings_parse_list(s, doc, node->list.items, node->list.nr, e);
}

static void check_reactors(const struct daemon_settings *d, const struct yaml_node *map,
			   struct config_errors *e)
{
	/* One that is merely offline is no error: settings_warn. */
	for (unsigned i = 0; i < d->reactors.nr; i++)
		if (!cpu_is_possible(d->reactors.cpu[i]))
			config_errors_add(e, yaml_pos(map, "reactors"),
					  "reactors: CPU %u is not one this machine can have",
					  d->reactors.cpu[i]);
}

static void check_metrics(const struct daemon_settings *d, const struct yaml_node *map,
			  struct config_errors *e)
{
	struct sockaddr_storage addr;

	if (d->metrics && address_parse(d->metrics, &addr) < 0)
		config_errors_add(e, yaml_pos(map, "metrics"),
				  "metrics: \"%s\" is no address with a port, like 127.0.0.1:9740 "
				  "or [::1]:9740",
				  d->metrics);
}

static void check_watchdog(const struct daemon_settings *d, const struct yaml_node *map,
			   struct config_errors *e)
{
	if (d->watchdog_ns > 0 && d->watchdog_ns < NS_PER_SEC)
		config_errors_add(e, yaml_pos(map, "watchdog"),
				  "watchdog: less than 1s; 0 turns it off");
}

/* The daemon's working folder is nobody's business. */
static void check_devices_dir(const struct daemon_settings *d, const struct yaml_node *map,
			      struct config_errors *e)
{
	if (d->devices_dir && d->devices_dir[0] != '/')
		config_errors_add(e, yaml_pos(map, "devices_dir"),
				  "devices_dir: \"%s\" is no absolute path: begin it with /",
				  d->devices_dir);
}

static int parse_daemon(struct settings *s, const struct yaml_node *node, struct config_errors *e)
{
	int ret;

	if (node && node->kind != YAML_MAP) {
		config_errors_add(e, node->pos, "daemon: expected a map");
		node = NULL;
	}
	ret = option_parse(settings_daemon_options, node, NULL, &s->daemon, sizeof(s->daemon), e);
	if (ret != -ENOMEM && settings_user_defaults(&s->daemon, node, e) < 0)
		ret = -ENOMEM;
	check_reactors(&s->daemon, node, e);
	check_metrics(&s->daemon, node, e);
	check_watchdog(&s->daemon, node, e);
	check_devices_dir(&s->daemon, node, e);
	return ret;
}

static int parse_top(struct settings *s, struct document *doc, struct config_errors *e)
{
	struct top_options top;
	int ret;

	ret = option_parse(top_options, doc->yaml.root, NULL, &top, sizeof(top), e);
	if (ret != -ENOMEM)
		ret = parse_daemon(s, top.daemon, e);
	if (ret != -ENOMEM)
		ret = parse_devices(s, doc, top.devices, e);
	if (ret != -ENOMEM)
		ret = settings_add_snippets(s, yaml_pos(top.daemon, "devices_dir"), e);
	option_free(top_options, &top);
	return ret;
}

/* Whatever was added is an error, wherever it came from. */
static int settings_verdict(int ret, const struct config_errors *e)
{
	if (ret == 0 && config_errors_any(e))
		return -EINVAL;
	return ret;
}

int settings_load(struct settings *s, const char *path, struct config_errors *e)
{
	struct document *doc = document_new(path);
	int ret;

	*s = (struct settings){ 0 };
	if (!doc)
		return -ENOMEM;
	ret = settings_is_absent(path) ? yaml_parse_value(&doc->yaml, "{}", 2, e)
				       : yaml_parse_file(&doc->yaml, path, e);
	if (doc->yaml.root && ret != -ENOMEM)
		ret = parse_top(s, doc, e);
	document_put(doc);
	return settings_verdict(ret, e);
}

int settings_parse_document(struct settings *s, struct document *doc, struct config_errors *e)
{
	static const struct option only_devices[] = { { .name = "devices", .type = OPTION_NODE },
						      OPTION_END };
	struct yaml_node *root = doc->yaml.root, *devices = NULL;
	int ret;

	if (root->kind == YAML_LIST)
		return settings_parse_list(s, doc, root->list.items, root->list.nr, e);
	if (root->kind != YAML_MAP || yaml_get(root, "devices") == NULL)
		return settings_parse_list(s, doc, &root, 1, e);
	ret = option_parse(only_devices, root, NULL, &devices, sizeof(devices), e);
	return ret < 0 ? ret : parse_devices(s, doc, devices, e);
}

int settings_parse_devices(struct settings *s, const char *text, size_t bytes,
			   struct config_errors *e)
{
	struct document *doc = document_new(NULL);
	int ret;

	*s = (struct settings){ 0 };
	if (!doc)
		return -ENOMEM;
	ret = yaml_parse_value(&doc->yaml, text, bytes, e);
	if (doc->yaml.root && ret != -ENOMEM)
		ret = settings_parse_document(s, doc, e);
	document_put(doc);
	return settings_verdict(ret, e);
}

/* What devices share is the same for all of them. */
static void check_shared(const struct device_settings *d, const struct device_settings *other,
			 const char *where, struct config_errors *e)
{
	bool same_blocks = d->options.block_bytes == other->options.block_bytes;
	const struct backend_spec *shared;

	/* Both without errors: files are looked at last. */
	if (!d->resources.all || !other->resources.all)
		return;
	shared = backend_spec_shares(d->backend, other->backend, same_blocks);
	if (shared)
		config_errors_add(e, d->pos,
				  "shared: \"%s\" has another %s in device \"%s\" (%s): say the "
				  "same one, or use another name",
				  shared->ops->shared->name(shared->config),
				  same_blocks ? "backend" : "block_size", other->options.name,
				  where);
}

void device_settings_conflict(const struct device_settings *d, const struct device_settings *other,
			      const char *where, struct config_errors *e)
{
	const char *name = other->options.name;
	const struct settings_resource *same;
	char excerpt[CONFIG_EXCERPT_BYTES];

	/* Without a name there is an error already, and nothing to call it by. */
	if (!d->options.name || !name)
		return;
	if (strcmp(d->options.name, name) == 0)
		config_errors_add(e, d->pos, "name: \"%s\" is taken already (%s)", name, where);
	if (d->id >= 0 && d->id == other->id)
		config_errors_add(e, d->id_pos, "id: %lld is taken already by device \"%s\" (%s)",
				  (long long)d->id, name, where);
	check_shared(d, other, where, e);
	same = settings_same_file(d, other);
	if (same)
		config_errors_add(e, same->pos,
				  "%s: \"%s\" is the %s of device \"%s\" (%s) too; they would "
				  "destroy each other's data",
				  same->is_uri ? "uri" : "path",
				  config_excerpt(same->path, excerpt),
				  same->is_uri ? "storage" : "file", name, where);
}

struct device_settings *device_settings_ref(struct device_settings *d)
{
	__atomic_add_fetch(&d->refs, 1, __ATOMIC_RELAXED);
	return d;
}

void device_settings_free(struct device_settings *d)
{
	if (!d || __atomic_sub_fetch(&d->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	backend_spec_free(d->backend);
	option_free(settings_device_options, &d->options);
	settings_resource_fini(&d->resources);
	document_put(d->document);
	free(d);
}

void settings_free(struct settings *s)
{
	for (size_t i = 0; i < s->device_nr; i++)
		device_settings_free(s->devices[i]);
	free(s->devices);
	option_free(settings_daemon_options, &s->daemon);
	*s = (struct settings){ 0 };
}

struct device_settings *settings_take(struct settings *s, size_t idx)
{
	struct device_settings *d = s->devices[idx];

	s->devices[idx] = NULL;
	return d;
}

struct device_settings *settings_find(const struct settings *s, const char *name, size_t *ret_idx)
{
	for (size_t i = 0; i < s->device_nr; i++)
		if (s->devices[i] && strcmp(s->devices[i]->options.name, name) == 0) {
			if (ret_idx)
				*ret_idx = i;
			return s->devices[i];
		}
	return NULL;
}
