/* Encrypted images: the passphrase, what is refused in which words, and whose opening waits. */
#include <pthread.h>
#include <sys/stat.h>

#include "test/rig/key_file.h"
#include "test/rig/rbd_rig.h"
#include "storage/resize.h"

static void write_key(const char *text)
{
	int fd = open(key_path, O_WRONLY | O_TRUNC);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void encrypt(const char *passphrase, rbd_encryption_format_t format)
{
	snprintf(fake_image()->passphrase, sizeof(fake_image()->passphrase), "%s", passphrase);
	fake_image()->format = format;
}

static char *encrypted(const char *type)
{
	static char yaml[200];

	snprintf(yaml, sizeof(yaml), RBD_VOL "encryption: %s\npassphrase_file: %s", type, key_path);
	return yaml;
}

static void fails(const char *yaml, int err, const char *words)
{
	vol_open_fails(yaml, err, words);
	/* Nothing is left of it. */
	assert_int_equal(fake_client_nr(), 0);
}

/* ---- it opens ---- */

static void test_a_key(void **state)
{
	struct vol_rig rig;

	(void)state;
	write_key("secret\n");
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS1);
	vol_open_rig(&rig, encrypted("luks1"));
	assert_string_equal(fake_conf(1, "librados_thread_count"), "2");
	assert_int_equal(rig.device->limits.size_bytes, (4u << 20) - FAKE_LUKS_HEADER_BYTES);
	assert_int_equal(rig.device->limits.logical_block_bytes, 0);
	/* librbd would write encrypted zeroes. */
	assert_int_equal(rig.device->limits.caps, BACKEND_CAP_WRITE_ZEROES);
	assert_int_equal(vol_write(&rig, 0, 4096, 0x5a), 0);
	assert_int_equal(fake_image()->data[FAKE_LUKS_HEADER_BYTES], 0x5a);
	/* Growing would have to know the header. */
	assert_int_equal(backend_grow(rig.device, 6u << 20, rig.error, sizeof(rig.error)),
			 -EOPNOTSUPP);
	assert_string_equal(rig.error, "the image is encrypted: let it grow by rbd resize, the "
				       "device follows");
	vol_close_rig(&rig);
}

static void test_luks2_blocks(void **state)
{
	struct vol_rig rig;

	(void)state;
	write_key("secret");
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS2);
	fails(encrypted("luks2"), -EINVAL,
	      "cannot serve blocks of 512 bytes: set block_size: 4096");
	vol_configure(&rig, encrypted("luks2"));
	rig.params.logical_block_bytes = 4096;
	assert_int_equal(vol_open_device(&rig), 0);
	vol_close_rig(&rig);
}

/* As rbd of Ceph 18 and cryptsetup take a file. */
static void test_a_line_end_in_the_key(void **state)
{
	struct vol_rig rig;
	char words[200];

	(void)state;
	write_key("secret\n");
	encrypt("secret\n", RBD_ENCRYPTION_FORMAT_LUKS1);
	vol_open_rig(&rig, encrypted("luks1"));
	vol_close_rig(&rig);
	write_key("secret");
	snprintf(words, sizeof(words),
		 "passphrase_file: the passphrase in %s does not open rbd/vol", key_path);
	fails(encrypted("luks1"), -EPERM, words);
}

/* ---- it does not ---- */

static void test_a_wrong_key(void **state)
{
	char words[200];

	(void)state;
	snprintf(words, sizeof(words),
		 "passphrase_file: the passphrase in %s does not open rbd/vol", key_path);
	write_key("secret\n\n");
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS2);
	fails(encrypted("luks2"), -EPERM, words);
	/* Seconds each: there is no second try without a line's end. */
	write_key("secre");
	fails(encrypted("luks2"), -EPERM, words);
	assert_int_equal(fake_call_nr("rbd_encryption_load"), 3);
}

