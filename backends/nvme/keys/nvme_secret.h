/*
 * The text form of NVMe's secrets: a prefix, two digits for a hash, and in base64 the key with its
 * CRC-32, little endian (Base 8.13.5, TCP 3.6.1):
 *
 *	DHHC-1:01:Jx0f...:		for DH-HMAC-CHAP
 *	NVMeTLSkey-1:01:VRLb...:	for TLS
 *
 * Pure, any thread. Nothing here writes a key into words.
 */
#ifndef BACKENDS_NVME_KEYS_NVME_SECRET_H
#define BACKENDS_NVME_KEYS_NVME_SECRET_H

#include <stddef.h>
#include <stdint.h>

#define NVME_SECRET_BYTES_MAX 64u

struct nvme_secret {
	uint8_t hash; /* enum nvme_hash */
	uint32_t bytes;
	uint8_t key[NVME_SECRET_BYTES_MAX];
};

#define NVME_SECRET_DHCHAP "DHHC-1:"
#define NVME_SECRET_TLS "NVMeTLSkey-1:"

/*
 * prefix: one of the above; what hash and length it may have is the caller's to judge. Returns 0,
 * or -EINVAL with words that go on behind the name of the text ("... does not begin with").
 * *ret_secret holds nothing of the key then.
 */
int nvme_secret_parse(struct nvme_secret *ret_secret, const char *prefix, const char *text,
		      char *error, size_t error_bytes);

/* Writes base64 and a NUL: (bytes + 2) / 3 * 4 + 1. Returns ret_text. */
char *nvme_secret_base64(char *ret_text, const uint8_t *data, size_t bytes);

#endif
