/* NVMe-oF URIs, names of subsystems, hosts and namespaces: what each becomes, and what is wrong
 * with the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_uri.h"
#include "base/util.h"

#define NQN "nqn.2024-01.com.example:disk"
#define UUID "01234567-89ab-cdef-0123-456789ABCDEF"
#define HOST "nqn.2014-08.org.nvmexpress:uuid:" UUID

static struct nvme_uri uri;

static void parse(const char *text)
{
	struct nvme_uri_error e = { 0 };

	if (nvme_uri_parse(text, &uri, &e) < 0)
		fail_msg("%s: column %zu: %s", text, e.column, e.text);
}

static void test_good(void **state)
{
	static const struct {
		const char *text, *address, *nqn, *want;
	} cases[] = {
		{ "nvme+tcp://192.168.1.1:4420/" NQN, "192.168.1.1:4420", NQN,
		  "the only namespace" },
		{ "NVME+TCP://h/" NQN "/7", "h:4420", NQN, "nsid 7" },
		{ "nvme+tcp://h:/" NQN "//", "h:4420", NQN, "the only namespace" },
		{ "nvme+tcp://h//" NQN "//4294967294/", "h:4420", NQN, "nsid 4294967294" },
		{ "nvme+tcp://[FE80::1010%25eth0]:65535/" NQN, "[FE80::1010%eth0]:65535", NQN,
		  "the only namespace" },
		{ "nvme+tcp://h/" NQN "/" UUID, "h:4420", NQN,
		  "uuid 01234567-89ab-cdef-0123-456789abcdef" },
		{ "nvme+tcp://h/" NQN "/urn:uuid:" UUID, "h:4420", NQN,
		  "uuid 01234567-89ab-cdef-0123-456789abcdef" },
		{ "nvme+tcp://h/" NQN "/uuid." UUID, "h:4420", NQN,
		  "uuid 01234567-89ab-cdef-0123-456789abcdef" },
		{ "nvme+tcp://h/" NQN "/nguid.000102030405060708090A0B0C0D0E0F", "h:4420", NQN,
		  "nguid 000102030405060708090a0b0c0d0e0f" },
		{ "nvme+tcp://h/" NQN "/eui.000102030405060708090A0B0C0D0E0F", "h:4420", NQN,
		  "nguid 000102030405060708090a0b0c0d0e0f" },
		{ "nvme+tcp://h/" NQN "/eui.0001020304050607", "h:4420", NQN,
		  "eui64 0001020304050607" },
		{ "nvme+tcp://h/" NQN "?nsid=9", "h:4420", NQN, "nsid 9" },
		{ "nvme+tcp://h/" NQN "?&uuid=" UUID "&", "h:4420", NQN,
		  "uuid 01234567-89ab-cdef-0123-456789abcdef" },
		{ "nvme+tcp://h/" NQN "?nguid=000102030405060708090A0B0C0D0E0F", "h:4420", NQN,
		  "nguid 000102030405060708090a0b0c0d0e0f" },
		{ "nvme+tcp://h/" NQN "?eui64=0001020304050607", "h:4420", NQN,
		  "eui64 0001020304050607" },
		{ "nvme+tcp://h/nqn.2024-01.com.example%3Aa%2Fb", "h:4420",
		  "nqn.2024-01.com.example:a/b", "the only namespace" },
		{ "nvme+tcp://h", "h:8009", NVME_DISCOVERY_NQN, "the only namespace" },
		{ "nvme+tcp://100.71.103.50:4420/", "100.71.103.50:4420", NVME_DISCOVERY_NQN,
		  "the only namespace" },
		{ "nvme+tcp://h/NQN.2014-08.ORG.NVMEXPRESS.DISCOVERY", "h:8009", NVME_DISCOVERY_NQN,
		  "the only namespace" },
	};
	char buf[512];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		parse(cases[i].text);
		assert_string_equal(net_host_format(&uri.server, buf, sizeof(buf)),
				    cases[i].address);
		assert_string_equal(uri.subsystem_nqn, cases[i].nqn);
		assert_string_equal(nvme_want_format(&uri.want, buf, sizeof(buf)), cases[i].want);
		assert_int_equal(uri.discovery,
				 cases[i].nqn != NULL &&
					 strcmp(cases[i].nqn, NVME_DISCOVERY_NQN) == 0);
	}
}

static void test_query(void **state)
{
	(void)state;
	parse("nvme+tcp://h/" NQN);
	assert_string_equal(uri.host_nqn, "");
	assert_false(uri.header_digest || uri.data_digest || uri.said);
	parse("nvme+tcp://h/" NQN "?hostnqn=" HOST "&hostid=" UUID "&hdr_digest=1&data_digest");
	assert_string_equal(uri.host_nqn, HOST);
	assert_int_equal(uri.host_id[0], 0x01);
	assert_int_equal(uri.host_id[15], 0xef);
	assert_true(uri.header_digest && uri.data_digest);
	assert_int_equal(uri.said, 0xf);
	parse("nvme+tcp://h/" NQN "?hdr_digest=false&data_digest=0");
	assert_false(uri.header_digest || uri.data_digest);
	assert_string_equal(nvme_uri_key_name(NVME_URI_DATA_DIGEST), "data_digest");
}

static void test_bad(void **state)
{
	static const struct {
		const char *text;
		size_t column;
		const char *words;
	} cases[] = {
		{ "", 1, "expected a URI such as nvme+tcp://host/nqn.2024-01.com.example:disk" },
		{ "nvme+tcp:/h/x", 1,
		  "expected a URI such as nvme+tcp://host/nqn.2024-01.com.example:disk" },
		{ "nvme+rdma://h/x", 1, "unknown scheme; known is nvme+tcp" },
		{ "nvme://h/x", 1, "unknown scheme; known is nvme+tcp" },
		{ "nvme+tcp://", 12, "the host is missing" },
		{ "nvme+tcp://:4420/", 12, "the host is missing" },
		{ "nvme+tcp://u@h/", 12,
		  "a user has no place in an NVMe URI: hosts are known by hostnqn" },
		{ "nvme+tcp://[::1/", 12, "the ] of this [ is missing" },
		{ "nvme+tcp://[::g]/", 13, "not an IPv6 address" },
		{ "nvme+tcp://[::1]4420/", 17, "expected :PORT or / behind the host" },
		{ "nvme+tcp://a,b/", 12, "host: not a name or an address (IPv6 stands in [])" },
		{ "nvme+tcp://h:x/", 14, "port: expected a number" },
		{ "nvme+tcp://h:65536/", 14, "port: at most 65535" },
		{ "nvme+tcp://h:0/", 14, "port: at least 1" },
		{ "nvme+tcp://h/a%0Ab", 14, "subsystem NQN: an NQN has no control characters" },
		{ "nvme+tcp://h/a%ff", 14, "subsystem NQN: an NQN is UTF-8" },
		{ "nvme+tcp://h/nqn%2", 17, "after % come two hex digits; a % is %25" },
		{ "nvme+tcp://h/nqn%00", 14, "subsystem NQN: a NUL has no place in it" },
		{ "nvme+tcp://h/nqn x", 17, "subsystem NQN: write this character as %20" },
		{ "nvme+tcp://h/" NQN "/0", 43,
		  "namespace: expected a number, uuid.UUID, nguid.32 hex digits or eui.16 hex "
		  "digits" },
		{ "nvme+tcp://h/" NQN "/1/2", 45,
		  "nothing comes behind the namespace; a / in an NQN is %2F" },
		{ "nvme+tcp://h/" NQN "#x", 42,
		  "a fragment has no meaning here; a # in a name is %23" },
		{ "nvme+tcp://h/" NQN "?nsid", 47, "nsid: expected a number from 1 to 4294967294" },
		{ "nvme+tcp://h/" NQN "?nsid=4294967295", 48,
		  "nsid: expected a number from 1 to 4294967294" },
		{ "nvme+tcp://h/" NQN "?uuid=1", 48,
		  "uuid: expected hex digits in the form 8-4-4-4-12" },
		{ "nvme+tcp://h/" NQN "?nguid=" UUID, 49, "nguid: expected 32 hex digits" },
		{ "nvme+tcp://h/" NQN "?eui64=000102030405060x", 49,
		  "eui64: expected 16 hex digits" },
		{ "nvme+tcp://h/" NQN "/1?nsid=1", 50, "nsid: the namespace was named already" },
		{ "nvme+tcp://h/" NQN "?nsid=1&nsid=1", 50, "nsid: given twice" },
		{ "nvme+tcp://h/" NQN "?host_nqn=x", 43,
		  "unknown key \"host_nqn\": did you mean hostnqn?" },
		{ "nvme+tcp://h/" NQN "?zzzzzzzzz=x", 43, "unknown key \"zzzzzzzzz\"" },
		{ "nvme+tcp://h/" NQN "?hostnqn=%7f", 51,
		  "hostnqn: an NQN has no control characters" },
		{ "nvme+tcp://h/" NQN "?hostid=x", 50,
		  "hostid: expected a UUID of the form 8-4-4-4-12" },
		{ "nvme+tcp://h/" NQN "?hdr_digest=2", 54, "hdr_digest: expected 1 or 0" },
		{ "nvme+tcp://h/?nsid=1", 21,
		  "a discovery controller has no namespaces: write the subsystem's NQN" },
	};
	struct nvme_uri_error e;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(nvme_uri_parse(cases[i].text, &uri, &e), -EINVAL);
		assert_string_equal(e.text, cases[i].words);
		if (e.column != cases[i].column)
			fail_msg("%s: column %zu", cases[i].text, e.column);
	}
}

static void test_long(void **state)
{
	static char text[NVME_URI_BYTES_MAX + 2];
	struct nvme_uri_error e;

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	assert_int_equal(nvme_uri_parse(text, &uri, &e), -EINVAL);
	assert_string_equal(e.text, "longer than 2048 bytes");
	snprintf(text, sizeof(text), "nvme+tcp://h/" NQN "%0200d", 1);
	assert_int_equal(nvme_uri_parse(text, &uri, &e), -EINVAL);
	assert_string_equal(e.text, "subsystem NQN: longer than 223 bytes");
}

static void test_nqn(void **state)
{
	static const char *const bad[] = { "", "nqn.2024-01.com\x7f", "a\n", "a\xc2\x85", "a\xff" };
	/* Linux' target and host take them. */
	static const char *const strange[] = {
		"nqn",
		"nqn.",
		"nqn.2024-01",
		"nqn.2024-01.",
		"nqn.2024-01.:x",
		"nqn.2024_01.com",
		"nqn.202x-01.com",
		"NQN.2024-01.com",
		"nvmet-test",
		"blktests-subsystem-1",
		"nqn.2024-01.com.example:a b",
		"nqn.2014-08.org.nvmexpress:uuid:",
		"nqn.2014-08.org.nvmexpress:uuid:0123456789ab-cdef-0123-456789ABCDEF1",
	};
	static const char *const good[] = { NQN, HOST, NVME_DISCOVERY_NQN,
					    "nqn.2024-01.com.example:\xc3\xa4" };
	char error[100], buf[NVME_NQN_OF_UUID_BYTES], nqn[225];
	uint8_t uuid[16];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(nvme_nqn_check(bad[i], error, sizeof(error)), -EINVAL);
	for (unsigned i = 0; i < ARRAY_SIZE(strange); i++) {
		assert_int_equal(nvme_nqn_check(strange[i], error, sizeof(error)), 0);
		assert_non_null(nvme_nqn_strange(strange[i]));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(nvme_nqn_check(good[i], error, sizeof(error)), 0);
		assert_null(nvme_nqn_strange(good[i]));
	}
	snprintf(nqn, sizeof(nqn), "nqn.2024-01.a:%0209d", 1);
	assert_int_equal(nvme_nqn_check(nqn, error, sizeof(error)), 0);
	snprintf(nqn, sizeof(nqn), "nqn.2024-01.a:%0210d", 1);
	assert_int_equal(nvme_nqn_check(nqn, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "an NQN has at most 223 bytes");
	assert_int_equal(nvme_nqn_uuid(HOST, uuid), 0);
	assert_string_equal(nvme_nqn_of_uuid(uuid, buf),
			    "nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef");
	assert_int_equal(nvme_nqn_uuid(NQN, uuid), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good), cmocka_unit_test(test_query),
		cmocka_unit_test(test_bad),  cmocka_unit_test(test_long),
		cmocka_unit_test(test_nqn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
