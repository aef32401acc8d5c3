/* Which way the bytes go: every wish against every backend and kernel. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "storage/backend.h"
#include "storage/registry.h"
#include "base/util.h"
#include "ublk/data_path.h"
#include "ublk/device/params.h"
#include "ublk/ublk_abi.h"

#define OLD_KERNEL 0ull
#define LINUX_6_12 UBLK_F_USER_COPY
#define LINUX_6_17 (LINUX_6_12 | UBLK_F_SUPPORT_ZERO_COPY | UBLK_F_AUTO_BUF_REG)
#define LINUX_7_2 (LINUX_6_17 | UBLK_F_BATCH_IO)

static char error[DATA_PATH_ERROR_BYTES];
static struct data_choice choice;

static int choose_for(const struct backend *ops, enum data_path wish, enum batch_choice batch,
		      uint64_t features)
{
	const struct backend_spec low = { .ops = ops },
				  spec = { .ops = &backend_throttle, .child = &low };

	error[0] = '\0';
	return data_path_choose(&choice, wish, batch, &spec, features, error);
}

static int choose(enum data_path wish, enum batch_choice batch, uint8_t data, uint64_t features)
{
	const struct backend ops = { .name = "it", .data = data };

	return choose_for(&ops, wish, batch, features);
}

static void test_auto_takes_the_best(void **state)
{
	static const struct {
		uint8_t abilities;
		uint64_t features;
		enum data_path path;
	} cases[] = {
		{ BACKEND_DATA_FIXED, LINUX_7_2, DATA_PATH_ZERO_COPY },
		{ BACKEND_DATA_FIXED, LINUX_6_17, DATA_PATH_ZERO_COPY },
		{ BACKEND_DATA_FIXED, LINUX_6_12, DATA_PATH_COPY },
		{ BACKEND_DATA_MOVES, LINUX_7_2, DATA_PATH_USER_COPY },
		{ BACKEND_DATA_MOVES, LINUX_6_12, DATA_PATH_USER_COPY },
		{ BACKEND_DATA_MOVES, OLD_KERNEL, DATA_PATH_COPY },
		{ 0, LINUX_7_2, DATA_PATH_COPY },
		/* registered, but without the way out when that fails */
		{ BACKEND_DATA_FIXED, LINUX_7_2 & ~UBLK_F_USER_COPY, DATA_PATH_COPY },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(
			choose(DATA_PATH_AUTO, BATCH_AUTO, cases[i].abilities, cases[i].features),
			0);
		assert_int_equal(choice.path, cases[i].path);
		assert_false(choice.batch);
		assert_int_equal(data_path_flags(&choice) & ~cases[i].features, 0);
	}
}

static void test_open_params(void **state)
{
	(void)state;
	assert_int_equal(choose(DATA_PATH_COPY, BATCH_ON, BACKEND_DATA_FIXED, LINUX_7_2), 0);
	assert_int_equal(choice.path, DATA_PATH_COPY);
	assert_int_equal(data_path_flags(&choice), UBLK_F_BATCH_IO);
	assert_int_equal(choose(DATA_PATH_USER_COPY, BATCH_OFF, 0, LINUX_6_12), 0);
	assert_int_equal(data_path_flags(&choice), UBLK_F_USER_COPY);
}

static void test_what_cannot_be_had(void **state)
{
	(void)state;
	assert_int_equal(choose(DATA_PATH_ZERO_COPY, BATCH_AUTO, BACKEND_DATA_MOVES, LINUX_7_2),
			 -EINVAL);
	assert_non_null(strstr(error, "impossible with the backend throttle > it"));
	assert_int_equal(choose(DATA_PATH_ZERO_COPY, BATCH_AUTO, BACKEND_DATA_FIXED, LINUX_6_12),
			 -EOPNOTSUPP);
	assert_non_null(strstr(error, "AUTO_BUF_REG (Linux 6.16)"));
	assert_int_equal(choose(DATA_PATH_USER_COPY, BATCH_AUTO, 0, OLD_KERNEL), -EOPNOTSUPP);
	assert_non_null(strstr(error, "USER_COPY (Linux 6.5)"));
	assert_int_equal(choose(DATA_PATH_COPY, BATCH_ON, 0, LINUX_6_17), -EOPNOTSUPP);
	assert_non_null(strstr(error, "BATCH_IO (Linux 7.0)"));
}

/* Unless somebody says otherwise batches are for backends that gain by them. */
static void test_batches(void **state)
{
	(void)state;
	assert_int_equal(choose_for(&backend_nbd, DATA_PATH_AUTO, BATCH_AUTO, LINUX_7_2), 0);
	assert_int_equal(data_path_flags(&choice), UBLK_F_BATCH_IO);
	assert_int_equal(choose_for(&backend_nbd, DATA_PATH_AUTO, BATCH_AUTO, LINUX_6_17), 0);
	assert_false(choice.batch);
	assert_int_equal(choose_for(&backend_nbd, DATA_PATH_AUTO, BATCH_OFF, LINUX_7_2), 0);
	assert_false(choice.batch);
	assert_int_equal(choose_for(&backend_file, DATA_PATH_AUTO, BATCH_AUTO, LINUX_7_2), 0);
	assert_true(choice.batch);
	assert_int_equal(choose_for(&backend_null, DATA_PATH_AUTO, BATCH_AUTO, LINUX_7_2), 0);
	assert_false(choice.batch);
	assert_int_equal(choose_for(&backend_null, DATA_PATH_AUTO, BATCH_ON, LINUX_7_2), 0);
	assert_true(choice.batch);
}

