/* Capabilities of this process. Any thread. */
#ifndef HOST_CAPS_H
#define HOST_CAPS_H

#include <stdbool.h>

/* Whether the effective set of the calling thread has cap (CAP_SYS_PTRACE). False: it cannot be
 * read. */
bool host_has_cap(unsigned cap);

/*
 * Whether this process has CAP_SYS_ADMIN as the kernel's capable() asks for it: in the first user
 * namespace. In any other one the capability says nothing to a driver.
 */
bool host_is_privileged(void);

#endif
