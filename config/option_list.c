/*
 * Options whose value is more than one text: OPTION_SET and OPTION_CPUS (a list, or names and
 * numbers with commas), OPTION_MAP and OPTION_OUTAGE_TIMEOUT (a map). Any thread. A value that is
 * wrong adds an error at its position and leaves the field as it was.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_internal.h"

/* ---- OPTION_SET: some of a few names: a list, or the names with commas between them ---- */

#define NAME_BYTES 64

static int set_add_name(const struct option *o, const char *name, struct config_pos pos,
			uint64_t *set, struct config_errors *e)
{
	int idx = option_enum_find(o, name, pos, e);

	if (idx < 0)
		return -EINVAL;
	*set |= 1ull << idx;
	return 0;
}

/* "read, write". The first wrong one ends it: the text may be megabytes of commas. */
static int set_add_names(const struct option *o, const struct yaml_node *node, uint64_t *set,
			 struct config_errors *e)
{
	const char *text = node->text;
	int err;

	do {
		char name[NAME_BYTES];
		size_t len;

		text += strspn(text, " ");
		len = strcspn(text, ",");
		snprintf(name, sizeof(name), "%.*s", (int)(len < NAME_BYTES ? len : NAME_BYTES),
			 text);
		text += len;
		for (len = strlen(name); len > 0 && name[len - 1] == ' '; len--)
			name[len - 1] = '\0';
		err = set_add_name(o, name, node->pos, set, e);
	} while (err == 0 && *text++ == ',');
	return err;
}

static int set_add_list(const struct option *o, const struct yaml_node *list, uint64_t *set,
			struct config_errors *e)
{
	int err = 0;

	if (list->list.nr == 0) {
		config_errors_add(e, list->pos, "%s: the list is empty", o->name);
		return -EINVAL;
	}
	for (size_t i = 0; i < list->list.nr; i++) {
		const struct yaml_node *item = list->list.items[i];

		if (item->kind == YAML_SCALAR) {
			err = set_add_name(o, item->text, item->pos, set, e) ? -EINVAL : err;
			continue;
		}
		config_errors_add(e, item->pos, "%s: expected a name", o->name);
		err = -EINVAL;
	}
	return err;
}

int option_set_set(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e)
{
	uint64_t set = 0;
	int err;

	if (value->kind == YAML_MAP)
		return option_wrong_kind(o, value, e);
	err = value->kind == YAML_LIST ? set_add_list(o, value, &set, e)
				       : set_add_names(o, value, &set, e);
	if (err == 0)
		*(uint64_t *)field = set;
	return err;
}

/* ---- OPTION_CPUS: auto, "0-3,6", or a list of numbers and ranges, in the order written ---- */

/* What the kernel can be built for (NR_CPUS). */
#define CPU_NR 8192

struct cpus_parse {
	const struct option *o;
	struct config_errors *e;
	struct option_cpus cpus;
	bool is_seen[CPU_NR];
};

static int cpus_refuse(struct cpus_parse *p, const struct yaml_node *node)
{
	char text[CONFIG_EXCERPT_BYTES];

	config_errors_add(p->e, node->pos,
			  "%s: \"%s\" names no CPUs (examples: auto, [0, 1], 0-3,6)", p->o->name,
			  config_excerpt(node->text, text));
	return -EINVAL;
}

static int cpus_add(struct cpus_parse *p, unsigned cpu, struct config_pos pos)
{
	if (p->is_seen[cpu]) {
		config_errors_add(p->e, pos, "%s: CPU %u is given twice", p->o->name, cpu);
		return -EINVAL;
	}
	p->is_seen[cpu] = true;
	p->cpus.cpu[p->cpus.nr++] = cpu;
	return 0;
}

