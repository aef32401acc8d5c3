/*
 * What the user can say about an NBD server: `tls` and the URI together; and which ways to a server
 * lead to the same bytes.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

#include "backends/nbd/nbd.h"
#include "storage/spec.h"
#include "test/rig/backend_options.h"

static void bad(const char *backend, const char *errors)
{
	options_bad("nbd", backend, errors);
}

/* The URI that comes of it. */
static const struct nbd_uri *good(const char *backend)
{
	static struct nbd_uri uri;
	struct settings s;
	char error[256];

	options_parse(&s, "nbd", backend, "");
	assert_int_equal(nbd_config_uri(s.devices[0]->backend->config, &uri, error, sizeof(error)),
			 0);
	settings_free(&s);
	return &uri;
}

static bool is_local(int family, const char *text)
{
	struct net_address address = { .name.ss_family = (sa_family_t)family };
	struct sockaddr_in *in = (struct sockaddr_in *)&address.name;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address.name;

	if (text)
		assert_int_equal(inet_pton(family, text,
					   family == AF_INET ? (void *)&in->sin_addr
							     : (void *)&in6->sin6_addr),
				 1);
	return net_address_is_local(&address);
}

static void test_on_this_machine(void **state)
{
	(void)state;
	assert_true(is_local(AF_UNIX, NULL));
	assert_true(is_local(AF_INET, "127.0.0.1"));
	assert_true(is_local(AF_INET, "127.8.7.6"));
	assert_true(is_local(AF_INET6, "::1"));
	assert_false(is_local(AF_INET, "128.0.0.1"));
	assert_false(is_local(AF_INET, "10.0.0.127"));
	assert_false(is_local(AF_INET6, "fe80::1"));
	assert_false(is_local(AF_VSOCK, NULL));
}

static void test_all_of_it(void **state)
{
	const struct nbd_uri *uri;

	(void)state;
	uri = good("  uri: nbds://h/e\n  tls: {psk_file: /k, username: al@ice}\n");
	assert_true(uri->tls);
	assert_string_equal(uri->tls_psk_file, "/k");
	assert_string_equal(uri->username, "al@ice");
	assert_false(uri->tls_no_verify);
	uri = good("  uri: nbds+unix:///e?socket=/s\n"
		   "  tls: {certificates: /c, hostname: n.example, verify_peer: no, type: x509}\n");
	assert_string_equal(uri->tls_certificates, "/c");
	assert_string_equal(uri->tls_hostname, "n.example");
	assert_true(uri->tls_no_verify);
	assert_int_equal(uri->tls_type, NET_TLS_X509);
}

/* A part here and a part there. */
static void test_together_with_the_uri(void **state)
{
	const struct nbd_uri *uri;

	(void)state;
	uri = good("  uri: nbds://alice@h/e?tls-type=psk\n  tls: {psk_file: /k}\n");
	assert_string_equal(uri->tls_psk_file, "/k");
	assert_string_equal(uri->username, "alice");
	assert_int_equal(uri->tls_type, NET_TLS_PSK);
	uri = good(
		"  uri: nbds://h/e?tls-verify-peer=0&tls-hostname=n\n  tls: {certificates: /c}\n");
	assert_string_equal(uri->tls_hostname, "n");
	assert_true(uri->tls_no_verify);
	uri = good("  uri: nbds://h/e?tls-certificates=/c\n  tls:\n");
	assert_string_equal(uri->tls_certificates, "/c");
	/* Nothing in it: the system's authorities. */
	assert_true(good("  uri: nbds://h/e\n  tls: {}\n")->tls);
	assert_true(good("  uri: nbds://h/e\n")->tls);
}

