/* What a controller cannot be, or may not say while it is brought up: each is told in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "test/rig/nvme_fake_controller.h"

#define SUBSYSTEM "nqn.2024-01.com.example:disk"
#define HOST "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"

static struct fake_controller c;
static struct nvme_fabrics f;
static struct nvme_fabrics_config config;

/* A good controller, to be bent. */
static void start(enum nvme_want_by by)
{
	fake_init(&c);
	fake_add(&c, 1, 2048);
	config = (struct nvme_fabrics_config){
		.subsystem_nqn = SUBSYSTEM,
		.host_nqn = HOST,
		.kato_ms = 5000,
		.queues_nr = 2,
		.entries_nr = 128,
		.want = { .by = by, .nsid = 1 },
	};
	memset(config.want.id, 1, sizeof(config.want.id));
}

static void run(void)
{
	nvme_fabrics_init(&f, &config);
	fake_run(&c, &f);
}

static void run_failed(int err, const char *words)
{
	run();
	assert_int_equal(f.step, NVME_FABRICS_FAILED);
	assert_string_equal(f.error, words);
	assert_int_equal(f.err, err);
}

static uint8_t *bend_controller(void)
{
	start(NVME_WANT_NSID);
	return c.identify;
}

static uint8_t *bend_namespace(void)
{
	start(NVME_WANT_NSID);
	return c.namespaces[0].identify;
}

static void test_controllers(void **state)
{
	(void)state;
	bend_controller()[78] = 8;
	run_failed(-EPROTO, "Connect gave controller 7, Identify Controller is of 8");
	bend_controller()[1800] = 1;
	run_failed(-EOPNOTSUPP,
		   "the controller wants in-capsule data at an offset (ICDOFF 1), which "
		   "NVMe/TCP does not have");
	bend_controller()[536] = 0;
	run_failed(-EPROTO, "the controller does no SGLs (SGLS 0x100000), which fabrics need");
	bend_controller()[111] = NVME_CNTRLTYPE_DISCOVERY;
	run_failed(-EINVAL,
		   SUBSYSTEM " is a discovery controller: it tells of subsystems and has no "
			     "namespaces; choose one with ublkctl nvme-discover");
	bend_controller()[111] = NVME_CNTRLTYPE_ADMIN;
	run_failed(-EINVAL, "the controller is an administrative one and has no namespaces");
	bend_controller()[320] = 0;
	run_failed(-EOPNOTSUPP, "the controller does no keep alive (KAS 0): switch it off");
	nvme_put32(bend_controller() + 1792, 3);
	run_failed(-EPROTO,
		   "the controller's capsules are too small for a command and a completion "
		   "(IOCCSZ 3, IORCSZ 1)");
	nvme_put32(bend_controller() + 1796, 0);
	run_failed(-EPROTO,
		   "the controller's capsules are too small for a command and a completion "
		   "(IOCCSZ 1028, IORCSZ 0)");
	start(NVME_WANT_NSID);
	c.cap &= ~(255ull << 37);
	run_failed(-EOPNOTSUPP,
		   "the controller does not do the NVM command set (CAP.CSS 0x00): it is "
		   "of another kind than a disk");
	start(NVME_WANT_NSID);
	c.cap &= ~0xffffull;
	run_failed(-EPROTO,
		   "the controller's queues have one entry (CAP.MQES 0): two are the least");
}

