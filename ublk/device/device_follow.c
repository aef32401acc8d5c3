/*
 * What storage has found out by itself: it has grown, as an NVMe namespace whose target says so,
 * and the device follows; or what is to outlive the process is another descriptor. The news come on
 * the reactor that heard them; the device is the main thread's. Owns struct device_follow, which
 * outlives the device while a mail is on its way.
 *
 * Happy path: news -> mail -> the device is live -> device_resize to the size that there is; or the
 * host's `stored`.
 * Failure modes: the device is not live, or being resized: it looks again when that is over. The
 * kernel cannot resize, or the size is none of the device's: told in the log, the device stays.
 */
#include "ublk/device/device_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "storage/resize.h"

struct device_follow {
	struct mail mail;
	struct mailbox *home;
	atomic_bool posted, grown, stored;
	struct device *device; /* NULL: gone. Main thread */
	bool waits;	       /* until the device can be resized */
};

static void follow_try(struct device_follow *f)
{
	struct device *d = f->device;
	char words[DEVICE_ERROR_BYTES];
	int ret;

	if (d->state != DEVICE_LIVE || d->stop_wanted)
		return;
	ret = device_resize(d, 0, false, words, sizeof(words));
	f->waits = ret == -EBUSY;
	if (ret < 0 && ret != -EBUSY && ret != -EALREADY)
		log_warn("the storage has grown, the device has not", "device=%s error=\"%s\"",
			 d->spec.name, words);
}

static void follow_heard(struct mail *mail)
{
	struct device_follow *f = container_of(mail, struct device_follow, mail);

	atomic_store(&f->posted, false);
	if (!f->device) {
		free(f);
		return;
	}
	if (atomic_exchange(&f->stored, false) && f->device->host->stored)
		f->device->host->stored(f->device, f->device->host->arg);
	if (!atomic_exchange(&f->grown, false))
		return;
	f->waits = true;
	follow_try(f);
}

/* Any thread. The same news before the mail is read say nothing more. */
static void follow_news(void *arg, enum backend_news news)
{
	struct device_follow *f = arg;

	atomic_store(news == BACKEND_NEWS_GROWN ? &f->grown : &f->stored, true);
	if (!atomic_exchange(&f->posted, true))
		mailbox_post(f->home, &f->mail, follow_heard);
}

int device_follow_begin(struct device *d)
{
	struct device_follow *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->home = &d->host->ctl->reactor->mailbox;
	f->device = d;
	d->follow = f;
	backend_on_news(d->backend, follow_news, f);
	return 0;
}

void device_follow_again(struct device *d)
{
	if (d->follow && d->follow->waits)
		follow_try(d->follow);
}

void device_follow_end(struct device *d)
{
	struct device_follow *f = d->follow;

	if (!f)
		return;
	d->follow = NULL;
	if (d->backend)
		backend_on_news(d->backend, NULL, NULL);
	f->device = NULL;
	/* A mail that is on its way frees it. */
	if (!atomic_exchange(&f->posted, true))
		free(f);
}
