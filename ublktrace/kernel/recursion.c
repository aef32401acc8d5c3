/*
 * Sums what bpf_prog_info says of each program. Programs that were not loaded have none.
 */
#include "ublktrace/kernel/recursion.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

uint64_t recursion_misses_of(const struct bpf_program *program)
{
	struct bpf_prog_info info = { 0 };
	uint32_t bytes = sizeof(info);
	int fd = bpf_program__fd(program);

	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &bytes) ? info.recursion_misses : 0;
}

uint64_t recursion_misses(const struct bpf_object *object)
{
	struct bpf_program *program;
	uint64_t sum = 0;

	bpf_object__for_each_program(program, object) sum += recursion_misses_of(program);
	return sum;
}
