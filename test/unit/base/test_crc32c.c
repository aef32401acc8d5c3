/* CRC32C: the vectors of RFC 3720 B.4, in pieces, and both ways alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "base/util.h"

static void check_all(const uint8_t *data, size_t bytes, uint32_t want)
{
	assert_int_equal(crc32c(0, data, bytes), want);
	assert_int_equal(crc32c_by_table(0, data, bytes), want);
	if (crc32c_has_instruction())
		assert_int_equal(crc32c_by_instruction(0, data, bytes), want);
	for (size_t at = 0; at <= bytes; at++)
		assert_int_equal(crc32c(crc32c(0, data, at), data + at, bytes - at), want);
}

/* The RFC shows digests as bytes on the wire: little endian. */
static void test_vectors(void **state)
{
	static const uint8_t read[48] = { 0x01,	       0xc0,	    [16] = 0x14, [22] = 0x04,
					  [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02 };
	uint8_t data[32];

	(void)state;
	memset(data, 0, sizeof(data));
	check_all(data, 32, 0x8a9136aa);
	memset(data, 0xff, sizeof(data));
	check_all(data, 32, 0x62a8ab43);
	for (unsigned i = 0; i < 32; i++)
		data[i] = (uint8_t)i;
	check_all(data, 32, 0x46dd794e);
	for (unsigned i = 0; i < 32; i++)
		data[i] = (uint8_t)(31 - i);
	check_all(data, 32, 0x113fdb5c);
	check_all(read, 48, 0xd9963a56);
	check_all((const uint8_t *)"123456789", 9, 0xe3069283);
	check_all(data, 0, 0);
}

static void test_alike(void **state)
{
	static uint8_t data[5000];
	struct prng p;

	(void)state;
	if (!crc32c_has_instruction())
		skip();
	prng_init(&p, 1);
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)prng_next(&p);
	for (unsigned i = 0; i < 2000; i++) {
		size_t at = prng_below(&p, sizeof(data)), nr = prng_below(&p, sizeof(data) - at);
		uint32_t crc = (uint32_t)prng_next(&p);

		assert_int_equal(crc32c_by_instruction(crc, data + at, nr),
				 crc32c_by_table(crc, data + at, nr));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
