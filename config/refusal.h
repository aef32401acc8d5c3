/*
 * Why a configuration is refused, and by which of its keys: for backends that judge their settings
 * twice, before they are opened (with the place in the file) and when they are (without).
 * Pure; any thread.
 */
#ifndef CONFIG_REFUSAL_H
#define CONFIG_REFUSAL_H

#include "config/errors.h"
#include "config/yaml.h"

struct config_refusal {
	const char *key;
	char words[320];
};

/* Returns -EINVAL. */
int config_refuse(struct config_refusal *r, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Adds it as an error where the key stands in map, or where map begins; map may be NULL. */
void config_refusal_add(const struct config_refusal *r, const struct yaml_node *map,
			struct config_errors *e);

#endif
