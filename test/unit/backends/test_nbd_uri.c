/* NBD URIs: what each part becomes, and what is wrong with the others, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "backends/nbd/nbd.h"
#include "backends/nbd/nbd_uri.h"
#include "base/util.h"
#include "storage/word.h"

static struct nbd_uri uri;

static void parse(const char *text)
{
	struct nbd_uri_error e = { 0 };

	if (nbd_uri_parse(text, &uri, &e) < 0)
		fail_msg("%s: column %zu: %s", text, e.column, e.text);
}

static void test_good(void **state)
{
	static const struct {
		const char *text, *address, *export_name;
		bool tls;
	} cases[] = {
		/* the table of uri.md */
		{ "nbd://example.com:10809/export", "example.com:10809", "export", false },
		{ "nbd://example.com/disk", "example.com:10809", "disk", false },
		{ "nbd+unix:///disk?socket=sock", "unix:sock", "disk", false },
		{ "nbd://example.com/", "example.com:10809", "", false },
		{ "nbd://example.com", "example.com:10809", "", false },
		{ "nbd://example.com//disk", "example.com:10809", "/disk", false },
		{ "nbd://example.com/hello%20world", "example.com:10809", "hello world", false },
		{ "nbd+unix:///?socket=%00/abstract", "unix:@/abstract", "", false },
		/* more */
		{ "nbds://h:1/a/b%2Fc", "h:1", "a/b/c", true },
		{ "NBDS://h:65535/", "h:65535", "", true },
		{ "nbd://h:/x", "h:10809", "x", false },
		{ "nbd://127.0.0.1?", "127.0.0.1:10809", "", false },
		{ "nbd://[::1]:99/x", "[::1]:99", "x", false },
		{ "nbd://[fe80::1%25eth0]/x", "[fe80::1%eth0]:10809", "x", false },
		{ "nbd://b%C3%BCro/%e2%82%AC", "b\xc3\xbcro:10809", "\xe2\x82\xac", false },
		{ "nbds+unix:///e?socket=/run/a%26b", "unix:/run/a&b", "e", true },
		{ "nbd+unix://?socket=/s", "unix:/s", "", false },
		{ "nbd+vsock://2/x", "vsock:2:10809", "x", false },
		{ "nbds+vsock://4294967295:4294967295", "vsock:4294967295:4294967295", "", true },
		{ "nbd://h/a+b%25", "h:10809", "a+b%", false },
		/* QEMU's: nothing is escaped */
		{ "nbd:unix:/run/nbd.sock", "unix:/run/nbd.sock", "", false },
		{ "nbd:unix:/run/my disk:1%20:exportname=a b/%41?:exportname=c",
		  "unix:/run/my disk:1%20", "a b/%41?:exportname=c", false },
		{ "nbd:host:10810", "host:10810", "", false },
		{ "NBD:127.0.0.1:1:exportname=disk", "127.0.0.1:1", "disk", false },
		{ "nbd:[::1]:99:exportname=", "[::1]:99", "", false },
	};
	char buf[512];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		parse(cases[i].text);
		assert_string_equal(net_host_format(&uri.server, buf, sizeof(buf)),
				    cases[i].address);
		assert_string_equal(uri.export_name, cases[i].export_name);
		assert_int_equal(uri.tls, cases[i].tls);
	}
}

static void test_abstract_bytes(void **state)
{
	(void)state;
	parse("nbd+unix:///?socket=%00abc");
	assert_int_equal(uri.server.path_bytes, 4);
	assert_memory_equal(uri.server.path, "\0abc", 5);
	parse("nbd+unix:///?socket=/a");
	assert_int_equal(uri.server.path_bytes, 2);
}

static void test_tls(void **state)
{
	(void)state;
	parse("nbds://alice@h/x?tls-type=psk&tls-psk-file=/etc/k%20s&&tls-hostname=n");
	assert_string_equal(uri.server.host, "h");
	assert_string_equal(uri.username, "alice");
	assert_string_equal(uri.tls_psk_file, "/etc/k s");
	assert_string_equal(uri.tls_hostname, "n");
	assert_int_equal(uri.tls_type, NET_TLS_PSK);
	assert_false(uri.tls_no_verify);
	parse("nbds+unix:///?tls-username=bob&socket=/s&tls-certificates=/c&tls-verify-peer=0");
	assert_string_equal(uri.username, "bob");
	assert_string_equal(uri.tls_certificates, "/c");
	assert_int_equal(uri.tls_type, NET_TLS_AUTO);
	assert_true(uri.tls_no_verify);
	parse("nbds://h?tls-verify-peer=true&tls-type=x509");
	assert_false(uri.tls_no_verify);
	assert_int_equal(uri.tls_type, NET_TLS_X509);
	parse("nbds://h?tls-type=anon");
	assert_int_equal(uri.tls_type, NET_TLS_ANON);
}

