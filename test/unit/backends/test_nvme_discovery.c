/* The discovery log page: in pieces, changing under the reader, larger than it may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "backends/nvme/protocol/nvme_discovery.h"
#include "base/util.h"

#define ENTRIES 20u

static uint8_t log_page[(1 + ENTRIES) * 1024];
static struct nvme_discovery d;
static struct nvme_discovery_entry seen[ENTRIES];
static unsigned seen_nr, asked_nr, retained_nr;

static void fill(unsigned entries, uint64_t generation)
{
	memset(log_page, 0, sizeof(log_page));
	nvme_put64(log_page, generation);
	nvme_put64(log_page + 8, entries);
	for (unsigned i = 0; i < MIN(entries, ENTRIES); i++) {
		uint8_t *at = log_page + 1024 * (i + 1);

		at[0] = NVME_TRTYPE_TCP;
		at[1] = NVME_ADRFAM_IPV6;
		at[2] = NVME_SUBTYPE_NVME;
		nvme_put16(at + 4, (uint16_t)(i + 100));
		nvme_put16(at + 6, 0xffff);
		memcpy(at + 32, "4420                            ", 32);
		snprintf((char *)at + 256, 256, "nqn.2024-01.com.example:%u", i);
		memcpy(at + 512, "::1 \x01  ", 7);
	}
}

static void on_entry(void *ctx, uint32_t idx, const struct nvme_discovery_entry *entry)
{
	(void)ctx;
	if (!entry) {
		seen_nr = 0;
		return;
	}
	assert_int_equal(idx, seen_nr);
	assert_true(seen_nr < ENTRIES);
	seen[seen_nr++] = *entry;
}

static void start(uint32_t max_bytes)
{
	seen_nr = asked_nr = retained_nr = 0;
	nvme_discovery_init(&d, max_bytes, on_entry, NULL);
}

static void answer(void)
{
	assert_true(d.request.log == NVME_LOG_DISCOVERY);
	assert_true(d.request.at_bytes + d.request.bytes <= sizeof(log_page));
	asked_nr++;
	retained_nr += d.request.retain;
	nvme_discovery_feed(&d, log_page + d.request.at_bytes, d.request.bytes);
}

static void test_pieces(void **state)
{
	(void)state;
	for (uint32_t max = 4096; max <= 65536; max += 1000)
		for (unsigned nr = 0; nr <= ENTRIES; nr++) {
			fill(nr, 5);
			start(max);
			while (d.step == NVME_DISCOVERY_READ) {
				assert_true(d.request.bytes <= max);
				answer();
			}
			assert_int_equal(d.step, NVME_DISCOVERY_DONE);
			assert_int_equal(seen_nr, nr);
			assert_int_equal(asked_nr, 2 + (nr + max / 1024 - 1) / (max / 1024));
			/* the last look lets go of the event */
			assert_int_equal(retained_nr, asked_nr - 1);
		}
}

static void test_entry(void **state)
{
	struct nvme_discovery_entry e;
	uint8_t *at = log_page + 1024;

	(void)state;
	fill(1, 5);
	nvme_discovery_decode(at, &e);
	assert_int_equal(e.trtype, NVME_TRTYPE_TCP);
	assert_int_equal(e.adrfam, NVME_ADRFAM_IPV6);
	assert_int_equal(e.subtype, NVME_SUBTYPE_NVME);
	assert_int_equal(e.port_id, 100);
	assert_int_equal(e.cntlid, 0xffff);
	assert_string_equal(e.trsvcid, "4420");
	assert_string_equal(e.subnqn, "nqn.2024-01.com.example:0");
	assert_string_equal(e.traddr, "::1 \\x01");
	assert_false(e.tls);
	at[3] = 1;
	nvme_discovery_decode(at, &e);
	assert_true(e.tls);
	at[3] = 2;
	at[768] = 2;
	nvme_discovery_decode(at, &e);
	assert_true(e.tls);
	memset(at, 'x', 1024);
	nvme_discovery_decode(at, &e);
	assert_int_equal(strlen(e.trsvcid), 32);
	assert_int_equal(strlen(e.subnqn), 256);
	assert_int_equal(strlen(e.traddr), 256);
	assert_string_equal(nvme_trtype_name(3), "tcp");
	assert_string_equal(nvme_trtype_name(9), "unknown");
	assert_string_equal(nvme_adrfam_name(1), "ipv4");
	assert_string_equal(nvme_subtype_name(3), "current discovery subsystem");
}

/* Another generation at the end: all is read again, from index 0 on. */
static void test_changes(void **state)
{
	(void)state;
	fill(6, 1);
	start(4096);
	for (unsigned i = 0; i < 3; i++)
		answer();
	fill(3, 2);
	while (d.step == NVME_DISCOVERY_READ)
		answer();
	assert_int_equal(d.step, NVME_DISCOVERY_DONE);
	assert_int_equal(seen_nr, 3);
	/* the same generation with another number is a change too */
	fill(6, 1);
	start(4096);
	answer();
	nvme_put64(log_page + 8, 5);
	while (d.step == NVME_DISCOVERY_READ)
		answer();
	assert_int_equal(seen_nr, 5);
	/* none are left */
	fill(6, 1);
	start(4096);
	answer();
	answer();
	fill(0, 2);
	while (d.step == NVME_DISCOVERY_READ)
		answer();
	assert_int_equal(d.step, NVME_DISCOVERY_DONE);
	assert_int_equal(seen_nr, 0);
	/* for ever */
	start(4096);
	for (uint64_t i = 1; d.step == NVME_DISCOVERY_READ; i++) {
		fill(1, i);
		answer();
		assert_true(i < 1000);
	}
	assert_string_equal(d.error, "the discovery log page changed 10 times while it was read");
	assert_int_equal(d.err, -EPROTO);
}

static void test_limits(void **state)
{
	(void)state;
	fill(4097, 1);
	start(4096);
	answer();
	assert_string_equal(d.error,
			    "the discovery log page has 4097 entries, above the limit of 4096");
	assert_int_equal(d.err, -EOPNOTSUPP);
	fill(1, 1);
	nvme_put64(log_page + 8, UINT64_MAX);
	start(4096);
	answer();
	assert_int_equal(d.step, NVME_DISCOVERY_FAILED);
	fill(1, 1);
	log_page[16] = 1;
	start(4096);
	answer();
	assert_string_equal(d.error, "the discovery log page has format 1: only 0 is known");
	fill(1, 1);
	start(4096);
	nvme_discovery_feed(&d, log_page, 1023);
	assert_string_equal(d.error,
			    "1023 bytes of the discovery log page came, asked for were 1024");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_entry),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
