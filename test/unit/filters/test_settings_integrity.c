/* settings: devices that keep metadata, with the real node. */
#include "daemon/settings/settings.h"
#include "test/unit/daemon/settings_check.h"

#define MEM "{type: mem, size: 1GiB}"
#define OVER_MEM(options) "{type: integrity, data: " MEM ", metadata: " MEM options "}"

static void test_good(void **state)
{
	struct settings s;

	(void)state;
	settings_check_parse(&s, "name: a\nbackend: " OVER_MEM(""), "");
	assert_string_equal(s.devices[0]->stack, "integrity > (2 mem)");
	settings_free(&s);
	settings_check(
		"name: a\nbackend: " OVER_MEM(", checksum: nvme, metadata_size: 64, pi_offset: 48"),
		"");
	settings_check("name: a\nbackend: " OVER_MEM(", checksum: none, metadata_size: 1"), "");
	settings_check(
		"name: a\nbackend: " OVER_MEM(", checksum: none, metadata_size: 1, reftag: no"),
		"");
	settings_check("name: a\ndata_path: user_copy\nbatch: on\nbackend: " OVER_MEM(""), "");
}

static void test_bad(void **state)
{
	(void)state;
	settings_check("name: a\nbackend: " OVER_MEM(", checksum: none"),
		       "f:2:104: metadata_size: is missing: checksum: none says nothing of it\n");
	settings_check("name: a\nbackend: " OVER_MEM(", metadata_size: 15, pi_offset: 8"),
		       "f:2:124: pi_offset: 8 and the 8 bytes of checksum: crc are more than "
		       "metadata_size: 15\n");
	settings_check("name: a\nbackend: " OVER_MEM(", metadata_size: 256"),
		       "f:2:109: metadata_size: 256 is above the maximum 255\n");
	settings_check("name: a\nbackend: " OVER_MEM(", interval: 256"),
		       "f:2:104: interval: is not a power of two from 512 on\n");
	settings_check("name: a\nbackend: " OVER_MEM(", interval: 1536"),
		       "f:2:104: interval: is not a power of two from 512 on\n");
	settings_check(
		"name: a\nbackend: " OVER_MEM(", checksum: none, metadata_size: 8, reftag: yes"),
		"f:2:136: reftag: stands beside a checksum, and there is none: set checksum, or "
		"leave reftag out\n");
}

static void test_place(void **state)
{
	(void)state;
	settings_check(
		"name: a\nbackend: {type: throttle, backend: " OVER_MEM("") "}",
		"f:2:36: backend: integrity stands at the top of its device: put what is over it "
		"below it\n");
	settings_check("name: a\nbackend: {type: integrity, data: " MEM
		       ", metadata: {type: pattern, size: 1M}}",
		       "f:2:69: metadata: pattern keeps nothing that is smaller than a block: use "
		       "file, or "
		       "mem\n");
	settings_check(
		"name: a\nbackend: {type: integrity, data: " MEM
		", metadata: {type: delay, backend: " MEM "}}",
		"f:2:69: metadata: delay keeps nothing that is smaller than a block: use file, or "
		"mem\n");
	settings_check("name: a\nbackend: {type: integrity, data: " MEM "}",
		       "f:2:10: \"metadata\" is missing: integrity stands over other backends\n");
	settings_check(
		"name: a\nbackend: " OVER_MEM("") "\ndata_path: copy",
		"f:3:12: data_path: copy is impossible with integrity: the driver wants user_copy "
		"or "
		"zero_copy for metadata; set data_path: auto\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
