/*
 * What libbpf is told and asked for all commands. No state; main thread. Failure modes: what cannot
 * be asked is 0.
 */
#include "ublktrace/kernel/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "ublktrace/kernel/machine.h"

bool programs_want(struct bpf_program *program, const char *module, const char *function)
{
	return machine_has_function(module, function) && !bpf_program__set_autoload(program, true);
}

static int programs_print_nothing(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

void programs_silence_libbpf(void)
{
	libbpf_set_print(programs_print_nothing);
}

uint64_t programs_skipped_of(const struct bpf_program *program)
{
	struct bpf_prog_info info = { 0 };
	uint32_t bytes = sizeof(info);
	int fd = bpf_program__fd(program);

	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &bytes) ? info.recursion_misses : 0;
}

uint64_t programs_skipped(const struct bpf_object *object)
{
	struct bpf_program *program;
	uint64_t sum = 0;

	bpf_object__for_each_program(program, object) sum += programs_skipped_of(program);
	return sum;
}
