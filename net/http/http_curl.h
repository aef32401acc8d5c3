/*
 * libcurl, loaded while ublkd runs, so that who has no disk of a web server needs neither it nor
 * the libraries that it brings. net/http calls it by this table alone.
 */
#ifndef NET_HTTP_HTTP_CURL_H
#define NET_HTTP_HTTP_CURL_H

#include <stddef.h>

/* Its macros for typed arguments do not go through a table. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define HTTP_CURL_CALLS(X)                                                                         \
	X(curl_global_init)                                                                        \
	X(curl_version_info)                                                                       \
	X(curl_slist_append)                                                                       \
	X(curl_slist_free_all)                                                                     \
	X(curl_free)                                                                               \
	X(curl_url)                                                                                \
	X(curl_url_set)                                                                            \
	X(curl_url_get)                                                                            \
	X(curl_url_cleanup)                                                                        \
	X(curl_easy_header)                                                                        \
	X(curl_easy_init)                                                                          \
	X(curl_easy_setopt)                                                                        \
	X(curl_easy_getinfo)                                                                       \
	X(curl_easy_cleanup)                                                                       \
	X(curl_easy_strerror)                                                                      \
	X(curl_multi_init)                                                                         \
	X(curl_multi_setopt)                                                                       \
	X(curl_multi_add_handle)                                                                   \
	X(curl_multi_remove_handle)                                                                \
	X(curl_multi_socket_action)                                                                \
	X(curl_multi_info_read)                                                                    \
	X(curl_multi_assign)                                                                       \
	X(curl_multi_cleanup)

#define HTTP_CURL_FIELD(call) typeof(call) *call;

struct http_curl {
	HTTP_CURL_CALLS(HTTP_CURL_FIELD)
};

/*
 * Any thread that may wait for files. Loads the library once; it stays. Returns 0, or -ENOENT with
 * words that say what to install.
 */
int http_curl_get(const struct http_curl **ret_curl, char *error, size_t error_bytes);

#endif
