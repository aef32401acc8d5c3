/* Capabilities of this process. Any thread. */
#ifndef HOST_CAPS_H
#define HOST_CAPS_H

#include <stdbool.h>

/* Whether the effective set of the calling thread has cap (CAP_SYS_PTRACE). False: it cannot be
 * read. */
bool host_has_cap(unsigned cap);

#endif
