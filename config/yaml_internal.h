/* Between yaml.c, yaml_scan.c, yaml_build.c, yaml_syntax.c and yaml_map.c only. */
#ifndef CONFIG_YAML_INTERNAL_H
#define CONFIG_YAML_INTERNAL_H

#include "config/yaml.h"

/*
 * libyaml clears its buffer of pending white space, at its full capacity, once per word: a long run
 * of white space makes every later word of the same scalar cost as much as the run is long.
 */
#define YAML_BLANK_RUN_MAX 1024
/*
 * What must hold before libyaml may see the text: valid UTF-8, characters YAML allows, and none of
 * the shapes that libyaml is slow on (long runs of white space; %TAG, whose prefix it copies for
 * every tag that uses it). Returns 0 or -EINVAL with the first error added.
 */
int yaml_scan(const char *text, size_t bytes, struct config_errors *e);

/* Fills a zeroed doc. Returns as yaml_parse_value. */
int yaml_build(struct yaml_doc *doc, const char *text, size_t bytes, struct config_errors *e);

/* Sorts out one finished map: see yaml_map.c. Returns 0, -EINVAL (told, map usable) or -ENOMEM. */
int yaml_map_finish(struct yaml_node *map, struct config_errors *e);

struct yaml_parser_s;

/* yaml_syntax.c: adds the error that libyaml's parser stopped at. Returns -EINVAL, or -ENOMEM and
 * adds nothing. */
int yaml_syntax_error(const struct yaml_parser_s *parser, const char *text, size_t bytes,
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
