/*
 * A fuzz target is one file with the function that libFuzzer calls. Linked with driver.c it is a
 * program without libFuzzer: a fixed number of mutations of the corpus, the same for the same seed.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/printable.h"

/* Aborts on what must never be; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Aborts where words for people have what is not fit for a terminal. */
static inline void fuzz_expect_printable(const char *words)
{
	char escape[PRINTABLE_ESCAPE_BYTES];

	for (size_t left = strlen(words), bytes; left > 0; left -= bytes, words += bytes) {
		bytes = printable_next(words, left, escape);
		ASSERT(escape[0] == '\0');
	}
}

/* What the driver puts into inputs, besides bits of other inputs. NULL at the end. */
extern const char *const fuzz_words[];

#endif
