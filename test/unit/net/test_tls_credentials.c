/* The files of TLS: what is wrong with them is said with the file's name and the cure. */
#include "test/rig/tls_rig.h"

static char error[600];

static int read_config(const struct tls_config *config)
{
	struct tls_credentials *c = NULL;
	int ret;

	error[0] = '\0';
	ret = tls_credentials_new(&c, config, error, sizeof(error));
	assert_true((ret == 0) == (c != NULL));
	assert_true((ret == 0) == (error[0] == '\0'));
	tls_credentials_free(c);
	return ret;
}

static void assert_error(const char *part)
{
	if (!strstr(error, part))
		fail_msg("\"%s\" is not in: %s", part, error);
}

/* ---- PSK ---- */

static int read_psk(const char *text, const char *username)
{
	struct tls_config config = { .kind = TLS_KIND_PSK,
				     .psk_file = in_folder("some.psk"),
				     .username = username };

	write_text(config.psk_file, text, 0600);
	return read_config(&config);
}

static void test_psk_lines(void **state)
{
	(void)state;
	assert_int_equal(read_psk("qemu:" HEX_KEY "\n", "qemu"), 0);
	assert_int_equal(read_psk("qemu:" HEX_KEY, "qemu"), 0);
	assert_int_equal(
		read_psk("\n:\n#\n#zz:00\nqemux:zz\nq:zz\nno line\nqemu:" HEX_KEY " \r\n", "qemu"),
		0);
	/* psktool -u a:b */
	assert_int_equal(read_psk("#613a62:" HEX_KEY "\n", "a:b"), 0);
	assert_int_equal(read_psk("#613a62:" HEX_KEY "\n", "#613a62"), -ENOENT);
	assert_int_equal(read_psk("#233631:" HEX_KEY "\n", "#61"), 0);
}

static void test_psk_errors(void **state)
{
	(void)state;
	assert_int_equal(read_psk("eve:" HEX_KEY "\n", "qemu"), -ENOENT);
	assert_error("some.psk: has no key of user \"qemu\": make one with psktool -u qemu -p ");
	assert_int_equal(read_psk("eve:00\nqemu:\n", "qemu"), -EINVAL);
	assert_error("some.psk:2: user \"qemu\" has no key");
	assert_int_equal(read_psk("eve:00\nqemu:xyz\n", "qemu"), -EINVAL);
	assert_error("some.psk:2: the key of user \"qemu\" is not hexadecimal");
	assert_null(strstr(error, "xyz"));
	assert_int_equal(read_psk("", "qemu"), -EINVAL);
	assert_error("some.psk: is empty");
	assert_int_equal(read_psk("qemu:" HEX_KEY "\n", ""), -EINVAL);
	assert_error("set tls-username");
	assert_int_equal(read_config(&(struct tls_config){ .kind = TLS_KIND_PSK }), -EINVAL);
	assert_error("set tls-psk-file");
}

static void test_psk_files(void **state)
{
	static const mode_t open_modes[] = { 0604, 0602, 0666 };
	struct tls_config config = { .kind = TLS_KIND_PSK,
				     .psk_file = in_folder("keys.psk"),
				     .username = "qemu" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(open_modes); i++) {
		assert_int_equal(chmod(config.psk_file, open_modes[i]), 0);
		assert_int_equal(read_config(&config), -EPERM);
		assert_error(
			"keys.psk: its key is open to everybody on this machine: chmod o= /tmp/");
	}
	assert_int_equal(chmod(config.psk_file, 0660), 0);
	assert_int_equal(read_config(&config), 0);
	config.psk_file = in_folder("none.psk");
	assert_int_equal(read_config(&config), -ENOENT);
	assert_error("none.psk: No such file or directory");
	config.psk_file = folder;
	assert_int_equal(read_config(&config), -EINVAL);
	assert_error(": is not a file");
	config.psk_file = in_folder("fifo");
	assert_int_equal(mkfifo(config.psk_file, 0600), 0);
	assert_int_equal(read_config(&config), -EINVAL);
	config.psk_file = in_folder("large");
	write_text(config.psk_file, "qemu:00", 0600);
	assert_int_equal(truncate(config.psk_file, MIB(5)), 0);
	assert_int_equal(read_config(&config), -EFBIG);
	assert_error("is larger than 4 MiB");
}

