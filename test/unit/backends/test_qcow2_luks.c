/* LUKS of qcow2: images of QEMU and those for QEMU, and headers in which every field is hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

#include "backends/qcow2/codec/qcow2_luks_internal.h"
#include "backends/qcow2/codec/qcow2_secret.h"
#include "test/rig/heap.h"
#include "test/rig/qcow2/luks_image.h"

#define SLOT(nr) LUKS_SLOT_AT(nr)

/* AES-256 and SHA-256. */
static struct luks_made usual = { .hash = "sha256", .mode = "xts-plain64", .key_bytes = 64 };

static int unlock(struct qcow2_luks **ret_luks, const struct luks_made *m, const char *passphrase,
		  char words[QCOW2_LUKS_WORDS_BYTES])
{
	memset(words, 0, QCOW2_LUKS_WORDS_BYTES);
	return qcow2_luks_unlock(ret_luks, m->header, m->header_bytes, passphrase,
				 strlen(passphrase), words);
}

static struct qcow2_luks *unlock_well(const struct luks_made *m)
{
	char words[QCOW2_LUKS_WORDS_BYTES];
	struct qcow2_luks *luks = NULL;

	assert_int_equal(unlock(&luks, m, LUKS_PASSPHRASE, words), 0);
	assert_non_null(luks);
	assert_string_equal(words, "");
	assert_int_equal(luks->key_bytes, m->key_bytes);
	assert_memory_equal(luks->key, m->key, m->key_bytes);
	return luks;
}

/* ---- with QEMU ---- */

/* A cluster of the image, of which QEMU wrote each byte as this. */
static void check_cluster(const struct luks_image *im, struct qcow2_luks_cipher *c, uint64_t guest,
			  uint8_t byte)
{
	static uint8_t buf[LUKS_IMAGE_CLUSTER], expected[LUKS_IMAGE_CLUSTER];
	uint64_t offset = luks_image_offset(im, guest);

	memset(expected, byte, sizeof(expected));
	assert_int_equal(pread(im->fd, buf, sizeof(buf), (off_t)offset), sizeof(buf));
	assert_memory_not_equal(buf, expected, 16);
	assert_int_equal(qcow2_luks_decrypt(c, offset, buf, sizeof(buf)), 0);
	assert_memory_equal(buf, expected, sizeof(buf));
}

/* We write a cluster, each sector of other bytes, which QEMU is to read. */
static void check_write(const struct luks_image *im, struct qcow2_luks_cipher *c, uint64_t guest)
{
	static uint8_t buf[LUKS_IMAGE_CLUSTER];
	uint64_t offset = luks_image_offset(im, guest);
	char command[100];

	for (unsigned i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i / 512 + 1);
	assert_int_equal(qcow2_luks_encrypt(c, offset, buf, sizeof(buf)), 0);
	assert_int_equal(pwrite(im->fd, buf, sizeof(buf), (off_t)offset), sizeof(buf));
	for (unsigned i = 0; i < sizeof(buf) / 512; i += 127) {
		snprintf(command, sizeof(command), "read -P %u %" PRIu64 " 512", i + 1,
			 guest + i * 512);
		assert_true(luks_image_io(im, command));
	}
}

static void check_image(const char *folder, const struct luks_made *m)
{
	struct qcow2_luks *luks = unlock_well(m);
	struct qcow2_luks_cipher *c = qcow2_luks_cipher_new(luks);
	struct luks_image im;

	assert_non_null(c);
	luks_image_make(&im, folder, m);
	/* The first cluster to be written is not the first of the disk. */
	assert_true(luks_image_io(&im, "write -P 0x5a 2M 64k"));
	assert_true(luks_image_io(&im, "write -P 0xc3 0 64k"));
	check_cluster(&im, c, 2 << 20, 0x5a);
	check_cluster(&im, c, 0, 0xc3);
	check_write(&im, c, 2 << 20);
	assert_false(luks_image_io(&im, "read -P 0x5a 2M 64k"));
	luks_image_drop(&im);
	qcow2_luks_cipher_free(c);
	qcow2_luks_free(luks);
}

