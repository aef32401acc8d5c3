/* What the user can say about an NVMe namespace: a URI, or host and subsystem. */
#include "backends/nvme/nvme.h"
#include "storage/spec.h"
#include "test/rig/backend_options.h"

#define NQN "nqn.2024-01.com.example:disk"
#define HOST_NQN "nqn.2024-01.com.example:me"
#define UUID "5a8a5d0e-1f5b-4c7a-9f5e-0123456789ab"
#define FIELDS "  host: h\n  subsystem: " NQN "\n"

static void bad(const char *backend, const char *errors)
{
	options_bad("nvme-tcp", backend, errors);
}

/* The target that comes of it. */
static const struct nvme_target *good(const char *backend)
{
	static struct nvme_target target;
	struct settings s;
	char error[256];

	options_parse(&s, "nvme-tcp", backend, "");
	assert_int_equal(
		nvme_config_target(s.devices[0]->backend->config, &target, error, sizeof(error)),
		0);
	settings_free(&s);
	return &target;
}

static void check_path(const struct nvme_target *t, unsigned idx, const char *expected)
{
	char text[300];

	assert_true(idx < t->path_nr);
	assert_string_equal(net_host_format(&t->path[idx], text, sizeof(text)), expected);
}

static void test_fields(void **state)
{
	const struct nvme_target *t;

	(void)state;
	t = good("  host: storage.example\n  subsystem: " NQN "\n");
	check_path(t, 0, "storage.example:4420");
	assert_int_equal(t->path_nr, 1);
	assert_string_equal(t->uri.subsystem_nqn, NQN);
	assert_int_equal(t->uri.want.by, NVME_WANT_ONLY);
	assert_false(t->uri.header_digest || t->uri.data_digest);
	t = good("  host: '[fd00::7]'\n  port: 4421\n  subsystem: " NQN "\n  namespace: '7'\n"
		 "  host_nqn: " HOST_NQN "\n  host_id: " UUID "\n"
		 "  header_digest: yes\n  data_digest: yes\n");
	check_path(t, 0, "[fd00::7]:4421");
	assert_int_equal(t->uri.want.by, NVME_WANT_NSID);
	assert_int_equal(t->uri.want.nsid, 7);
	assert_string_equal(t->uri.host_nqn, HOST_NQN);
	assert_int_equal(t->uri.host_id[0], 0x5a);
	assert_true(t->uri.header_digest && t->uri.data_digest);
	check_path(good("  host: 'fd00::7'\n  subsystem: " NQN "\n"), 0, "[fd00::7]:4420");
	assert_int_equal(good(FIELDS "  namespace: uuid." UUID "\n")->uri.want.by, NVME_WANT_UUID);
}

static void test_uri(void **state)
{
	const struct nvme_target *t;

	(void)state;
	t = good("  uri: nvme+tcp://h:4421/" NQN "/2?hdr_digest\n  data_digest: yes\n"
		 "  host_nqn: " HOST_NQN "\n");
	check_path(t, 0, "h:4421");
	assert_string_equal(t->uri.subsystem_nqn, NQN);
	assert_int_equal(t->uri.want.nsid, 2);
	assert_string_equal(t->uri.host_nqn, HOST_NQN);
	/* either of them switches it on */
	assert_true(t->uri.header_digest && t->uri.data_digest);
	assert_int_equal(good("  uri: nvme+tcp://h/" NQN "\n  namespace: '3'\n")->uri.want.nsid, 3);
}

static void test_paths(void **state)
{
	const struct nvme_target *t;

	(void)state;
	t = good(FIELDS "  paths: 'a, b:4421,[fd00::8],'\n");
	assert_int_equal(t->path_nr, 4);
	check_path(t, 0, "h:4420");
	check_path(t, 1, "a:4420");
	check_path(t, 2, "b:4421");
	check_path(t, 3, "[fd00::8]:4420");
	assert_int_equal(good(FIELDS "  paths: 'a,b,c,d,e,f,g'\n")->path_nr, NVME_PATHS_MAX);
	bad(FIELDS "  paths: 'a,b,c,d,e,f,g,x'\n", "f:6:10: paths: at most 8 paths in all\n");
	bad(FIELDS "  paths: 'a,b:x'\n", "f:6:10: paths: b:x: port: expected a number\n");
	bad(FIELDS "  paths: 'a,:4420'\n", "f:6:10: paths: :4420: the host is missing\n");
	bad(FIELDS "  paths: 'a b_c:4420:1'\n",
	    "f:6:10: paths: b_c:4420:1: port: expected a number\n");
}

