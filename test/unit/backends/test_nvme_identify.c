/* Identify data and log pages: every field at its place, nothing read outside its page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "backends/nvme/protocol/nvme_identify.h"
#include "base/util.h"

static uint8_t page[NVME_IDENTIFY_BYTES];

/* Byte i of the page is i, mixed with its upper half: so each field has its own value. */
static void fill(void)
{
	for (unsigned i = 0; i < sizeof(page); i++)
		page[i] = (uint8_t)(i ^ (i >> 8) * 0x35);
}

static unsigned b8(unsigned i)
{
	return (uint8_t)(i ^ (i >> 8) * 0x35);
}

static unsigned b16(unsigned i)
{
	return b8(i) | b8(i + 1) << 8;
}

static uint32_t b32(unsigned i)
{
	return b16(i) | (uint32_t)b16(i + 2) << 16;
}

static uint64_t b64(unsigned i)
{
	return b32(i) | (uint64_t)b32(i + 4) << 32;
}

/* Offsets: Base 5.17.2.1. */
static void test_controller(void **state)
{
	struct nvme_id_controller id;

	(void)state;
	fill();
	memcpy(page + 4, "S\x01N                 ", 20);
	memset(page + 24, 'm', 40);
	memset(page + 64, ' ', 8);
	memset(page + 768, 'n', 256);
	nvme_identify_controller(page, &id);
	assert_string_equal(id.serial, "S\\x01N");
	assert_int_equal(strlen(id.model), 40);
	assert_string_equal(id.firmware, "");
	assert_int_equal(strlen(id.subnqn), 255);
	assert_int_equal(id.cmic, b8(76));
	assert_int_equal(id.mdts, b8(77));
	assert_int_equal(id.cntlid, b16(78));
	assert_int_equal(id.ver, b32(80));
	assert_int_equal(id.oaes, b32(92));
	assert_int_equal(id.ctratt, b32(96));
	assert_int_equal(id.cntrltype, b8(111));
	assert_int_equal(id.crdt[0], b16(128));
	assert_int_equal(id.crdt[2], b16(132));
	assert_int_equal(id.aerl, b8(259));
	assert_int_equal(id.lpa, b8(261));
	assert_int_equal(id.kas, b16(320));
	assert_int_equal(id.anatt, b8(342));
	assert_int_equal(id.anacap, b8(343));
	assert_int_equal(id.anagrpmax, b32(344));
	assert_int_equal(id.nanagrpid, b32(348));
	assert_int_equal(id.maxcmd, b16(514));
	assert_int_equal(id.nn, b32(516));
	assert_int_equal(id.oncs, b16(520));
	assert_int_equal(id.fna, b8(524));
	assert_int_equal(id.vwc, b8(525));
	assert_int_equal(id.awun, b16(526));
	assert_int_equal(id.awupf, b16(528));
	assert_int_equal(id.sgls, b32(536));
	assert_int_equal(id.ioccsz, b32(1792));
	assert_int_equal(id.iorcsz, b32(1796));
	assert_int_equal(id.icdoff, b16(1800));
}

/* Offsets: NVM 4.1.5.1. */
static void test_namespace(void **state)
{
	struct nvme_id_namespace id;

	(void)state;
	fill();
	page[25] = 63;
	page[26] = 0x43; /* format 35 */
	nvme_identify_namespace(page, &id);
	assert_true(id.nsze == b64(0) && id.ncap == b64(8));
	assert_int_equal(id.nsfeat, b8(24));
	assert_int_equal(id.dps, b8(29));
	assert_int_equal(id.nmic, b8(30));
	assert_int_equal(id.dlfeat, b8(33));
	assert_int_equal(id.nawupf, b16(36));
	assert_int_equal(id.noiob, b16(46));
	assert_int_equal(id.npwg, b16(64));
	assert_int_equal(id.npwa, b16(66));
	assert_int_equal(id.npdg, b16(68));
	assert_int_equal(id.npda, b16(70));
	assert_int_equal(id.nows, b16(72));
	assert_int_equal(id.anagrpid, b32(92));
	assert_int_equal(id.nsattr, b8(99));
	assert_memory_equal(id.nguid, page + 104, 16);
	assert_memory_equal(id.eui64, page + 120, 8);
	assert_int_equal(id.format_idx, 35);
	assert_int_equal(id.ms, b16(128 + 35 * 4));
	assert_int_equal(id.lbads, b8(128 + 35 * 4 + 2));
	page[25] = 34;
	nvme_identify_namespace(page, &id);
	assert_int_equal(id.lbads, 0);
}

static void put_id(unsigned at, uint8_t type, uint8_t bytes, int fill_byte)
{
	page[at] = type;
	page[at + 1] = bytes;
	memset(page + at + 4, fill_byte, bytes);
}

