/* How a controller is brought up: what it is asked, in which order, what is known then, what is
 * refused. */
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

static void run_done(const char *log)
{
	run();
	if (f.step != NVME_FABRICS_DONE)
		fail_msg("%s", f.error);
	if (log)
		assert_string_equal(c.log, log);
}

static void run_failed(int err, const char *words)
{
	run();
	assert_int_equal(f.step, NVME_FABRICS_FAILED);
	assert_string_equal(f.error, words);
	assert_int_equal(f.err, err);
}

#define PROPERTIES "get 0x0\nget 0x8\nget 0x14\nset CC 0x460001\nget 0x1c\nidentify 1 of 0\n"
#define CONNECT_LOG "connect 0 cntlid 0xffff entries 32 kato 5000\n" PROPERTIES
#define QUEUES_LOG CONNECT_LOG "identify 6 of 0\nfeature 7 0x10001\n"

static void test_by_nsid(void **state)
{
	(void)state;
	start(NVME_WANT_NSID);
	run_done(QUEUES_LOG "identify 3 of 1\nidentify 0 of 1\nfeature 11 0x100\n");
	assert_int_equal(f.controller.cntlid, 7);
	assert_true(f.controller.no_sq_flow);
	assert_int_equal(f.controller.vs, 0x20100);
	assert_int_equal(f.controller.queues_nr, 2);
	assert_int_equal(f.controller.entries_nr, 128);
	assert_int_equal(f.controller.commands_nr, 127);
	assert_int_equal(f.controller.capsule_data_bytes, 16384);
	assert_int_equal(f.controller.max_transfer_bytes, UINT32_MAX);
	assert_true(f.controller.has_write_cache && f.controller.has_deallocate &&
		    f.controller.has_write_zeroes);
	assert_false(f.controller.has_ana);
	assert_int_equal(f.controller.events, NVME_AEN_NAMESPACE);
	assert_string_equal(f.controller.id.model, "Linux");
	assert_string_equal(f.controller.id.serial, "serial");
	assert_string_equal(f.controller.id.firmware, "7.2");
	assert_int_equal(f.namespace.nsid, 1);
	assert_int_equal(f.namespace.size_bytes, 1 << 20);
	assert_int_equal(f.namespace.block_bytes, 512);
	assert_int_equal(f.namespace.atomic_write_bytes, 512);
	assert_true(f.namespace.ids.has_uuid && f.namespace.ids.uuid[15] == 1);
}

static void test_by_names(void **state)
{
	(void)state;
	start(NVME_WANT_ONLY);
	run_done(QUEUES_LOG
		 "identify 2 of 0\nidentify 3 of 1\nidentify 0 of 1\nfeature 11 0x100\n");
	start(NVME_WANT_UUID);
	fake_add(&c, 3, 16);
	fake_add(&c, 9, 32);
	memset(config.want.id, 9, 16);
	run_done(QUEUES_LOG "identify 2 of 0\nidentify 3 of 1\nidentify 3 of 3\nidentify 3 of 9\n"
			    "identify 0 of 9\nfeature 11 0x100\n");
	assert_int_equal(f.namespace.nsid, 9);
	assert_int_equal(f.namespace.size_bytes, 16384);
	start(NVME_WANT_NGUID);
	fake_add(&c, 3, 16);
	memset(config.want.id, 0xa3, 16);
	run_done(NULL);
	assert_int_equal(f.namespace.nsid, 3);
	start(NVME_WANT_EUI64);
	memcpy(c.namespaces[0].identify + 120, "\1\1\1\1\1\1\1\1", 8);
	run_done(NULL);
	/* before 1.3: no descriptors, but the identifiers of Identify Namespace */
	start(NVME_WANT_NGUID);
	c.vs = NVME_VS(1, 2);
	memset(config.want.id, 0xa1, 16);
	run_done(CONNECT_LOG
		 "feature 7 0x10001\nidentify 2 of 0\nidentify 0 of 1\nfeature 11 0x100\n");
	/* descriptors can be done without */
	start(NVME_WANT_NSID);
	c.fail_at = 10;
	c.fail_status = 0x4002;
	run_done(NULL);
	assert_false(f.namespace.ids.has_uuid);
}