static const char *const hashes[] = { "sha1", "sha256", "sha512" };
static const char *const modes[] = { "xts-plain64", "xts-plain64:sha256" };

static void each_kind(void (*check)(const char *folder, const struct luks_made *m),
		      const char *folder)
{
	for (unsigned i = 0; i < ARRAY_SIZE(hashes) * ARRAY_SIZE(modes); i++) {
		struct luks_made m = { .hash = hashes[i / 2],
				       .mode = modes[i / 2 % 2],
				       .key_bytes = i % 2 ? 32 : 64 };

		luks_make(&m);
		check(folder, &m);
		free(m.header);
	}
}

static void test_qemu(void **state)
{
	char folder[] = "/tmp/test_qcow2_luks.XXXXXX";

	(void)state;
	if (!luks_image_can())
		skip();
	assert_non_null(mkdtemp(folder));
	each_kind(check_image, folder);
	assert_int_equal(rmdir(folder), 0);
}

/* ---- without ---- */

static void check_unlock(const char *folder, const struct luks_made *m)
{
	(void)folder;
	qcow2_luks_free(unlock_well(m));
}

static void test_kinds(void **state)
{
	(void)state;
	each_kind(check_unlock, NULL);
}

static void test_wrong_passphrase(void **state)
{
	static const char *const wrong[] = { "falsch", "", "gehei", "geheim\n", "Geheim" };
	char words[QCOW2_LUKS_WORDS_BYTES];
	struct qcow2_luks *luks;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		luks = (void *)&words;
		assert_int_equal(unlock(&luks, &usual, wrong[i], words), -EACCES);
		assert_null(luks);
		assert_string_equal(words, "qcow2: no key slot of LUKS opens with this passphrase");
	}
}

/* ---- hostile headers ---- */

/* A copy of the header for a test to change. */
static struct luks_made copy_header(void)
{
	struct luks_made m = usual;

	m.header = malloc(m.header_bytes);
	assert_non_null(m.header);
	memcpy(m.header, usual.header, m.header_bytes);
	return m;
}

static void check_refused(const struct luks_made *m, int err, const char *part)
{
	char words[QCOW2_LUKS_WORDS_BYTES];
	struct qcow2_luks *luks = (void *)words;

	assert_int_equal(unlock(&luks, m, LUKS_PASSPHRASE, words), err);
	assert_null(luks);
	assert_non_null(memchr(words, '\0', sizeof(words)));
	assert_memory_equal(words, "qcow2: ", 7);
	if (!strstr(words, part))
		fail_msg("\"%s\" does not say \"%s\"", words, part);
	for (const char *at = words; *at; at++)
		assert_true(isprint((unsigned char)*at));
}

static void check_number(unsigned at, uint32_t value, int err, const char *part)
{
	struct luks_made m = copy_header();

	be_put32(m.header + at, value);
	check_refused(&m, err, part);
	free(m.header);
}

static void check_text(unsigned at, const char *text, int err, const char *part)
{
	struct luks_made m = copy_header();

	memset(m.header + at, 0, 32);
	memcpy(m.header + at, text, strlen(text));
	check_refused(&m, err, part);
	free(m.header);
}

