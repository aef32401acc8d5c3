/* OPTION_PATIENCE: how long to wait for something to come back. */
#include <errno.h>
#include <string.h>

#include "config/option_internal.h"

static int wrong(const struct option *o, const struct yaml_node *node, struct config_errors *e)
{
	config_errors_add(e, node->pos, "%s: expected fail, forever, or {queue: TIME}", o->name);
	return -EINVAL;
}

static int set_queue(const struct option *o, const struct yaml_node *map, uint64_t *field,
		     struct config_errors *e)
{
	const struct yaml_node *time = yaml_get(map, "queue");
	char text[CONFIG_EXCERPT_BYTES];
	uint64_t ns;

	if (!time || time->kind != YAML_SCALAR || map->map.nr != 1)
		return wrong(o, map, e);
	if (option_parse_duration(time->text, &ns) < 0 || ns == 0 || ns == OPTION_FOREVER) {
		config_errors_add(e, time->pos,
				  "%s: queue: \"%s\" is not a time to wait (examples: 30s, 5m)",
				  o->name, config_excerpt(time->text, text));
		return -EINVAL;
	}
	*field = ns;
	return 0;
}

int option_outage_timeout_set(const struct option *o, struct yaml_node *value, void *field,
			      struct config_errors *e)
{
	uint64_t *ns = field;

	if (value->kind == YAML_MAP)
		return set_queue(o, value, ns, e);
	if (value->kind == YAML_SCALAR && strcmp(value->text, "fail") == 0)
		*ns = 0;
	else if (value->kind == YAML_SCALAR && strcmp(value->text, "forever") == 0)
		*ns = OPTION_FOREVER;
	else
		return wrong(o, value, e);
	return 0;
}
