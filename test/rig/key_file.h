/* A file for a key, empty and for its owner only, while the tests of a program run. */
#ifndef TEST_RIG_KEY_FILE_H
#define TEST_RIG_KEY_FILE_H

#include <stdlib.h>
#include <unistd.h>

static char key_path[] = "/tmp/ublkd-test-key.XXXXXX";

/* Setup and teardown of cmocka's groups. */
static inline int key_file_make(void **state)
{
	int fd = mkstemp(key_path);

	(void)state;
	close(fd);
	return fd < 0;
}

static inline int key_file_remove(void **state)
{
	(void)state;
	return unlink(key_path);
}

#endif
