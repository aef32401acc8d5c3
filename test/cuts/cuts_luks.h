/*
 * Encryption of a run's image: a LUKS header of the test's with few iterations, the passphrase in a
 * file, and sectors decrypted by GnuTLS, beside the product's code. One thread.
 */
#ifndef TEST_CUTS_CUTS_LUKS_H
#define TEST_CUTS_CUTS_LUKS_H

#include "test/cuts/cuts_disk.h"

/* Encrypts an image without content: the header goes behind its end. */
void cuts_luks_put(struct disk *d, unsigned cluster_bits);
/* Of the passphrase, for as long as this process and its children live. */
const char *cuts_luks_key_file(void);
/* For the oracle: data from there on in the image. */
void cuts_luks_decrypt(void *buf, size_t bytes, uint64_t offset);

#endif
