/*
 * luks_maker FOLDER KEY_BYTES: makes FOLDER/luks.qcow2, encrypted, and FOLDER/luks.key with its
 * passphrase. For qcow2_qemu.sh; test/rig/qcow2/luks_image.h says why qemu-img does not.
 */
#include <sys/stat.h>

#include "test/rig/qcow2/luks_image.h"

static void put_key(const char *folder)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/luks.key", folder);
	umask(077);
	f = fopen(path, "we");
	ASSERT(f && fputs(LUKS_PASSPHRASE, f) >= 0 && fclose(f) == 0);
}

int main(int argc, char **argv)
{
	struct luks_made made = { .hash = "sha256", .mode = "xts-plain64" };
	struct luks_image image;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FOLDER KEY_BYTES\n", argv[0]);
		return 2;
	}
	made.key_bytes = (uint32_t)strtoul(argv[2], NULL, 10);
	luks_make(&made);
	luks_image_make(&image, argv[1], &made);
	put_key(argv[1]);
	close(image.fd);
	free(made.header);
	return 0;
}
