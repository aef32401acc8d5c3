/* What the tests of config share: a text parsed, and its errors compared as the user reads them. */
#ifndef TEST_RIG_CONFIG_CHECK_H
#define TEST_RIG_CONFIG_CHECK_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/option.h"

struct config_check {
	struct yaml_doc doc;
	struct config_errors errors;
	int ret; /* of yaml_parse */
};

/* The file is called f. The text is copied to its exact size: ASan sees a read past its end. */
static inline void check_parse_bytes(struct config_check *c, const char *text, size_t bytes)
{
	char *exact = malloc(bytes ? bytes : 1);

	assert_non_null(exact);
	memcpy(exact, text, bytes);
	config_errors_init(&c->errors, "f");
	c->ret = yaml_parse(&c->doc, exact, bytes, &c->errors);
	free(exact);
}

static inline void check_parse(struct config_check *c, const char *text)
{
	check_parse_bytes(c, text, strlen(text));
}

static inline void check_fini(struct config_check *c)
{
	yaml_doc_free(&c->doc);
	config_errors_fini(&c->errors);
}

/* All errors, as they are printed. */
static inline void check_errors(struct config_errors *errors, const char *expected)
{
	char *text = config_errors_text(errors);

	assert_non_null(text);
	assert_string_equal(text, expected);
	free(text);
}

/* The text is good, and gives back its tree. */
static inline struct yaml_node *check_good(struct config_check *c, const char *text)
{
	check_parse(c, text);
	check_errors(&c->errors, "");
	assert_int_equal(c->ret, 0);
	assert_non_null(c->doc.root);
	return c->doc.root;
}

/* The text is refused with exactly these lines. */
static inline void check_bad_bytes(const char *text, size_t bytes, const char *expected)
{
	struct config_check c;

	check_parse_bytes(&c, text, bytes);
	check_errors(&c.errors, expected);
	assert_int_equal(c.ret, -EINVAL);
	check_fini(&c);
}

static inline void check_bad(const char *text, const char *expected)
{
	check_bad_bytes(text, strlen(text), expected);
}

#endif
