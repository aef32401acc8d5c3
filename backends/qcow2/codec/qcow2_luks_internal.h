/* The key of an image, and GnuTLS's AES in XTS mode over it. */
#ifndef BACKENDS_QCOW2_CODEC_QCOW2_LUKS_INTERNAL_H
#define BACKENDS_QCOW2_CODEC_QCOW2_LUKS_INTERNAL_H

#include "backends/qcow2/codec/qcow2_luks.h"
#include "backends/qcow2/codec/qcow2_luks_header.h"

/* In memory of qcow2_secret_alloc. */
struct qcow2_luks {
	uint32_t key_bytes; /* 32 or 64 */
	uint8_t key[LUKS_KEY_BYTES_MAX];
};

#endif