static void test_clear_text(void **state)
{
	static const char words[] = "tls: its URI says no TLS: the scheme must be nbds, nbds+unix "
				    "or nbds+vsock\n";
	char expected[200];

	(void)state;
	snprintf(expected, sizeof(expected), "f:5:8: %s", words);
	bad("  uri: nbd://h/e\n  tls: {psk_file: /k, username: alice}\n", expected);
	bad("  uri: nbd+unix:///e?socket=/s\n  tls: {}\n", expected);
	assert_false(good("  uri: nbd://h/e\n  tls:\n")->tls);
}

static void test_said_twice(void **state)
{
	(void)state;
	bad("  uri: nbds://h/e?tls-psk-file=/k&tls-hostname=n&tls-type=psk\n"
	    "  tls: {psk_file: /k, username: alice, hostname: m, type: x509}\n",
	    "f:5:19: tls: psk_file: the URI has it too, as tls-psk-file: say it once\n"
	    "f:5:50: tls: hostname: the URI has it too, as tls-hostname: say it once\n"
	    "f:5:59: tls: type: the URI has it too, as tls-type: say it once\n");
	bad("  uri: nbds://alice@h/e\n  tls: {psk_file: /k, username: alice}\n",
	    "f:5:33: tls: username: the URI has it too, as tls-username or before @: say it "
	    "once\n");
	bad("  uri: nbds://h/e?tls-username=alice\n  tls: {psk_file: /k, username: alice}\n",
	    "f:5:33: tls: username: the URI has it too, as tls-username or before @: say it "
	    "once\n");
	/* Were it not told, nobody would know which one counts. */
	bad("  uri: nbds://h/e?tls-verify-peer=0\n  tls: {verify_peer: true}\n",
	    "f:5:22: tls: verify_peer: the URI has it too, as tls-verify-peer: say it once\n");
	bad("  uri: nbds://h/e?tls-certificates=/c\n  tls: {certificates: /c}\n",
	    "f:5:23: tls: certificates: the URI has it too, as tls-certificates: say it once\n");
}

static void test_missing(void **state)
{
	(void)state;
	bad("  uri: nbds://h/e\n  tls: {psk_file: /k}\n",
	    "f:5:8: whose key of the file is it? USER@ before the host in the URI, or username in "
	    "tls\n");
	bad("  uri: nbds://h/e\n  tls: {type: psk}\n",
	    "f:5:8: TLS with a key needs its file: tls-psk-file=FILE in the URI, or psk_file in "
	    "tls\n");
	bad("  uri: nbds+unix:///e?socket=/s\n",
	    "f:4:8: a socket has no name to compare the certificate with: tls-hostname=NAME in the "
	    "URI, or hostname in tls\n");
	bad("  uri: nbds://h/e\n  tls: {pks_file: /k, hostname: ''}\n",
	    "f:5:9: unknown key \"pks_file\" (did you mean \"psk_file\"?)\n"
	    "f:5:33: hostname: must not be empty\n");
}

/* A reload that changes `tls` and nothing else is another backend. */
static void test_equal(void **state)
{
	struct settings a, b;

	(void)state;
	options_parse(&a, "nbd", "  uri: nbds://h/e\n  tls: {certificates: /c}\n", "");
	options_parse(&b, "nbd", "  uri: nbds://h/e\n  tls: {certificates: /d}\n", "");
	assert_true(backend_spec_equal(a.devices[0]->backend, a.devices[0]->backend));
	assert_false(backend_spec_equal(a.devices[0]->backend, b.devices[0]->backend));
	settings_free(&a);
	settings_free(&b);
}

/* The note of a device, as the next daemon reads it. */
static void test_kept(void **state)
{
	struct config_errors e;
	struct settings s, back;
	json_t *json;
	char *text;

	(void)state;
	options_parse(
		&s, "nbd",
		"  uri: nbds://h/e\n  tls: {psk_file: /k, username: 'a: b', verify_peer: off}\n",
		"");
	json = device_settings_json(s.devices[0]);
	text = device_json_text(json);
	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(&back, text, strlen(text), &e), 0);
	check_errors(&e, "");
	assert_true(backend_spec_equal(s.devices[0]->backend, back.devices[0]->backend));
	config_errors_fini(&e);
	json_decref(json);
	free(text);
	settings_free(&back);
	settings_free(&s);
}

