/*
 * One request and its answer. Owns libcurl's easy handle, used again and again. Reactor thread.
 *
 * Happy path: begin -> the lines of the headers are read as they come -> answered -> body -> done.
 * Failure modes: whatever libcurl says, in a word (enum net_end) and in its words; headers that
 * make no sense; an owner who does not want the rest.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/counter.h"
#include "base/util.h"
#include "net/http/http_client_internal.h"

/* What libcurl reads at a time; one such buffer for each transfer. */
#define RECEIVE_BYTES 65536L
/* What it sends at a time. */
#define SEND_BYTES 262144L

/* Within libcurl: anything but `bytes` ends the transfer. */
static size_t transfer_header(char *line, size_t size, size_t nr, void *arg)
{
	struct http_transfer *t = arg;
	size_t bytes = size * nr;

	if (t->answer.is_whole)
		return bytes; /* trailers */
	if (http_answer_line(&t->answer, line, bytes, time(NULL)) < 0) {
		snprintf(t->error, sizeof(t->error), "its headers make no sense");
		return 0;
	}
	if (t->answer.is_whole && !t->ops->answered(t)) {
		t->is_refused = true;
		return 0;
	}
	return bytes;
}

static size_t transfer_body(char *data, size_t size, size_t nr, void *arg)
{
	struct http_transfer *t = arg;
	size_t bytes = size * nr;

	if (t->ops->body(t, (const uint8_t *)data, bytes))
		return bytes;
	t->is_refused = true;
	return 0;
}

static enum net_end end_of(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
		return NET_END_UNREACHABLE;
	case CURLE_OPERATION_TIMEDOUT:
		return NET_END_SILENT;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
		return NET_END_REFUSED;
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return NET_END_CLOSED;
	default:
		return NET_END_PROTOCOL;
	}
}

static void end_fill(struct http_transfer *t, CURLcode code, struct http_end *end)
{
	*end = (struct http_end){ .end = end_of(code) };
	if (code == CURLE_OK && t->answer.is_whole)
		return;
	end->result = t->is_refused ? -ECANCELED : -EIO;
	snprintf(end->words, sizeof(end->words), "%s",
		 t->error[0] ? t->error : t->client->curl->curl_easy_strerror(code));
}

static void transfer_count(struct http_transfer *t)
{
	long connects = 0;

	t->client->curl->curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connects);
	counter_add(&t->client->connects, (uint64_t)connects);
}

void http_transfer_ended(struct http_transfer *t, CURLcode code)
{
	struct http_end end;

	transfer_count(t);
	end_fill(t, code, &end);
	t->client->curl->curl_multi_remove_handle(t->client->multi, t->easy);
	t->is_under_way = false;
	t->ops->done(t, &end);
}

/* ---- headers ---- */

/* Of no bytes. */
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void transfer_drop_headers(struct http_transfer *t)
{
	if (t->own_tail)
		t->own_tail->next = NULL;
	t->client->curl->curl_slist_free_all(t->own_headers);
	t->own_headers = t->own_tail = NULL;
}

static int transfer_add_header(struct http_transfer *t, const char *text)
{
	struct curl_slist *longer = t->client->curl->curl_slist_append(t->own_headers, text);

	if (!longer)
		return -ENOMEM;
	t->own_headers = longer;
	t->own_tail = longer;
	while (t->own_tail->next)
		t->own_tail = t->own_tail->next;
	return 0;
}

