/*
 * libyaml's problems are precise but speak to those who know its grammar; the common ones are told
 * here in the words of who writes the file, at the place where the cure is.
 */
#include <errno.h>
#include <string.h>

#include <yaml.h>

#include "base/util.h"
#include "config/yaml_internal.h"

#define TAG_PREFIX "tag:yaml.org,2002:"

enum place {
	AT_PROBLEM, /* where it became impossible */
	AT_CONTEXT, /* where the thing began */
	AT_BOTH,    /* at the problem, and says where the thing began */
};

struct translation {
	const char *problem; /* the beginning of libyaml's */
	const char *message;
	enum place place;
};

static const struct translation translations[] = {
	{ "could not find expected ':'", "no \":\" after this key", AT_CONTEXT },
	{ "mapping values are not allowed",
	  "\": \" cannot stand here: quote the text, or check the indentation", AT_PROBLEM },
	{ "did not find expected key", "expected a key: check the indentation and the quotes",
	  AT_PROBLEM },
	{ "did not find expected '-' indicator", "expected \"- \": check the indentation",
	  AT_PROBLEM },
	{ "did not find expected node content", "expected a value", AT_PROBLEM },
	{ "did not find expected ',' or ']'", "expected \",\" or \"]\"", AT_BOTH },
	{ "did not find expected ',' or '}'", "expected \",\" or \"}\"", AT_BOTH },
	{ "found unexpected end of stream", "this quote is never closed", AT_CONTEXT },
	{ "found unexpected document indicator", "this quote is never closed", AT_CONTEXT },
	{ "found a tab character", "a tab cannot indent: use spaces", AT_PROBLEM },
	{ "block sequence entries are not allowed",
	  "\"- \" cannot stand here: begin the list on a line of its own", AT_PROBLEM },
	{ "did not find expected <document start>", "expected the end of the file", AT_PROBLEM },
};

static struct config_pos mark_pos(yaml_mark_t mark)
{
	return (struct config_pos){ .line = (unsigned)mark.line + 1,
				    .column = (unsigned)mark.column + 1 };
}

static const struct translation *translate(const char *problem)
{
	for (size_t i = 0; i < ARRAY_SIZE(translations); i++) {
		const struct translation *t = &translations[i];

		if (strncmp(problem, t->problem, strlen(t->problem)) == 0)
			return t;
	}
	return NULL;
}

/* libyaml counts characters. 0 past the end. */
static char char_at(const char *text, size_t bytes, size_t char_idx)
{
	for (size_t i = 0; i < bytes; i++) {
		if (((unsigned char)text[i] & 0xc0) == 0x80)
			continue;
		if (char_idx-- == 0)
			return text[i];
	}
	return '\0';
}

static void tell_bad_start(char c, struct config_pos pos, struct config_errors *e)
{
	if (c == '\t')
		config_errors_add(e, pos, "a tab cannot indent: use spaces");
	else
		config_errors_add(e, pos, "a text cannot begin with %c: quote it", c);
}

static void tell_translated(const struct translation *t, struct config_pos problem,
			    struct config_pos context, struct config_errors *e)
{
	if (t->place == AT_BOTH)
		config_errors_add(e, problem, "%s (of what begins at %u:%u)", t->message,
				  context.line, context.column);
	else
		config_errors_add(e, t->place == AT_CONTEXT ? context : problem, "%s", t->message);
}

static void syntax_tell(const yaml_parser_t *parser, const char *text, size_t bytes,
			struct config_errors *e)
{
	const char *problem = parser->problem ? parser->problem : "not YAML";
	struct config_pos pos = mark_pos(parser->problem_mark);
	const struct translation *t = translate(problem);

	if (strcmp(problem, "found character that cannot start any token") == 0)
		tell_bad_start(char_at(text, bytes, parser->problem_mark.index), pos, e);
	else if (t)
		tell_translated(t, pos, mark_pos(parser->context_mark), e);
	else if (parser->context)
		config_errors_add(e, pos, "%s, %s", problem, parser->context);
	else
		config_errors_add(e, pos, "%s", problem);
}

int yaml_syntax_error(const yaml_parser_t *parser, const char *text, size_t bytes,
		      struct config_errors *e)
{
	if (parser->error == YAML_MEMORY_ERROR) /* UNTESTED: libyaml's own malloc is not failed */
		return -ENOMEM;
	syntax_tell(parser, text, bytes, e);
	return -EINVAL;
}

static bool is_one_of(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (strcmp(word, *words) == 0)
			return true;
	return false;
}

bool yaml_tag_check(enum yaml_kind kind, const char *tag, struct config_pos pos,
		    struct config_errors *e)
{
	static const char *const known[][6] = {
		[YAML_SCALAR] = { "str", "int", "float", "bool", "null", NULL },
		[YAML_MAP] = { "map", NULL },
		[YAML_LIST] = { "seq", NULL },
	};
	const size_t prefix_bytes = strlen(TAG_PREFIX);
	char excerpt[CONFIG_EXCERPT_BYTES];
	bool is_standard;

	if (!tag || strcmp(tag, "!") == 0)
		return true;
	is_standard = strncmp(tag, TAG_PREFIX, prefix_bytes) == 0;
	if (is_standard && is_one_of(tag + prefix_bytes, known[kind]))
		return true;
	config_excerpt(is_standard ? tag + prefix_bytes : tag, excerpt);
	config_errors_add(e, pos, "the tag %s%s is not supported here: leave it out",
			  is_standard ? "!!" : "", excerpt);
	return false;
}

bool yaml_tag_is_string(const char *tag)
{
	return tag && (strcmp(tag, "!") == 0 || strcmp(tag, TAG_PREFIX "str") == 0);
}