static void test_namespaces(void **state)
{
	(void)state;
	nvme_put64(bend_namespace(), 0);
	run_failed(-ENOENT,
		   "namespace 1 does not exist, is not enabled, or is not attached to this "
		   "controller: look with nvme list-ns at the target");
	start(NVME_WANT_NSID);
	config.want.nsid = 5;
	run_failed(-ENOENT,
		   "namespace 5 does not exist, is not enabled, or is not attached to this "
		   "controller: look with nvme list-ns at the target");
	bend_namespace()[26] = 1;
	run_failed(-EPROTO, "namespace 1 has format 1 of 1");
	bend_namespace()[26] = 0x60;
	run_failed(-EPROTO, "namespace 1 has format 48 of 1");
	bend_namespace()[128] = 8;
	run_failed(-EOPNOTSUPP, "namespace 1 has 8 bytes of metadata with each block, which is not "
				"supported: format it without metadata and protection");
	bend_namespace()[29] = 1;
	run_failed(
		-EOPNOTSUPP,
		"namespace 1 has 0 bytes of metadata with each block, and protection information, "
		"which is not supported: format it without metadata and protection");
	bend_namespace()[130] = 13;
	run_failed(-EOPNOTSUPP,
		   "namespace 1 has blocks of 2^13 bytes: format it with blocks of 512 or 4096");
	bend_namespace()[130] = 255;
	run_failed(-EOPNOTSUPP,
		   "namespace 1 has blocks of 2^255 bytes: format it with blocks of 512 or 4096");
	nvme_put64(bend_namespace(), 1ull << 54);
	run_failed(-EOPNOTSUPP, "namespace 1 is larger than any block device: 18014398509481984 "
				"blocks of 512");
	nvme_put64(bend_namespace(), UINT64_MAX);
	run_failed(-EOPNOTSUPP, "namespace 1 is larger than any block device: 18446744073709551615 "
				"blocks of 512");
}