/* ---- where the bytes of an export are ---- */

static unsigned find_places(const char *uri, uint64_t places[static BACKEND_PLACES_MAX])
{
	struct nbd_config config = { .uri = (char *)(uintptr_t)uri };
	struct nbd_device nbd = { 0 };
	struct backend_device device = { .config = &config, .priv = &nbd, .name = "d" };
	unsigned nr;

	device.owed = &device.owed_here;
	if (nbd_open(&device) < 0)
		fail_msg("%s: %s", uri, device.error);
	nr = nbd_places(&device, places);
	nbd_close(&device);
	return nr;
}

static bool are_one(const char *a, const char *b)
{
	uint64_t a_places[BACKEND_PLACES_MAX], b_places[BACKEND_PLACES_MAX];
	unsigned a_nr = find_places(a, a_places), b_nr = find_places(b, b_places);

	for (unsigned i = 0; i < a_nr; i++)
		for (unsigned j = 0; j < b_nr; j++)
			if (a_places[i] == b_places[j])
				return true;
	return false;
}

static void test_places_tcp(void **state)
{
	(void)state;
	assert_true(are_one("nbd://192.0.2.1/x", "nbd://192.0.2.1:10809/x"));
	assert_true(are_one("nbd://192.0.2.1/x", "nbd://[::ffff:192.0.2.1]/x"));
	assert_true(are_one("nbd://127.0.0.1/x", "nbd://[::1]/x"));
	assert_true(are_one("nbd://127.0.0.1/x", "nbd:127.0.0.1:10809:exportname=x"));
	assert_true(are_one("nbd://[2001:db8::1]/x", "nbd://[2001:db8:0:0::1]/x"));
	assert_false(are_one("nbd://192.0.2.1/x", "nbd://192.0.2.1/y"));
	assert_false(are_one("nbd://192.0.2.1/x", "nbd://192.0.2.2/x"));
	assert_false(are_one("nbd://192.0.2.1/x", "nbd://192.0.2.1:10810/x"));
	assert_false(are_one("nbd://127.0.0.1/x", "nbd://127.0.0.2/x"));
	assert_false(are_one("nbd://127.0.0.1/x", "nbd+vsock://1/x"));
}

static void test_places_unix(void **state)
{
	char folder[] = "/tmp/test_nbd_placesXXXXXX", there[64], link[64], a[128], b[128];
	FILE *file;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(there, sizeof(there), "%s/there", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	file = fopen(there, "w");
	assert_non_null(file);
	fclose(file);
	assert_int_equal(symlink("there", link), 0);
	snprintf(a, sizeof(a), "nbd+unix:///x?socket=%s", there);
	snprintf(b, sizeof(b), "nbd+unix:///x?socket=%s", link);
	assert_true(are_one(a, a));
	assert_true(are_one(a, b));
	snprintf(b, sizeof(b), "nbd+unix:///x?socket=%s/other", folder);
	assert_true(are_one(b, b));
	assert_false(are_one(a, b));
	unlink(link);
	unlink(there);
	rmdir(folder);
}

static void test_places_vsock(void **state)
{
	(void)state;
	assert_true(are_one("nbd+vsock://2/x", "nbd+vsock://2:10809/x"));
	assert_false(are_one("nbd+vsock://2/x", "nbd+vsock://3/x"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_on_this_machine),
		cmocka_unit_test(test_all_of_it),
		cmocka_unit_test(test_together_with_the_uri),
		cmocka_unit_test(test_clear_text),
		cmocka_unit_test(test_said_twice),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_equal),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_places_tcp),
		cmocka_unit_test(test_places_unix),
		cmocka_unit_test(test_places_vsock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
