/* config/option.h: every type, default, limit and message. */
#include "test/rig/config_check.h"

#include <stdio.h>

#include "base/util.h"

struct sample {
	char *name;
	char *note;
	bool read_only;
	uint64_t queues;
	uint64_t max_io;
	uint64_t size;
	uint64_t timeout_ns;
	int type;
	struct option_cpus cpus;
	struct yaml_node *backend;
	uint64_t hidden;
};

static const char *const types[] = { "null", "mem", "file", NULL };

#define FIELD(member) .offset = offsetof(struct sample, member)

static const struct option table[] = {
	{ .name = "name",
	  .type = OPTION_STRING,
	  FIELD(name),
	  .min = 2,
	  .max = 8,
	  .flags = OPTION_REQUIRED,
	  .help = "The name." },
	{ .name = "note", .type = OPTION_STRING, FIELD(note), .def = "''" },
	{ .name = "read_only", .type = OPTION_BOOL, FIELD(read_only), .def = "no" },
	{ .name = "queues", .type = OPTION_UINT, FIELD(queues), .min = 1, .max = 4096, .def = "2" },
	{ .name = "max_io",
	  .type = OPTION_SIZE,
	  FIELD(max_io),
	  .min = 4096,
	  .max = MIB(1),
	  .def = "512KiB",
	  .flags = OPTION_POWER_OF_TWO },
	{ .name = "size", .type = OPTION_SIZE, FIELD(size) },
	{ .name = "timeout",
	  .type = OPTION_DURATION,
	  FIELD(timeout_ns),
	  .min = NS_PER_MS,
	  .max = 3600 * NS_PER_SEC,
	  .def = "30s" },
	{ .name = "type", .type = OPTION_ENUM, FIELD(type), .values = types, .def = "file" },
	{ .name = "cpus", .type = OPTION_CPUS, FIELD(cpus), .def = "[0, 1]" },
	{ .name = "backend", .type = OPTION_NODE, FIELD(backend) },
	{ .name = "hidden", .type = OPTION_UINT, FIELD(hidden), .flags = OPTION_HIDDEN },
	OPTION_END,
};

/* Parses text, then its root by the table; the caller frees with sample_fini. */
static int sample_parse(struct config_check *c, struct sample *s, const char *text)
{
	check_parse(c, text);
	assert_int_equal(c->ret, 0);
	return option_parse(table, c->doc.root, NULL, s, sizeof(*s), &c->errors);
}

static void sample_fini(struct config_check *c, struct sample *s)
{
	option_free(table, s);
	check_fini(c);
}

static void good(struct config_check *c, struct sample *s, const char *text)
{
	int ret = sample_parse(c, s, text);

	check_errors(&c->errors, "");
	assert_int_equal(ret, 0);
}

static void bad(const char *text, const char *expected)
{
	struct config_check c;
	struct sample s;
	int ret = sample_parse(&c, &s, text);

	check_errors(&c.errors, expected);
	assert_int_equal(ret, -EINVAL);
	sample_fini(&c, &s);
}

/* ---- the map as a whole ---- */

static void assert_defaults(const struct sample *s)
{
	assert_string_equal(s->note, "");
	assert_false(s->read_only);
	assert_int_equal(s->queues, 2);
	assert_int_equal(s->max_io, KIB(512));
	assert_int_equal(s->size, 0);
	assert_int_equal(s->timeout_ns, 30 * NS_PER_SEC);
	assert_int_equal(s->type, 2);
	assert_false(s->cpus.is_auto);
	assert_int_equal(s->cpus.nr, 2);
	assert_int_equal(s->cpus.cpu[1], 1);
	assert_null(s->backend);
}

static void test_defaults(void **state)
{
	struct config_check c;
	struct sample s;

	(void)state;
	memset(&s, 0xff, sizeof(s));
	good(&c, &s, "name: disk\n");
	assert_string_equal(s.name, "disk");
	assert_defaults(&s);
	sample_fini(&c, &s);
	assert_null(s.name);
	option_free(table, &s); /* again is harmless */
}

