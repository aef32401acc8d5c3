/* A URL of http or https, in the parts that are of interest. Pure; any thread. */
#ifndef BACKENDS_HTTP_WEB_URL_H
#define BACKENDS_HTTP_WEB_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "net/address.h"

struct web_url {
	struct net_host host;
	bool is_tls;
	char server[320]; /* "https://host:port", for people: without path and query, which may be
			     secret */
};

/*
 * Returns 0, or -EINVAL with words for the user, and the column (from 1) that they are about where
 * there is one. No user and password, no fragment.
 */
int web_url_parse(const char *text, struct web_url *ret_url, size_t *ret_column, char *error,
		  size_t error_bytes);

/* The same scheme, host and port. */
bool web_url_is_same_server(const struct web_url *a, const struct web_url *b);

#endif
