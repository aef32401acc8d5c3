/* What a refusal says of who uses a device; apart from openers.c, which the simulator replaces. */
#include <stdio.h>

#include "ublk/openers.h"

void openers_words(enum block_users found, const char *text, char *words, size_t words_bytes)
{
	if (found == BLOCK_USERS_UNKNOWN)
		snprintf(words, words_bytes, "whether it is in use cannot be told: %s", text);
	else
		snprintf(words, words_bytes, "in use: %s",
			 text[0] ? text : "opened by somebody in the kernel or out of sight");
}
