/* Secrets in text: those that are right, and every way in which one is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "backends/nvme/keys/nvme_dhchap_key.h"
#include "base/util.h"

/* Keys of Python: base64.b64encode(key + zlib.crc32(key).to_bytes(4, "little")) */
#define KEY32 "AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn"
#define KEY48 "AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOuCFqpg=="
#define KEY64                                                                                      \
	"AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOkZSXmp2go6aprK+"          \
	"ytbi7vjuf7H8="

static void check_good(const char *text, uint8_t hash, uint32_t bytes)
{
	struct nvme_dhchap_key key;
	char error[200] = "untouched";

	assert_int_equal(nvme_dhchap_key_parse(&key, text, error, sizeof(error)), 0);
	assert_string_equal(error, "untouched");
	assert_int_equal(key.secret.hash, hash);
	assert_int_equal(key.secret.bytes, bytes);
	for (unsigned i = 0; i < bytes; i++)
		assert_int_equal(key.secret.key[i], (uint8_t)(i * 3 + 1));
}

static void test_good(void **state)
{
	/* As it stands in nvme-cli's and SUSE's documents. */
	static const uint8_t known[4] = { 0x89, 0xae, 0xb3, 0x1a };
	struct nvme_dhchap_key key;
	char error[200];

	(void)state;
	check_good("DHHC-1:00:" KEY32 ":", 0, 32);
	check_good("DHHC-1:01:" KEY32 ":", 1, 32);
	check_good("DHHC-1:02:" KEY48 ":", 2, 48);
	check_good("DHHC-1:03:" KEY64 ":", 3, 64);
	check_good("DHHC-1:01:" KEY64 ":", 1, 64);
	assert_int_equal(
		nvme_dhchap_key_parse(
			&key, "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", error,
			sizeof(error)),
		0);
	assert_memory_equal(key.secret.key, known, 4);
}

static void check_bad(const char *text, const char *words)
{
	static const struct nvme_secret none;
	struct nvme_dhchap_key key;
	char error[200] = "";

	memset(&key, 0xee, sizeof(key));
	assert_int_equal(nvme_dhchap_key_parse(&key, text, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, words);
	assert_memory_equal(key.secret.key, none.key, sizeof(none.key));
	assert_int_equal(key.secret.bytes, 0);
}

#define NO_BASE64 "is not base64 between its last two colons, or too long"
#define NO_DIGITS "has no two digits and colon behind DHHC-1:, which name a hash"
#define A20 "AAAAAAAAAAAAAAAAAAAA"
#define CUT_OFF "does not end with a colon: it is cut off"

static void test_bad(void **state)
{
	(void)state;
	check_bad("", "does not begin with DHHC-1:");
	check_bad("DHHC-1", "does not begin with DHHC-1:");
	check_bad("DHHC-2:00:" KEY32 ":", "does not begin with DHHC-1:");
	check_bad(" DHHC-1:00:" KEY32 ":", "does not begin with DHHC-1:");
	check_bad("NVMeTLSkey-1:01:" KEY32 ":",
		  "is a key for TLS: one for DH-HMAC-CHAP begins with DHHC-1:");
	check_bad("DHHC-1:", NO_DIGITS);
	check_bad("DHHC-1:0", NO_DIGITS);
	check_bad("DHHC-1:00", NO_DIGITS);
	check_bad("DHHC-1:0a:" KEY32 ":", NO_DIGITS);
	check_bad("DHHC-1:10:" KEY32 ":", NO_DIGITS);
	check_bad("DHHC-1:00:", CUT_OFF);
	check_bad("DHHC-1:00:" KEY32, CUT_OFF);
	check_bad("DHHC-1:00::", NO_BASE64);
	check_bad("DHHC-1:00:" KEY32 ":\n", CUT_OFF);
	check_bad("DHHC-1:00:" KEY32 "\n:", NO_BASE64);
	check_bad("DHHC-1:00:=" KEY32 "===:", NO_BASE64);
	check_bad("DHHC-1:00:AAA:", NO_BASE64);
	check_bad("DHHC-1:00:AAA=:", NO_BASE64);
	check_bad("DHHC-1:00:" KEY64 "AAAA:", NO_BASE64);
	check_bad("DHHC-1:00:" A20 A20 A20 A20 A20 ":", NO_BASE64);
	/* bits behind the last byte; '=' in the middle; the alphabet of URLs */
	check_bad("DHHC-1:02:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiIuOuCFqpr"
		  "==:",
		  NO_BASE64);
	check_bad("DHHC-1:00:AQQHCg0=ExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn:", NO_BASE64);
	check_bad("DHHC-1:00:AQQHCg0-ExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn:", NO_BASE64);
	check_bad("DHHC-1:00:AAAAAAAA:", "has a key of 2 bytes: it has 32, 48 or 64, so characters "
					 "are missing, or too many");
	check_bad("DHHC-1:00:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174:",
		  "has a key of 29 bytes: it has 32, 48 or 64, so characters are missing, or too "
		  "many");
	check_bad("DHHC-1:00:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfm:",
		  "has a checksum that is wrong: a character was changed");
	check_bad("DHHC-1:00:BQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW174Qyfn:",
		  "has a checksum that is wrong: a character was changed");
	check_bad("DHHC-1:04:" KEY32 ":",
		  "names hash 04: known are 00 (none), 01 (SHA-256), 02 (SHA-384) and 03 "
		  "(SHA-512)");
}

/* A changed character is never unseen, and the key never in the words. */
static void test_any_character(void **state)
{
	const char *good = "DHHC-1:03:" KEY64 ":";
	char text[200], error[200];
	struct nvme_dhchap_key key;

	(void)state;
	for (unsigned at = 10; at + 1 < strlen(good); at++)
		for (int c = 1; c < 256; c++) {
			snprintf(text, sizeof(text), "%s", good);
			text[at] = (char)c;
			if (c == (uint8_t)good[at])
				continue;
			assert_int_equal(nvme_dhchap_key_parse(&key, text, error, sizeof(error)),
					 -EINVAL);
			assert_null(strstr(error, "Cg0Q"));
		}
	for (unsigned nr = 0; nr < strlen(good); nr++) {
		snprintf(text, sizeof(text), "%.*s", (int)nr, good);
		assert_int_equal(nvme_dhchap_key_parse(&key, text, error, sizeof(error)), -EINVAL);
	}
}

static void test_base64(void **state)
{
	char text[16];

	(void)state;
	/* RFC 4648 10 */
	assert_string_equal(nvme_secret_base64(text, (const uint8_t *)"", 0), "");
	assert_string_equal(nvme_secret_base64(text, (const uint8_t *)"f", 1), "Zg==");
	assert_string_equal(nvme_secret_base64(text, (const uint8_t *)"fo", 2), "Zm8=");
	assert_string_equal(nvme_secret_base64(text, (const uint8_t *)"foo", 3), "Zm9v");
	assert_string_equal(nvme_secret_base64(text, (const uint8_t *)"foobar", 6), "Zm9vYmFy");
	assert_string_equal(nvme_secret_base64(text, (const uint8_t *)"\xfb\xff\xbf", 3), "+/+/");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_any_character),
		cmocka_unit_test(test_base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