/* One CPU number at *text; *text moves behind it. */
static int cpus_parse_cpu(struct cpus_parse *p, const char **text, const struct yaml_node *node,
			  unsigned *ret_cpu)
{
	size_t len = strspn(*text, "0123456789");
	unsigned long cpu = len ? strtoul(*text, NULL, 10) : 0;

	if (len == 0)
		return cpus_refuse(p, node);
	if (cpu >= CPU_NR) {
		config_errors_add(p->e, node->pos, "%s: CPU %.*s is above the maximum %d",
				  p->o->name, len < 20 ? (int)len : 20, *text, CPU_NR - 1);
		return -EINVAL;
	}
	*text += len;
	*ret_cpu = (unsigned)cpu;
	return 0;
}

/* "6" or "0-3" at *text; *text moves behind it. */
static int cpus_parse_range(struct cpus_parse *p, const char **text, const struct yaml_node *node)
{
	unsigned first = 0, last;
	int err = cpus_parse_cpu(p, text, node, &first);

	last = first;
	if (!err && **text == '-') {
		++*text;
		err = cpus_parse_cpu(p, text, node, &last);
	}
	if (!err && last < first)
		err = cpus_refuse(p, node);
	for (unsigned cpu = first; !err && cpu <= last; cpu++)
		err = cpus_add(p, cpu, node->pos);
	return err;
}

static int cpus_parse_scalar(struct cpus_parse *p, const struct yaml_node *node)
{
	const char *text = node->text;
	int err = cpus_parse_range(p, &text, node);

	while (!err && *text == ',') {
		text += 1 + strspn(text + 1, " ");
		err = cpus_parse_range(p, &text, node);
	}
	if (!err && *text != '\0')
		err = cpus_refuse(p, node);
	return err;
}

static int cpus_parse_list(struct cpus_parse *p, const struct yaml_node *list)
{
	int err = 0;

	for (size_t i = 0; i < list->list.nr && !err; i++) {
		const struct yaml_node *item = list->list.items[i];

		if (item->kind == YAML_SCALAR) {
			err = cpus_parse_scalar(p, item);
			continue;
		}
		config_errors_add(p->e, item->pos, "%s: expected a CPU number", p->o->name);
		err = -EINVAL;
	}
	if (!err && list->list.nr == 0) {
		config_errors_add(p->e, list->pos, "%s: the list is empty (auto: one per CPU)",
				  p->o->name);
		err = -EINVAL;
	}
	return err;
}

static int cpus_parse_node(struct cpus_parse *p, const struct yaml_node *node)
{
	if (node->kind == YAML_LIST)
		return cpus_parse_list(p, node);
	if (node->kind == YAML_SCALAR)
		return cpus_parse_scalar(p, node);
	config_errors_add(p->e, node->pos, "%s: expected auto or a list of CPU numbers, not a map",
			  p->o->name);
	return -EINVAL;
}

static int cpus_parse_numbers(struct cpus_parse *p, const struct yaml_node *node)
{
	unsigned *shrunk;
	int err;

	p->cpus.cpu = calloc(CPU_NR, sizeof(*p->cpus.cpu));
	if (!p->cpus.cpu)
		return -ENOMEM;
	err = cpus_parse_node(p, node);
	if (err) {
		free(p->cpus.cpu);
		return err;
	}
	shrunk = reallocarray(p->cpus.cpu, p->cpus.nr, sizeof(*shrunk));
	if (shrunk)
		p->cpus.cpu = shrunk;
	return 0;
}

int option_cpus_set(const struct option *o, struct yaml_node *value, void *field,
		    struct config_errors *e)
{
	struct cpus_parse p = { .o = o, .e = e };
	int err = 0;

	if (value->kind == YAML_SCALAR && strcmp(value->text, "auto") == 0)
		p.cpus.is_auto = true;
	else
		err = cpus_parse_numbers(&p, value);
	if (err)
		return err;
	option_cpus_release(field);
	memcpy(field, &p.cpus, sizeof(p.cpus));
	return 0;
}

void option_cpus_release(void *field)
{
	free(((struct option_cpus *)field)->cpu);
}