static void test_everything_given(void **state)
{
	struct config_check c;
	struct sample s;

	(void)state;
	good(&c, &s,
	     "name: disk\nnote: a b\nread_only: true\nqueues: 0x10\nmax_io: 64k\n"
	     "size: 1T\ntimeout: 500ms\ntype: mem\ncpus: auto\nbackend: {a: 1}\nhidden: 7\n");
	assert_string_equal(s.note, "a b");
	assert_true(s.read_only);
	assert_int_equal(s.queues, 16);
	assert_int_equal(s.max_io, KIB(64));
	assert_int_equal(s.size, TIB(1));
	assert_int_equal(s.timeout_ns, 500 * NS_PER_MS);
	assert_int_equal(s.type, 1);
	assert_true(s.cpus.is_auto);
	assert_ptr_equal(s.backend, yaml_get(c.doc.root, "backend"));
	assert_int_equal(s.hidden, 7);
	sample_fini(&c, &s);
}

static void test_all_errors_at_once(void **state)
{
	(void)state;
	bad("qeues: 2\n"
	    "queues: 5000\n"
	    "max_io: 1MB2\n"
	    "read_only: maybe\n"
	    "type: fil\n"
	    "cpus: [0, 1, 0]\n"
	    "backend: mem\n"
	    "zebra: 1\n",
	    "f:1:1: unknown key \"qeues\" (did you mean \"queues\"?)\n"
	    "f:1:1: \"name\" is missing\n"
	    "f:2:9: queues: 5000 is above the maximum 4096\n"
	    "f:3:9: max_io: \"1MB2\" is not a size (examples: 4096, 64k, 1MiB, 10G)\n"
	    "f:4:12: read_only: \"maybe\" is neither true nor false\n"
	    "f:5:7: type: \"fil\" is not one of null, mem, file (did you mean \"file\"?)\n"
	    "f:6:14: cpus: CPU 0 is given twice\n"
	    "f:7:10: backend: expected a map or a list, not a text\n"
	    "f:8:1: unknown key \"zebra\"\n");
}

/* A wrong value leaves the default: what is read on has something sane to look at. */
static void test_wrong_value_leaves_the_default(void **state)
{
	struct config_check c;
	struct sample s;

	(void)state;
	assert_int_equal(sample_parse(&c, &s,
				      "name: disk\nnote: []\nqueues: x\nmax_io: 5\ntimeout: x\n"
				      "type: x\ncpus: x\nread_only: x\nbackend: x\n"),
			 -EINVAL);
	assert_int_equal(c.errors.nr, 8);
	assert_defaults(&s);
	sample_fini(&c, &s);
}

static void test_skip(void **state)
{
	static const char *const skip[] = { "other", "queues", NULL };
	struct config_check c;
	struct sample s;

	(void)state;
	check_good(&c, "name: disk\nother: 1\nqueues: x\nothr: 2\n");
	assert_int_equal(option_parse(table, c.doc.root, skip, &s, sizeof(s), &c.errors), -EINVAL);
	check_errors(&c.errors, "f:4:1: unknown key \"othr\" (did you mean \"other\"?)\n");
	assert_int_equal(s.queues, 2);
	sample_fini(&c, &s);
}

static void test_hidden_is_not_suggested(void **state)
{
	(void)state;
	bad("name: disk\nhiden: 1\n", "f:2:1: unknown key \"hiden\"\n");
}

static void test_no_value(void **state)
{
	struct config_check c;
	struct sample s;

	(void)state;
	bad("name:\n", "f:1:1: name: has no value\n");
	bad("name: ~\n", "f:1:1: name: has no value\n");
	bad("queues: 3\nname: ''\n", "f:2:7: name: must not be empty\n");
	/* Where it may be left out, a null is the default. */
	good(&c, &s,
	     "name: null\nnote:\nread_only: ~\nqueues:\nmax_io: null\nsize:\ntimeout:\n"
	     "cpus: ~\nbackend:\ntype:\n");
	assert_string_equal(s.name, "null"); /* a text like any other */
	assert_defaults(&s);
	sample_fini(&c, &s);
}