/* ---- X509 ---- */

static int read_folder(const char *name, bool no_verify)
{
	return read_config(&(struct tls_config){ .kind = TLS_KIND_X509,
						 .certificates = in_folder("%s", name),
						 .no_verify = no_verify });
}

static void test_authorities(void **state)
{
	(void)state;
	assert_int_equal(read_folder("ca", false), 0);
	assert_int_equal(read_folder("nowhere", false), -ENOENT);
	assert_error("nowhere/ca-cert.pem: No such file or directory");
	assert_int_equal(read_folder("nowhere", true), 0);
	make_folder("bad", &authority, NULL);
	write_text(in_folder("bad/ca-cert.pem"), "no certificate\n", 0644);
	assert_int_equal(read_folder("bad", false), -EINVAL);
	assert_error("bad/ca-cert.pem: ");
}

/* A list of revoked certificates that is there and cannot be used is never taken for none. */
static void test_revocation_list(void **state)
{
	static const char *const bad[] = {
		"no list\n",
		"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
		"-----BEGIN X509 CRL-----\n",
	};
	char path[256];

	(void)state;
	snprintf(path, sizeof(path), "%s", in_folder("crl/ca-crl.pem"));
	assert_int_equal(read_folder("crl", false), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		write_text(path, bad[i], 0644);
		assert_int_equal(read_folder("crl", false), -EINVAL);
		assert_error("crl/ca-crl.pem: ");
	}
	write_text(path, "", 0644);
	assert_int_equal(read_folder("crl", false), -EINVAL);
	assert_error("crl/ca-crl.pem: is empty");
	assert_int_equal(truncate(path, MIB(5)), 0);
	assert_int_equal(read_folder("crl", false), -EFBIG);
	assert_error("crl/ca-crl.pem: is larger than 4 MiB");
	/* An authority's certificate is no list. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(link(in_folder("crl/ca-cert.pem"), path), 0);
	assert_int_equal(read_folder("crl", false), -EINVAL);
	assert_error("crl/ca-crl.pem: ");
	/* What cannot be opened: root may open everything but these. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("ca-crl.pem", path), 0);
	assert_int_equal(read_folder("crl", false), -ELOOP);
	assert_error("crl/ca-crl.pem: Too many levels of symbolic links");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(read_folder("crl", false), -EINVAL);
	assert_error("crl/ca-crl.pem: is not a file");
	assert_int_equal(rmdir(path), 0);
	/* A link to a list that is not there: none was meant to be missing. */
	assert_int_equal(symlink("/nowhere/ca-crl.pem", path), 0);
	assert_int_equal(read_folder("crl", false), -ENOENT);
	assert_error("crl/ca-crl.pem: No such file or directory");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(read_folder("crl", false), 0);
}

static void test_own_certificate(void **state)
{
	(void)state;
	assert_int_equal(read_folder("client", false), 0);
	assert_int_equal(chmod(in_folder("client/client-key.pem"), 0644), 0);
	assert_int_equal(read_folder("client", false), -EPERM);
	assert_error("client/client-key.pem: its key is open to everybody");
	write_key(in_folder("client/client-key.pem"), &foreign);
	assert_int_equal(read_folder("client", false), -EINVAL);
	assert_error("client/client-cert.pem: ");
	assert_int_equal(unlink(in_folder("client/client-key.pem")), 0);
	assert_int_equal(read_folder("client", false), -ENOENT);
	assert_error("client/client-key.pem: No such file");
	write_key(in_folder("client/client-key.pem"), &client);
	assert_int_equal(unlink(in_folder("client/client-cert.pem")), 0);
	assert_int_equal(read_folder("client", true), -ENOENT);
	assert_error("client/client-cert.pem: No such file");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_psk_lines),	cmocka_unit_test(test_psk_errors),
		cmocka_unit_test(test_psk_files),	cmocka_unit_test(test_authorities),
		cmocka_unit_test(test_own_certificate), cmocka_unit_test(test_revocation_list),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
