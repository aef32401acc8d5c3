/* Refusals. Pure. */
#include "config/refusal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"

int config_refuse(struct config_refusal *r, const char *key, const char *fmt, ...)
{
	va_list args;

	r->key = key;
	va_start(args, fmt);
	vsnprintf(r->words, sizeof(r->words), fmt, args);
	va_end(args);
	utf8_end_whole(r->words);
	return -EINVAL;
}

void config_refusal_add(const struct config_refusal *r, const struct yaml_node *map,
			struct config_errors *e)
{
	config_errors_add(e, yaml_pos(map, r->key), "%s: %s", r->key, r->words);
}
