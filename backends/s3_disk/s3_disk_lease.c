/*
 * Reads and writes the manifest. Owns the text of it.
 *
 * Happy path: a PUT with If-Match -> its ETag is the next one's condition. Failure modes: a PUT
 * whose answer was lost is sent again and finds itself: then who stands in the manifest decides.
 */
#include "backends/s3_disk/s3_disk_lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/s3_disk/s3_disk_keep.h"
#include "base/util.h"

static struct s3_disk_lease *lease_of(struct s3_disk_call *call)
{
	return container_of(call, struct s3_disk_lease, call);
}

/* ---- reading ---- */

/* 0: manifest and etag are set. */
static int lease_take(struct s3_disk_lease *l, int result)
{
	const struct s3_disk_call *call = &l->call;

	if (result < 0) {
		snprintf(l->words, sizeof(l->words), "the manifest: %s", call->words);
		return result == -EMSGSIZE ? -EINVAL : result;
	}
	if (!call->etag[0]) {
		snprintf(l->words, sizeof(l->words), "the server says no ETag of the manifest");
		return -EINVAL;
	}
	memcpy(l->etag, call->etag, sizeof(l->etag));
	return s3_disk_manifest_read(&l->manifest, l->text, call->got, l->words, sizeof(l->words));
}

static void lease_on_read(struct s3_disk_call *call, int result)
{
	struct s3_disk_lease *l = lease_of(call);

	l->done(l, lease_take(l, result));
}

static void lease_get(struct s3_disk_lease *l, s3_disk_call_done_fn *done)
{
	s3_disk_call_get(&l->call, "manifest", l->text, sizeof(l->text), done);
}

void s3_disk_lease_read(struct s3_disk_lease *l,
			void (*done)(struct s3_disk_lease *lease, int result))
{
	l->done = done;
	lease_get(l, lease_on_read);
}

/* ---- writing ---- */

static void lease_put(struct s3_disk_lease *l);

/* An earlier write of ours, which was given up and done later, has the same beat: what it says
 * decides. */
static bool lease_is_next(const struct s3_disk_lease *l)
{
	const struct s3_disk_manifest *m = &l->manifest;

	return strcmp(m->owner, l->next.owner) == 0 && m->beat == l->next.beat &&
	       m->stored.objects == l->next.stored.objects && m->stored.seq == l->next.stored.seq &&
	       s3_disk_manifest_keeps_same(m, &l->next);
}

/* After a PUT that was refused: by itself, done before; or by a store that wants no quotes. */
static void lease_on_look(struct s3_disk_call *call, int result)
{
	struct s3_disk_lease *l = lease_of(call);
	int ret = lease_take(l, result);

	if (ret == 0 && !lease_is_next(l)) {
		if (!l->has_turned && strcmp(l->etag, l->expected) == 0) {
			l->has_turned = true;
			*l->is_bare = !*l->is_bare;
			lease_put(l);
			return;
		}
		ret = -ESTALE;
	}
	l->done(l, ret);
}

static void lease_on_written(struct s3_disk_call *call, int result)
{
	struct s3_disk_lease *l = lease_of(call);

	if (result == -ESTALE || (result == 0 && !call->etag[0])) {
		lease_get(l, lease_on_look);
		return;
	}
	if (result == 0) {
		l->manifest = l->next;
		memcpy(l->etag, call->etag, sizeof(l->etag));
	} else {
		snprintf(l->words, sizeof(l->words), "the manifest: %s", call->words);
	}
	l->done(l, result);
}

static void lease_condition(const struct s3_disk_lease *l, char *condition, size_t bytes)
{
	const char *etag = l->expected;
	size_t etag_bytes = strlen(etag);

	if (!etag[0])
		snprintf(condition, bytes, "If-None-Match: *");
	else if (*l->is_bare && etag_bytes > 2 && etag[0] == '"')
		snprintf(condition, bytes, "If-Match: %.*s", (int)etag_bytes - 2, etag + 1);
	else
		snprintf(condition, bytes, "If-Match: %s", etag);
}

static void lease_run_unwritable(struct task *task)
{
	struct s3_disk_lease *l = container_of(task, struct s3_disk_lease, task);

	snprintf(l->words, sizeof(l->words), "out of memory");
	l->done(l, -ENOMEM);
}

static void lease_put(struct s3_disk_lease *l)
{
	int bytes = s3_disk_manifest_write(&l->next, l->text);
	char condition[S3_DISK_CONDITION_BYTES];

	if (bytes < 0) {
		reactor_defer(l->call.client->reactor, &l->task, lease_run_unwritable);
		return;
	}
	lease_condition(l, condition, sizeof(condition));
	s3_disk_call_put(&l->call, "manifest", condition, l->text, (size_t)bytes, lease_on_written);
}

void s3_disk_lease_write(struct s3_disk_lease *l, bool is_new,
			 void (*done)(struct s3_disk_lease *lease, int result))
{
	l->done = done;
	l->next.beat++;
	l->has_turned = false;
	if (is_new)
		l->expected[0] = '\0';
	else
		memcpy(l->expected, l->etag, sizeof(l->expected));
	lease_put(l);
}

int s3_disk_lease_init(struct s3_disk_lease *l, struct s3_disk_client *client, bool *is_bare,
		       uint64_t lease_ns)
{
	int ret = s3_disk_call_init(&l->call, client);

	l->is_bare = is_bare;
	l->call.pause_ns_max = lease_ns / 6;
	return ret;
}

void s3_disk_lease_fini(struct s3_disk_lease *l)
{
	task_cancel(&l->task);
	s3_disk_call_fini(&l->call);
}