static void test_namespace_limits(void **state)
{
	uint8_t *ns;

	(void)state;
	start(NVME_WANT_NSID);
	ns = c.namespaces[0].identify;
	ns[24] = NVME_NSFEAT_ATOMICS | NVME_NSFEAT_OPTPERF;
	ns[25] = 17;   /* NLBAF */
	ns[26] = 0x21; /* FLBAS: format 17 */
	nvme_put32(ns + 128 + 4 * 17, 12u << 16);
	ns[30] = NVME_NMIC_SHARED;
	ns[33] = 9;
	nvme_put16(ns + 36, 7);	 /* NAWUPF */
	nvme_put16(ns + 46, 32); /* NOIOB */
	nvme_put16(ns + 64, 3);	 /* NPWG ... */
	nvme_put16(ns + 66, 1);
	nvme_put16(ns + 68, 15);
	nvme_put16(ns + 70, 65535);
	nvme_put16(ns + 72, 63); /* NOWS */
	ns[99] = 1;
	run_done(NULL);
	assert_int_equal(f.namespace.block_bytes, 4096);
	assert_int_equal(f.namespace.size_bytes, 2048 * 4096);
	assert_int_equal(f.namespace.atomic_write_bytes, 8 * 4096);
	assert_int_equal(f.namespace.boundary_bytes, 32 * 4096);
	assert_int_equal(f.namespace.write_granularity_bytes, 4 * 4096);
	assert_int_equal(f.namespace.write_align_bytes, 2 * 4096);
	assert_int_equal(f.namespace.optimal_write_bytes, 64 * 4096);
	assert_int_equal(f.namespace.discard_granularity_bytes, 16 * 4096);
	assert_int_equal(f.namespace.discard_align_bytes, 65536 * 4096);
	assert_true(f.namespace.shared && f.namespace.read_only);
	assert_true(f.namespace.zeroes_deallocate && f.namespace.deallocated_are_zeroes);
	/* nothing is said of the namespace: AWUPF of the controller */
	start(NVME_WANT_NSID);
	nvme_put16(c.identify + 528, 3);
	nvme_put16(c.namespaces[0].identify + 36, 7);
	nvme_put16(c.namespaces[0].identify + 64, 3);
	nvme_put16(c.namespaces[0].identify + 72, 63);
	run_done(NULL);
	assert_int_equal(f.namespace.atomic_write_bytes, 4 * 512);
	assert_int_equal(f.namespace.write_granularity_bytes, 0);
	assert_int_equal(f.namespace.optimal_write_bytes, 0);
	/* 0 in NOWS is what targets without an optimal size send (nvmet_bdev_set_limits) */
	start(NVME_WANT_NSID);
	c.namespaces[0].identify[24] = NVME_NSFEAT_OPTPERF;
	nvme_put16(c.namespaces[0].identify + 64, 7);
	run_done(NULL);
	assert_int_equal(f.namespace.write_granularity_bytes, 8 * 512);
	assert_int_equal(f.namespace.optimal_write_bytes, 0);
}

static void test_controller_limits(void **state)
{
	static const struct {
		uint8_t mdts;
		uint64_t mpsmin;
		uint32_t bytes;
	} cases[] = { { 0, 0, UINT32_MAX },   { 1, 0, 8192 },	   { 5, 0, 131072 },
		      { 5, 4, 2097152 },      { 19, 0, 1u << 31 }, { 20, 0, UINT32_MAX },
		      { 255, 15, UINT32_MAX } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		start(NVME_WANT_NSID);
		c.identify[77] = cases[i].mdts;
		c.cap |= cases[i].mpsmin << 48;
		run_done(NULL);
		assert_int_equal(f.controller.max_transfer_bytes, cases[i].bytes);
		assert_int_equal(c.cc >> 7 & 15, cases[i].mpsmin);
	}
	start(NVME_WANT_NSID);
	nvme_put16(c.identify + 514, 16); /* MAXCMD */
	c.queues_result = 0;
	nvme_put32(c.identify + 1792, 4);
	nvme_put16(c.identify + 520, 0);
	c.identify[525] = 0;
	c.sq_head = 1;
	run_done(NULL);
	assert_int_equal(f.controller.entries_nr, 16);
	assert_int_equal(f.controller.commands_nr, 15);
	assert_int_equal(f.controller.queues_nr, 1);
	assert_int_equal(f.controller.capsule_data_bytes, 0);
	assert_false(f.controller.has_deallocate || f.controller.has_write_zeroes ||
		     f.controller.has_write_cache || f.controller.no_sq_flow);
	start(NVME_WANT_NSID);
	c.cap = (c.cap & ~0xffffull) | 1; /* MQES: two entries */
	nvme_put16(c.identify + 514, 1);
	nvme_put32(c.identify + 1792, UINT32_MAX);
	run_done(NULL);
	assert_int_equal(f.controller.entries_nr, 2);
	assert_int_equal(f.controller.commands_nr, 1);
	assert_int_equal(f.controller.capsule_data_bytes, (65536 - 4) * 16);
}

