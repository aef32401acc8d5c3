/* attach_words: names for words of all kinds, and YAML that the daemon reads back as it was meant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ublkctl/attach_words.h"

static bool nobody(const char *name, const void *arg)
{
	(void)name, (void)arg;
	return false;
}

/* arg: names, with a space before and behind each. */
static bool some(const char *name, const void *arg)
{
	char word[SETTINGS_NAME_MAX + 3];

	snprintf(word, sizeof(word), " %s ", name);
	return strstr(arg, word) != NULL;
}

static void check_name(const char *text, const char *expected)
{
	char error[WORD_ERROR_BYTES], name[SETTINGS_NAME_MAX + 1];
	struct word word;

	assert_int_equal(word_find(text, &word, error), 0);
	attach_name(&word, text, nobody, NULL, name);
	assert_string_equal(name, expected);
	assert_null(settings_name_wrong(name));
}

static void test_paths(void **state)
{
	(void)state;
	check_name("/srv/vm.img", "vm.img");
	check_name("/dev/loop0", "loop0");
	check_name("disk", "disk");
	check_name("/srv/a b:c\n.img", "a-b-c-.img");
	check_name("/srv/\xc3\xbc\xe2\x82\xac.img", "img");
	check_name("/srv/x\xc3\xbc\xe2\x82\xacy", "x--y");
	check_name("/srv/.hidden", "hidden");
	check_name("/srv/..", "disk");
	check_name("/srv/--x", "x");
	check_name("/srv/folder//", "folder");
	check_name("/", "disk");
	check_name("/0123456789012345678901234567890123456789", "0123456789012345678901234567890");
}

static void test_uris(void **state)
{
	(void)state;
	check_name("nbd://host:10809/vms/disk-1", "disk-1");
	check_name("nbd://alice@host/export?tls-psk-file=/etc/keys", "export");
	check_name("nbd+unix:///my%20disk?socket=/run/x", "my-disk");
	check_name("nbd://host/a%2Fb/d%69sk%2d1%zz%4", "disk-1-zz-4");
	check_name("nbd://host/%2Fa%2fb", "a-b");
	check_name("nbd://host/x%c3%bc%E2%82%ACy%00", "x--y-");
	check_name("nbd://host/%2e%2E", "disk");
	check_name(
		"nbd://host/%61%62%63%64%65%66%67%68%69%6a%6b%6c%6d%6e%6f%70%71%72%73%74%75%76%77"
		"%78%79%7a%30%31%32%33%34%35%36%37%38%39",
		"abcdefghijklmnopqrstuvwxyz01234");
	check_name("http://host/my%20disk.img?sign=%20", "my-disk.img");
	check_name("nvme+tcp://host/nqn.2024-01.com.example:my%20disk/1", "my-disk");
	check_name("nbd:unix:/run/nbd.sock", "nbd.sock");
	check_name("nbd:unix:nbd.sock", "nbd.sock");
	check_name("nbd:unix:/run/nbd.sock:exportname=vms/disk%201", "disk-201");
	check_name("nbd:localhost:10809:exportname=disk-1", "disk-1");
	check_name("nbd:localhost:10809", "localhost-10809");
	check_name("nbd:unix:/s:exportname=", "nbd");
	check_name("nbd://storage.example.com", "storage.example.com");
	check_name("nbds://alice@storage:1/?tls-type=x509", "storage");
	check_name("nbd://[::1]:10809/", "1");
	check_name("nbd://[fe80::1]", "fe80--1");
	check_name("nbd+unix:///?socket=/run/nbd/x", "nbd");
	check_name("nbd://", "nbd");
	check_name("s3://images/base/my disk.img", "my-disk.img");
	check_name("nbd://host#/x", "host");
	check_name("nvme+tcp://host:4420/nqn.2024-01.com.example:vms.disk-1/1?hdr_digest=1",
		   "vms.disk-1");
	check_name("nvme+tcp://host/nqn.2024-01.com.example", "nqn.2024-01.com.example");
	check_name("nvme+tcp://host/nvmet-test/1", "nvmet-test");
	check_name("nvme+tcp://host/", "host");
	check_name("nbd://host/nqn.", "nqn.");
	check_name("rbd:pool/disk", "disk");
	check_name("rbd:pool/space/disk.1@monday", "disk.1-monday");
	check_name("RBD:", "rbd");
	check_name("/srv/vm.qcow2", "vm.qcow2");
}

