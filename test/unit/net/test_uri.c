/* net/uri: what the parts of a URI become, with the column of what is wrong; no backend's URIs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "net/uri.h"

static struct uri_reader r;
static size_t column;
static char error[200], got[400];

static void begin(const char *text)
{
	column = 0;
	strcpy(error, "");
	assert_int_equal(uri_begin(&r, text, 300, &column, error, sizeof(error)), 0);
}

/* err, which is the call's, and the words are as they have to be; column 0: no error. */
static void check(const char *text, int err, const char *is, size_t at_column, const char *words)
{
	if (err != (at_column ? -EINVAL : 0) || column != at_column ||
	    strcmp(at_column ? error : is, words) != 0)
		fail_msg("\"%s\": %d, \"%s\", column %zu: %s", text, err, is, column, error);
}

struct expected {
	const char *text;
	size_t column;
	const char *words; /* of the error, or what was read */
};

static void test_decode(void **state)
{
	static const struct expected cases[] = {
		{ "", 0, "" },
		{ "1234567", 0, "1234567" },
		{ "12345678", 1, "x: longer than 7 bytes" },
		{ "%41%7e%C3%bc|", 0, "A~\xc3\xbc|" },
		{ "a%4", 2, "after % come two hex digits; a % is %25" },
		{ "a%4g", 2, "after % come two hex digits; a % is %25" },
		{ "a%:0", 2, "after % come two hex digits; a % is %25" },
		{ "ab%00", 1, "x: a NUL has no place in it" },
		{ "ab c", 3, "x: write this character as %20" },
		{ "ab\x7f", 3, "x: write this character as %7F" },
	};
	char buf[8] = "";

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(cases[i].text);
		int err = uri_decode(&r, uri_split(&r, ""), "x", buf, sizeof(buf));

		check(cases[i].text, err, buf, cases[i].column, cases[i].words);
	}
	/* The escape does not reach beyond its part. */
	begin("%4?1");
	assert_int_equal(uri_decode(&r, uri_split(&r, "?"), "x", buf, sizeof(buf)), -EINVAL);
}

static void test_server(void **state)
{
	static const struct expected cases[] = {
		{ "tcp://name_1.example:65535", 0, "name_1.example:65535" },
		{ "TCP://h:", 0, "h:7" },
		{ "tcp://[fe80::1%25eth0]", 0, "[fe80::1%eth0]:7" },
		{ "vsock://4294967295:4294967295", 0, "vsock:4294967295:4294967295" },
		{ "tcp:/h", 1, "expected a URI such as tcp://h" },
		{ "tcp://", 7, "no host" },
		{ "tcp://:1", 7, "no host" },
		{ "tcp://[::1", 7, "the ] of this [ is missing" },
		{ "tcp://[::1%3]", 11, "after % come two hex digits; a % is %25" },
		{ "tcp://[1.2.3.4]", 8, "not an IPv6 address" },
		{ "tcp://[::1]1", 12, "expected :PORT or / behind the host" },
		{ "tcp://a;b", 7, "host: not a name or an address (IPv6 stands in [])" },
		{ "tcp://h:0", 9, "port: at least 1" },
		{ "tcp://h:65536", 9, "port: at most 65535" },
		{ "tcp://h:1-", 10, "port: expected a number" },
		{ "vsock://4294967296", 9, "vsock cid: at most 4294967295" },
		{ "vsock://h", 9, "vsock cid: expected a number" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct net_host server = { .port = 7 };
		struct uri_part scheme;
		int err;

		begin(cases[i].text);
		err = uri_read_scheme(&r, "tcp://h", &scheme);
		if (!err) {
			server.kind = uri_is_scheme(scheme, "tcp") ? NET_TCP : NET_VSOCK;
			err = uri_decode_server(&r, uri_split(&r, "/"), "no host", &server);
		}
		net_host_format(&server, got, sizeof(got));
		check(cases[i].text, err, got, cases[i].column, cases[i].words);
	}
}

static void test_socket(void **state)
{
	static const struct expected cases[] = {
		{ "/s%2F", 0, "unix:/s/" },
		{ "%00a", 0, "unix:@a" },
		{ "", 1, "s: a path is missing" },
		{ "%00", 1, "s: a path is missing" },
		{ "%00a%00", 1, "s: a NUL has no place in it" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct net_host server = { .kind = NET_UNIX };
		int err;

		begin(cases[i].text);
		err = uri_decode_socket(&r, uri_split(&r, ""), "s", &server);
		net_host_format(&server, got, sizeof(got));
		check(cases[i].text, err, got, cases[i].column, cases[i].words);
	}
}

/* Writes the pairs into `got` as KEY=VALUE; */
static int read_pairs(const struct uri_query *query)
{
	struct uri_pair pair;
	size_t nr = 0;
	int more;

	got[0] = '\0';
	while ((more = uri_next_pair(&r, query, &pair)) > 0)
		nr += (size_t)snprintf(got + nr, sizeof(got) - nr, "%s=%.*s;",
				       query->keys[pair.key],
				       (int)(pair.value.end - pair.value.at), pair.value.at);
	return more < 0 ? more : uri_end(&r);
}

static void test_query(void **state)
{
	static const char *const keys[] = { "size", "name" };
	static const struct {
		struct expected e;
		bool values_unsaid;
	} cases[] = {
		{ { "", 0, "" }, false },
		{ { "?", 0, "" }, false },
		{ { "?&name=a=b?&&s%69ze=%31&", 0, "name=a=b?;size=%31;" }, false },
		{ { "?name&size=", 0, "name=;size=;" }, true },
		{ { "?size=&name", 8, "name: expected name=VALUE" }, false },
		{ { "?name=1&size=1&name=2", 16, "name: given twice" }, false },
		{ { "?name&name", 7, "name: given twice" }, true },
		{ { "?size=1&nmae=2", 9, "unknown key \"nmae\": did you mean name?" }, false },
		{ { "?%01=", 2, "unknown key \"?\"" }, false },
		{ { "?size=1#x", 8, "a fragment has no meaning here; a # in a name is %23" },
		  false },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct uri_query query = { keys, ARRAY_SIZE(keys), cases[i].values_unsaid };
		const struct expected *e = &cases[i].e;
		int err;

		begin(e->text);
		err = read_pairs(&query);
		check(e->text, err, got, e->column, e->words);
	}
}

static void test_long(void **state)
{
	(void)state;
	assert_int_equal(uri_begin(&r, "1234", 4, &column, error, sizeof(error)), 0);
	assert_int_equal(uri_begin(&r, "12345", 4, &column, error, sizeof(error)), -EINVAL);
	assert_int_equal(column, 1);
	assert_string_equal(error, "longer than 4 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode), cmocka_unit_test(test_server),
		cmocka_unit_test(test_socket), cmocka_unit_test(test_query),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