/* A stack can do what all of it can. */
static void test_abilities_of_a_stack(void **state)
{
	const struct backend_spec file = { .ops = &backend_file }, mem = { .ops = &backend_mem },
				  skeleton = { .ops = &backend_pattern },
				  slow = { .ops = &backend_throttle, .child = &file },
				  slower = { .ops = &backend_delay, .child = &mem },
				  odd = { .ops = &backend_fault, .child = &skeleton },
				  nbd = { .ops = &backend_nbd },
				  far = { .ops = &backend_throttle, .child = &nbd };

	(void)state;
	assert_int_equal(backend_spec_data(&slow), BACKEND_DATA_FIXED | BACKEND_DATA_SHMEM);
	assert_int_equal(backend_spec_data(&slower), BACKEND_DATA_MOVES | BACKEND_DATA_SHMEM);
	assert_int_equal(backend_spec_data(&odd), BACKEND_DATA_SHMEM);
	assert_int_equal(backend_spec_data(&far), BACKEND_DATA_SEALED);
}

static void fill(struct ublk_params *p, struct backend_limits limits, enum data_path path)
{
	const struct device_spec spec = { .logical_block_bytes = 512, .max_io_bytes = MIB(1) };

	limits.size_bytes = MIB(1);
	params_fill(p, &spec, &limits, path);
}

/* Where the block layer cuts, so that a stripe need not. */
static void test_boundary(void **state)
{
	struct ublk_params p;

	(void)state;
	fill(&p, (struct backend_limits){ 0 }, DATA_PATH_COPY);
	assert_int_equal(p.basic.chunk_sectors, 0);
	fill(&p, (struct backend_limits){ .boundary_bytes = KIB(64) }, DATA_PATH_COPY);
	assert_int_equal(p.basic.chunk_sectors, 128);
}

/* None where the backend has none: file systems take it for the size of their writes. */
static void test_best_size(void **state)
{
	struct ublk_params p;

	(void)state;
	fill(&p, (struct backend_limits){ .physical_block_bytes = 4096 }, DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 0);
	fill(&p, (struct backend_limits){ .io_opt_bytes = 512, .physical_block_bytes = 4096 },
	     DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 0);
	fill(&p, (struct backend_limits){ .io_opt_bytes = KIB(64) }, DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 16);
	/* No more than a page or a physical block is no size to gather I/O for. */
	fill(&p, (struct backend_limits){ .io_opt_bytes = 4096 }, DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 0);
	fill(&p, (struct backend_limits){ .io_opt_bytes = 6144 }, DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 0);
	fill(&p, (struct backend_limits){ .io_opt_bytes = 8192 }, DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 13);
	fill(&p,
	     (struct backend_limits){ .io_opt_bytes = KIB(16), .physical_block_bytes = KIB(16) },
	     DATA_PATH_COPY);
	assert_int_equal(p.basic.io_opt_shift, 0);
}

/* Limits of pages matter only when the pages themselves go below. */
static void test_limits_of_pages(void **state)
{
	const struct backend_limits limits = { .dma_alignment_bytes = 4,
					       .max_segments = 127,
					       .max_segment_bytes = 65536 };
	const struct backend_limits gaps = { .max_segments = 127,
					     .max_segment_bytes = 65536,
					     .virt_boundary_mask = 4095 };
	/* More than the driver's 16 bits can say. */
	const struct backend_limits many = { .max_segments = 65536 + 1,
					     .max_segment_bytes = 65536 };
	struct ublk_params p;

	(void)state;
	fill(&p, limits, DATA_PATH_COPY);
	assert_int_equal(p.types, UBLK_PARAM_TYPE_BASIC);
	fill(&p, limits, DATA_PATH_ZERO_COPY);
	assert_int_equal(p.types, UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DMA_ALIGN |
					  UBLK_PARAM_TYPE_SEGMENT);
	assert_int_equal(p.dma.alignment, 3);
	assert_int_equal(p.seg.max_segments, 127);
	assert_int_equal(p.seg.max_segment_size, 65536);
	assert_int_equal(p.seg.seg_boundary_mask, UINT32_MAX);
	fill(&p, many, DATA_PATH_ZERO_COPY);
	assert_int_equal(p.seg.max_segments, UINT16_MAX);
	fill(&p, gaps, DATA_PATH_ZERO_COPY);
	assert_int_equal(p.types, UBLK_PARAM_TYPE_BASIC);
	assert_int_equal(p.basic.virt_boundary_mask, 4095);
}

/* The block layer sends FUA only where it is known, else a FLUSH of its own behind the WRITE. */
static void test_caches(void **state)
{
	static const struct {
		uint32_t caps, attrs;
	} cases[] = {
		{ 0, 0 },
		{ BACKEND_CAP_FUA, 0 },
		{ BACKEND_CAP_FLUSH, UBLK_ATTR_VOLATILE_CACHE },
		{ BACKEND_CAP_FLUSH | BACKEND_CAP_FUA, UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA },
		{ BACKEND_CAP_READ_ONLY | BACKEND_CAP_ROTATIONAL,
		  UBLK_ATTR_READ_ONLY | UBLK_ATTR_ROTATIONAL },
	};
	struct ublk_params p = { 0 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		fill(&p, (struct backend_limits){ .caps = cases[i].caps }, DATA_PATH_COPY);
		assert_int_equal(p.basic.attrs, cases[i].attrs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto_takes_the_best),
		cmocka_unit_test(test_open_params),
		cmocka_unit_test(test_what_cannot_be_had),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_abilities_of_a_stack),
		cmocka_unit_test(test_boundary),
		cmocka_unit_test(test_limits_of_pages),
		cmocka_unit_test(test_best_size),
		cmocka_unit_test(test_caches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
