/* Files that hold secrets, and others that are read beside them. Any thread that may wait for
 * files. */
#ifndef NET_SECRET_FILE_H
#define NET_SECRET_FILE_H

#include <stddef.h>

enum secrecy { FILE_PUBLIC, FILE_SECRET };

/*
 * Opens a regular file for reading. A secret that everybody on this machine may read or write is
 * refused, as ssh and libpq do (the tools write them with mode 600); its group may, for services
 * share keys that way. Returns the descriptor, or -errno with words that name the file.
 */
int secret_file_open(const char *path, enum secrecy secrecy, size_t *ret_bytes, char *error,
		     size_t error_bytes);

#endif
