/* Shared by machine.c and machine_btf.c, and for tests. */
#ifndef TRACE_MACHINE_PATH_H
#define TRACE_MACHINE_PATH_H

const char *machine_root(void);
void machine_btf_forget(void);

#endif
