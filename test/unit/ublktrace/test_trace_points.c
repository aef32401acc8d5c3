/* What a machine says of its functions: lists of names, BTF, modules, in a made-up /proc and /sys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/btf.h>
#include <cmocka.h>

#include "base/probes.h"
#include "base/util.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/kernel/point.h"
#include "ublktrace/elf/symbols.h"
#include "ublktrace/elf/usdt.h"

static char root[64];

/* --- lists of names --------------------------------------------------------------------------- */

static void read_text(void (*read)(FILE *, struct symbol *, size_t), const char *text,
		      struct symbol *symbols, size_t nr)
{
	FILE *f = fmemopen((void *)text, strlen(text), "r");

	assert_non_null(f);
	read(f, symbols, nr);
	fclose(f);
}

static const char kallsyms[] = "ffffffff81000000 T blk_mq_submit_bio\n"
			       "0000000000000000 t ublk_queue_rq\t[ublk_drv]\n"
			       "0000000000000000 t ublk_start_dev.isra.0.cold\t[ublk_drv]\n"
			       "0000000000000000 t ublk_start_dev.isra.0\t[ublk_drv]\n"
			       "0000000000000000 t both.constprop.0\n"
			       "0000000000000000 t both\n"
			       "0000000000000000 t both.part.0\n"
			       "0000000000000000 t only_cold.cold\n"
			       "0000000000000000 d data\n"
			       "0000000000000000 t foreign\t[other_drv]\n"
			       "0000000000000000 t prefix\t[ublk_drv_more]\n"
			       "0000000000000000 T built_in\n"
			       "0000000000000000 T blk_mq_submit_bio_more\n"
			       "\n"
			       "short\n"
			       "0000000000000000 t\n";

static struct symbol wanted[] = {
	{ .name = "ublk_queue_rq", .module = "ublk_drv" },
	{ .name = "blk_mq_submit_bio" },
	{ .name = "ublk_start_dev", .module = "ublk_drv" },
	{ .name = "both" },
	{ .name = "only_cold" },
	{ .name = "data" },
	{ .name = "foreign" },
	{ .name = "prefix", .module = "ublk_drv" },
	{ .name = "built_in", .module = "ublk_drv" },
	{ .name = "absent" },
};

static const char *found(const char *name)
{
	const struct symbol *s = symbols_find(wanted, ARRAY_SIZE(wanted), name);

	assert_non_null(s);
	return s->found;
}

static bool traceable(const char *name)
{
	return symbols_find(wanted, ARRAY_SIZE(wanted), name)->traceable;
}

static void test_symbols(void **state)
{
	(void)state;
	symbols_sort(wanted, ARRAY_SIZE(wanted));
	read_text(symbols_read_kallsyms, kallsyms, wanted, ARRAY_SIZE(wanted));
	assert_string_equal(found("ublk_queue_rq"), "ublk_queue_rq");
	assert_string_equal(found("blk_mq_submit_bio"), "blk_mq_submit_bio");
	assert_string_equal(found("ublk_start_dev"), "ublk_start_dev.isra.0");
	assert_string_equal(found("both"), "both");
	assert_string_equal(found("only_cold"), "");
	assert_string_equal(found("data"), "");
	assert_string_equal(found("foreign"), "");
	assert_string_equal(found("prefix"), "");
	assert_string_equal(found("built_in"), "built_in");
	assert_string_equal(found("absent"), "");
	assert_null(symbols_find(wanted, ARRAY_SIZE(wanted), "blk_mq_submit_bio_more"));
}

static void test_traceable(void **state)
{
	static const char list[] = "blk_mq_submit_bio\n"
				   "ublk_start_dev.isra.0 [ublk_drv]\n"
				   "both.constprop.0\n"
				   "built_in [another]\n"
				   "\n";

	(void)state;
	read_text(symbols_read_traceable, list, wanted, ARRAY_SIZE(wanted));
	assert_true(traceable("blk_mq_submit_bio"));
	assert_true(traceable("ublk_start_dev"));
	assert_false(traceable("both")); /* what was found is the plain one */
	assert_false(traceable("built_in"));
	assert_false(traceable("ublk_queue_rq"));
}

/* A name as long as none is: neither found nor beyond its room. */
static void test_long_name(void **state)
{
	struct symbol s = { .name = "x" };
	char line[4 * SYMBOL_BYTES];

	(void)state;
	strcpy(line, "0 t ");
	memset(line + 4, 'x', sizeof(line) - 6);
	strcpy(line + sizeof(line) - 2, "\n");
	read_text(symbols_read_kallsyms, line, &s, 1);
	line[5] = '.';
	read_text(symbols_read_kallsyms, line, &s, 1);
	assert_string_equal(s.found, "");
}

/* --- a machine -------------------------------------------------------------------------------- */

static FILE *create(const char *path)
{
	char full[256], *slash;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0755);
		*slash = '/';
	}
	return fopen(full, "w");
}

static void write_file(const char *path, const void *data, size_t bytes)
{
	FILE *f = create(path);

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, bytes, f), bytes);
	fclose(f);
}

static void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

