/*
 * Where a queue asks for the object: the configured URL, or where that has sent us. Owns nothing.
 * Reactor thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/http/web.h"

void web_place_begin(struct web_place *p, const struct web_device *d)
{
	snprintf(p->url, sizeof(p->url), "%s", d->start);
	p->is_home = p->is_start = true;
	p->nr++;
}

int web_place_move(struct web_place *p, const struct web_device *d, const struct http_transfer *t,
		   char *words, size_t words_bytes)
{
	char error[200], url[HTTP_URL_BYTES];
	struct web_url to;

	if (http_transfer_location(t, p->url, url) < 0) {
		snprintf(words, words_bytes, "it sends us elsewhere and does not say where");
		return -EPROTO;
	}
	if (web_url_parse(url, &to, NULL, error, sizeof(error)) < 0) {
		snprintf(words, words_bytes, "it sends us to what is no URL: %s", error);
		return -EPROTO;
	}
	if (d->url.is_tls && !to.is_tls) {
		snprintf(words, words_bytes, "it sends us from https to http (%s)", to.server);
		return -EPROTO;
	}
	if (++p->hops > WEB_HOPS_MAX) {
		snprintf(words, words_bytes, "more than %u redirections", WEB_HOPS_MAX);
		p->hops = 0;
		return -ELOOP;
	}
	snprintf(p->url, sizeof(p->url), "%s", url);
	p->is_home = web_url_is_same_server(&d->url, &to);
	p->is_start = false;
	p->nr++;
	return 0;
}
