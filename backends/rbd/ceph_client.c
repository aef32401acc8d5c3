/*
 * Clients by what they are wished to be. Owns the list of all; threads that may block.
 *
 * Happy path: the first image with a wish makes the client and connects it, further ones share it,
 * the last one ends it. Failure modes: connecting fails: told to all who wait for it, and the next
 * one makes another.
 */
#include "backends/rbd/ceph_client.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "net/secret_file.h"

#define CLIENT_KEY_BYTES 4096

struct ceph_client {
	struct list_node node; /* of all that may be shared */
	const struct ceph_api *api;
	char *key;
	unsigned image_nr; /* under clients_lock */
	bool is_shared;	   /* the same: it is in the list */
	/* Under `connecting`: whoever comes while the first one connects waits for its end. */
	pthread_mutex_t connecting;
	atomic_bool is_connected; /* read without it, too */
	int err;
	char error[256];
	pthread_mutex_t deriving;
	rados_t rados;
	char addrs[CEPH_ADDRS_BYTES];
};

static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_node clients = LIST_INIT(clients);
/* For people: of all clients, those that are not shared and those that are lost too. */
static atomic_uint clients_nr, clients_image_nr;

/* ---- the wish ---- */

static size_t key_add(char *key, size_t at, const char *name, const char *value)
{
	int nr;

	if (!value || at >= CLIENT_KEY_BYTES)
		return at;
	nr = snprintf(key + at, CLIENT_KEY_BYTES - at, "%s=%zu:%s;", name, strlen(value), value);
	return at + (size_t)nr;
}

/* All of a wish as one text; 0: it is too long, and the client is not shared. */
static size_t wish_key(const struct ceph_wish *w, char key[static CLIENT_KEY_BYTES])
{
	size_t at = (size_t)snprintf(key, CLIENT_KEY_BYTES, "%u,%u,%u,%d;", w->connect_s,
				     w->request_s, w->image_nr_max, w->derives);

	at = key_add(key, at, "cluster", w->cluster);
	at = key_add(key, at, "user", w->user);
	at = key_add(key, at, "conf", w->conf);
	at = key_add(key, at, "mon_host", w->mon_host);
	at = key_add(key, at, "keyring", w->keyring);
	at = key_add(key, at, "key_file", w->key_file);
	at = key_add(key, at, "cache", w->cache);
	for (size_t i = 0; w->options && i < w->options->map.nr; i++)
		at = key_add(key, at, w->options->map.pairs[i].key->text,
			     w->options->map.pairs[i].value->text);
	return at < CLIENT_KEY_BYTES ? at : 0;
}

/* ---- connecting ---- */

static int client_set(struct ceph_client *c, const char *name, const char *value)
{
	int ret = value ? c->api->rados_conf_set(c->rados, name, value) : 0;

	if (ret < 0)
		snprintf(c->error, sizeof(c->error), "Ceph does not take the option %s: %s", name,
			 errname(ret));
	return ret;
}

static int client_set_seconds(struct ceph_client *c, const char *name, unsigned seconds)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", seconds);
	return client_set(c, name, text);
}

struct client_setting {
	const char *name, *value; /* NULL: none */
};

static int client_set_all(struct ceph_client *c, const struct client_setting *settings, size_t nr)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = client_set(c, settings[i].name, settings[i].value);
	return ret;
}

/* Ceph's log has lines of its own, some of them empty: whoever wants them says where (options). */
static int client_set_ours(struct ceph_client *c, const struct ceph_wish *w)
{
	const struct client_setting ours[] = {
		{ "log_to_stderr", "false" },
		{ "err_to_stderr", "false" },
		{ "log_file", "" },
		/*
		 * Requests go down to the messenger in the thread of the reactor, not by another
		 * one: that saves 18,000 instructions at depth 1. Answers come up in one thread,
		 * or, as a key may be computed in it, in one of two.
		 */
		{ "rbd_non_blocking_aio", "false" },
		{ "librados_thread_count", w->derives ? "2" : "1" },
		/*
		 * Above these limits librados lets its caller wait, who is a reactor. The number of
		 * tags is limit enough.
		 */
		{ "objecter_inflight_ops", "0" },
		{ "objecter_inflight_op_bytes", "0" },
		{ "mon_host", w->mon_host },
		{ "keyring", w->keyring },
		{ "keyfile", w->key_file },
		{ "rbd_cache", w->cache ? "true" : "false" },
		{ "rbd_cache_policy", w->cache },
	};

	return client_set_all(c, ours, ARRAY_SIZE(ours));
}

static int client_set_options(struct ceph_client *c, const struct yaml_node *options)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && options && i < options->map.nr; i++)
		ret = client_set(c, options->map.pairs[i].key->text,
				 options->map.pairs[i].value->text);
	return ret;
}

