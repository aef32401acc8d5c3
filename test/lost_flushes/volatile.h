/*
 * A storage with a volatile cache, for trees under test: type: volatile, with name, size and fua.
 * Its bytes outlive the device, as those of a disk do. Between volatile_begin and the next one only
 * what is said here takes bytes away.
 */
#ifndef TEST_VOLATILE_H
#define TEST_VOLATILE_H

#include <stdint.h>

#include "storage/backend.h"

extern const struct backend backend_volatile;

/* All storages are empty. No device is open. */
void volatile_begin(uint64_t seed);

/*
 * Any thread: the FLUSH after this many others fails, and of what it covers nothing will ever be
 * durable; about half of it is read as if it were there, until it is opened again.
 */
void volatile_lose(unsigned after_nr);

/* Any thread: so many have failed. */
unsigned volatile_lost_nr(void);

/* What no good FLUSH has covered is gone. No device is open. */
void volatile_power_cut(void);

/* fn with each storage as a file, to change; what it leaves is durable. No device is open. */
void volatile_as_files(void (*fn)(const char *path));

#endif
