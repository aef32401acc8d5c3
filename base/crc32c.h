/*
 * CRC32C (Castagnoli), RFC 3720 B.4: the digest of NVMe/TCP (TCP 3.3.1.1), the sum of what nodes
 * write for themselves. Pure, any thread.
 */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The digest of what `crc` is the digest of (0: of nothing) and `bytes` more. On the wire it is
 * little endian. By the instruction of SSE 4.2 where the CPU has it.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two ways, for tests; the first must only be called where crc32c_has_instruction. */
bool crc32c_has_instruction(void);
uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes);

#endif
