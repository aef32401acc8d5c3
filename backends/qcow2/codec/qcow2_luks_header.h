/*
 * The header of LUKS1 as bytes (LUKS On-Disk Format Specification 1.2.3, figures 1 and 2). Pure;
 * any thread. Numbers are big endian.
 */
#ifndef BACKENDS_QCOW2_CODEC_QCOW2_LUKS_HEADER_H
#define BACKENDS_QCOW2_CODEC_QCOW2_LUKS_HEADER_H

#include <stdbool.h>

#include "backends/qcow2/codec/qcow2_luks.h"

#define LUKS_SECTOR_BYTES 512u
#define LUKS_SLOT_NR 8u
#define LUKS_SALT_BYTES 32u
#define LUKS_DIGEST_BYTES 20u
/* Of two keys of AES-256. */
#define LUKS_KEY_BYTES_MAX 64u
/* As many as all writers make; QEMU takes no other number either (crypto/block-luks.c). */
#define LUKS_STRIPES 4000u
/*
 * HMACs to open all slots and fail, at most: about a minute with SHA-256 in instructions, 5 with
 * SHA-512 or without them. What QEMU and cryptsetup make by default is a fiftieth of it.
 */
#define LUKS_HMAC_NR_MAX (1ull << 29)

enum luks_hash { LUKS_SHA1, LUKS_SHA256, LUKS_SHA512 };

struct luks_slot {
	bool is_enabled; /* else the rest is nothing */
	uint32_t iterations;
	const uint8_t *salt;	 /* LUKS_SALT_BYTES */
	const uint8_t *material; /* LUKS_STRIPES times the bytes of the key: whole sectors */
};

/* Pointers into what was parsed. */
struct luks_header {
	enum luks_hash hash;
	uint32_t key_bytes; /* 32 or 64: AES-128 or AES-256 */
	uint32_t iterations;
	const uint8_t *salt;   /* LUKS_SALT_BYTES */
	const uint8_t *digest; /* LUKS_DIGEST_BYTES */
	struct luks_slot slots[LUKS_SLOT_NR];
};

uint32_t luks_hash_bytes(enum luks_hash hash);

/*
 * Everything that can be said without the passphrase; nobody has checked these bytes. Not looked
 * at: the payload offset, which means nothing in qcow2, and slots that are not enabled. Returns 0,
 * or -EINVAL or -EOPNOTSUPP with words, as qcow2_luks_unlock.
 */
int qcow2_luks_header_parse(struct luks_header *ret_h, const void *header, size_t nr_bytes,
			    char words[static QCOW2_LUKS_WORDS_BYTES]);

#endif