/* The user's last, except what our own life depends on. */
static int client_configure(struct ceph_client *c, const struct ceph_wish *w)
{
	int ret = client_set_ours(c, w);

	if (ret == 0)
		ret = client_set_options(c, w->options);
	if (ret == 0)
		ret = client_set_seconds(c, "client_mount_timeout", w->connect_s);
	if (ret == 0)
		ret = client_set_seconds(c, "rados_mon_op_timeout", w->connect_s);
	return ret == 0 ? client_set_seconds(c, "rados_osd_op_timeout", w->request_s) : ret;
}

static int client_read_conf(struct ceph_client *c, const struct ceph_wish *w)
{
	int ret = w->conf ? c->api->rados_conf_read_file(c->rados, w->conf) : 0;

	/* Whoever says where the monitors are needs no file. */
	if (ret == 0 || (ret == -ENOENT && w->mon_host))
		return 0;
	snprintf(c->error, sizeof(c->error),
		 ret == -ENOENT ? "%s does not exist: set conf, or mon_host and keyring"
				: "%s cannot be read (%s)",
		 w->conf, errname(ret));
	return ret;
}

/* ---- who may read the key ---- */

/* 0, -EPERM: everybody may, or another -errno: nobody can; with words. */
static int client_judge_file(const char *path, char *words, size_t words_bytes)
{
	size_t bytes;
	int fd = secret_file_open(path, FILE_SECRET, &bytes, words, words_bytes);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/*
 * Ceph takes the first of these files that it can open. It is Ceph's, other programs use it too,
 * and ceph auth -o makes it by the umask: not refused.
 */
static void client_judge_keyring(char *paths)
{
	static const char between[] = ";,= \t"; /* as Ceph's get_str_list has them */
	char words[PATH_MAX + 128], *rest;
	int ret = -ENOENT;

	for (char *path = strtok_r(paths, between, &rest); path && ret < 0;
	     path = strtok_r(NULL, between, &rest)) {
		ret = client_judge_file(path, words, sizeof(words));
		if (ret != -EPERM)
			continue;
		log_limited(LOG_LEVEL_WARN, "the key of the Ceph user is not secret",
			    "keyring=\"%s\" why=\"%s\"", path, words);
		return;
	}
}

/* Asked of Ceph, which has put names into the paths ($cluster). */
static int client_judge_keys(struct ceph_client *c, const struct ceph_wish *w)
{
	const char *option = w->key_file ? "keyfile" : "keyring";
	char paths[2 * PATH_MAX];
	int ret = c->api->rados_conf_get(c->rados, option, paths, sizeof(paths));

	if (ret < 0) {
		snprintf(c->error, sizeof(c->error), "Ceph does not tell the option %s: %s", option,
			 errname(ret));
		return ret;
	}
	if (w->key_file)
		return client_judge_file(paths, c->error, sizeof(c->error));
	client_judge_keyring(paths);
	return 0;
}

static int client_connect_failed(struct ceph_client *c, const struct ceph_wish *w, int err)
{
	switch (-err) {
	case ETIMEDOUT:
		snprintf(c->error, sizeof(c->error),
			 "no monitor of the cluster answers within %u s: is mon_host right, and is "
			 "the cluster up?",
			 w->connect_s);
		break;
	case EACCES:
	case EPERM:
		snprintf(c->error, sizeof(c->error),
			 "the cluster refuses client.%s: does it exist, and is the key of keyring "
			 "or key_file its own?",
			 w->user);
		break;
	case ENOENT:
		snprintf(c->error, sizeof(c->error),
			 "there is no key of client.%s: set keyring or key_file", w->user);
		break;
	default:
		snprintf(c->error, sizeof(c->error), "the cluster cannot be reached: %s",
			 errname(err));
	}
	return err;
}

static void client_find_addrs(struct ceph_client *c)
{
	char *addrs;

	if (c->api->rados_getaddrs(c->rados, &addrs) < 0)
		return;
	snprintf(c->addrs, sizeof(c->addrs), "%s", addrs);
	free(addrs);
}

static int client_connect(struct ceph_client *c, const struct ceph_wish *w)
{
	char name[128];
	int ret;

	snprintf(name, sizeof(name), "client.%s", w->user);
	ret = c->api->rados_create2(&c->rados, w->cluster, name, 0);
	if (ret < 0) {
		snprintf(c->error, sizeof(c->error), "librados does not start: %s", errname(ret));
		c->rados = NULL;
		return ret;
	}
	ret = client_read_conf(c, w);
	if (ret == 0)
		ret = client_configure(c, w);
	if (ret == 0)
		ret = client_judge_keys(c, w);
	if (ret < 0)
		return ret;
	ret = c->api->rados_connect(c->rados);
	if (ret < 0)
		return client_connect_failed(c, w, ret);
	client_find_addrs(c);
	c->is_connected = true;
	return 0;
}

/* ---- sharing ---- */

static struct ceph_client *client_new(const struct ceph_api *api, const char *key)
{
	struct ceph_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->key = strdup(key);
	if (!c->key) {
		free(c);
		return NULL;
	}
	c->api = api;
	pthread_mutex_init(&c->connecting, NULL);
	pthread_mutex_init(&c->deriving, NULL);
	atomic_fetch_add(&clients_nr, 1);
	return c;
}

static struct ceph_client *client_find(const char *key, unsigned image_nr_max)
{
	list_for_each (node, &clients) {
		struct ceph_client *c = list_entry(node, struct ceph_client, node);

		if (c->image_nr < image_nr_max && strcmp(c->key, key) == 0)
			return c;
	}
	return NULL;
}

static struct ceph_client *client_find_or_make(const struct ceph_api *api, const char *key,
					       unsigned image_nr_max)
{
	struct ceph_client *c;

	pthread_mutex_lock(&clients_lock);
	c = key[0] ? client_find(key, image_nr_max) : NULL;
	if (!c) {
		c = client_new(api, key);
		if (c && key[0]) {
			list_push_back(&clients, &c->node);
			c->is_shared = true;
		}
	}
	if (c) {
		c->image_nr++;
		atomic_fetch_add(&clients_image_nr, 1);
	}
	pthread_mutex_unlock(&clients_lock);
	return c;
}

int ceph_client_get(struct ceph_client **ret_client, bool *ret_is_older, const struct ceph_api *api,
		    const struct ceph_wish *wish, char *error, size_t error_bytes)
{
	char key[CLIENT_KEY_BYTES];
	struct ceph_client *c;
	int ret;

	if (wish_key(wish, key) == 0)
		key[0] = '\0';
	c = client_find_or_make(api, key, wish->image_nr_max);
	if (!c) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	*ret_is_older = atomic_load(&c->is_connected);
	pthread_mutex_lock(&c->connecting);
	if (!c->is_connected && c->err == 0)
		c->err = client_connect(c, wish);
	ret = c->err;
	if (ret < 0)
		snprintf(error, error_bytes, "%s", c->error);
	pthread_mutex_unlock(&c->connecting);
	if (ret == 0) {
		*ret_client = c;
		return 0;
	}
	ceph_client_lost(c);
	ceph_client_put(c);
	return ret;
}

void ceph_client_lost(struct ceph_client *client)
{
	pthread_mutex_lock(&clients_lock);
	if (client->is_shared)
		list_remove(&client->node);
	client->is_shared = false;
	pthread_mutex_unlock(&clients_lock);
}

void ceph_client_put(struct ceph_client *client)
{
	bool is_last;

	if (!client)
		return;
	pthread_mutex_lock(&clients_lock);
	is_last = --client->image_nr == 0;
	atomic_fetch_sub(&clients_image_nr, 1);
	if (is_last && client->is_shared)
		list_remove(&client->node);
	pthread_mutex_unlock(&clients_lock);
	if (!is_last)
		return;
	if (client->rados)
		client->api->rados_shutdown(client->rados);
	pthread_mutex_destroy(&client->connecting);
	pthread_mutex_destroy(&client->deriving);
	free(client->key);
	free(client);
	atomic_fetch_sub(&clients_nr, 1);
}

/* ---- what it is for ---- */

void ceph_client_derive_begin(struct ceph_client *client)
{
	pthread_mutex_lock(&client->deriving);
}

void ceph_client_derive_end(struct ceph_client *client)
{
	pthread_mutex_unlock(&client->deriving);
}

rados_t ceph_client_rados(const struct ceph_client *client)
{
	return client->rados;
}

const char *ceph_client_addrs(const struct ceph_client *client)
{
	return client->addrs;
}

/*
 * librados says neither how many threads a client has nor which they are. There is no other library
 * with threads here.
 */
void ceph_client_look(struct backend_library_look *ret_look)
{
	unsigned nr = atomic_load(&clients_nr);

	*ret_look = (struct backend_library_look){
		.name = "librbd",
		.client_nr = nr,
		.image_nr = atomic_load(&clients_image_nr),
		.thread_nr = nr > 0 ? thread_foreign_nr() : 0,
	};
}

/*
 * OSDs drop what a listed client sends from the epoch of its entry on; with that epoch our own
 * requests make them learn of it before they are done (as librbd does when it breaks a lock:
 * managed_lock/BreakRequest.cc).
 */
int ceph_client_fence(const struct ceph_client *client, const char *addrs)
{
	char text[CEPH_ADDRS_BYTES];
	int ret;

	/* The call takes what it does not change as char *. */
	snprintf(text, sizeof(text), "%s", addrs);
	ret = client->api->rados_blocklist_add(client->rados, text, 0);
	return ret == 0 ? client->api->rados_wait_for_latest_osdmap(client->rados) : ret;
}
