/* The tables of names against the BTF of the kernel that runs: a newer kernel's opcode without a
 * name, or a number that means another thing, is told by its name there. */
#include <bpf/btf.h>
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ublktrace/events/names.h"

static struct btf *kernel;

/* Each row of the enum: fn(number, its name without the prefix). Returns how many, -1: no such
 * enum. */
static int each(const char *type, const char *prefix, void (*fn)(unsigned number, const char *name))
{
	int id = btf__find_by_name_kind(kernel, type, BTF_KIND_ENUM), n;
	const struct btf_type *t;
	const char *name;

	if (id < 0)
		return -1;
	t = btf__type_by_id(kernel, (uint32_t)id);
	n = btf_vlen(t);
	for (int i = 0; i < n; i++) {
		name = btf__name_by_offset(kernel, btf_enum(t)[i].name_off);
		assert_non_null(name);
		assert_memory_equal(name, prefix, strlen(prefix));
		fn((unsigned)btf_enum(t)[i].val, name + strlen(prefix));
	}
	return n;
}

static void check_opcode(unsigned number, const char *name)
{
	if (!strcmp(name, "LAST")) {
		print_message("# this kernel has %u opcodes, the table %u\n", number,
			      name_opcode_nr());
		return;
	}
	if (!name_opcode(number))
		fail_msg("opcode %u, %s of this kernel, has no name", number, name);
	assert_string_equal(name_opcode(number), name);
}

static void check_block_op(unsigned number, const char *name)
{
	char lower[64];
	size_t i;

	if (!strcmp(name, "LAST"))
		return;
	for (i = 0; name[i] && i < sizeof(lower) - 1; i++)
		lower[i] = (char)tolower((unsigned char)name[i]);
	lower[i] = 0;
	if (!name_block_op(number))
		fail_msg("REQ_OP_%s (%u) of this kernel has no name", name, number);
	assert_string_equal(name_block_op(number), lower);
}

static void test_opcodes(void **state)
{
	(void)state;
	if (!kernel)
		skip();
	assert_true(each("io_uring_op", "IORING_OP_", check_opcode) > 40);
}

static void test_block_ops(void **state)
{
	(void)state;
	if (!kernel)
		skip();
	assert_true(each("req_op", "REQ_OP_", check_block_op) > 8);
}

/* The bits of the SQE have an enum of their own: IOSQE_FIXED_FILE_BIT. */
static void check_sqe_flag(unsigned bit, const char *name)
{
	char wanted[64], got[NAME_FLAGS_BYTES];

	snprintf(wanted, sizeof(wanted), "%s_BIT", name_sqe_flags(1u << bit, got, sizeof(got)));
	assert_string_equal(wanted, name);
}

static void test_sqe_flags(void **state)
{
	(void)state;
	if (!kernel)
		skip();
	if (each("io_uring_sqe_flags_bit", "IOSQE_", check_sqe_flag) < 7) {
		print_message("# the kernel's BTF has no io_uring_sqe_flags_bit\n");
		skip();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opcodes),
		cmocka_unit_test(test_block_ops),
		cmocka_unit_test(test_sqe_flags),
	};
	int failed;

	kernel = btf__load_vmlinux_btf(); /* NULL: this kernel has none, or hides it */
	failed = cmocka_run_group_tests_name("trace_btf", tests, NULL, NULL);
	btf__free(kernel);
	return failed;
}