static void test_kinds(void **state)
{
	static const struct {
		uint8_t csi;
		const char *words;
	} cases[] = {
		{ NVME_CSI_ZNS, "namespace 1 is zoned (command set 2), not an ordinary disk" },
		{ NVME_CSI_KV,
		  "namespace 1 is a key value store (command set 1), not an ordinary disk" },
		{ 9, "namespace 1 is of an unknown kind (command set 9), not an ordinary disk" }
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		for (unsigned by = NVME_WANT_ONLY; by <= NVME_WANT_NGUID; by++) {
			start((enum nvme_want_by)by);
			if (by == NVME_WANT_NGUID)
				memset(config.want.id, 0xa1, 16);
			fake_add_id(&c.namespaces[0], NVME_NIDT_CSI, &cases[i].csi, 1);
			run_failed(-EOPNOTSUPP, cases[i].words);
		}
}

static void test_searches(void **state)
{
	(void)state;
	start(NVME_WANT_ONLY);
	fake_add(&c, 2, 16);
	fake_add(&c, 4294967294u, 16);
	run_failed(-EINVAL,
		   "the subsystem has several namespaces (1, 2, 4294967294): say which one, "
		   "by nsid, uuid or nguid");
	start(NVME_WANT_ONLY);
	c.namespaces_nr = 0;
	run_failed(-ENOENT,
		   "the subsystem has no namespace for this host: enable one at the target");
	start(NVME_WANT_UUID);
	fake_add(&c, 2, 16);
	memset(config.want.id, 0x33, 16);
	run_failed(
		-ENOENT,
		"none of the 2 namespaces of the subsystem is the one with uuid "
		"33333333-3333-3333-3333-333333333333: look with nvme list-ns and nvme ns-descs at "
		"the target");
	start(NVME_WANT_UUID);
	c.vs = NVME_VS(1, 2);
	run_failed(
		-ENOENT,
		"none of the 1 namespaces of the subsystem is the one with uuid "
		"01010101-0101-0101-0101-010101010101: look with nvme list-ns and nvme ns-descs at "
		"the target (a controller before version 1.3 has no uuid)");
	start(NVME_WANT_NGUID);
	run_failed(
		-ENOENT,
		"none of the 1 namespaces of the subsystem is the one with nguid "
		"01010101010101010101010101010101: look with nvme list-ns and nvme ns-descs at the "
		"target");
	/* zeroes are no identifier */
	start(NVME_WANT_EUI64);
	memset(config.want.id, 0, 16);
	run_failed(-ENOENT,
		   "none of the 1 namespaces of the subsystem is the one with eui64 "
		   "0000000000000000: look with nvme list-ns and nvme ns-descs at the target");
	/* it went meanwhile */
	start(NVME_WANT_UUID);
	c.fail_at = 11;
	c.fail_status = NVME_SC_INVALID_NAMESPACE;
	run();
	assert_int_equal(f.err, -ENOENT);
	start(NVME_WANT_NSID);
	c.namespaces[0].ids[1] = 15;
	run_failed(-EPROTO, "the identification descriptors of namespace 1 are malformed");
	/* a list that does not ascend, or has no end */
	start(NVME_WANT_UUID);
	fake_add(&c, 1, 16);
	run_failed(-EPROTO, "the controller's list of namespaces does not ascend");
}

/* A whole list of 1024 again and again, each namespace a stranger. */
static void test_search_without_end(void **state)
{
	struct nvme_cqe cqe = { 0 };
	uint32_t nsid = 0;

	(void)state;
	start(NVME_WANT_UUID);
	memset(config.want.id, 0x33, 16);
	nvme_fabrics_init(&f, &config);
	while (f.step == NVME_FABRICS_COMMAND) {
		if (f.sqe[0] != 6 || f.sqe[40] != 2) {
			if (f.sqe[0] == 6 && f.sqe[40] == 3)
				nvme_fabrics_completed(&f, &cqe, 4096);
			else
				fake_answer(&c, &f);
			continue;
		}
		assert_int_equal(nvme_get32(f.sqe + 4), nsid);
		for (unsigned i = 0; i < 1024; i++)
			nvme_put32(f.data + 4 * i, ++nsid);
		nvme_fabrics_completed(&f, &cqe, 4096);
	}
	assert_string_equal(f.error,
			    "the subsystem has more than 4096 namespaces: say which one by "
			    "nsid");
}

/* Each command of the bring-up in turn: refused, short, never answered. */
static void test_each_command(void **state)
{
	static const char *const names[] = {
		"Connect",
		"Property Get CAP",
		"Property Get VS",
		"Property Get CC",
		"Property Set CC (enable)",
		"Property Get CSTS",
		"Identify Controller",
		"Identify (limits of commands)",
		"Set Features (number of queues)",
		"Identify (active namespaces)",
		"Identify (namespace identification)",
		"Identify Namespace",
	};
	char words[200];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		start(NVME_WANT_ONLY);
		c.fail_at = i + 1;
		c.fail_status = 0x4006;
		run();
		snprintf(words, sizeof(words),
			 i ? "the controller answers to %s: Internal Error (type 0, code 0x06, do "
			     "not "
			     "retry)"
			   : "the target answers to %s: Internal Error (type 0, code 0x06, do not "
			     "retry)",
			 names[i]);
		/* limits and descriptors can be done without */
		if (i == 7 || i == 10) {
			assert_int_equal(f.step, NVME_FABRICS_DONE);
		} else {
			assert_string_equal(f.error, words);
			assert_false(f.may_retry);
		}
		if (i == 6 || i == 7 || i >= 9) {
			start(NVME_WANT_ONLY);
			c.short_at = i + 1;
			snprintf(words, sizeof(words),
				 "the controller answers to %s with 4095 bytes of 4096", names[i]);
			run_failed(-EPROTO, words);
		}
		start(NVME_WANT_ONLY);
		nvme_fabrics_init(&f, &config);
		while (c.commands_nr < i)
			fake_answer(&c, &f);
		nvme_fabrics_gone(&f, -ETIMEDOUT);
		snprintf(words, sizeof(words), "the target does not answer to %s in time",
			 names[i]);
		assert_string_equal(f.error, words);
		assert_int_equal(f.err, -ETIMEDOUT);
		assert_true(f.may_retry);
	}
	start(NVME_WANT_NSID);
	nvme_fabrics_init(&f, &config);
	nvme_fabrics_gone(&f, -ECONNRESET);
	assert_string_equal(f.error, "the target closed the connection instead of an answer to "
				     "Connect: it wants TLS, or its log says why");
	start(NVME_WANT_NSID);
	nvme_fabrics_init(&f, &config);
	fake_answer(&c, &f);
	nvme_fabrics_gone(&f, -ECONNRESET);
	assert_string_equal(f.error,
			    "the connection ended while the target was asked for Property Get CAP");
	nvme_fabrics_gone(&f, -ETIMEDOUT);
	assert_int_equal(f.err, -ECONNRESET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_controllers),
		cmocka_unit_test(test_namespaces),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_searches),
		cmocka_unit_test(test_search_without_end),
		cmocka_unit_test(test_each_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