/* Of WRITE_ZEROES and DSM, where they are told. */
static void test_command_limits(void **state)
{
	(void)state;
	start(NVME_WANT_NSID);
	c.identify[77] = 5;
	run_done(NULL);
	assert_int_equal(f.controller.max_zeroes_bytes, 131072);
	assert_int_equal(f.controller.max_ranges_nr, 256);
	assert_int_equal(f.controller.max_range_blocks, UINT32_MAX);
	assert_true(f.controller.max_discard_blocks == UINT64_MAX);
	c.limits[1] = 2;
	c.limits[3] = 7;
	nvme_put32(c.limits + 4, 0x11223344);
	nvme_put64(c.limits + 8, 0x1122334455667788);
	c.cc = 0;
	run_done(NULL);
	assert_int_equal(f.controller.max_zeroes_bytes, 16384);
	assert_int_equal(f.controller.max_ranges_nr, 7);
	assert_int_equal(f.controller.max_range_blocks, 0x11223344);
	assert_true(f.controller.max_discard_blocks == 0x1122334455667788);
	/* refused */
	c.cc = c.commands_nr = 0;
	c.fail_at = 8;
	c.fail_status = 0x4002;
	run_done(NULL);
	assert_int_equal(f.controller.max_zeroes_bytes, 131072);
	assert_int_equal(f.controller.max_ranges_nr, 256);
}

static void test_ready(void **state)
{
	(void)state;
	/* enabled by somebody before: it is disabled first */
	start(NVME_WANT_NSID);
	c.cc = 0x464001;
	c.slow_nr = 3;
	run_done("connect 0 cntlid 0xffff entries 32 kato 5000\nget 0x0\nget 0x8\nget 0x14\n"
		 "set CC 0x460000\nget 0x1c\nget 0x1c\nget 0x1c\nget 0x1c\nset CC 0x460001\n"
		 "get 0x1c\nidentify 1 of 0\nidentify 6 of 0\nfeature 7 0x10001\nidentify 3 of 1\n"
		 "identify 0 of 1\nfeature 11 0x100\n");
	assert_int_equal(c.pauses_nr, 3);
	/* CAP.TO: 15, and one */
	start(NVME_WANT_NSID);
	c.slow_nr = 161;
	run_failed(-ETIMEDOUT,
		   "the controller did not become ready within 8000 ms, as long as it says that it "
		   "takes (CAP.TO)");
	assert_int_equal(c.pauses_nr, 160);
	assert_true(f.may_retry);
	start(NVME_WANT_NSID);
	c.slow_nr = 160;
	run_done(NULL);
	start(NVME_WANT_NSID);
	c.cap &= ~(255ull << 24);
	c.slow_nr = 10;
	run_done(NULL);
	start(NVME_WANT_NSID);
	c.fatal = true;
	run_failed(-EIO, "the controller reports a fatal error of its own (CSTS.CFS): look into "
			 "the log of the target");
	/* only the other command sets */
	start(NVME_WANT_NSID);
	c.cap = (c.cap & ~(0xffull << 37)) | 1ull << 43;
	run_done(NULL);
	assert_int_equal(c.cc, 0x460061);
}

static void test_ana(void **state)
{
	(void)state;
	start(NVME_WANT_NSID);
	c.identify[76] = NVME_CMIC_ANA;
	nvme_put32(c.identify + 92, NVME_AEN_NAMESPACE | NVME_AEN_ANA | NVME_AEN_DISCOVERY);
	nvme_put32(c.identify + 348, 3); /* NANAGRPID */
	nvme_put16(c.ana + 8, 3);
	for (unsigned i = 0; i < 3; i++) {
		nvme_put32(c.ana + 16 + 32 * i, 3 - i);
		c.ana[16 + 32 * i + 16] = (uint8_t)(i + 1);
	}
	run_done(QUEUES_LOG "identify 3 of 1\nidentify 0 of 1\nlog 0xc of 112\n"
			    "feature 11 0x900\n");
	assert_int_equal(f.namespace.ana_state, NVME_ANA_INACCESSIBLE);
	assert_true(f.controller.has_ana);
	nvme_put32(c.ana + 16 + 64, 7);
	c.log_bytes = c.commands_nr = 0;
	c.cc = 0;
	run_failed(-EPROTO,
		   "the controller's ANA log says nothing of group 1, that of namespace 1");
	nvme_put16(c.ana + 8, 65535);
	c.cc = 0;
	run_failed(-EOPNOTSUPP, "the controller has 65535 ANA groups, above the limit of 256");
}