bool option_cpus_equal(const void *a, const void *b)
{
	const struct option_cpus *x = a, *y = b;

	if (x->is_auto != y->is_auto || x->nr != y->nr)
		return false;
	return x->nr == 0 || memcmp(x->cpu, y->cpu, x->nr * sizeof(*x->cpu)) == 0;
}

/* ---- OPTION_MAP: a map with a table of its own; the field points to a struct, or is NULL ---- */

static void free_map(const struct option *o, void *map)
{
	if (map)
		option_free(o->table, map);
	free(map);
}

int option_map_set(const struct option *o, struct yaml_node *value, void *field,
		   struct config_errors *e)
{
	void *map;
	int err;

	if (value->kind != YAML_MAP)
		return option_wrong_kind(o, value, e);
	map = calloc(1, o->table_bytes);
	if (!map)
		return -ENOMEM;
	err = option_parse(o->table, value, NULL, map, o->table_bytes, e);
	if (err) {
		free_map(o, map);
		return err;
	}
	option_map_release(o, field);
	*(void **)field = map;
	return 0;
}

void option_map_release(const struct option *o, void *field)
{
	free_map(o, *(void **)field);
}

bool option_map_equal(const struct option *o, const void *a, const void *b)
{
	const void *x = *(void *const *)a, *y = *(void *const *)b;

	return x && y ? option_equal(o->table, x, y) : x == y;
}

/* ---- OPTION_OUTAGE_TIMEOUT: how long to wait for something to come back ---- */

static int outage_refuse(const struct option *o, const struct yaml_node *node,
			 struct config_errors *e)
{
	config_errors_add(e, node->pos, "%s: expected fail, forever, or {queue: TIME}", o->name);
	return -EINVAL;
}

static int outage_set_queue(const struct option *o, const struct yaml_node *map, uint64_t *field,
			    struct config_errors *e)
{
	const struct yaml_node *time = yaml_get(map, "queue");
	char text[CONFIG_EXCERPT_BYTES];
	uint64_t ns;

	if (!time || time->kind != YAML_SCALAR || map->map.nr != 1)
		return outage_refuse(o, map, e);
	if (option_parse_duration(time->text, &ns) < 0 || ns == 0 || ns == OPTION_FOREVER) {
		config_errors_add(e, time->pos,
				  "%s: queue: \"%s\" is not a time to wait (examples: 30s, 5m)",
				  o->name, config_excerpt(time->text, text));
		return -EINVAL;
	}
	*field = ns;
	return 0;
}

static int outage_read(const struct option *o, const struct yaml_node *value, uint64_t *ns,
		       struct config_errors *e)
{
	if (value->kind == YAML_MAP)
		return outage_set_queue(o, value, ns, e);
	if (value->kind == YAML_SCALAR && strcmp(value->text, "fail") == 0)
		*ns = 0;
	else if (value->kind == YAML_SCALAR && strcmp(value->text, "forever") == 0)
		*ns = OPTION_FOREVER;
	else
		return outage_refuse(o, value, e);
	return 0;
}

/* Set once, before anything is read; 0: none. */
static uint64_t outage_max_ns;

void option_outage_timeout_limit(uint64_t max_ns)
{
	outage_max_ns = max_ns;
}

int option_outage_timeout_set(const struct option *o, struct yaml_node *value, void *field,
			      struct config_errors *e)
{
	uint64_t *ns = field;
	int ret = outage_read(o, value, ns, e);
	bool is_default = value->pos.line == 0;

	if (ret < 0 || !outage_max_ns || *ns <= outage_max_ns)
		return ret;
	if (is_default) {
		*ns = outage_max_ns;
		return 0;
	}
	config_errors_add(e, value->pos,
			  "%s: at most {queue: %us} without CAP_SYS_ADMIN: the kernel kills such a "
			  "daemon when a request takes 30s",
			  o->name, (unsigned)(outage_max_ns / 1000000000u));
	return -EINVAL;
}