static void write_btf(const char *path, struct btf *btf)
{
	__u32 bytes;
	const void *data = btf__raw_data(btf, &bytes);

	assert_non_null(data);
	write_file(path, data, bytes);
}

/* void NAME(void *, int, int), as a function or as the type of a tracepoint's probe */
static void add_type(struct btf *btf, const char *name)
{
	int of_int = btf__add_int(btf, "int", 4, BTF_INT_SIGNED), proto;
	bool probe = !strncmp(name, "btf_trace_", 10);

	proto = btf__add_func_proto(btf, 0);
	btf__add_func_param(btf, "", btf__add_ptr(btf, 0) > 0 ? of_int : of_int);
	assert_true(proto > 0);
	if (!probe) {
		assert_true(btf__add_func(btf, name, BTF_FUNC_STATIC, proto) > 0);
		return;
	}
	assert_true(btf__add_typedef(btf, name, btf__add_ptr(btf, proto)) > 0);
}

static void make_btf(void)
{
	struct btf *kernel = btf__new_empty(), *module;
	int of_int, proto;

	add_type(kernel, "blk_mq_submit_bio");
	add_type(kernel, "__traceiter_block_rq_issue"); /* a function of that name, no probe */
	of_int = btf__add_int(kernel, "long", 8, BTF_INT_SIGNED);
	proto = btf__add_func_proto(kernel, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(btf__add_func_param(kernel, "p", of_int), 0);
	assert_true(btf__add_typedef(kernel, "btf_trace_io_uring_complete",
				     btf__add_ptr(kernel, proto)) > 0);
	write_btf("/sys/kernel/btf/vmlinux", kernel);
	module = btf__new_empty_split(kernel);
	add_type(module, "ublk_queue_rq");
	add_type(module, "ublk_hidden");
	write_btf("/sys/kernel/btf/ublk_drv", module);
	btf__free(module);
	btf__free(kernel);
}

static int make_machine(void **state)
{
	(void)state;
	strcpy(root, "/tmp/ublktrace-points.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	write_text("/proc/sys/kernel/osrelease", "6.12.3-test\n");
	write_text("/proc/kallsyms", "0 T blk_mq_submit_bio\n"
				     "0 T __traceiter_io_uring_complete\n"
				     "0 T __traceiter_block_rq_issue\n"
				     "0 t ublk_queue_rq\t[ublk_drv]\n"
				     "0 t ublk_hidden\t[ublk_drv]\n"
				     "0 t ublk_ch_uring_cmd\t[ublk_drv]\n"
				     "0 t ublk_ctrl_start_dev.isra.0\t[ublk_drv]\n");
	write_text("/sys/kernel/tracing/available_filter_functions",
		   "blk_mq_submit_bio\nublk_queue_rq [ublk_drv]\nublk_ch_uring_cmd [ublk_drv]\n"
		   "ublk_ctrl_start_dev.isra.0 [ublk_drv]\n");
	write_text("/sys/module/ublk_drv/refcnt", "0\n");
	make_btf();
	point_forget();
	machine_root_set(root);
	return 0;
}

static int remove_machine(void **state)
{
	char command[128];

	(void)state;
	point_forget();
	machine_root_set("");
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static enum point_state look(const char *symbol, const char *module, enum point_how how)
{
	struct point p = { .symbol = symbol, .module = module, .how = how };
	char name[128];

	return point_look(&p, name, sizeof(name));
}

/* What is there can be had with the capabilities of whoever runs this. */
static enum point_state there(bool module)
{
	char lacks[64];

	return machine_lacks(module, lacks, sizeof(lacks))[0] ? POINT_NO_RIGHT : POINT_OK;
}

static void test_states(void **state)
{
	(void)state;
	assert_int_equal(look("blk_mq_submit_bio", NULL, POINT_FENTRY), there(false));
	assert_int_equal(look("ublk_queue_rq", "ublk_drv", POINT_FENTRY), there(true));
	assert_int_equal(look("io_uring_complete", NULL, POINT_BTF_TRACEPOINT), there(false));
	assert_int_equal(look("block_rq_issue", NULL, POINT_BTF_TRACEPOINT), POINT_NO_BTF);
	assert_int_equal(look("ublk_ch_uring_cmd", "ublk_drv", POINT_FENTRY), POINT_NO_BTF);
	assert_int_equal(look("ublk_ch_uring_cmd", "ublk_drv", POINT_KPROBE), there(false));
	assert_int_equal(look("ublk_hidden", "ublk_drv", POINT_FENTRY), POINT_NOT_TRACEABLE);
	assert_int_equal(look("ublk_ctrl_start_dev", "ublk_drv", POINT_FENTRY), POINT_SUFFIXED);
	assert_int_equal(look("ublk_ctrl_set_params", "ublk_drv", POINT_FENTRY), POINT_INLINED);
	assert_int_equal(look("nvme_queue_rq", "nvme", POINT_FENTRY), POINT_NO_MODULE);
	assert_int_equal(look("io_uring_new", NULL, POINT_BTF_TRACEPOINT), POINT_NO_KERNEL);
	assert_int_equal(look("io__nothing", NULL, POINT_USDT), POINT_NO_KERNEL);
}

static void test_bounds(void **state)
{
	struct point later = { .symbol = "ublk_later",
			       .module = "ublk_drv",
			       .how = POINT_FENTRY,
			       .since = POINT_KERNEL(6, 13) },
		     before = later, now = later, found_anyway = later;
	char name[128];

	(void)state;
	before.since = 0;
	before.until = POINT_KERNEL(6, 12);
	now.since = POINT_KERNEL(6, 12);
	found_anyway.symbol = "ublk_queue_rq";
	assert_int_equal(point_look(&later, name, sizeof(name)), POINT_NO_KERNEL);
	assert_int_equal(point_look(&before, name, sizeof(name)), POINT_NO_KERNEL);
	assert_int_equal(point_look(&now, name, sizeof(name)), POINT_INLINED);
	assert_int_equal(point_look(&found_anyway, name, sizeof(name)), there(true));
}

static void test_found_name(void **state)
{
	struct point p = { .symbol = "ublk_ctrl_start_dev",
			   .module = "ublk_drv",
			   .how = POINT_FENTRY };
	char name[128];

	(void)state;
	point_look(&p, name, sizeof(name));
	assert_string_equal(name, "ublk_ctrl_start_dev.isra.0");
	p.symbol = "ublk_ctrl_set_params";
	point_look(&p, name, sizeof(name));
	assert_string_equal(name, "");
}

static void test_tracepoint_args(void **state)
{
	(void)state;
	assert_int_equal(point_tracepoint_args("io_uring_complete"), 3);
	assert_int_equal(point_tracepoint_args("block_rq_issue"), -ENOENT);
}

/* Without BTF everything is still told apart. */
static void test_no_btf(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/sys/kernel/btf/vmlinux", root);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/sys/kernel/btf/ublk_drv", root);
	assert_int_equal(unlink(path), 0);
	point_forget();
	machine_root_set(root);
	assert_int_equal(look("blk_mq_submit_bio", NULL, POINT_FENTRY), POINT_NO_BTF);
	assert_int_equal(look("io_uring_complete", NULL, POINT_BTF_TRACEPOINT), POINT_NO_BTF);
	assert_int_equal(look("ublk_ctrl_set_params", "ublk_drv", POINT_FENTRY), POINT_INLINED);
	assert_int_equal(point_tracepoint_args("io_uring_complete"), -ENOTSUP);
}

/* Every state and way has words, every point a name and a text, none twice. */
static void test_table(void **state)
{
	size_t nr;
	const struct point *p = points(&nr);

	(void)state;
	for (int s = POINT_OK; s <= POINT_NO_KERNEL; s++) {
		assert_non_null(point_state_name((enum point_state)s));
		assert_non_null(point_state_cure((enum point_state)s));
	}
	for (size_t i = 0; i < nr; i++) {
		assert_true(p[i].what[0] && p[i].symbol[0]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(p[i].symbol, p[j].symbol);
	}
}

/* --- static probes ---------------------------------------------------------------------------- */

static void test_usdt(void **state)
{
	uint64_t offset = 0;

	(void)state;
	PROBE1(points__test, 1);
	assert_int_equal(usdt_find_in("/proc/self/exe", "ublkd", "points__tes", &offset), -ENOENT);
	assert_int_equal(usdt_find_in("/proc/self/exe", "ublk", "points__test", &offset), -ENOENT);
	assert_int_equal(usdt_find_in("/dev/null", "ublkd", "points__test", &offset), -ENOENT);
	assert_int_equal(usdt_find_in("/nowhere", "ublkd", "points__test", &offset), -ENOENT);
#ifdef UBLKD_USDT
	assert_int_equal(usdt_find_in("/proc/self/exe", "ublkd", "points__test", &offset), 0);
	assert_true(offset > 0);
#endif
}

/* A file that ends anywhere, or whose bytes are others, has no probe or one; nothing worse. */
static void test_usdt_hostile(void **state)
{
	static uint8_t bytes[1 << 16];
	char path[] = "/tmp/ublktrace-elf.XXXXXX";
	FILE *f = fopen("/proc/self/exe", "r");
	int fd = mkstemp(path);
	uint64_t offset;
	size_t size;

	(void)state;
	assert_true(f && fd >= 0);
	size = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	for (size_t end = 0; end < size; end = end * 2 + 7) {
		for (size_t i = 0; i < 64; i++) {
			bytes[i < 16 ? 16 : i] ^= (uint8_t)(end + i);
			assert_int_equal(pwrite(fd, bytes, end, 0), end);
			assert_int_equal(ftruncate(fd, (off_t)end), 0);
			usdt_find_in(path, "ublkd", "points__test", &offset);
		}
	}
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols),	   cmocka_unit_test(test_traceable),
		cmocka_unit_test(test_long_name),  cmocka_unit_test(test_table),
		cmocka_unit_test(test_usdt),	   cmocka_unit_test(test_usdt_hostile),
		cmocka_unit_test(test_states),	   cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_found_name), cmocka_unit_test(test_tracepoint_args),
		cmocka_unit_test(test_no_btf),
	};

	return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
