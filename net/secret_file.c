/* Opens and judges files; owns nothing. Any thread that may wait for files. */
#include "net/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((format(printf, 4, 5))) static int
secret_file_fail(int err, char *error, size_t error_bytes, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error, error_bytes, fmt, args);
	va_end(args);
	return err;
}

static int secret_file_check(int fd, const char *path, enum secrecy secrecy, size_t *ret_bytes,
			     char *error, size_t error_bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return secret_file_fail(-errno, error, error_bytes, "%s: %s", path,
					strerror(errno)); /* UNTESTED */
	if (!S_ISREG(st.st_mode))
		return secret_file_fail(-EINVAL, error, error_bytes, "%s: is not a file", path);
	if (secrecy == FILE_SECRET && (st.st_mode & (S_IROTH | S_IWOTH)))
		return secret_file_fail(
			-EPERM, error, error_bytes,
			"%s: its key is open to everybody on this machine: chmod o= %s", path,
			path);
	*ret_bytes = (size_t)st.st_size;
	return 0;
}

int secret_file_open(const char *path, enum secrecy secrecy, size_t *ret_bytes, char *error,
		     size_t error_bytes)
{
	/* A fifo in its place must not hold us. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), ret;

	if (fd < 0)
		return secret_file_fail(-errno, error, error_bytes, "%s: %s", path,
					strerror(errno));
	ret = secret_file_check(fd, path, secrecy, ret_bytes, error, error_bytes);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	return fd;
}
