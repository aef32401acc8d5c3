/*
 * Pre-shared keys for TLS: text, identities and keys. Those of version 1 with a hash are in
 * libnvme's tests too; all others, and the keys, are what Python's hmac calculates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "backends/nvme/keys/nvme_tls_key.h"
#include "base/util.h"

#define KEY32 "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ"
#define KEY48 "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ=="

static const struct vector {
	const char *text;
	enum nvme_tls_version version;
	bool old_labels;
	const char *identity, *psk;
} vectors[] = {
	{ "NVMeTLSkey-1:01:" KEY32 ":", NVME_TLS_V1, false,
	  "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys "
	  "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
	  "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca" },
	{ "NVMeTLSkey-1:02:" KEY48 ":", NVME_TLS_V1, false,
	  "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys "
	  "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
	  "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282d"
	  "da2e62ca" },
	{ "NVMeTLSkey-1:00:" KEY32 ":", NVME_TLS_V1, false,
	  "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys "
	  "quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=",
	  "a45d08ee4639c7570729bb3e57e905e466a49a15ece5401af906830c4d3bdb0b" },
	{ "NVMeTLSkey-1:00:" KEY48 ":", NVME_TLS_V1, false,
	  "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys "
	  "dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW",
	  "1569317890995e207ab4cf148bc53470561e148030cb019b1d87fb4bc5794a791ed5ee68676c952ce5f11f37"
	  "86e900d4" },
	{ "NVMeTLSkey-1:01:" KEY32 ":", NVME_TLS_V0, false,
	  "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys",
	  "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68" },
	{ "NVMeTLSkey-1:02:" KEY48 ":", NVME_TLS_V0, false,
	  "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys",
	  "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da"
	  "4970a78d" },
	{ "NVMeTLSkey-1:00:" KEY32 ":", NVME_TLS_V0, false,
	  "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys",
	  "ec85300ba827726bd3bc4fc07f3a34aec5fe7c8ccac05fefc2f021c74e0df9ef" },
	{ "NVMeTLSkey-1:00:" KEY48 ":", NVME_TLS_V0, false,
	  "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys",
	  "b5dd464067a9378ba2226d71f005d7ac90ed8696e4b2142084384365597201d33ba26f8aeeb529574d4267bd"
	  "294a828e" },
	{ "NVMeTLSkey-1:01:" KEY32 ":", NVME_TLS_V1, true,
	  "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys "
	  "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
	  "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2" },
	{ "NVMeTLSkey-1:02:" KEY48 ":", NVME_TLS_V1, true,
	  "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys "
	  "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
	  "fcefe2e2a2e682b1447dcabf1ec268f78f08c63cd075753abcc8bda2c5c34d48d3014aa8d76ad80107e4f5c9"
	  "f27e2149" },
	{ "NVMeTLSkey-1:00:" KEY32 ":", NVME_TLS_V1, true,
	  "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys "
	  "quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=",
	  "d50f6d3dd79345b6e8217744524df5ac0dc66964ff70cc5fd18e1b9d57ce7fcf" },
	{ "NVMeTLSkey-1:00:" KEY48 ":", NVME_TLS_V1, true,
	  "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys "
	  "dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW",
	  "f6259eaeaab509d2e42bc494098bd1ccc4334b2528a1a34ea95fbe27e3fa75e3422d260a299110afa4217052"
	  "1b02d689" },
	{ "NVMeTLSkey-1:01:" KEY32 ":", NVME_TLS_V0, true,
	  "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys",
	  "09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb" },
	{ "NVMeTLSkey-1:02:" KEY48 ":", NVME_TLS_V0, true,
	  "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys",
	  "2ee4754186a625b28a3936ef4a40d839c3ad958b2e017562ee07e2501f172ce999dc9c29033ea7ee33f814f1"
	  "92c13f47" },
	{ "NVMeTLSkey-1:00:" KEY32 ":", NVME_TLS_V0, true,
	  "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys",
	  "e2b16189378b34adba9fec995ab479040cedec0bc7c6b47728ee4d8de6ff52ba" },
	{ "NVMeTLSkey-1:00:" KEY48 ":", NVME_TLS_V0, true,
	  "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys",
	  "9cb989c1d40fdcdc1bb729d6691901bfcd0b310f060f558d4a63c7afc2a0923f2d0610073fded349d25d6b3f"
	  "91980826" },
};

static struct nvme_tls_key key;

static void parse(const char *text)
{
	char error[200] = "untouched";

	assert_int_equal(nvme_tls_key_parse(&key, text, error, sizeof(error)), 0);
	assert_string_equal(error, "untouched");
}

static void check_hex(const uint8_t *at, uint32_t bytes, const char *hex)
{
	char text[2 * 48 + 1];

	assert_int_equal(strlen(hex), 2 * bytes);
	for (uint32_t i = 0; i < bytes; i++)
		snprintf(text + (size_t)2 * i, 3, "%02x", at[i]);
	assert_string_equal(text, hex);
}

static void test_vectors(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		struct nvme_tls_derivation how = {
			.version = v->version,
			.old_labels = v->old_labels,
			.host_nqn = "nqn.psk-test-host",
			.subsystem_nqn = "nqn.psk-test-subsys",
		};
		struct nvme_tls_psk psk;

		parse(v->text);
		assert_int_equal(nvme_tls_psk_derive(&psk, &key, &how), 0);
		assert_string_equal(psk.identity, v->identity);
		assert_int_equal(psk.hash, psk.bytes == 32 ? NVME_HASH_SHA256 : NVME_HASH_SHA384);
		check_hex(psk.psk, psk.bytes, v->psk);
	}
}

static void check_bad(const char *text, const char *words)
{
	static const struct nvme_tls_key none;
	char error[200] = "";

	memset(&key, 0xee, sizeof(key));
	assert_int_equal(nvme_tls_key_parse(&key, text, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, words);
	assert_memory_equal(key.secret.key, none.secret.key, sizeof(none.secret.key));
	assert_int_equal(key.secret.bytes, 0);
}

/* What else is wrong with a text: test_nvme_secret.c */
static void test_bad(void **state)
{
	(void)state;
	check_bad("NVMeTLSkey-2:01:" KEY32 ":", "does not begin with NVMeTLSkey-1:");
	check_bad("DHHC-1:01:" KEY32 ":",
		  "is a key for DH-HMAC-CHAP: one for TLS begins with NVMeTLSkey-1:");
	check_bad("NVMeTLSkey-1:03:" KEY32 ":",
		  "names hash 03: known are 00 (none), 01 (SHA-256) and 02 (SHA-384)");
	check_bad("NVMeTLSkey-1:02:" KEY32 ":",
		  "has a key of 32 bytes, which does not go with hash 02: that has 48");
	check_bad("NVMeTLSkey-1:01:" KEY48 ":",
		  "has a key of 48 bytes, which does not go with hash 01: that has 32");
	check_bad("NVMeTLSkey-1:00:AQQHCg0QExYZHB8iJSgrLjE0Nzo9QENGSUxPUlVYW15hZGdqbXBzdnl8f4KFiI"
		  "uOkZSXmp2go6aprK+ytbi7vjuf7H8=:",
		  "has a key of 64 bytes: one for TLS has 32 or 48");
	check_bad("NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrA:",
		  "has a checksum that is wrong: a character was changed");
}