static void test_names(void **state)
{
	static const char endless[] = "01234567890123456789012345678901";

	(void)state;
	check_text(8, "twofish", -EOPNOTSUPP, "with twofish-xts-plain64; known is aes-xts-plain64");
	check_text(8, "aes\x01\xff", -EOPNOTSUPP, "with aes\\x01\\xff-xts-plain64;");
	check_text(8, "", -EOPNOTSUPP, "with -xts-plain64;");
	check_text(8, endless, -EINVAL, "cipher");
	check_text(40, "cbc-essiv:sha256", -EOPNOTSUPP, "with aes-cbc-essiv:sha256;");
	check_text(40, "xts-plain", -EOPNOTSUPP, "with aes-xts-plain;");
	check_text(40, "xts-plain64be", -EOPNOTSUPP, "with aes-xts-plain64be;");
	check_text(40, endless, -EINVAL, "cipher");
	check_text(72, "ripemd160", -EOPNOTSUPP, "\"ripemd160\"");
	check_text(72, "sha2566", -EOPNOTSUPP, "\"sha2566\"");
	check_text(72, "sha", -EOPNOTSUPP, "\"sha\"");
	check_text(72, "", -EOPNOTSUPP, "\"\"");
	check_text(72, endless, -EINVAL, "hash");
}

static void test_numbers(void **state)
{
	static const uint32_t keys[] = { 0, 16, 24, 31, 33, 63, 65, 128, 1u << 31, UINT32_MAX };
	static const uint32_t stripes[] = { 0, 1, 3999, 4001, 1u << 28, UINT32_MAX };

	(void)state;
	check_number(0, 0, -EINVAL, "no LUKS header");
	check_number(4, 0xbabe0002, -EOPNOTSUPP, "version 2");
	check_number(4, 0xbabe0101, -EOPNOTSUPP, "version 257");
	check_number(4, 0xbabf0001, -EINVAL, "no LUKS header");
	for (unsigned i = 0; i < ARRAY_SIZE(keys); i++)
		check_number(108, keys[i], -EINVAL, "the key has");
	check_number(108, 48, -EOPNOTSUPP, "AES-192");
	check_number(108, 32, -EACCES, "passphrase");
	check_number(164, 0, -EINVAL, "hashed 0 times");
	check_number(SLOT(0), 0, -EINVAL, "neither");
	check_number(SLOT(7), UINT32_MAX, -EINVAL, "slot 7 of LUKS is neither");
	check_number(SLOT(0), 0xdead, -EACCES, "passphrase");
	check_number(SLOT(0) + 4, 0, -EINVAL, "slot 0 of LUKS hashes the passphrase 0 times");
	for (unsigned i = 0; i < ARRAY_SIZE(stripes); i++)
		check_number(SLOT(0) + 44, stripes[i], -EINVAL, "stripes");
}

static void test_material(void **state)
{
	uint32_t sectors = (uint32_t)(usual.header_bytes / 512);
	const uint32_t outside[] = { 0,	       1,	  sectors - 499,
				     sectors,  1u << 23,  (1u << 23) + 8,
				     1u << 31, UINT32_MAX };
	struct luks_made m;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(outside); i++)
		check_number(SLOT(0) + 40, outside[i], -EINVAL, "slot 0 of LUKS is at offset");
	/* Within, but not the slot's. */
	check_number(SLOT(0) + 40, 2, -EACCES, "passphrase");
	check_number(SLOT(0) + 40, sectors - 500, -EACCES, "passphrase");
	/* The header ends with the slot, or a byte before it. */
	m = copy_header();
	m.header_bytes = 8 * 512 + 64 * 4000;
	m.header = realloc(m.header, m.header_bytes);
	qcow2_luks_free(unlock_well(&m));
	m.header_bytes--;
	check_refused(&m, -EINVAL, "slot 0 of LUKS is at offset");
	free(m.header);
}

/* How many rounds can be: only parsed, for who does not refuse it would calculate for hours. */
static void check_rounds(const struct luks_made *m, bool can_be)
{
	char words[QCOW2_LUKS_WORDS_BYTES] = "";
	struct luks_header h;
	int ret = qcow2_luks_header_parse(&h, m->header, m->header_bytes, words);

	assert_int_equal(ret, can_be ? 0 : -EINVAL);
	assert_int_equal(strstr(words, "rounds") != NULL, !can_be);
}