/* The null backend is called so, quoted or not. */
static void test_null_is_a_name_too(void **state)
{
	static const char *const texts[] = { "null", "'null'", "\"null\"", "!!str null" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct config_check c;
		struct sample s;
		char text[64];

		snprintf(text, sizeof(text), "name: %s\ntype: %s\n", texts[i], texts[i]);
		good(&c, &s, text);
		assert_string_equal(s.name, "null");
		assert_int_equal(s.type, 0);
		sample_fini(&c, &s);
	}
}

static void test_wrong_kinds(void **state)
{
	(void)state;
	bad("name: [a]\nnote: {}\nread_only: []\nqueues: {a: 1}\nsize: []\ntimeout: []\n"
	    "type: [mem]\ncpus: {a: 1}\n",
	    "f:1:7: name: expected a text, not a list\n"
	    "f:2:7: note: expected a text, not a map\n"
	    "f:3:12: read_only: expected true or false, not a list\n"
	    "f:4:9: queues: expected a number, not a map\n"
	    "f:5:7: size: expected a size, not a list\n"
	    "f:6:10: timeout: expected a duration, not a list\n"
	    "f:7:7: type: expected a text, not a list\n"
	    "f:8:7: cpus: expected auto or a list of CPU numbers, not a map\n");
}

/* What one option in a map with a name says; NULL: it is accepted. */
static void check_value(const char *option, const char *value, const char *message)
{
	char text[200], expected[400] = "";
	struct config_check c;
	struct sample s;
	int ret;

	snprintf(text, sizeof(text), "name: disk\n%s: %s\n", option, value);
	if (message)
		snprintf(expected, sizeof(expected), "f:2:%zu: %s: %s\n", strlen(option) + 3,
			 option, message);
	ret = sample_parse(&c, &s, text);
	check_errors(&c.errors, expected);
	assert_int_equal(ret, message ? -EINVAL : 0);
	sample_fini(&c, &s);
}

/* ---- each type ---- */

static void test_string(void **state)
{
	struct config_check c;
	struct sample s;

	(void)state;
	good(&c, &s, "name: 123\nnote: 1e3\n");
	assert_string_equal(s.name, "123");
	assert_string_equal(s.note, "1e3");
	sample_fini(&c, &s);
	bad("name: x\n", "f:1:7: name: 1 bytes are below the minimum 2\n");
	bad("name: 123456789\n", "f:1:7: name: 9 bytes are above the maximum 8\n");
	good(&c, &s, "name: 12345678\n");
	sample_fini(&c, &s);
	good(&c, &s, "name: 12\n");
	sample_fini(&c, &s);
}

static void test_bool(void **state)
{
	static const char *const words[2][6] = { { "false", "no", "off", "False", "NO", "'off'" },
						 { "true", "yes", "on", "True", "YES", "\"on\"" } };
	struct config_check c;
	struct sample s;
	char text[64];

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		for (size_t j = 0; j < ARRAY_SIZE(words[i]); j++) {
			snprintf(text, sizeof(text), "name: disk\nread_only: %s\n", words[i][j]);
			good(&c, &s, text);
			assert_int_equal(s.read_only, i);
			sample_fini(&c, &s);
		}
	check_value("read_only", "1", "\"1\" is neither true nor false");
	check_value("read_only", "''", "\"\" is neither true nor false");
	check_value("read_only", "tru", "\"tru\" is neither true nor false");
}

static void check_hex(const char *value, uint64_t number)
{
	struct config_check c;
	struct sample s;
	char text[64];

	snprintf(text, sizeof(text), "name: disk\nhidden: %s\n", value);
	good(&c, &s, text);
	assert_true(s.hidden == number);
	sample_fini(&c, &s);
}

