/*
 * Deletes objects that a newer one of the same generation has replaced: no map and no snapshot
 * refers to them. Owns the list of them. Reactor thread.
 *
 * Another writer may have taken the disk before the newer one was stored: then its map names the
 * older one. So each waits until the manifest has named us, asked for after the newer one was
 * there: whoever takes the disk from then on finds that. Failure modes: the list is full, or the
 * server does not do it: the object stays, as garbage.
 */
#include "backends/s3_disk/s3_disk.h"

static void deletes_begin(struct s3_disk_queue *q);

static void delete_on_end(struct s3_disk_call *call, int result)
{
	struct s3_disk_delete *delete = container_of(call, struct s3_disk_delete, call);

	(void)result;
	delete->is_busy = false;
	deletes_begin(delete->q);
}

static void delete_begin(struct s3_disk_delete *delete, const struct s3_disk_doomed *what)
{
	char path[S3_DISK_NAME_BYTES];

	delete->is_busy = true;
	s3_disk_name_text(what->name, what->index, path);
	s3_disk_call_delete(&delete->call, path, delete_on_end);
}

static void deletes_begin(struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < S3_DISK_DELETES && q->deleting_nr > 0; i++) {
		const struct s3_disk_doomed *doomed = &q->deleting[q->deleting_first];

		if (doomed->stores > q->checked_stores)
			return;
		if (q->deletes[i].is_busy)
			continue;
		delete_begin(&q->deletes[i], doomed);
		q->deleting_first = (q->deleting_first + 1) % S3_DISK_DELETES_WAITING;
		q->deleting_nr--;
	}
}

void s3_disk_delete(struct s3_disk_queue *q, uint32_t index, struct s3_disk_name name)
{
	unsigned at = (q->deleting_first + q->deleting_nr) % S3_DISK_DELETES_WAITING;

	if (q->deleting_nr == S3_DISK_DELETES_WAITING)
		return;
	q->deleting[at] =
		(struct s3_disk_doomed){ .name = name, .index = index, .stores = q->stores };
	q->deleting_nr++;
	/* Where nobody flushes. */
	if (q->deleting_nr == S3_DISK_DELETES_WAITING / 2)
		s3_disk_fence_ask(q);
}

void s3_disk_deletes_go_on(struct s3_disk_queue *q)
{
	deletes_begin(q);
}

bool s3_disk_deletes_rest(const struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < S3_DISK_DELETES; i++)
		if (q->deletes[i].is_busy)
			return false;
	return true;
}

int s3_disk_deletes_init(struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < S3_DISK_DELETES; i++) {
		int ret = s3_disk_call_init(&q->deletes[i].call, &q->client);

		if (ret < 0)
			return ret;
		q->deletes[i].q = q;
	}
	return 0;
}

void s3_disk_deletes_fini(struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < S3_DISK_DELETES; i++)
		s3_disk_call_fini(&q->deletes[i].call);
}
