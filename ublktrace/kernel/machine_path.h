/* Shared by machine.c and machine_btf.c, and for tests. */
#ifndef UBLKTRACE_KERNEL_MACHINE_PATH_H
#define UBLKTRACE_KERNEL_MACHINE_PATH_H

const char *machine_root(void);
void machine_btf_forget(void);

#endif