static void test_bad(void **state)
{
	static const struct {
		const char *text;
		size_t column;
		const char *words;
	} cases[] = {
		{ "", 1, "expected a URI" },
		{ "nbd+unix:/s", 1, "expected a URI" },
		{ "nbd:", 5, "expected nbd:HOST:PORT" },
		{ "nbd:/host/x", 5, "not a name" },
		{ "nbd:host", 5, "expected nbd:HOST:PORT" },
		{ "nbd:host:", 5, "expected nbd:HOST:PORT" },
		{ "nbd:host:0", 10, "at least 1" },
		{ "nbd:host:10809/x", 15, "expected a number" },
		{ "nbd:unix", 5, "expected nbd:HOST:PORT" },
		{ "nbd:unix:", 10, "socket is missing" },
		{ "nbd:unix::exportname=x", 10, "socket is missing" },
		{ "nbd:unix:exportname=x", 5, "expected nbd:HOST:PORT" },
		{ "nbd::exportname=x", 5, "expected nbd:HOST:PORT" },
		{ "http://h/x", 1, "unknown scheme" },
		{ "nbdx://h/x", 1, "unknown scheme" },
		{ "nbd:///x", 7, "host is missing" },
		{ "nbd://:10809/x", 7, "host is missing" },
		{ "nbd+vsock:///x", 13, "cid is missing" },
		{ "nbd+vsock://host/x", 13, "expected a number" },
		{ "nbd+vsock://4294967296/x", 13, "at most 4294967295" },
		{ "nbd://h:65536/x", 9, "at most 65535" },
		{ "nbd://h:0/x", 9, "at least 1" },
		{ "nbd://h:1x/x", 10, "expected a number" },
		{ "nbd://h:-1", 9, "expected a number" },
		{ "nbd://h:99999999999999999999999999", 9, "at most 65535" },
		{ "nbd://[::1/x", 7, "] of this [" },
		{ "nbd://[1.2.3.4]/x", 8, "not an IPv6" },
		{ "nbd://[::1]x/x", 12, "expected :PORT" },
		{ "nbd://::1/x", 7, "host is missing" },
		{ "nbd://a b/x", 8, "%20" },
		{ "nbd://a%2Fb/x", 7, "not a name" },
		{ "nbd://a:b@h/x", 7, "password" },
		{ "nbd://h/%", 9, "two hex digits" },
		{ "nbd://h/a%4", 10, "two hex digits" },
		{ "nbd://h/a%4?x", 10, "two hex digits" },
		{ "nbd://h/a%zz", 10, "two hex digits" },
		{ "nbd://h/a%00b", 9, "NUL" },
		{ "nbd://h/a\tb", 10, "%09" },
		{ "nbd://h/x#y", 10, "fragment" },
		{ "nbd://h/x?socket=/s", 11, "nbd+unix" },
		{ "nbd+unix:///x", 14, "socket is missing" },
		{ "nbd+unix:///x?socket=", 22, "path is missing" },
		{ "nbd+unix:///x?socket=%00", 22, "path is missing" },
		{ "nbd+unix:///x?socket=/a%00b", 22, "NUL" },
		{ "nbd+unix:///x?socket", 15, "socket=VALUE" },
		{ "nbd+unix://h/x?socket=/s", 12, "no host" },
		{ "nbd+unix:///x?socket=/s&socket=/t", 25, "given twice" },
		{ "nbd+unix:///x?sokcet=/s", 15, "did you mean socket" },
		{ "nbd+unix:///x?socket=/s&x-y=1", 25, "unknown key \"x-y\"" },
		{ "nbd://h?tls-type=psk", 9, "needs TLS" },
		{ "nbds://h?tls-type=ssl", 19, "anon" },
		{ "nbds://h?tls-verify-peer=maybe", 26, "expected one of" },
		{ "nbds://a@h?tls-username=b", 25, "before @" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nbd_uri_error e = { 0 };

		if (nbd_uri_parse(cases[i].text, &uri, &e) != -EINVAL)
			fail_msg("%s: accepted", cases[i].text);
		if (e.column != cases[i].column || !strstr(e.text, cases[i].words))
			fail_msg("%s: column %zu: %s", cases[i].text, e.column, e.text);
	}
}

/* As long as may be, and one longer. */
/* What a word of the command line may begin with is what is read here. */
static void test_schemes(void **state)
{
	char text[64];

	(void)state;
	for (const char *const *scheme = nbd_backend_uri.schemes; *scheme; scheme++) {
		bool is_qemu = strchr(*scheme, ':');

		snprintf(text, sizeof(text), "%s%s%s", *scheme, is_qemu ? "" : "://",
			 is_qemu		    ? "unix:/s"
			 : strstr(*scheme, "unix")  ? "/?socket=/s"
			 : strstr(*scheme, "vsock") ? "2/"
						    : "h/");
		parse(text);
	}
	assert_string_equal(nbd_backend_uri.option->name, "uri");
}

static void limit(const char *prefix, size_t max)
{
	static char text[NBD_URI_BYTES_MAX + 2];
	struct nbd_uri_error e;
	size_t at = (size_t)snprintf(text, sizeof(text), "%s", prefix);

	memset(text + at, 'a', max);
	text[at + max] = '\0';
	parse(text);
	memcpy(text + at + max, "a", 2);
	assert_int_equal(nbd_uri_parse(text, &uri, &e), -EINVAL);
	assert_non_null(strstr(e.text, "longer than"));
}

static void test_limits(void **state)
{
	char text[NBD_URI_BYTES_MAX + 2];
	struct nbd_uri_error e;

	(void)state;
	limit("nbd://h/", NBD_STRING_BYTES_MAX);
	limit("nbd://", 255);
	limit("nbd+unix:///?socket=", 107);
	limit("nbd:unix:", 107);
	limit("nbd:h:1:exportname=", NBD_STRING_BYTES_MAX);
	limit("nbds://h/?tls-psk-file=", PATH_MAX - 1);
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(nbd_uri_parse(text, &uri, &e), -EINVAL);
	assert_non_null(strstr(e.text, "longer than 16384"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),   cmocka_unit_test(test_abstract_bytes),
		cmocka_unit_test(test_tls),    cmocka_unit_test(test_bad),
		cmocka_unit_test(test_limits), cmocka_unit_test(test_schemes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
