/* What libyaml says, in words that tell the cure. For yaml_build.c only: this one knows libyaml. */
#ifndef CONFIG_YAML_SYNTAX_H
#define CONFIG_YAML_SYNTAX_H

#include <yaml.h>

#include "config/yaml.h"

/* Adds the error the parser stopped at. Returns -EINVAL, or -ENOMEM and adds nothing. */
int yaml_syntax_error(const yaml_parser_t *parser, const char *text, size_t bytes,
		      struct config_errors *e);

/*
 * False, with the error added, for a tag (or NULL) that a node of this kind cannot have. The tags
 * of YAML itself are accepted and, but for !!str, mean nothing: the option says what type it takes.
 */
bool yaml_tag_check(enum yaml_kind kind, const char *tag, struct config_pos pos,
		    struct config_errors *e);

/* !!str and !: a scalar with it is a text as if it were quoted. */
bool yaml_tag_is_string(const char *tag);

#endif