static void check_free(const char *path, const char *taken, const char *expected)
{
	char error[WORD_ERROR_BYTES], name[SETTINGS_NAME_MAX + 1];
	struct word word;

	assert_int_equal(word_find(path, &word, error), 0);
	attach_name(&word, path, some, taken, name);
	assert_string_equal(name, expected);
}

static void test_taken_names(void **state)
{
	(void)state;
	check_free("/a", " b a-2 ", "a");
	check_free("/a", " a ", "a-2");
	check_free("/a", " a a-2 a-3 a-5 ", "a-4");
	check_free("/0123456789012345678901234567890", " 0123456789012345678901234567890 ",
		   "01234567890123456789012345678-2");
}

/* Returns what the daemon understands. */
static void read_back(struct settings *s, const struct attach_device *d)
{
	char *yaml = attach_yaml(d);
	struct config_errors e;

	assert_non_null(yaml);
	config_errors_init(&e, "f");
	if (settings_parse_devices(s, yaml, strlen(yaml), &e) < 0)
		fail_msg("%s%s", yaml, config_errors_text(&e));
	assert_int_equal(s->device_nr, 1);
	config_errors_fini(&e);
	free(yaml);
}

static void check_path(const char *path)
{
	struct attach_device d = { .name = "x", .value = path };
	char error[WORD_ERROR_BYTES];
	struct settings s;

	assert_int_equal(word_find(path, &d.word, error), 0);
	read_back(&s, &d);
	assert_string_equal(backend_spec_leaf_path(backend_spec_leaf(s.devices[0]->backend, 0)),
			    path);
	assert_string_equal(s.devices[0]->options.name, "x");
	assert_int_equal(s.devices[0]->options.queues, 1);
	assert_false(s.devices[0]->options.read_only);
	settings_free(&s);
}

static void test_any_character(void **state)
{
	char path[3] = "/";

	(void)state;
	for (int c = 1; c < 0x80; c++) {
		path[1] = (char)c;
		check_path(path);
	}
	check_path("/a'b\"c\\d: {e} [f] #g, &h *i %j @k `l |m >n\n\t!o ");
	check_path("/\xc3\xbc\xe2\x82\xac\xf0\x9f\x92\xbe\xc2\x85\xe2\x80\xa8\xef\xbb\xbf");
	check_path("null");
	check_path("~");
	check_path("0x10");
}

static void test_options(void **state)
{
	struct attach_device d = { .name = "0", .value = "/x", .queues = 2, .read_only = true };
	char error[WORD_ERROR_BYTES], *yaml;
	struct settings s;

	(void)state;
	assert_int_equal(word_find("/x", &d.word, error), 0);
	read_back(&s, &d);
	assert_string_equal(s.devices[0]->options.name, "0");
	assert_int_equal(s.devices[0]->options.queues, 2);
	assert_true(s.devices[0]->options.read_only);
	settings_free(&s);
	yaml = attach_yaml(&d);
	assert_string_equal(yaml, "name: \"0\"\nqueues: 2\nread_only: true\n"
				  "backend:\n  type: file\n  path: \"/x\"\n");
	free(yaml);
	d.block_bytes = 4096;
	read_back(&s, &d);
	assert_int_equal(s.devices[0]->options.block_bytes, 4096);
	settings_free(&s);
	d.value = "/\xff";
	assert_null(attach_yaml(&d));
}

static void test_uri_yaml(void **state)
{
	struct attach_device d = { .name = "n", .value = "nbd+unix:///a?socket=/run/x" };
	char error[WORD_ERROR_BYTES];
	struct settings s;

	(void)state;
	assert_int_equal(word_find(d.value, &d.word, error), 0);
	read_back(&s, &d);
	assert_string_equal(s.devices[0]->stack, "nbd");
	settings_free(&s);
}

/* The daemon finds the file below the image. */
static void test_image_yaml(void **state)
{
	struct attach_device d = { .name = "n", .value = "/srv/a: b.qcow2" };
	char error[WORD_ERROR_BYTES];
	struct settings s;

	(void)state;
	assert_int_equal(word_find(d.value, &d.word, error), 0);
	read_back(&s, &d);
	assert_string_equal(s.devices[0]->backend->ops->name, "qcow2");
	assert_string_equal(*(char *const *)((const char *)s.devices[0]->backend->child->config +
					     d.word.option->offset),
			    d.value);
	settings_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),	    cmocka_unit_test(test_uris),
		cmocka_unit_test(test_taken_names), cmocka_unit_test(test_any_character),
		cmocka_unit_test(test_options),	    cmocka_unit_test(test_uri_yaml),
		cmocka_unit_test(test_image_yaml),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
