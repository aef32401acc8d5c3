/* CRC32C (Castagnoli), the digest of NVMe/TCP (TCP 3.3.1.1): RFC 3720 B.4. Pure, any thread. */
#ifndef BACKENDS_NVME_NVME_DIGEST_H
#define BACKENDS_NVME_NVME_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The digest of what `crc` is the digest of (0: of nothing) and `bytes` more. On the wire it is
 * little endian. By the instruction of SSE 4.2 where the CPU has it.
 */
uint32_t nvme_digest(uint32_t crc, const void *data, size_t bytes);

/* The two ways, for tests; the first must only be called where nvme_digest_has_instruction. */
bool nvme_digest_has_instruction(void);
uint32_t nvme_digest_by_instruction(uint32_t crc, const void *data, size_t bytes);
uint32_t nvme_digest_by_table(uint32_t crc, const void *data, size_t bytes);

#endif