static int derive_named(struct nvme_tls_psk *psk, enum nvme_tls_version version, unsigned host,
			unsigned subsystem)
{
	char names[2][224] = { 0 };
	struct nvme_tls_derivation how = {
		.version = version,
		.host_nqn = names[0],
		.subsystem_nqn = names[1],
	};

	memset(names[0], 'h', host);
	memset(names[1], 's', subsystem);
	return nvme_tls_psk_derive(psk, &key, &how);
}

/* HkdfLabel has room for 255 bytes of identity; a digest always fits. */
static void test_long_names(void **state)
{
	static const struct nvme_tls_psk none;
	struct nvme_tls_psk psk;

	(void)state;
	parse("NVMeTLSkey-1:02:" KEY48 ":");
	assert_int_equal(derive_named(&psk, NVME_TLS_V0, 223, 22), 0);
	assert_int_equal(strlen(psk.identity), 255);
	assert_int_equal(derive_named(&psk, NVME_TLS_V0, 223, 23), -ENAMETOOLONG);
	assert_memory_equal(&psk, &none, sizeof(none));
	assert_int_equal(derive_named(&psk, NVME_TLS_V1, 223, 223), 0);
	assert_int_equal(strlen(psk.identity), NVME_TLS_IDENTITY_BYTES - 1);
}

/* Each host has its own key, but of text with hash 00 it is one for all, but for the names. */
static void test_hosts(void **state)
{
	struct nvme_tls_psk a, b;

	(void)state;
	parse("NVMeTLSkey-1:01:" KEY32 ":");
	derive_named(&a, NVME_TLS_V1, 20, 30);
	derive_named(&b, NVME_TLS_V1, 21, 30);
	assert_memory_not_equal(a.psk, b.psk, 32);
	derive_named(&b, NVME_TLS_V1, 20, 31);
	assert_memory_not_equal(a.psk, b.psk, 32);
	derive_named(&b, NVME_TLS_V1, 20, 30);
	assert_memory_equal(&a, &b, sizeof(a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
