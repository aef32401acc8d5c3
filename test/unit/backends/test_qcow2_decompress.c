/* Compressed clusters: those that zlib and zstd make, and every way in which one is broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "backends/qcow2/codec/qcow2_decompress.h"
#include "backends/qcow2/format/qcow2_format.h"
#include "base/prng.h"
#include "base/util.h"
#include "test/rig/heap.h"

#define CLUSTER_BYTES 65536u
#define CLUSTER_BYTES_MAX (2u << 20)

static const unsigned types[] = { QCOW2_COMPRESSION_ZLIB, QCOW2_COMPRESSION_ZSTD };

struct stream {
	uint8_t *at;
	size_t bytes;
};

/* ---- what is compressed, and how ---- */

/* Words of a small language, and now and then noise. */
static uint8_t *make_cluster(size_t bytes)
{
	uint8_t *at = malloc(bytes);
	struct prng p;

	assert_non_null(at);
	prng_init(&p, bytes);
	for (size_t i = 0; i < bytes;) {
		size_t nr = MIN(bytes - i, (size_t)1 + prng_below(&p, 60));
		bool is_noise = prng_one_in(&p, 8);
		uint8_t word = (uint8_t)prng_below(&p, 16);

		for (; nr > 0; nr--, i++)
			at[i] = is_noise ? (uint8_t)prng_next(&p) : (uint8_t)(word * 7 + i % 4);
	}
	return at;
}

/* As QEMU: block/qcow2-threads.c. */
static struct stream deflate_cluster(const void *in, size_t in_bytes)
{
	struct stream s = { malloc(in_bytes * 2 + 100), 0 };
	z_stream z = { 0 };

	assert_int_equal(
		deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -12, 9, Z_DEFAULT_STRATEGY),
		Z_OK);
	z.next_in = (void *)in;
	z.avail_in = (uInt)in_bytes;
	z.next_out = s.at;
	z.avail_out = (uInt)(in_bytes * 2 + 100);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	s.bytes = z.total_out;
	deflateEnd(&z);
	return s;
}

/* window_log 0: zstd knows the size. Else it does not, and the frame asks for such a window. */
static struct stream zstd_frame(const void *in, size_t in_bytes, int window_log, bool is_summed)
{
	struct stream s = { malloc(ZSTD_compressBound(in_bytes) + 100), 0 };
	ZSTD_inBuffer from = { in, in_bytes, 0 };
	ZSTD_outBuffer to = { s.at, ZSTD_compressBound(in_bytes) + 100, 0 };
	ZSTD_CCtx *c = ZSTD_createCCtx();

	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, is_summed);
	if (window_log > 0) {
		ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
		assert_false(ZSTD_isError(ZSTD_compressStream2(c, &to, &from, ZSTD_e_flush)));
	}
	assert_int_equal(ZSTD_compressStream2(c, &to, &from, ZSTD_e_end), 0);
	ZSTD_freeCCtx(c);
	s.bytes = to.pos;
	return s;
}

static struct stream compress_as(unsigned type, const void *in, size_t in_bytes)
{
	return type == QCOW2_COMPRESSION_ZLIB ? deflate_cluster(in, in_bytes)
					      : zstd_frame(in, in_bytes, 0, true);
}

/* b goes behind a, and is freed. */
static void append(struct stream *a, struct stream b)
{
	a->at = realloc(a->at, a->bytes + b.bytes);
	assert_non_null(a->at);
	memcpy(a->at + a->bytes, b.at, b.bytes);
	a->bytes += b.bytes;
	free(b.at);
}

/* A copy of their exact size, so that ASan sees who reads or writes beyond. */
static int decompress(struct qcow2_decompress *d, uint8_t *ret_out, size_t out_bytes,
		      const void *in, size_t in_bytes)
{
	uint8_t *exact = malloc(in_bytes ? in_bytes : 1), *out = malloc(out_bytes);
	int ret;

	assert_true(exact && out);
	memcpy(exact, in, in_bytes);
	ret = qcow2_decompress(d, out, out_bytes, exact, in_bytes);
	memcpy(ret_out, out, out_bytes);
	free(exact);
	free(out);
	return ret;
}

/* All of it comes back, garbage behind it or not. */
static void check_whole(struct qcow2_decompress *d, const uint8_t *cluster, size_t bytes,
			struct stream s)
{
	static uint8_t out[CLUSTER_BYTES_MAX];

	assert_int_equal(decompress(d, out, bytes, s.at, s.bytes), 0);
	assert_memory_equal(out, cluster, bytes);
	append(&s, (struct stream){ memset(malloc(511), 0xa5, 511), 511 });
	memset(out, 0, bytes);
	assert_int_equal(decompress(d, out, bytes, s.at, s.bytes), 0);
	assert_memory_equal(out, cluster, bytes);
	free(s.at);
}

/* ---- the tests ---- */

