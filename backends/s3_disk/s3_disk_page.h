/*
 * A page of the list of keys below the disk's prefix (ListObjectsV2, asked for with
 * encoding-type=url). A key that is missing in it would be a loss of data, so what cannot be read
 * for sure is refused. Pure; any thread.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_PAGE_H
#define BACKENDS_S3_DISK_S3_DISK_PAGE_H

#include "backends/s3_disk/s3_disk_map.h"

#define S3_DISK_TOKEN_BYTES 2048
#define S3_DISK_PAGE_KEYS 500u
#define S3_DISK_PAGE_BYTES (2u << 20)
#define S3_DISK_UNDER_BYTES 16

/* What is listed, and who takes it: one of on_object and on_key, for each key of the page. */
struct s3_disk_ask {
	const char *prefix;		 /* the disk's, as it is, without a slash at its end */
	char under[S3_DISK_UNDER_BYTES]; /* behind that and a slash: "map/" */
	/* size_bytes: of the object. False: no rule of the disk explains it: the page is refused.
	 */
	bool (*on_object)(const struct s3_disk_listed *listed, uint64_t size_bytes, void *arg);
	bool (*on_key)(const char *name, uint64_t size_bytes, void *arg); /* behind the prefix */
	void *arg;
};

struct s3_disk_page {
	bool is_last;
	char token[S3_DISK_TOKEN_BYTES]; /* of the next page, escaped for an URL */
	uint64_t nr;			 /* keys in it */
};

/* RFC 3986, 2.3, slashes too. False: it is longer than to_bytes. */
bool s3_disk_escape(const char *from, size_t bytes, char *to, size_t to_bytes);

/*
 * Returns 0; or -EINVAL, -ENOMEM, with words: then what was taken so far is of no use. Each key
 * must begin as asked for; with on_object, each must be the name of an object.
 */
int s3_disk_page_read(const struct s3_disk_ask *ask, const char *text, size_t bytes,
		      struct s3_disk_page *ret_page, char *words, size_t words_bytes);

#endif
