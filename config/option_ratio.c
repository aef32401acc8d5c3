/* OPTION_RATIO: a part of a whole, "0.25" or "25%". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_internal.h"

/* Digits and a point, perhaps an exponent: no sign, no hex, no "inf". */
static int parse(const char *text, double *ret_ratio)
{
	double number;
	char *end;

	if (strspn(text, "0123456789.eE-%") != strlen(text) || *text == '-')
		return -EINVAL;
	number = strtod(text, &end);
	if (end == text)
		return -EINVAL;
	if (strcmp(end, "%") == 0)
		number /= 100.;
	else if (*end != '\0')
		return -EINVAL;
	*ret_ratio = number;
	return 0;
}

int option_ratio_set(const struct option *o, struct yaml_node *value, void *field,
		     struct config_errors *e)
{
	char text[CONFIG_EXCERPT_BYTES];
	double ratio;

	if (value->kind != YAML_SCALAR)
		return option_wrong_kind(o, value, e);
	if (parse(value->text, &ratio) < 0) {
		config_errors_add(e, value->pos, "%s: \"%s\" is not a ratio (examples: 0.25, 25%%)",
				  o->name, config_excerpt(value->text, text));
		return -EINVAL;
	}
	if (ratio > 1.) {
		config_errors_add(e, value->pos, "%s: %s is above the maximum 1 (100%%)", o->name,
				  config_excerpt(value->text, text));
		return -EINVAL;
	}
	*(double *)field = ratio;
	return 0;
}

/* Both are what the same text gives, or not. */
bool option_ratio_equal(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(double)) == 0;
}
