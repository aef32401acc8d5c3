/* Who uses a ublk device. A seam: the simulator answers for its own world. Main thread. */
#ifndef UBLK_OPENERS_H
#define UBLK_OPENERS_H

#include <stddef.h>

#include "host/block_users.h"

/* block_users_find of /dev/ublkb<id>. */
enum block_users openers_find(int dev_id, char *text, size_t text_bytes);

/*
 * For a refusal: "in use: ", or that this cannot be told, with what openers_find wrote behind it.
 * "" there: the driver says that the device is open, and it is not to be seen by whom.
 */
void openers_words(enum block_users found, const char *text, char *words, size_t words_bytes);

#endif
