/*
 * A fuzz target is one file with the function that libFuzzer calls. Linked with driver.c it is a
 * program without libFuzzer: a fixed number of mutations of the corpus, the same for the same seed.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Aborts on what must never be; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What the driver puts into inputs, besides bits of other inputs. NULL at the end. */
extern const char *const fuzz_words[];

#endif