static void test_uint(void **state)
{
	static const char *const wrong[] = {
		"1e3",	 "0x",	"0xg",	"+1",  "1.0",
		"1_000", "12x", "0o17", "--1", "0xG",
		"0x@",	 "0x`", "-1x",	"1 2", "99999999999999999999x"
	};
	char message[100];

	(void)state;
	check_value("queues", "1", NULL);
	check_value("queues", "4096", NULL);
	check_value("queues", "0X1000", NULL);
	check_value("queues", "\"7\"", NULL);
	check_value("queues", "007", NULL); /* decimal, not octal */
	check_value("queues", "0", "0 is below the minimum 1");
	check_value("queues", "-5", "-5 is below the minimum 1");
	check_value("queues", "-99999999999999999999",
		    "-99999999999999999999 is below the minimum 1");
	check_value("queues", "4097", "4097 is above the maximum 4096");
	check_value("queues", "0x1001", "0x1001 is above the maximum 4096");
	check_value("queues", "18446744073709551616",
		    "18446744073709551616 is above the maximum 4096");
	check_value("hidden", "18446744073709551615", NULL);
	check_value("hidden", "0xffffffffffffffff", NULL);
	check_hex("0x123456789abcdef", 0x123456789abcdefull);
	check_hex("0XFEDCBA9876543210", 0xfedcba9876543210ull);
	check_value("hidden", "18446744073709551616",
		    "18446744073709551616 is above the maximum 18446744073709551615");
	check_value("hidden", "0x10000000000000000",
		    "0x10000000000000000 is above the maximum 18446744073709551615");
	check_value("hidden", "''", "\"\" is not a number (examples: 128, 0x80)");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		snprintf(message, sizeof(message), "\"%s\" is not a number (examples: 128, 0x80)",
			 wrong[i]);
		check_value("queues", wrong[i], message);
	}
}

static void test_size_limits(void **state)
{
	(void)state;
	check_value("max_io", "4095", "4095 is below the minimum 4KiB");
	check_value("max_io", "4096", NULL);
	check_value("max_io", "1MiB", NULL);
	check_value("max_io", "2M", "2M is above the maximum 1MiB");
	check_value("max_io", "-1k", "-1k is below the minimum 4KiB");
	check_value("max_io", "5000", "5000 is not a power of two (nearest: 4KiB, 8KiB)");
	check_value("max_io", "99999999999999999999",
		    "99999999999999999999 is above the maximum "
		    "1MiB");
	check_value("size", "15EiB", NULL);
	check_value("size", "16EiB", "16EiB is above the maximum 18446744073709551615");
	check_value("size", "1MB", "\"1MB\" is not a size (examples: 4096, 64k, 1MiB, 10G)");
}

static void test_duration_limits(void **state)
{
	(void)state;
	check_value("timeout", "1ms", NULL);
	check_value("timeout", "1h", NULL);
	check_value("timeout", "999us", "999us is below the minimum 1ms");
	check_value("timeout", "61m", "61m is above the maximum 1h");
	check_value("timeout", "-1", "-1 is below the minimum 1ms");
	check_value("timeout", "99999999999h", "99999999999h is above the maximum 1h");
	check_value("timeout", "soon", "\"soon\" is not a duration (examples: 500ms, 10s, 2m, 1h)");
}

static void test_enum(void **state)
{
	struct config_check c;
	struct sample s;

	(void)state;
	good(&c, &s, "name: disk\ntype: 'mem'\n");
	assert_int_equal(s.type, 1);
	sample_fini(&c, &s);
	check_value("type", "MEM", "\"MEM\" is not one of null, mem, file");
	check_value("type", "flie",
		    "\"flie\" is not one of null, mem, file (did you mean \"file\"?)");
	check_value("type", "''", "\"\" is not one of null, mem, file");
	check_value("type", "\"\\e[1m\"", "\"\\x1b[1m\" is not one of null, mem, file");
}