static void test_discovery(void **state)
{
	(void)state;
	start(NVME_WANT_ONLY);
	config.mode = NVME_FABRICS_DISCOVERY;
	config.subsystem_nqn = NVME_DISCOVERY_NQN;
	config.kato_ms = 0;
	c.identify[111] = NVME_CNTRLTYPE_DISCOVERY;
	nvme_put32(c.identify + 92, NVME_AEN_DISCOVERY | NVME_AEN_NAMESPACE);
	nvme_put32(c.identify + 1792, 0);
	c.cap &= ~(255ull << 37);
	c.sq_head = 0;
	run_done("connect 0 cntlid 0xffff entries 32 kato 0\n" PROPERTIES
		 "feature 11 0x80000000\n");
	c.cc = c.commands_nr = 0;
	c.fail_at = 8;
	c.fail_status = 0x4002;
	run_done(NULL);
	assert_int_equal(f.controller.events, 0);
}

static void test_io(void **state)
{
	(void)state;
	start(NVME_WANT_ONLY);
	config.mode = NVME_FABRICS_IO;
	config.cntlid = 7;
	config.qid = 2;
	run_done("connect 2 cntlid 0x7 entries 128 kato 0\n");
	assert_true(f.controller.no_sq_flow);
	config.sq_flow = true;
	run_done(NULL);
	assert_false(f.controller.no_sq_flow);
}

static void test_connect_refused(void **state)
{
	static const struct {
		uint16_t status;
		uint32_t result;
		int err;
		bool may_retry;
		const char *words;
	} cases[] = {
		{ 0x4182, 1 << 16 | 256, -ENOENT, false,
		  "the target has no subsystem " SUBSYSTEM
		  " at this address: look for its NQN with ublkctl nvme-discover" },
		{ 0x4182, 1 << 16 | 512, -EACCES, false,
		  "the target does not take the host NQN " HOST ": allow it at the target" },
		{ 0x182, 1 << 16 | 16, -ENOENT, false,
		  "the target has no controller 0 any more: connect again" },
		{ 0x182, 1 << 16, -EINVAL, false, "the target does not take the host identifier" },
		{ 0x182, 42, -EINVAL, false,
		  "the target does not take queue 0: ask for fewer queues" },
		{ 0x182, 44, -EINVAL, false,
		  "the target does not take queues of 128 entries: ask for smaller ones" },
		{ 0x182, 48, -EINVAL, false,
		  "the target does not take a keep alive timeout of 5000 ms: choose another" },
		{ 0x182, 43, -EINVAL, false,
		  "the target does not take byte 43 of Connect's command" },
		{ 0x182, 1 << 16 | 99, -EINVAL, false,
		  "the target does not take byte 99 of Connect's data" },
		{ 0x4184, 0, -EACCES, false,
		  "the subsystem " SUBSYSTEM " does not allow the host " HOST
		  ": add this NQN to its allowed hosts at the target" },
		{ 0x181, 0, -EBUSY, true, "the controller is busy with another connection" },
		{ 0x4181, 0, -EBUSY, false, "the controller is busy with another connection" },
		{ 0x191, 0, -EACCES, false,
		  "the target wants authentication: set dhchap_key_file, or remove the host's key "
		  "(dhchap_key) at the target" },
		{ 0x183, 0, -EAGAIN, false,
		  "the subsystem is elsewhere now: look for it with ublkctl nvme-discover" },
		{ 0x6, 0, -EIO, true,
		  "the target answers to Connect: Internal Error (type 0, code 0x06)" },
		{ 0, 1 << 17, -EACCES, false,
		  "the target wants DH-HMAC-CHAP authentication: set dhchap_key_file, or remove "
		  "the host's key (dhchap_key) at the target" },
		{ 0, 1 << 18, -EACCES, false,
		  "the target wants DH-HMAC-CHAP authentication: set dhchap_key_file, or remove "
		  "the host's key (dhchap_key) at the target" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		start(NVME_WANT_NSID);
		c.fail_at = 1;
		c.fail_status = cases[i].status;
		c.fail_result = cases[i].result;
		run_failed(cases[i].err, cases[i].words);
		assert_int_equal(f.may_retry, cases[i].may_retry);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_nsid),
		cmocka_unit_test(test_by_names),
		cmocka_unit_test(test_namespace_limits),
		cmocka_unit_test(test_controller_limits),
		cmocka_unit_test(test_command_limits),
		cmocka_unit_test(test_ready),
		cmocka_unit_test(test_ana),
		cmocka_unit_test(test_discovery),
		cmocka_unit_test(test_io),
		cmocka_unit_test(test_connect_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
