/* URIs of a scheme that no backend has: what is read, or what is wrong and at which column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/util.h"
#include "net/uri.h"

static char error[200], got[400];

/* Appends "SERVER NAME KEY=VALUE..." to got. Keys of t+vsock may stand alone. */
static int read_parts(struct uri_reader *r)
{
	static const char *const keys[] = { "size", "name" };
	struct net_host server = { .port = 7 };
	char name[8], *to = got;
	struct uri_query query;
	struct uri_part part;
	struct uri_pair pair;
	int err;

	if (uri_read_scheme(r, "t://h", &part) < 0)
		return -1;
	server.kind = uri_is_scheme(part, "t")	      ? NET_TCP
		      : uri_is_scheme(part, "t+unix") ? NET_UNIX
						      : NET_VSOCK;
	part = uri_split(r, "/?#");
	err = server.kind == NET_UNIX ? uri_decode_socket(r, part, "socket", &server)
				      : uri_decode_server(r, part, "no host", &server);
	if (err < 0 || uri_decode(r, uri_split(r, "?#"), "name", name, sizeof(name)) < 0)
		return -1;
	net_host_format(&server, got, 300);
	to += strlen(got);
	to += sprintf(to, " %s", name);
	query = (struct uri_query){ keys, ARRAY_SIZE(keys), server.kind == NET_VSOCK };
	while ((err = uri_next_pair(r, &query, &pair)) > 0)
		to += sprintf(to, " %s=%.*s", keys[pair.key], (int)(pair.value.end - pair.value.at),
			      pair.value.at);
	return err < 0 ? err : uri_end(r);
}

static void test_uri(void **state)
{
	static const struct {
		const char *text, *got;
	} cases[] = {
		{ "t://name_1.example:65535/%41%7e%C3%bc|", "name_1.example:65535 /A~\xc3\xbc|" },
		{ "T://[fe80::1%25eth0]:/123456", "[fe80::1%eth0]:7 /123456" },
		{ "t+vsock://4294967295:4294967295", "vsock:4294967295:4294967295 " },
		{ "t+unix://%00a%2F", "unix:@a/ " },
		{ "t://h?&name=a=b?&&s%69ze=%31&", "h:7  name=a=b? size=%31" },
		{ "t+vsock://2?name&size=", "vsock:2:7  name= size=" },
		{ "t:/h", "1: expected a URI such as t://h" },
		{ "t://", "5: no host" },
		{ "t://:1", "5: no host" },
		{ "t://[::1", "5: the ] of this [ is missing" },
		{ "t://[1.2.3.4]", "6: not an IPv6 address" },
		{ "t://[::1]1", "10: expected :PORT or / behind the host" },
		{ "t://a;b", "5: host: not a name or an address (IPv6 stands in [])" },
		{ "t://h:0", "7: port: at least 1" },
		{ "t://h:65536", "7: port: at most 65535" },
		{ "t://h:1-", "8: port: expected a number" },
		{ "t+vsock://4294967296", "11: vsock cid: at most 4294967295" },
		{ "t+unix://%00", "10: socket: a path is missing" },
		{ "t+unix://%00a%00", "10: socket: a NUL has no place in it" },
		{ "t://h/1234567", "6: name: longer than 7 bytes" },
		{ "t://h/a%4?1", "8: after % come two hex digits; a % is %25" },
		{ "t://h/a%4g", "8: after % come two hex digits; a % is %25" },
		{ "t://h/%00", "6: name: a NUL has no place in it" },
		{ "t://h/a\x7f", "8: name: write this character as %7F" },
		{ "t://h?size=&name", "13: name: expected name=VALUE" },
		{ "t://h?name=1&size=1&name=2", "21: name: given twice" },
		{ "t://h?nmae=2", "7: unknown key \"nmae\": did you mean name?" },
		{ "t://h?%01=", "7: unknown key \"\\x01\"" },
		{ "t://h#x", "6: a fragment has no meaning here; a # in a name is %23" },
		{ "t://host-of-more-bytes-than-may-be-in-all", "1: longer than 40 bytes" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct uri_reader r;
		size_t column;

		if (uri_begin(&r, cases[i].text, 40, &column, error, sizeof(error)) < 0 ||
		    read_parts(&r) < 0)
			snprintf(got, sizeof(got), "%zu: %s", column, error);
		if (strcmp(got, cases[i].got) != 0)
			fail_msg("%s: %s", cases[i].text, got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_uri) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
