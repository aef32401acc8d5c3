/*
 * Treiber stack emptied at once by the consumer, who reverses it: posting is one compare-exchange,
 * and the eventfd is written only when the stack was empty. Failure mode: none; an eventfd counter
 * cannot overflow with one write per emptying.
 */
#include "reactor/mailbox.h"

#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"

int mailbox_init(struct mailbox *box)
{
	atomic_init(&box->top, NULL);
	box->efd = eventfd(0, EFD_CLOEXEC);
	return box->efd < 0 ? -errno : 0;
}

void mailbox_fini(struct mailbox *box)
{
	if (box->efd > 0)
		close(box->efd);
	box->efd = -1;
}

void mailbox_post(struct mailbox *box, struct mail *mail, mail_fn *fn)
{
	struct mail *top = atomic_load_explicit(&box->top, memory_order_relaxed);
	uint64_t one = 1;

	mail->fn = fn;
	do {
		mail->next = top;
	} while (!atomic_compare_exchange_weak_explicit(&box->top, &top, mail, memory_order_release,
							memory_order_relaxed));
	/* After the exchange the mail may be gone already: look only at what was below it. */
	if (top == NULL)
		ASSERT(write(box->efd, &one, sizeof(one)) == sizeof(one));
}

static struct mail *reverse(struct mail *list)
{
	struct mail *reversed = NULL;

	while (list) {
		struct mail *next = list->next;

		list->next = reversed;
		reversed = list;
		list = next;
	}
	return reversed;
}

unsigned mailbox_drain(struct mailbox *box)
{
	struct mail *list =
		reverse(atomic_exchange_explicit(&box->top, NULL, memory_order_acquire));
	unsigned nr = 0;

	while (list) {
		/* fn may post, reuse or free the mail. */
		struct mail *next = list->next;

		list->fn(list);
		list = next;
		nr++;
	}
	return nr;
}
