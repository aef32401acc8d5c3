/*
 * Deletes objects that a newer one of the same generation has replaced: no map and no snapshot
 * refers to them, if the disk was ours after the newer one was stored. The list of a writer that
 * takes it later has the newer one. Owns the list of them. Reactor thread. Failure modes: the list
 * is full, or the server does not do it: the object stays, as garbage.
 */
#include "backends/s3_disk/s3_disk.h"

static void delete_on_end(struct s3_disk_call *call, int result)
{
	struct s3_disk_delete *delete = container_of(call, struct s3_disk_delete, call);

	(void)result;
	delete->is_busy = false;
	s3_disk_deletes_go(delete->q);
}

static void delete_begin(struct s3_disk_delete *delete, const struct s3_disk_listed *what)
{
	struct s3_disk_call *call = &delete->call;

	delete->is_busy = true;
	s3_disk_call_reset(call);
	call->method = HTTP_DELETE;
	s3_disk_name_text(what->name, what->index, call->path);
	s3_disk_call_begin(call, delete_on_end);
}

static struct s3_disk_deleting *deleting_first(struct s3_disk_queue *q)
{
	struct s3_disk_deleting *first = &q->deleting[q->deleting_first];

	return q->deleting_nr > 0 && first->covers <= q->checked ? first : NULL;
}

void s3_disk_deletes_go(struct s3_disk_queue *q)
{
	for (unsigned i = 0; i < S3_DISK_DELETES && deleting_first(q); i++) {
		if (q->deletes[i].is_busy)
			continue;
		delete_begin(&q->deletes[i], &deleting_first(q)->what);
		q->deleting_first = (q->deleting_first + 1) % S3_DISK_DELETES_WAITING;
		q->deleting_nr--;
	}
}

void s3_disk_delete(struct s3_disk_queue *q, uint32_t index, struct s3_disk_name name)
{
	unsigned at = (q->deleting_first + q->deleting_nr) % S3_DISK_DELETES_WAITING;

	if (q->deleting_nr == S3_DISK_DELETES_WAITING)
		return;
	q->deleting[at] = (struct s3_disk_deleting){
		.what = { .name = name, .index = index },
		.covers = ++q->written,
	};
	q->deleting_nr++;
	if (q->deleting_nr >= S3_DISK_DELETES_WAITING / 4)
		s3_disk_fence_ask(q);
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
