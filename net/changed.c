/* Owns the words of a device whose peer is another one. Any thread. */
#include "net/changed.h"

#include <stdio.h>

#include "base/log.h"

void net_changed_note(struct net_changed *c, const char *what, const char *how, const char *device,
		      const char *server)
{
	if (atomic_exchange(&c->claimed, true))
		return;
	snprintf(c->words, sizeof(c->words),
		 "%s is not what it was: %s: start the device anew when that is wanted", what, how);
	atomic_store(&c->is, true);
	log_error("it is not what it was: the device fails until it is started anew",
		  "device=%s server=%s what=\"%s\" changed=\"%s\"", device, server, what, how);
}

const char *net_changed_words(const struct net_changed *c)
{
	return atomic_load(&c->is) ? c->words : NULL;
}
