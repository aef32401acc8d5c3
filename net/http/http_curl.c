/*
 * Loads libcurl. Owns the table, for the life of the process.
 *
 * Happy path: dlopen, each call of the table looked up, curl_global_init. Failure modes: it is
 * missing, too old or without what is needed: told each time, and tried anew the next time.
 */
#include "net/http/http_curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/util.h"

/* The one with OpenSSL: it reads the certificates of the system once, not for each connection. */
#define HTTP_CURL_FILE "libcurl.so.4"
#define HTTP_CURL_CURE "install libcurl4 (Debian) or libcurl"
/* 7.87.0: CURLOPT_QUICK_EXIT, without which the end of a transfer waits for the name server. */
#define HTTP_CURL_VERSION 0x075700u

struct http_curl_symbol {
	const char *name;
	size_t offset;
};

#define HTTP_CURL_SYMBOL(call) { #call, offsetof(struct http_curl, call) },

static const struct http_curl_symbol curl_symbols[] = { HTTP_CURL_CALLS(HTTP_CURL_SYMBOL) };

static pthread_mutex_t curl_lock = PTHREAD_MUTEX_INITIALIZER;
static struct http_curl curl_loaded;
static bool curl_is_loaded;

static int curl_find_calls(void *handle, char *error, size_t error_bytes)
{
	for (size_t i = 0; i < ARRAY_SIZE(curl_symbols); i++) {
		void *address = dlsym(handle, curl_symbols[i].name);

		if (!address) {
			snprintf(error, error_bytes,
				 "%s has no %s: " HTTP_CURL_CURE " 7.87 or later", HTTP_CURL_FILE,
				 curl_symbols[i].name);
			return -ENOENT;
		}
		*(void **)((char *)&curl_loaded + curl_symbols[i].offset) = address;
	}
	return 0;
}

static int curl_judge(char *error, size_t error_bytes)
{
	const curl_version_info_data *version = curl_loaded.curl_version_info(CURLVERSION_NOW);

	if (version->version_num < HTTP_CURL_VERSION) {
		snprintf(error, error_bytes, "%s is %s: " HTTP_CURL_CURE " 7.87 or later",
			 HTTP_CURL_FILE, version->version);
		return -ENOENT;
	}
	if (!(version->features & CURL_VERSION_ASYNCHDNS)) {
		snprintf(error, error_bytes,
			 "%s waits for name servers: " HTTP_CURL_CURE
			 " with asynchronous name resolution",
			 HTTP_CURL_FILE);
		return -ENOENT;
	}
	return 0;
}

static int curl_load(char *error, size_t error_bytes)
{
	void *handle = dlopen(HTTP_CURL_FILE, RTLD_NOW | RTLD_LOCAL);
	int ret;

	if (!handle) {
		snprintf(error, error_bytes, "libcurl is missing: " HTTP_CURL_CURE " (%s)",
			 dlerror());
		return -ENOENT;
	}
	ret = curl_find_calls(handle, error, error_bytes);
	if (ret == 0)
		ret = curl_judge(error, error_bytes);
	if (ret == 0 && curl_loaded.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		snprintf(error, error_bytes, "libcurl does not start");
		ret = -ENOENT;
	}
	return ret;
}

int http_curl_get(const struct http_curl **ret_curl, char *error, size_t error_bytes)
{
	int ret = 0;

	pthread_mutex_lock(&curl_lock);
	if (!curl_is_loaded) {
		ret = curl_load(error, error_bytes);
		curl_is_loaded = ret == 0;
	}
	pthread_mutex_unlock(&curl_lock);
	if (ret == 0)
		*ret_curl = &curl_loaded;
	return ret;
}