/*
 * Those of this request, and behind them the client's, which both lists share. libcurl 7.88 takes
 * what is signed as the hash of the body from a header; AWS says that a hash may be left out:
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 */
static int transfer_set_headers(struct http_transfer *t, const struct http_request *request,
				bool is_signed)
{
	const struct http_client *c = t->client;
	int ret = 0;

	transfer_drop_headers(t);
	if (is_signed)
		ret = transfer_add_header(t, request->body
						     ? "x-amz-content-sha256: UNSIGNED-PAYLOAD"
						     : "x-amz-content-sha256: " EMPTY_SHA256);
	if (ret == 0 && is_signed && c->keys.session_header)
		ret = transfer_add_header(t, c->keys.session_header);
	if (ret == 0 && request->condition)
		ret = transfer_add_header(t, request->condition);
	if (ret < 0)
		return ret;
	if (t->own_tail)
		t->own_tail->next = request->is_secret ? c->secret_headers : c->headers;
	c->curl->curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER,
				  t->own_headers       ? t->own_headers
				  : request->is_secret ? c->secret_headers
						       : c->headers);
	return 0;
}

static int transfer_set_secrets(struct http_transfer *t, const struct http_request *request)
{
	const struct http_client *c = t->client;
	const struct http_curl *curl = c->curl;
	const char *user = request->is_secret ? c->keys.user : NULL;
	const char *token = request->is_secret ? c->token : NULL;
	const char *signing = user ? c->signing : NULL;
	long kind = token ? (long)CURLAUTH_BEARER : (long)CURLAUTH_BASIC;

	if (signing)
		kind = (long)CURLAUTH_AWS_SIGV4;
	/* One that cannot sign is not told the keys, which it might send as they are. */
	if (curl->curl_easy_setopt(t->easy, CURLOPT_AWS_SIGV4, signing) != CURLE_OK && signing)
		user = NULL;
	curl->curl_easy_setopt(t->easy, CURLOPT_HTTPAUTH, kind);
	curl->curl_easy_setopt(t->easy, CURLOPT_USERNAME, user);
	curl->curl_easy_setopt(t->easy, CURLOPT_PASSWORD, user ? c->keys.password : NULL);
	curl->curl_easy_setopt(t->easy, CURLOPT_XOAUTH2_BEARER, token);
	return transfer_set_headers(t, request, signing);
}

/* ---- the request ---- */

/* Within libcurl. */
static size_t transfer_send(char *to, size_t size, size_t nr, void *arg)
{
	struct http_transfer *t = arg;
	size_t n = MIN(size * nr, t->body_bytes - t->body_at);

	memcpy(to, t->body + t->body_at, n);
	t->body_at += n;
	return n;
}

/* The same: a connection that was kept had been closed, the body goes to another one. */
static int transfer_rewind(void *arg, curl_off_t offset, int origin)
{
	struct http_transfer *t = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > t->body_bytes)
		return CURL_SEEKFUNC_FAIL;
	t->body_at = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

static void transfer_set_method(struct http_transfer *t, const struct http_request *request)
{
	const struct http_curl *curl = t->client->curl;

	t->body = request->body;
	t->body_bytes = request->body_bytes;
	t->body_at = 0;
	curl->curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST,
			       request->method == HTTP_DELETE ? "DELETE" : NULL);
	curl->curl_easy_setopt(t->easy, CURLOPT_NOBODY, request->method == HTTP_HEAD ? 1L : 0L);
	if (request->method == HTTP_GET || request->method == HTTP_DELETE)
		curl->curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L);
	if (request->method != HTTP_PUT)
		return;
	curl->curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
	curl->curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->body_bytes);
}

static void transfer_set_range(struct http_transfer *t, const struct http_request *request)
{
	char range[48];

	if (request->length_bytes == 0) {
		t->client->curl->curl_easy_setopt(t->easy, CURLOPT_RANGE, NULL);
		return;
	}
	snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)request->first_bytes,
		 (unsigned long long)(request->first_bytes + request->length_bytes - 1));
	t->client->curl->curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
}

int http_transfer_begin(struct http_transfer *t, const struct http_request *request)
{
	const struct http_curl *curl = t->client->curl;

	http_answer_begin(&t->answer);
	t->error[0] = '\0';
	t->is_refused = false;
	transfer_set_method(t, request);
	transfer_set_range(t, request);
	if (transfer_set_secrets(t, request) < 0)
		return -ENOMEM;
	if (curl->curl_easy_setopt(t->easy, CURLOPT_URL, request->url) != CURLE_OK ||
	    curl->curl_multi_add_handle(t->client->multi, t->easy) != CURLM_OK)
		return -ENOMEM;
	t->is_under_way = true;
	return 0;
}