static void test_rounds(void **state)
{
	struct luks_made m = copy_header();

	(void)state;
	/* for 64 bytes of SHA-256 twice, and once to check the key */
	be_put32(m.header + 164, 2);
	be_put32(m.header + SLOT(0) + 4, (1u << 28) - 1);
	check_rounds(&m, true);
	be_put32(m.header + 164, 3);
	check_rounds(&m, false);
	be_put32(m.header + 164, UINT32_MAX);
	check_rounds(&m, false);
	be_put32(m.header + 164, 1);
	be_put32(m.header + SLOT(0) + 4, UINT32_MAX);
	check_rounds(&m, false);
	free(m.header);
}

/* Each slot is within the limit, together they are not; in 32 bits their sum would be small. */
static void test_sum_of_rounds(void **state)
{
	struct luks_made m = copy_header();

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		memcpy(m.header + SLOT(i), m.header + SLOT(0), 48);
		be_put32(m.header + SLOT(i) + 4, 1u << 26);
	}
	check_rounds(&m, false);
	for (unsigned i = 0; i < 8; i++)
		be_put32(m.header + SLOT(i) + 4, 1u << 28);
	check_rounds(&m, false);
	be_put32(m.header + SLOT(0) + 4, 1000);
	for (unsigned i = 1; i < 8; i++)
		be_put32(m.header + SLOT(i), 0xdead);
	check_rounds(&m, true);
	free(m.header);
}

/* In memory of its exact size, so that ASan sees who reads beyond. */
static void test_cut(void **state)
{
	(void)state;
	for (size_t bytes = 0; bytes <= 592; bytes++) {
		struct luks_made m = { .header = malloc(bytes ? bytes : 1), .header_bytes = bytes };

		memcpy(m.header, usual.header, bytes);
		check_refused(&m, -EINVAL, bytes < 592 ? "bytes; 592 to" : "at offset");
		free(m.header);
	}
}

static void test_too_large(void **state)
{
	struct luks_made m;

	(void)state;
	m = copy_header();
	m.header = realloc(m.header, QCOW2_LUKS_BYTES_MAX + 1);
	assert_non_null(m.header);
	m.header_bytes = QCOW2_LUKS_BYTES_MAX;
	qcow2_luks_free(unlock_well(&m));
	m.header_bytes++;
	check_refused(&m, -EINVAL, "592 to 16777216");
	free(m.header);
}

/* Any bit of what the key is made of and proved by. */
static void test_secrets_changed(void **state)
{
	static const unsigned at[] = { 112,	    131,	  132,	163,
				       SLOT(0) + 8, SLOT(0) + 39, 4096, 4096 + 64 * 4000 - 1 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		struct luks_made m = copy_header();

		m.header[at[i]] ^= 1;
		check_refused(&m, -EACCES, "passphrase");
		free(m.header);
	}
}

/* What is not looked at may be anything. */
static void test_ignored(void **state)
{
	struct luks_made m;

	(void)state;
	m = copy_header();
	be_put32(m.header + 104, UINT32_MAX); /* the payload offset */
	for (unsigned i = 1; i < 8; i++)
		memset(m.header + SLOT(i) + 4, 0xff, 44);
	qcow2_luks_free(unlock_well(&m));
	free(m.header);
}

/* The last slot has the key; those before it are of somebody else. */
static void test_other_slot(void **state)
{
	struct luks_made m;

	(void)state;
	m = copy_header();
	memcpy(m.header + SLOT(7), m.header + SLOT(0), 48);
	be_put32(m.header + SLOT(0), 0xdead);
	qcow2_luks_free(unlock_well(&m));
	memcpy(m.header + SLOT(0), m.header + SLOT(7), 48);
	m.header[SLOT(0) + 8] ^= 1;
	qcow2_luks_free(unlock_well(&m));
	free(m.header);
}

/* ---- sectors ---- */

static uint8_t sector_byte(size_t i)
{
	return (uint8_t)(i * 7 + i / 512);
}

