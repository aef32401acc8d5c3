/*
 * LUKS1 in qcow2 (QEMU, docs/interop/qcow2.rst "Data encryption"): the header behind the crypto
 * extension, its key slots, and sectors of 512 bytes by AES in XTS mode with plain64. Ciphers,
 * hashes and PBKDF2 are GnuTLS's.
 */
#ifndef BACKENDS_QCOW2_CODEC_QCOW2_LUKS_H
#define BACKENDS_QCOW2_CODEC_QCOW2_LUKS_H

#include <stddef.h>
#include <stdint.h>

#define QCOW2_LUKS_HEADER_BYTES 592u
#define QCOW2_LUKS_WORDS_BYTES 192u
/* Of the header with its key slots; QEMU writes 2 MB at most. A larger one is refused. */
#define QCOW2_LUKS_BYTES_MAX (16u << 20)

struct qcow2_luks;	  /* the key of an unlocked image; read-only, any thread may use it */
struct qcow2_luks_cipher; /* of one thread */

/*
 * Unlocks: header is what the crypto extension points at, all nr_bytes of it, not checked by
 * anybody; takes as long as the image's PBKDF2 iterations say (seconds; a count beyond what takes
 * minutes is refused), so call it where it may block. The passphrase is bytes: of UTF-8 for QEMU,
 * without a line feed. Returns 0, or -errno with words: -EINVAL (broken), -EOPNOTSUPP (another
 * version, cipher, mode or hash: by name), -EACCES (no slot opens with this passphrase), -ENOMEM,
 * -EIO (GnuTLS does not work). The key is in memory that is not dumped, and wiped when it is freed.
 */
int qcow2_luks_unlock(struct qcow2_luks **ret_luks, const void *header, size_t nr_bytes,
		      const void *passphrase, size_t passphrase_bytes,
		      char words[static QCOW2_LUKS_WORDS_BYTES]);
void qcow2_luks_free(struct qcow2_luks *luks); /* accepts NULL */

/*
 * NULL: no memory. Holds a copy of the key, expanded, in GnuTLS's ordinary memory, which is wiped
 * when it is freed.
 */
struct qcow2_luks_cipher *qcow2_luks_cipher_new(const struct qcow2_luks *luks);
void qcow2_luks_cipher_free(struct qcow2_luks_cipher *c); /* accepts NULL */

/*
 * In place, whole sectors of 512 bytes. offset_bytes: where they lie, a multiple of 512, in the
 * file that holds them: the image, or its external data file. The sector number for plain64 is
 * offset_bytes / 512; nothing is subtracted. QEMU does so for LUKS: block/qcow2.c sets
 * crypt_physical_offset, so qcow2_co_encdec (block/qcow2-threads.c) passes the host offset, and
 * do_qcrypto_block_cipher_encdec (crypto/block.c) divides it. The payload offset of the LUKS header
 * is not used in qcow2 (docs/interop/qcow2.rst). Never allocates. Returns 0 or -EIO.
 */
int qcow2_luks_decrypt(struct qcow2_luks_cipher *c, uint64_t offset_bytes, void *buf, size_t bytes);
int qcow2_luks_encrypt(struct qcow2_luks_cipher *c, uint64_t offset_bytes, void *buf, size_t bytes);

#endif