void http_transfer_stop(struct http_transfer *t)
{
	if (!t->is_under_way)
		return;
	t->is_under_way = false;
	t->client->curl->curl_multi_remove_handle(t->client->multi, t->easy);
}

/*
 * CURLINFO_REDIRECT_URL will not do: what libcurl makes of a relative place has the user and the
 * password of the request in it.
 */
static int location_resolve(const struct http_curl *curl, CURLU *url, const char *base,
			    const char *location, char ret_url[static HTTP_URL_BYTES])
{
	char *text = NULL;
	size_t bytes;

	if (curl->curl_url_set(url, CURLUPART_URL, base, 0) != CURLUE_OK ||
	    curl->curl_url_set(url, CURLUPART_URL, location,
			       CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE) != CURLUE_OK ||
	    curl->curl_url_set(url, CURLUPART_FRAGMENT, NULL, 0) != CURLUE_OK ||
	    curl->curl_url_get(url, CURLUPART_URL, &text, 0) != CURLUE_OK)
		return -ENOENT;
	bytes = strlen(text) + 1;
	if (bytes <= HTTP_URL_BYTES)
		memcpy(ret_url, text, bytes);
	curl->curl_free(text);
	return bytes <= HTTP_URL_BYTES ? 0 : -ENOENT;
}

int http_transfer_location(const struct http_transfer *t, const char *base,
			   char ret_url[static HTTP_URL_BYTES])
{
	const struct http_curl *curl = t->client->curl;
	struct curl_header *header;
	CURLU *url;
	int ret;

	if (curl->curl_easy_header(t->easy, "Location", 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
		return -ENOENT;
	url = curl->curl_url();
	if (!url)
		return -ENOMEM;
	ret = location_resolve(curl, url, base, header->value, ret_url);
	curl->curl_url_cleanup(url);
	return ret;
}

/* What is the same for all requests. */
int http_transfer_init(struct http_transfer *t, struct http_client *c,
		       const struct http_transfer_ops *ops)
{
	const struct http_curl *curl = c->curl;
	CURL *easy = curl->curl_easy_init();

	*t = (struct http_transfer){ .client = c, .ops = ops, .easy = easy };
	if (!easy)
		return -ENOMEM;
	curl->curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
	curl->curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->error);
	curl->curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, transfer_header);
	curl->curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
	curl->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, transfer_body);
	curl->curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
	curl->curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
	curl->curl_easy_setopt(easy, CURLOPT_READFUNCTION, transfer_send);
	curl->curl_easy_setopt(easy, CURLOPT_READDATA, t);
	curl->curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, transfer_rewind);
	curl->curl_easy_setopt(easy, CURLOPT_SEEKDATA, t);
	curl->curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES);
	curl->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl->curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 1L);
	/* The thread of a name server that does not answer ends by itself. */
	curl->curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl->curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl->curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl->curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, c->keeps_dots ? 1L : 0L);
	/* What the environment says of proxies is not the configuration's. */
	curl->curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl->curl_easy_setopt(easy, CURLOPT_USERAGENT, "ublkd/" UBLKD_VERSION);
	curl->curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(c->timeout_ns / NS_PER_MS));
	curl->curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(c->timeout_ns / NS_PER_MS));
	if (c->ca_file)
		curl->curl_easy_setopt(easy, CURLOPT_CAINFO, c->ca_file);
	if (c->accepts_any_peer) {
		curl->curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl->curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	return 0;
}

void http_transfer_fini(struct http_transfer *t)
{
	if (!t->easy)
		return;
	t->client->curl->curl_easy_cleanup(t->easy);
	transfer_drop_headers(t);
	t->easy = NULL;
}
