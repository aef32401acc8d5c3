/*
 * Any bytes as a configuration: read as YAML, then as the options of a daemon with devices, the way
 * the daemon does it. What must hold is asserted, besides what the sanitizers see.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/util.h"
#include "config/option.h"
#include "fuzz.h"

const char *const fuzz_words[] = {
	"daemon:",
	"devices:",
	"- ",
	"name: ",
	"queues: ",
	"size: ",
	"1MiB",
	"0-3,6",
	"auto",
	"null",
	"~",
	"<<: ",
	"*a",
	"&a ",
	"&b [",
	"{",
	"}",
	"[",
	"]",
	", ",
	": ",
	"? ",
	"!!str ",
	"!x ",
	"\"",
	"'",
	"|\n  ",
	">-\n ",
	"# ",
	"---",
	"...\n",
	"%YAML ",
	"%TAG ",
	"\t",
	"\n",
	"\n  ",
	"\r\n",
	"\\x00",
	"\\u",
	"\xc2\x85",
	"\xe2\x80\xa8",
	"\xef\xbb\xbf",
	"\xff",
	"0x",
	"-1",
	"18446744073709551616",
	NULL,
};

struct root {
	struct yaml_node *daemon, *devices;
};

static const struct option root_options[] = {
	{ .name = "daemon", .type = OPTION_NODE, .offset = offsetof(struct root, daemon) },
	{ .name = "devices",
	  .type = OPTION_NODE,
	  .offset = offsetof(struct root, devices),
	  .flags = OPTION_REQUIRED },
	OPTION_END,
};

struct device {
	char *name, *path;
	uint64_t id, queues, max_io, size, timeout_ns;
	bool read_only;
	int type;
	struct option_cpus cpus;
	struct yaml_node *backend;
	struct group {
		uint64_t weight;
		char *word;
	} group;
};

#define FIELD(member) .offset = offsetof(struct device, member)

static const struct option group_options[] = {
	{ .name = "weight", .type = OPTION_UINT, .offset = offsetof(struct group, weight) },
	{ .name = "word", .type = OPTION_STRING, .offset = offsetof(struct group, word) },
	OPTION_END,
};

static const char *const types[] = { "null", "mem", "file", NULL };

static const struct option device_options[] = {
	{ .name = "name", .type = OPTION_STRING, FIELD(name), .max = 31, .flags = OPTION_REQUIRED },
	{ .name = "path", .type = OPTION_STRING, FIELD(path), .min = 1, .def = "'/a b'" },
	{ .name = "id", .type = OPTION_UINT, FIELD(id), .max = 1u << 20 },
	{ .name = "queues", .type = OPTION_UINT, FIELD(queues), .min = 1, .max = 32, .def = "1" },
	{ .name = "max_io",
	  .type = OPTION_SIZE,
	  FIELD(max_io),
	  .min = 4096,
	  .flags = OPTION_POWER_OF_TWO,
	  .def = "1MiB" },
	{ .name = "size", .type = OPTION_SIZE, FIELD(size) },
	{ .name = "timeout", .type = OPTION_DURATION, FIELD(timeout_ns), .def = "10s" },
	{ .name = "read_only", .type = OPTION_BOOL, FIELD(read_only) },
	{ .name = "type", .type = OPTION_ENUM, FIELD(type), .values = types, .def = "null" },
	{ .name = "cpus", .type = OPTION_CPUS, FIELD(cpus), .def = "[0, 1]" },
	{ .type = OPTION_GROUP, FIELD(group), .table = group_options },
	{ .name = "backend", .type = OPTION_NODE, FIELD(backend) },
	OPTION_END,
};

/* Returns the nodes below, aliases expanded: what was promised to be bounded. */
static size_t check_node(const struct yaml_node *node, unsigned depth)
{
	size_t nr = 1;

	ASSERT(node->pos.line > 0 && node->pos.column > 0);
	ASSERT(depth <= YAML_DEPTH_MAX);
	if (node->kind == YAML_LIST)
		for (size_t i = 0; i < node->list.nr; i++)
			nr += check_node(node->list.items[i], depth + 1);
	if (node->kind == YAML_MAP)
		for (size_t i = 0; i < node->map.nr; i++) {
			const struct yaml_pair *pair = &node->map.pairs[i];

			ASSERT(pair->key->kind == YAML_SCALAR);
			ASSERT(yaml_get(node, pair->key->text) == pair->value);
			nr += 1 + check_node(pair->value, depth + 1);
		}
	if (node->kind == YAML_SCALAR)
		ASSERT(strlen(node->text) <= YAML_FILE_BYTES_MAX * 2);
	return nr;
}