static void assert_cpus(const char *value, const unsigned *cpus, unsigned nr)
{
	struct config_check c;
	struct sample s;
	char text[100];

	snprintf(text, sizeof(text), "name: disk\ncpus: %s\n", value);
	good(&c, &s, text);
	assert_false(s.cpus.is_auto);
	assert_int_equal(s.cpus.nr, nr);
	assert_memory_equal(s.cpus.cpu, cpus, nr * sizeof(*cpus));
	sample_fini(&c, &s);
}

static void test_cpus(void **state)
{
	static const char wrong[] = "names no CPUs (examples: auto, [0, 1], 0-3,6)";
	static const char *const wrong_values[] = { "x",  "1-",	 "-1",	"3-1",	 "1,,2",
						    "1,", "1 2", "0x1", "1-2-3", "Auto" };
	char message[200];

	(void)state;
	assert_cpus("7", (unsigned[]){ 7 }, 1);
	assert_cpus("[3, 1]", (unsigned[]){ 3, 1 }, 2);
	assert_cpus("0-3,6", (unsigned[]){ 0, 1, 2, 3, 6 }, 5);
	assert_cpus("'0, 2'", (unsigned[]){ 0, 2 }, 2);
	assert_cpus("[0-1, 8191]", (unsigned[]){ 0, 1, 8191 }, 3);
	assert_cpus("5-5", (unsigned[]){ 5 }, 1);
	for (size_t i = 0; i < ARRAY_SIZE(wrong_values); i++) {
		snprintf(message, sizeof(message), "\"%s\" %s", wrong_values[i], wrong);
		check_value("cpus", wrong_values[i], message);
	}
	bad("name: disk\ncpus: [0, auto]\n",
	    "f:2:11: cpus: \"auto\" names no CPUs (examples: auto, [0, 1], 0-3,6)\n");
	bad("name: disk\ncpus: [0, [1]]\n", "f:2:11: cpus: expected a CPU number\n");
	check_value("cpus", "8192", "CPU 8192 is above the maximum 8191");
	check_value("cpus", "0-8192", "CPU 8192 is above the maximum 8191");
	check_value("cpus", "99999999999999999999999",
		    "CPU 99999999999999999999 is above the "
		    "maximum 8191");
	check_value("cpus", "0-3,2", "CPU 2 is given twice");
	check_value("cpus", "[]", "the list is empty (auto: one per CPU)");
	check_value("cpus", "0-8191", NULL);
}

/* ---- option_set, option_equal ---- */

static void test_set(void **state)
{
	struct config_pos pos = { 3, 4 };
	struct config_errors e;
	struct sample s = { 0 };

	(void)state;
	config_errors_init(&e, "f");
	assert_int_equal(option_set(table, "name", "disk", pos, &s, &e), 0);
	assert_int_equal(option_set(table, "name", "'a # b'", pos, &s, &e), 0);
	assert_string_equal(s.name, "a # b");
	assert_int_equal(option_set(table, "cpus", "[4, 2]", pos, &s, &e), 0);
	assert_int_equal(option_set(table, "cpus", "0-2", pos, &s, &e), 0);
	assert_int_equal(s.cpus.nr, 3);
	assert_int_equal(option_set(table, "queues", "9", pos, &s, &e), 0);
	assert_int_equal(s.queues, 9);
	assert_int_equal(option_set(table, "queues", "", pos, &s, &e), 0);
	assert_int_equal(s.queues, 2); /* nothing: the default */
	assert_int_equal(option_set(table, "size", "9", pos, &s, &e), 0);
	assert_int_equal(option_set(table, "size", "~", pos, &s, &e), 0);
	assert_int_equal(s.size, 0);
	check_errors(&e, "");
	assert_int_equal(option_set(table, "queues", "0", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "quues", "1", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "name", "", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "name", "[a", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "note", "a: b", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "backend", "{}", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "cpus", "[1, 1]", pos, &s, &e), -EINVAL);
	assert_int_equal(option_set(table, "note", "{a: 1, a: 1, b: 1, b: 1}", pos, &s, &e),
			 -EINVAL);
	check_errors(&e, "f:3:4: queues: 0 is below the minimum 1\n"
			 "f:3:4: unknown key \"quues\" (did you mean \"queues\"?)\n"
			 "f:3:4: name: has no value\n"
			 "f:3:4: name: expected \",\" or \"]\" (of what begins at 1:1)\n"
			 "f:3:4: note: expected a text, not a map\n"
			 "f:3:4: backend: can only be given in a file\n"
			 "f:3:4: cpus: CPU 1 is given twice\n"
			 "f:3:4: note: key \"a\" is given twice (first on line 1)\n"
			 "f:3:4: note: key \"b\" is given twice (first on line 1)\n");
	assert_string_equal(s.name, "a # b");
	option_free(table, &s);
	config_errors_fini(&e);
}

