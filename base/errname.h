/* Errno values by name, for logs and messages. Any thread. */
#ifndef BASE_ERRNAME_H
#define BASE_ERRNAME_H

/* "ENOSPC" for ENOSPC or -ENOSPC; "E?" for what has no name. Never NULL, static storage. */
const char *errname(int err);

#endif