static void test_whole(void **state)
{
	static const size_t sizes[] = { 512, 4096, CLUSTER_BYTES, CLUSTER_BYTES_MAX };

	(void)state;
	for (unsigned t = 0; t < ARRAY_SIZE(types); t++) {
		struct qcow2_decompress *d = qcow2_decompress_new(types[t]);

		for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
			uint8_t *cluster = make_cluster(sizes[i]);

			check_whole(d, cluster, sizes[i], compress_as(types[t], cluster, sizes[i]));
			memset(cluster, 0, sizes[i]);
			check_whole(d, cluster, sizes[i], compress_as(types[t], cluster, sizes[i]));
			free(cluster);
		}
		qcow2_decompress_free(d);
	}
}

/* Of deflate the last byte may have nothing but the end in it. */
static void check_cut(unsigned type, struct qcow2_decompress *d, const uint8_t *cluster,
		      const struct stream *s)
{
	static uint8_t out[4096];

	for (size_t bytes = 0; bytes < s->bytes; bytes++) {
		int ret = decompress(d, out, sizeof(out), s->at, bytes);

		if (type == QCOW2_COMPRESSION_ZLIB && bytes + 2 >= s->bytes && ret == 0)
			assert_memory_equal(out, cluster, sizeof(out));
		else
			assert_int_equal(ret, -EIO);
	}
}

static void test_cut(void **state)
{
	uint8_t *cluster = make_cluster(4096);

	(void)state;
	for (unsigned t = 0; t < ARRAY_SIZE(types); t++) {
		struct qcow2_decompress *d = qcow2_decompress_new(types[t]);
		struct stream s = compress_as(types[t], cluster, 4096);

		check_cut(types[t], d, cluster, &s);
		check_whole(d, cluster, 4096, s);
		qcow2_decompress_free(d);
	}
	free(cluster);
}

/* Each bit is wrong once. The frames of zstd have a sum, so none gets through. */
static void test_corrupt(void **state)
{
	static uint8_t out[4096];
	uint8_t *cluster = make_cluster(4096);

	(void)state;
	for (unsigned t = 0; t < ARRAY_SIZE(types); t++) {
		struct qcow2_decompress *d = qcow2_decompress_new(types[t]);
		struct stream s = compress_as(types[t], cluster, 4096);
		unsigned errors_nr = 0;

		for (size_t bit = 0; bit < s.bytes * 8; bit++) {
			int ret;

			s.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
			ret = decompress(d, out, sizeof(out), s.at, s.bytes);
			assert_true(ret == 0 || ret == -EIO);
			errors_nr += ret < 0;
			if (ret == 0 && types[t] == QCOW2_COMPRESSION_ZSTD)
				assert_memory_equal(out, cluster, sizeof(out));
			s.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
			/* Nothing of it is left in the state. */
			assert_int_equal(decompress(d, out, sizeof(out), s.at, s.bytes), 0);
			assert_memory_equal(out, cluster, sizeof(out));
		}
		assert_true(errors_nr > s.bytes / 8);
		free(s.at);
		qcow2_decompress_free(d);
	}
	free(cluster);
}

/* As QEMU takes them. */
static void test_other_size(void **state)
{
	static uint8_t out[CLUSTER_BYTES * 2];
	uint8_t *cluster = make_cluster(CLUSTER_BYTES);

	(void)state;
	for (unsigned t = 0; t < ARRAY_SIZE(types); t++) {
		struct qcow2_decompress *d = qcow2_decompress_new(types[t]);
		struct stream s = compress_as(types[t], cluster, CLUSTER_BYTES);
		bool is_zlib = types[t] == QCOW2_COMPRESSION_ZLIB;

		assert_int_equal(decompress(d, out, CLUSTER_BYTES + 1, s.at, s.bytes), -EIO);
		assert_int_equal(decompress(d, out, CLUSTER_BYTES * 2, s.at, s.bytes), -EIO);
		assert_int_equal(decompress(d, out, CLUSTER_BYTES / 2, s.at, s.bytes),
				 is_zlib ? 0 : -EIO);
		if (is_zlib)
			assert_memory_equal(out, cluster, CLUSTER_BYTES / 2);
		assert_int_equal(decompress(d, out, CLUSTER_BYTES - 1, s.at, s.bytes),
				 is_zlib ? 0 : -EIO);
		assert_int_equal(decompress(d, out, CLUSTER_BYTES, s.at, 0), -EIO);
		assert_int_equal(qcow2_decompress(d, out, 1, NULL, 0), -EIO);
		check_whole(d, cluster, CLUSTER_BYTES, s);
		qcow2_decompress_free(d);
	}
	free(cluster);
}

static struct stream skippable_frame(uint8_t variant, uint8_t bytes)
{
	const uint8_t magic[] = { 0x50 | variant, 0x2a, 0x4d, 0x18 };
	struct stream s = { calloc(1, 8u + bytes), 8u + bytes };