static bool equal_texts(const char *a, const char *b)
{
	struct config_check ca, cb;
	struct sample sa, sb;
	bool equal;

	good(&ca, &sa, a);
	good(&cb, &sb, b);
	equal = option_equal(table, &sa, &sb);
	assert_int_equal(option_equal(table, &sb, &sa), equal);
	sample_fini(&ca, &sa);
	sample_fini(&cb, &sb);
	return equal;
}

static void test_equal(void **state)
{
	/* Each differs from all others. */
	static const char *const texts[] = {
		"name: disk",
		"name: disc",
		"name: disk\nnote: x",
		"name: disk\nread_only: yes",
		"name: disk\nqueues: 3",
		"name: disk\nmax_io: 4k",
		"name: disk\nsize: 1",
		"name: disk\ntimeout: 1",
		"name: disk\ntype: mem",
		"name: disk\ncpus: auto",
		"name: disk\ncpus: [1, 0]",
		"name: disk\ncpus: [0]",
		"name: disk\nbackend: []",
		"name: disk\nbackend: [1]",
		"name: disk\nbackend: [2]",
		"name: disk\nbackend: [1, 2]",
		"name: disk\nbackend: [1, 3]",
		"name: disk\nbackend: {}",
		"name: disk\nbackend: {a: 1}",
		"name: disk\nbackend: {a: 2}",
		"name: disk\nbackend: {b: 1}",
		"name: disk\nbackend: {a: [1]}",
		"name: disk\nbackend: {a: 1, b: 1}",
		"name: disk\nbackend: {a: 1, b: 2}",
	};

	struct sample nothing = { 0 }, also_nothing = { 0 }, noted = { .note = (char *)"" };

	(void)state;
	assert_true(option_equal(table, &nothing, &also_nothing));
	assert_false(option_equal(table, &nothing, &noted));
	assert_false(option_equal(table, &noted, &nothing));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		for (size_t j = 0; j < ARRAY_SIZE(texts); j++)
			assert_int_equal(equal_texts(texts[i], texts[j]), i == j);
	/* The same said otherwise: units, quotes, order, merged, the default spelled out. */
	assert_true(equal_texts("name: disk\nsize: 1M\nqueues: 2", "size: 1024k\nname: 'disk'"));
	assert_true(equal_texts("name: disk\nbackend: {a: 1, b: [x]}",
				"name: disk\nbackend: {b: ['x'], <<: {a: '1'}}"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_everything_given),
		cmocka_unit_test(test_all_errors_at_once),
		cmocka_unit_test(test_wrong_value_leaves_the_default),
		cmocka_unit_test(test_skip),
		cmocka_unit_test(test_hidden_is_not_suggested),
		cmocka_unit_test(test_no_value),
		cmocka_unit_test(test_null_is_a_name_too),
		cmocka_unit_test(test_wrong_kinds),
		cmocka_unit_test(test_string),
		cmocka_unit_test(test_bool),
		cmocka_unit_test(test_uint),
		cmocka_unit_test(test_size_limits),
		cmocka_unit_test(test_duration_limits),
		cmocka_unit_test(test_enum),
		cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_equal),
	};

	return cmocka_run_group_tests_name("option", tests, NULL, NULL);
}
