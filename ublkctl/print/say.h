/*
 * What ublkctl prints for people goes through here: whatever a server, an image or a name has in
 * it, it cannot move the cursor, ring, turn the direction of writing or begin a line of its own.
 */
#ifndef UBLKCTL_PRINT_SAY_H
#define UBLKCTL_PRINT_SAY_H

#include <stdio.h>

/*
 * As fprintf, but what is not printable becomes an escape (base/printable.h), all newlines too but
 * the one that ends fmt. Without memory the program ends.
 */
void say_to(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
