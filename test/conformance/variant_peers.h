/* Setups and teardowns of variants (variants.h) that need a server: it listens when they return. */
#ifndef TEST_VARIANT_PEERS_H
#define TEST_VARIANT_PEERS_H

#include <stdbool.h>

#define NVME_SUBSYSTEM "nqn.2026-01.org.example:disk"
#define NVME_HOST "nqn.2026-01.org.example:host"
/* 32 bytes and their CRC-32. */
#define NVME_TLS_KEY "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
#define NVME_KEY_PATH "/tmp/ublkd-nvme-key.%s"

/* Whether a file of a server that starts in the background has something to read: waits for ten
 * seconds. */
bool variant_says(const char *path);
/* Ends the processes whose numbers are in a file, waits for ten seconds until each has, and removes
 * the file. */
void variant_end(const char *path);

const char *variant_nvme_plain(void);
const char *variant_nvme_tls(void);
const char *variant_nvme_pieces(void);
void variant_nvme_stop(void);
const char *variant_web_plain(void);
const char *variant_web_bucket(void);
const char *variant_web_slow(void);
/* The same of stores that can be written. */
const char *variant_store_plain(void);
const char *variant_store_bad(void);
void variant_web_stop(void);
const char *variant_nbdkit_memory(void);
const char *variant_nbdkit_delay(void);
const char *variant_nbdkit_old(void);
void variant_nbdkit_stop(void);

#endif
