/* What the user can say about an object of a web server: every refusal. */
#include "test/rig/backend_options.h"

static void bad(const char *backend, const char *errors)
{
	options_bad("http", backend, errors);
}

#define URL "  url: \"http://h/x\"\n"

static void test_good(void **state)
{
	struct settings s;

	(void)state;
	options_parse(&s, "http",
		      "  url: \"https://h/disk.img?x=1\"\n  token_file: /t\n  headers: {X-A: "
		      "\"1\", B: \"\"}\n",
		      "");
	settings_free(&s);
}

static void test_bad(void **state)
{
	(void)state;
	bad("  url: \"ftp://h/x\"\n",
	    "f:4:8: url: at its character 1: the scheme must be http or https\n");
	bad(URL "  user: me\n", "f:5:9: user: password_file is missing\n");
	bad(URL "  password_file: /p\n", "f:5:18: password_file: user is missing\n");
	bad(URL "  user: \"a:b\"\n  password_file: /p\n",
	    "f:5:9: user: a user's name has no colon (RFC 7617)\n");
	bad(URL "  user: a\n  password_file: /p\n  token_file: /t\n",
	    "f:7:15: token_file: user is there too: say one of them\n");
}

#define HEADER_NAME_63 "x23456789012345678901234567890123456789012345678901234567890123"

static void test_bad_headers(void **state)
{
	(void)state;
	bad(URL "  headers: {Range: \"bytes=0-\"}\n",
	    "f:5:12: headers: Range: ublkd sets this one by itself\n");
	bad(URL "  headers: {\"a b\": c}\n", "f:5:12: headers: a b: no name of a header\n");
	/* A long name ends at a letter. */
	bad(URL "  headers: {\"" HEADER_NAME_63 "\u00e4b\": c}\n",
	    "f:5:12: headers: " HEADER_NAME_63 ": no name of a header\n");
	bad(URL "  headers: {a: [b]}\n", "f:5:12: headers: a: expected a text of one line\n");
	bad(URL "  headers: {a: \"b\\nc\"}\n", "f:5:12: headers: a: expected a text of one line\n");
	bad(URL "  headers: [a]\n", "f:5:12: headers: expected a map of headers: {NAME: VALUE}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_bad_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