static void check_limits(const struct device *d)
{
	ASSERT(!d->name || strlen(d->name) <= 31);
	ASSERT(strlen(d->path) >= 1);
	ASSERT(d->id <= 1u << 20);
	ASSERT(d->queues >= 1 && d->queues <= 32);
	ASSERT(d->max_io >= 4096 && is_power_of_two(d->max_io));
	ASSERT(d->type >= 0 && d->type < 3);
	ASSERT(d->cpus.is_auto ? d->cpus.nr == 0 : d->cpus.nr > 0);
	for (unsigned i = 0; i < d->cpus.nr; i++)
		ASSERT(d->cpus.cpu[i] < 8192);
}

static void read_device(const struct yaml_node *node, struct config_errors *e)
{
	static const char *const skip[] = { "note", NULL };
	struct device a, b;
	int err = option_parse(device_options, node, skip, &a, sizeof(a), e);

	ASSERT(err == 0 || (err == -EINVAL && config_errors_any(e)));
	check_limits(&a);
	ASSERT(option_parse(device_options, node, skip, &b, sizeof(b), e) == err);
	ASSERT(option_equal(device_options, &a, &b));
	option_free(device_options, &a);
	option_free(device_options, &b);
}

static void read_root(const struct yaml_node *node, struct config_errors *e)
{
	struct root root;

	option_parse(root_options, node, NULL, &root, sizeof(root), e);
	if (root.daemon)
		read_device(root.daemon, e);
	if (root.devices && root.devices->kind == YAML_LIST)
		for (size_t i = 0; i < root.devices->list.nr; i++)
			read_device(root.devices->list.items[i], e);
	option_free(root_options, &root);
}

/* Lines of `f...: message`, which a terminal may be given. */
static void check_text(struct config_errors *e)
{
	char *text = config_errors_text(e);

	ASSERT(text);
	ASSERT((*text != '\0') == config_errors_any(e));
	for (const char *at = text; *at; at++)
		ASSERT((unsigned char)*at >= ' ' || *at == '\n');
	free(text);
}

/* The same bytes as key=value. */
static void set_from_text(const uint8_t *data, size_t bytes)
{
	char *text = strndup((const char *)data, bytes);
	struct device d = { 0 };
	struct config_errors e;
	struct option_walk walk;

	ASSERT(text);
	config_errors_init(&e, "f");
	option_for_each (&walk, device_options)
		option_set(device_options, walk.row->name, text, (struct config_pos){ 1, 1 }, &d,
			   &e);
	option_set(device_options, text, "x", (struct config_pos){ 1, 1 }, &d, &e);
	check_text(&e);
	option_free(device_options, &d);
	config_errors_fini(&e);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct config_errors e;
	struct yaml_doc doc;
	int err;

	config_errors_init(&e, "f");
	err = yaml_parse(&doc, (const char *)data, bytes, &e);
	ASSERT(err == 0 || err == -EINVAL);
	ASSERT((err == -EINVAL) == config_errors_any(&e));
	ASSERT(err != 0 || doc.root);
	if (doc.root) {
		ASSERT(doc.root->kind == YAML_MAP);
		ASSERT(check_node(doc.root, 0) <= YAML_NODES_MAX);
		read_root(doc.root, &e);
	}
	check_text(&e);
	yaml_doc_free(&doc);
	config_errors_fini(&e);
	if (bytes < 256)
		set_from_text(data, bytes);
	return 0;
}