static void test_sectors(void **state)
{
	static uint8_t whole[4096], parts[4096];
	const uint64_t offset = (1ull << 41) - 2048; /* across sector number 2^32 */
	struct qcow2_luks_cipher *c;
	struct qcow2_luks *luks;

	(void)state;
	luks = unlock_well(&usual);
	c = qcow2_luks_cipher_new(luks);
	for (size_t i = 0; i < sizeof(whole); i++)
		whole[i] = parts[i] = sector_byte(i);
	assert_int_equal(qcow2_luks_encrypt(c, offset, whole, sizeof(whole)), 0);
	for (size_t i = 0; i < sizeof(parts); i += 512)
		assert_int_equal(qcow2_luks_encrypt(c, offset + i, parts + i, 512), 0);
	assert_memory_equal(whole, parts, sizeof(whole));
	assert_int_equal(qcow2_luks_decrypt(c, offset, whole, sizeof(whole)), 0);
	for (size_t i = 0; i < sizeof(whole); i++)
		assert_int_equal(whole[i], sector_byte(i));
	/* Sector 2^32 is not sector 0. */
	assert_int_equal(qcow2_luks_decrypt(c, 0, parts + 2048, 512), 0);
	assert_memory_not_equal(parts + 2048, whole + 2048, 16);
	assert_int_equal(qcow2_luks_decrypt(c, offset, parts, 0), 0);
	qcow2_luks_cipher_free(c);
	qcow2_luks_free(luks);
}

static void test_no_allocation(void **state)
{
	static uint8_t buf[65536];
	struct qcow2_luks_cipher *c;
	uint64_t used_bytes, calls_nr;
	struct qcow2_luks *luks;

	(void)state;
	luks = unlock_well(&usual);
	c = qcow2_luks_cipher_new(luks);
	heap_calls_start();
	used_bytes = heap_used_bytes();
	calls_nr = heap_calls_nr;
	assert_int_equal(qcow2_luks_encrypt(c, 0, buf, sizeof(buf)), 0);
	assert_int_equal(qcow2_luks_decrypt(c, 0, buf, sizeof(buf)), 0);
	assert_int_equal(heap_calls_nr, calls_nr);
	assert_int_equal(heap_grew_bytes(used_bytes), 0);
	qcow2_luks_cipher_free(c);
	qcow2_luks_free(luks);
	qcow2_luks_cipher_free(NULL);
	qcow2_luks_free(NULL);
}

/* Whether the mapping that mem is in has a flag: smaps of proc(5). */
static bool mapping_has(const void *mem, const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	uint64_t from, to, at = (uintptr_t)mem;
	bool is_it = false, has = false;
	char line[512];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2)
			is_it = from <= at && at < to;
		else if (is_it && strncmp(line, "VmFlags:", 8) == 0)
			has = strstr(line, flag);
	}
	fclose(file);
	return has;
}

/* In no core file: "dd". */
static void test_not_dumped(void **state)
{
	char *secret = qcow2_secret_alloc(300000), *other = malloc(16);
	struct qcow2_luks *luks = unlock_well(&usual);

	(void)state;
	assert_non_null(secret);
	if (!mapping_has(other, " rd"))
		skip(); /* a kernel that does not say */
	assert_true(mapping_has(secret, " dd"));
	assert_true(mapping_has(secret + 299999, " dd"));
	assert_true(mapping_has(luks, " dd"));
	qcow2_luks_free(luks);
	qcow2_secret_free(secret, 300000);
	qcow2_secret_free(NULL, 1);
	free(other);
}

static int setup(void **state)
{
	(void)state;
	luks_make(&usual);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(usual.header);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_qemu),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_wrong_passphrase),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_material),
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_sum_of_rounds),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_secrets_changed),
		cmocka_unit_test(test_ignored),
		cmocka_unit_test(test_other_slot),
		cmocka_unit_test(test_sectors),
		cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_not_dumped),
	};

	return cmocka_run_group_tests_name("qcow2_luks", tests, setup, teardown);
}