static void test_missing(void **state)
{
	(void)state;
	bad("  port: 4420\n", "f:3:3: host: the target is missing: say uri, or host and "
			      "subsystem\n");
	bad("  subsystem: " NQN "\n",
	    "f:3:3: host: the target is missing: say uri, or host and subsystem\n");
	bad("  host: h\n",
	    "f:3:3: subsystem: the name of the subsystem is missing: ublkctl nvme-discover lists "
	    "those of a target\n");
	bad(FIELDS "  dhchap_ctrl_key_file: /k\n",
	    "f:6:25: dhchap_ctrl_key_file: a target that proves who it is asks this host first: "
	    "dhchap_key_file is missing\n");
	bad("  uri: nvme+tcp://h/\n",
	    "f:4:8: uri: the subsystem is missing: ublkctl nvme-discover lists those of a "
	    "target\n");
}

static void test_said_twice(void **state)
{
	static const char uri[] = "  uri: nvme+tcp://h/" NQN "\n";
	char text[400];

	(void)state;
	snprintf(text, sizeof(text), "%s  host: h\n", uri);
	bad(text, "f:5:9: host: the URI has it too: say it once\n");
	snprintf(text, sizeof(text), "%s  subsystem: " NQN "\n", uri);
	bad(text, "f:5:14: subsystem: the URI has it too: say it once\n");
	bad("  uri: nvme+tcp://h/" NQN "/1\n  namespace: '1'\n",
	    "f:5:14: namespace: the URI has it too: say it once\n");
	bad("  uri: nvme+tcp://h/" NQN "?hostnqn=" HOST_NQN "\n  host_nqn: " HOST_NQN "\n",
	    "f:5:13: host_nqn: the URI has it too: say it once\n");
	bad("  uri: nvme+tcp://h/" NQN "?hostid=" UUID "\n  host_id: " UUID "\n",
	    "f:5:12: host_id: the URI has it too: say it once\n");
}

static void test_wrong(void **state)
{
	(void)state;
	bad("  host: h\n  subsystem: \"a\\tb\"\n",
	    "f:5:14: subsystem: an NQN has no control characters\n");
	bad(FIELDS "  host_nqn: \"nqn.2024-01.com.example:a\\e\"\n",
	    "f:6:13: host_nqn: an NQN has no control characters\n");
	bad(FIELDS "  host_id: 5a8a5d0e-1f5b-4c7a-9f5e+0123456789ab\n",
	    "f:6:12: host_id: not a UUID\n");
	bad(FIELDS "  namespace: '0'\n",
	    "f:6:14: namespace: expected a number, uuid.UUID, nguid.32 hex digits or eui.16 hex "
	    "digits\n");
	bad(FIELDS "  namespace: nguid.12\n",
	    "f:6:14: namespace: expected a number, uuid.UUID, nguid.32 hex digits or eui.16 hex "
	    "digits\n");
	bad("  uri: nvme+tcp://h/%01\n",
	    "f:4:8: uri: at its character 14: subsystem NQN: an NQN has no control "
	    "characters\n");
	bad("  uri: nvme+rdma://h/" NQN "\n",
	    "f:4:8: uri: at its character 1: unknown scheme; known is nvme+tcp\n");
	bad(FIELDS "  port: 70000\n  subsytem: x\n",
	    "f:6:9: port: 70000 is above the maximum 65535\n"
	    "f:7:3: unknown key \"subsytem\" (did you mean \"subsystem\"?)\n");
}

/* A reload that changes a path and nothing else is another backend. */
static void test_equal(void **state)
{
	struct settings a, b;

	(void)state;
	options_parse(&a, "nvme-tcp", FIELDS "  paths: a\n", "");
	options_parse(&b, "nvme-tcp", FIELDS "  paths: b\n", "");
	assert_true(backend_spec_equal(a.devices[0]->backend, a.devices[0]->backend));
	assert_false(backend_spec_equal(a.devices[0]->backend, b.devices[0]->backend));
	settings_free(&a);
	settings_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),	   cmocka_unit_test(test_uri),
		cmocka_unit_test(test_paths),	   cmocka_unit_test(test_missing),
		cmocka_unit_test(test_said_twice), cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_equal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