static void test_ids(void **state)
{
	struct nvme_ids ids;

	(void)state;
	memset(page, 0, sizeof(page));
	assert_int_equal(nvme_identify_ids(page, &ids), 0);
	assert_false(ids.has_csi || ids.has_eui64 || ids.has_nguid || ids.has_uuid);
	put_id(0, 99, 3, 1); /* unknown: passed over */
	put_id(7, NVME_NIDT_UUID, 16, 2);
	put_id(27, NVME_NIDT_CSI, 1, 2);
	put_id(32, NVME_NIDT_EUI64, 8, 4);
	put_id(44, NVME_NIDT_NGUID, 16, 5);
	assert_int_equal(nvme_identify_ids(page, &ids), 0);
	assert_true(ids.has_csi && ids.has_eui64 && ids.has_nguid && ids.has_uuid);
	assert_int_equal(ids.uuid[15], 2);
	assert_int_equal(ids.csi, 2);
	assert_int_equal(ids.eui64[7], 4);
	assert_int_equal(ids.nguid[15], 5);
	/* wrong lengths */
	for (uint8_t type = 1; type <= 4; type++) {
		memset(page, 0, sizeof(page));
		put_id(0, type, 7, 1);
		assert_int_equal(nvme_identify_ids(page, &ids), -EPROTO);
	}
	/* up to the end of the page, and beyond it */
	memset(page, 0, sizeof(page));
	for (unsigned at = 0; at < 4096; at += 256)
		put_id(at, 99, 252, 1);
	assert_int_equal(nvme_identify_ids(page, &ids), 0);
	page[4096 - 256 + 1] = 253;
	assert_int_equal(nvme_identify_ids(page, &ids), -EPROTO);
	memset(page, 0, sizeof(page));
	put_id(0, 99, 250, 1);
	for (unsigned at = 254; at + 4 < 4096; at += 256)
		put_id(at, 99, 252, 1);
	page[4094 + 1] = 16; /* half a descriptor's head */
	assert_int_equal(nvme_identify_ids(page, &ids), 0);
}

static void test_lists(void **state)
{
	static uint32_t nsids[NVME_LIST_NR];

	(void)state;
	memset(page, 0, sizeof(page));
	assert_int_equal(nvme_identify_list(page, 0, nsids), 0);
	assert_false(nvme_log_has_changed(page, 1));
	for (unsigned i = 0; i < 1024; i++)
		nvme_put32(page + 4 * i, 2 * i + 10);
	assert_int_equal(nvme_identify_list(page, 9, nsids), 1024);
	assert_int_equal(nsids[1023], 2 * 1023 + 10);
	assert_int_equal(nvme_identify_list(page, 10, nsids), -EPROTO);
	assert_true(nvme_log_has_changed(page, 2056));
	assert_false(nvme_log_has_changed(page, 2057));
	nvme_put32(page + 4, 10);
	assert_int_equal(nvme_identify_list(page, 0, nsids), -EPROTO);
	nvme_put32(page + 4, 0);
	assert_int_equal(nvme_identify_list(page, 0, nsids), 1);
	nvme_put32(page, NVME_NSID_ALL);
	assert_int_equal(nvme_identify_list(page, 0, nsids), -EPROTO);
	assert_true(nvme_log_has_changed(page, 77));
}

static void test_ana(void **state)
{
	uint32_t nr;

	(void)state;
	memset(page, 0, sizeof(page));
	nvme_put16(page + 8, 2);
	nvme_put32(page + 16, 7);
	page[32] = 0xf3; /* upper bits are reserved */
	nvme_put32(page + 48, 8);
	page[64] = NVME_ANA_OPTIMIZED;
	assert_int_equal(nvme_log_ana_state(page, 80, 7, &nr), NVME_ANA_INACCESSIBLE);
	assert_int_equal(nr, 2);
	assert_int_equal(nvme_log_ana_state(page, 80, 8, &nr), NVME_ANA_OPTIMIZED);
	assert_int_equal(nvme_log_ana_state(page, 79, 8, &nr), 0);
	assert_int_equal(nvme_log_ana_state(page, 80, 9, &nr), 0);
	nvme_put16(page + 8, 1);
	assert_int_equal(nvme_log_ana_state(page, 80, 8, &nr), 0);
	nvme_put16(page + 8, 65535);
	assert_int_equal(nvme_log_ana_state(page, 16, 8, &nr), 0);
	assert_int_equal(nr, 65535);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_controller), cmocka_unit_test(test_namespace),
		cmocka_unit_test(test_ids),	   cmocka_unit_test(test_lists),
		cmocka_unit_test(test_ana),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