	memcpy(s.at, magic, sizeof(magic));
	s.at[4] = bytes;
	return s;
}

static void test_zstd_frames(void **state)
{
	struct qcow2_decompress *d = qcow2_decompress_new(QCOW2_COMPRESSION_ZSTD);
	uint8_t *cluster = make_cluster(CLUSTER_BYTES);
	static uint8_t out[CLUSTER_BYTES];
	struct stream s = zstd_frame(cluster, 1000, 0, false);

	(void)state;
	append(&s, skippable_frame(0xf, 77));
	append(&s, zstd_frame(cluster + 1000, 0, 0, true));
	append(&s, zstd_frame(cluster + 1000, 30000, 20, true));
	append(&s, zstd_frame(cluster + 31000, CLUSTER_BYTES - 31000, 0, true));
	/* the last one is too long by a byte */
	assert_int_equal(decompress(d, out, CLUSTER_BYTES - 1, s.at, s.bytes), -EIO);
	/* and what follows is not a frame */
	assert_int_equal(decompress(d, out, CLUSTER_BYTES, s.at, s.bytes - 1), -EIO);
	check_whole(d, cluster, CLUSTER_BYTES, s);
	/* any window */
	check_whole(d, cluster, CLUSTER_BYTES, zstd_frame(cluster, CLUSTER_BYTES, 27, false));
	/* nothing but frames to skip */
	s = skippable_frame(0, 0);
	assert_int_equal(decompress(d, out, 1, s.at, s.bytes), -EIO);
	free(s.at);
	free(cluster);
	qcow2_decompress_free(d);
}

/* zstd 0.7: the library knows it, and would allocate. */
static void test_zstd_old(void **state)
{
	static const uint8_t old[] = { 0x27, 0xb5, 0x2f, 0xfd, 0x20, 4,	   0x40, 0,
				       4,    'a',  'b',	 'c',  'd',  0xc0, 0,	 0 };
	struct qcow2_decompress *d = qcow2_decompress_new(QCOW2_COMPRESSION_ZSTD);
	uint8_t out[4];

	(void)state;
	assert_int_equal(decompress(d, out, 4, old, sizeof(old)), -EIO);
	qcow2_decompress_free(d);
}

/* Good streams, long ones, short ones, cut ones: all that leave the library in another state. */
static void use_all_ways(struct qcow2_decompress *d, uint8_t *out, const struct stream *s)
{
	(void)qcow2_decompress(d, out, CLUSTER_BYTES, s->at, s->bytes - 1);
	(void)qcow2_decompress(d, out, CLUSTER_BYTES / 2, s->at, s->bytes);
	(void)qcow2_decompress(d, out, CLUSTER_BYTES * 2, s->at, s->bytes);
	(void)qcow2_decompress(d, out, CLUSTER_BYTES, s->at + 7, s->bytes - 7);
	for (size_t bytes = 0; bytes < s->bytes; bytes += 97)
		(void)qcow2_decompress(d, out, CLUSTER_BYTES, s->at, bytes);
	assert_int_equal(qcow2_decompress(d, out, CLUSTER_BYTES, s->at, s->bytes), 0);
}

static void test_no_allocation(void **state)
{
	static uint8_t out[CLUSTER_BYTES * 2];
	uint8_t *cluster = make_cluster(CLUSTER_BYTES);
	struct stream streams[] = {
		deflate_cluster(cluster, CLUSTER_BYTES),
		zstd_frame(cluster, CLUSTER_BYTES, 0, true),
		zstd_frame(cluster, CLUSTER_BYTES, 27, false),
	};

	(void)state;
	heap_calls_start();
	for (unsigned i = 0; i < ARRAY_SIZE(streams); i++) {
		struct qcow2_decompress *d = qcow2_decompress_new(types[i > 0]);
		uint64_t used_bytes = heap_used_bytes(), calls_nr = heap_calls_nr;

		use_all_ways(d, out, &streams[i]);
		assert_int_equal(heap_calls_nr, calls_nr);
		assert_int_equal(heap_grew_bytes(used_bytes), 0);
		assert_memory_equal(out, cluster, CLUSTER_BYTES);
		qcow2_decompress_free(d);
		free(streams[i].at);
	}
	free(cluster);
}

static void test_no_such_type(void **state)
{
	(void)state;
	assert_null(qcow2_decompress_new(2));
	assert_null(qcow2_decompress_new(255));
	qcow2_decompress_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	      cmocka_unit_test(test_cut),
		cmocka_unit_test(test_corrupt),	      cmocka_unit_test(test_other_size),
		cmocka_unit_test(test_zstd_frames),   cmocka_unit_test(test_zstd_old),
		cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_no_such_type),
	};

	return cmocka_run_group_tests_name("qcow2_decompress", tests, NULL, NULL);
}