static void test_an_empty_key(void **state)
{
	char words[200];

	(void)state;
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS2);
	snprintf(words, sizeof(words), "passphrase_file: %s is empty, or longer than 4096 bytes",
		 key_path);
	write_key("");
	fails(encrypted("luks2"), -EINVAL, words);
	write_key("\n");
	fails(encrypted("luks2"), -EINVAL, words);
	assert_int_equal(truncate(key_path, 4097), 0);
	fails(encrypted("luks2"), -EINVAL, words);
}

static void test_no_key(void **state)
{
	char words[200];

	(void)state;
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS2);
	fails(RBD_VOL "encryption: luks2\npassphrase_file: /nowhere/f", -ENOENT,
	      "/nowhere/f: No such file or directory");
	write_key("secret");
	assert_int_equal(chmod(key_path, 0644), 0);
	snprintf(words, sizeof(words),
		 "%s: its key is open to everybody on this machine: chmod o= %s", key_path,
		 key_path);
	fails(encrypted("luks2"), -EPERM, words);
	assert_int_equal(chmod(key_path, 0600), 0);
}

static void test_not_encrypted_so(void **state)
{
	(void)state;
	write_key("secret");
	fails(encrypted("luks1"), -EINVAL,
	      "encryption: rbd/vol has no header of LUKS1: see rbd encryption format");
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS1);
	fails(encrypted("luks2"), -EINVAL,
	      "encryption: rbd/vol has no header of LUKS2: see rbd encryption format");
	fake_fail_call("rbd_encryption_load", -ENOTSUP, 1);
	fails(encrypted("luks1"), -ENOTSUP,
	      "rbd/vol is in LUKS1 with a cipher that librbd does not have: it has "
	      "aes-xts-plain64");
	fake_fail_call("rbd_encryption_load", -ENOMEM, 1);
	fails(encrypted("luks1"), -ENOMEM, "rbd/vol cannot be decrypted: ENOMEM");
}

/* ---- several at once ---- */

struct opener {
	pthread_t thread;
	atomic_int tid; /* set when it is about to open */
	struct vol_rig rig;
	int ret;
};

static void *opener_run(void *arg)
{
	struct opener *o = arg;

	atomic_store(&o->tid, gettid());
	o->ret = vol_open_device(&o->rig);
	return NULL;
}

/* So many of two images compute their keys at the same time. */
static void open_two(const char *more, unsigned at_once)
{
	static struct opener openers[2];
	char yaml[300];

	write_key("secret");
	encrypt("secret", RBD_ENCRYPTION_FORMAT_LUKS1);
	snprintf(yaml, sizeof(yaml), "%s\n%s", encrypted("luks1"), more);
	fake_block_call("rbd_encryption_load");
	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&openers[i].tid, 0);
		vol_configure(&openers[i].rig, yaml);
		assert_int_equal(pthread_create(&openers[i].thread, NULL, opener_run, &openers[i]),
				 0);
	}
	while (fake_call_nr("rbd_get_id") < 2)
		vol_pause_ms(1);
	for (unsigned i = 0; i < 2; i++)
		vol_wait_asleep(&openers[i].tid);
	assert_int_equal(fake_blocked_nr("rbd_encryption_load"), at_once);
	fake_unblock_call("rbd_encryption_load");
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(openers[i].thread, NULL);
		assert_int_equal(openers[i].ret, 0);
		vol_close_rig(&openers[i].rig);
	}
}

static void test_one_of_a_client_at_a_time(void **state)
{
	(void)state;
	open_two("", 1);
}

static void test_other_clients_do_not_wait(void **state)
{
	(void)state;
	open_two("images_per_client: 1", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RBD_TEST(test_a_key),
		RBD_TEST(test_luks2_blocks),
		RBD_TEST(test_a_line_end_in_the_key),
		RBD_TEST(test_a_wrong_key),
		RBD_TEST(test_an_empty_key),
		RBD_TEST(test_no_key),
		RBD_TEST(test_not_encrypted_so),
		RBD_TEST(test_one_of_a_client_at_a_time),
		RBD_TEST(test_other_clients_do_not_wait),
	};

	return cmocka_run_group_tests(tests, key_file_make, key_file_remove);
}
