/* OPTION_CPUS: auto, "0-3,6", or a list of numbers and ranges. The order written is kept. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_internal.h"

/* What the kernel can be built for (NR_CPUS). */
#define CPU_NR 8192

struct parse {
	const struct option *o;
	struct config_errors *e;
	struct option_cpus cpus;
	bool is_seen[CPU_NR];
};

static int not_cpus(struct parse *p, const struct yaml_node *node)
{
	char text[CONFIG_EXCERPT_BYTES];

	config_errors_add(p->e, node->pos,
			  "%s: \"%s\" names no CPUs (examples: auto, [0, 1], 0-3,6)", p->o->name,
			  config_excerpt(node->text, text));
	return -EINVAL;
}

static int add_cpu(struct parse *p, unsigned cpu, struct config_pos pos)
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
static int parse_cpu(struct parse *p, const char **text, const struct yaml_node *node,
		     unsigned *ret_cpu)
{
	size_t len = strspn(*text, "0123456789");
	unsigned long cpu = len ? strtoul(*text, NULL, 10) : 0;

	if (len == 0)
		return not_cpus(p, node);
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
static int parse_range(struct parse *p, const char **text, const struct yaml_node *node)
{
	unsigned first = 0, last;
	int err = parse_cpu(p, text, node, &first);

	last = first;
	if (!err && **text == '-') {
		++*text;
		err = parse_cpu(p, text, node, &last);
	}
	if (!err && last < first)
		err = not_cpus(p, node);
	for (unsigned cpu = first; !err && cpu <= last; cpu++)
		err = add_cpu(p, cpu, node->pos);
	return err;
}

static int parse_scalar(struct parse *p, const struct yaml_node *node)
{
	const char *text = node->text;
	int err = parse_range(p, &text, node);

	while (!err && *text == ',') {
		text += 1 + strspn(text + 1, " ");
		err = parse_range(p, &text, node);
	}
	if (!err && *text != '\0')
		err = not_cpus(p, node);
	return err;
}

static int parse_list(struct parse *p, const struct yaml_node *list)
{
	int err = 0;

	for (size_t i = 0; i < list->list.nr && !err; i++) {
		const struct yaml_node *item = list->list.items[i];

		if (item->kind == YAML_SCALAR) {
			err = parse_scalar(p, item);
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

static int parse_node(struct parse *p, const struct yaml_node *node)
{
	if (node->kind == YAML_LIST)
		return parse_list(p, node);
	if (node->kind == YAML_SCALAR)
		return parse_scalar(p, node);
	config_errors_add(p->e, node->pos, "%s: expected auto or a list of CPU numbers, not a map",
			  p->o->name);
	return -EINVAL;
}

static int parse_numbers(struct parse *p, const struct yaml_node *node)
{
	unsigned *shrunk;
	int err;

	p->cpus.cpu = calloc(CPU_NR, sizeof(*p->cpus.cpu));
	if (!p->cpus.cpu)
		return -ENOMEM;
	err = parse_node(p, node);
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
	struct parse p = { .o = o, .e = e };
	int err = 0;

	if (value->kind == YAML_SCALAR && strcmp(value->text, "auto") == 0)
		p.cpus.is_auto = true;
	else
		err = parse_numbers(&p, value);
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
