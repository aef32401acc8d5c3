/*
 * What keys there are below the disk's prefix, asked for page after page. Reactor thread of its
 * client.
 */
#ifndef BACKENDS_S3_DISK_S3_DISK_LIST_H
#define BACKENDS_S3_DISK_S3_DISK_LIST_H

#include "backends/s3_disk/s3_disk_call.h"
#include "backends/s3_disk/s3_disk_page.h"

struct s3_disk_list {
	struct s3_disk_ask ask; /* the owner's, before begin; borrowed until done */
	/* From a turn, never from inside of begin: 0: that was all; -errno with words: what was
	 * taken is of no use. May begin it again. */
	void (*done)(struct s3_disk_list *list, int result);

	/* Out. */
	char words[HTTP_ERROR_BYTES + 60];

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
