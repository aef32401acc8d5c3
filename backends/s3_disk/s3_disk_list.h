/*
 * What keys there are below the disk's prefix, asked for page after page. Reactor thread of its
 * client.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_LIST_H
#define BACKENDS_S3_DISK_S3_DISK_LIST_H

#include "backends/s3_disk/s3_disk_call.h"
#include "backends/s3_disk/s3_disk_map.h"

#define S3_DISK_UNDER_BYTES 16

struct s3_disk_list {
	/* The owner's, before begin; borrowed until done. */
	const char *prefix;		 /* the disk's, as it is */
	char under[S3_DISK_UNDER_BYTES]; /* behind that and a slash: "map/" */
	/* One of them, for each key of a page that has come: s3_disk_page_read, _keys. */
	void (*on_object)(const struct s3_disk_listed *listed, void *arg);
	void (*on_key)(const char *name, bool is_empty, void *arg);
	void *arg;
	/* From a turn, never from inside of begin: 0: that was all; -errno with words. May begin it
	 * again. */
	void (*done)(struct s3_disk_list *list, int result);

	/* Out. */
	char words[HTTP_ERROR_BYTES + 40];

	/* s3_disk_list.c's. */
	struct s3_disk_call call;
	struct s3_disk_page page;
	char *query; /* NULL: nothing was listed yet */
	uint8_t *buf;
};

/* Returns 0 or -ENOMEM. The list starts zeroed. */
int s3_disk_list_init(struct s3_disk_list *list, struct s3_disk_client *client);
/* Ends it without a done. Not from inside of a done. Accepts a zeroed one. */
void s3_disk_list_fini(struct s3_disk_list *list);
void s3_disk_list_begin(struct s3_disk_list *list,
			void (*done)(struct s3_disk_list *list, int result));

#endif
