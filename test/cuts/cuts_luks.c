/* See cuts_luks.h. Counts have 16 bits, and one block of them is enough for the header. */
#include "test/cuts/cuts_luks.h"

#include "test/rig/qcow2/luks_header.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_create.h"
#include "base/big_endian.h"

static struct luks_made made = { .hash = "sha256", .mode = "xts-plain64", .key_bytes = 32 };

/* The extension goes before the others: where the header is, and how long. */
static void luks_extend(struct disk *d, uint64_t at, uint32_t bytes, unsigned cluster_bits)
{
	uint32_t header_bytes = be_get32(d->now + QCOW2_AT_HEADER_BYTES);
	uint8_t extension[24] = { 0x05, 0x37, 0xbe, 0x77 }, method[4] = { 0, 0, 0, 2 };
	uint8_t others[2048];

	ASSERT(header_bytes + sizeof(extension) + sizeof(others) <= 1u << cluster_bits);
	memcpy(others, d->now + header_bytes, sizeof(others));
	be_put32(extension + 4, 16);
	be_put32(extension + 12, (uint32_t)at);
	be_put32(extension + 20, bytes);
	disk_put(d, header_bytes, extension, sizeof(extension));
	disk_put(d, header_bytes + sizeof(extension), others, sizeof(others));
	disk_put(d, QCOW2_AT_CRYPT, method, sizeof(method));
}

static void luks_count(struct disk *d, uint64_t at, uint64_t bytes, unsigned cluster_bits)
{
	uint64_t block = be_get64(d->now + be_get64(d->now + QCOW2_AT_REFTABLE_OFFSET));
	uint16_t one = htobe16(1);

	for (uint64_t i = at >> cluster_bits; i < (at + bytes) >> cluster_bits; i++) {
		ASSERT(2 * i < 1ull << cluster_bits);
		disk_put(d, block + 2 * i, &one, sizeof(one));
	}
}

void cuts_luks_put(struct disk *d, unsigned cluster_bits)
{
	uint64_t cluster = 1ull << cluster_bits;
	uint32_t bytes;
	uint64_t at = round_up(be_get64(d->now + QCOW2_AT_L1_OFFSET) + 8, cluster);

	luks_make(&made);
	/* The other slots are not used. */
	bytes = LUKS_MATERIAL_AT + made.key_bytes * LUKS_STRIPES_NR;
	bytes = (uint32_t)round_up(bytes, cluster);
	made.header = realloc(made.header, MAX(made.header_bytes, (size_t)bytes));
	ASSERT(made.header);
	luks_extend(d, at, bytes, cluster_bits);
	luks_count(d, at, bytes, cluster_bits);
	disk_put(d, at, made.header, bytes);
}

const char *cuts_luks_key_file(void)
{
	static char path[40];
	ssize_t nr = (ssize_t)strlen(LUKS_PASSPHRASE);
	int fd;

	if (path[0])
		return path;
	fd = memfd_create("cuts_key", 0);
	ASSERT(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, LUKS_PASSPHRASE, (size_t)nr) == nr);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

void cuts_luks_decrypt(void *buf, size_t bytes, uint64_t offset)
{
	static gnutls_cipher_hd_t aes;
	const gnutls_datum_t key = { made.key, made.key_bytes };

	if (!aes)
		ASSERT(gnutls_cipher_init(&aes, GNUTLS_CIPHER_AES_128_XTS, &key, NULL) == 0);
	ASSERT(offset % SECTOR_BYTES == 0 && bytes % SECTOR_BYTES == 0);
	for (size_t done = 0; done < bytes; done += SECTOR_BYTES) {
		uint64_t iv[2] = { htole64((offset + done) / SECTOR_BYTES) };

		gnutls_cipher_set_iv(aes, iv, sizeof(iv));
		ASSERT(gnutls_cipher_decrypt(aes, (uint8_t *)buf + done, SECTOR_BYTES) == 0);
	}
}
