/* What the user can say about an RBD image. Main thread; ceph_config_target: any. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backends/rbd/rbd_config.h"
#include "base/printable.h"
#include "base/util.h"
#include "config/refusal.h"
#include "storage/word.h"

static const char *const exclusive_values[] = { [CEPH_EXCLUSIVE_AUTO] = "auto",
						[CEPH_EXCLUSIVE_HOLD] = "hold",
						[CEPH_EXCLUSIVE_OFF] = "off",
						NULL };
static const char *const cache_values[] = { [CEPH_CACHE_OFF] = "off",
					    [CEPH_CACHE_WRITEAROUND] = "writearound",
					    [CEPH_CACHE_WRITETHROUGH] = "writethrough",
					    [CEPH_CACHE_WRITEBACK] = "writeback",
					    NULL };
static const char *const encryption_values[] = { [CEPH_ENCRYPTION_NONE] = "none",
						 [CEPH_ENCRYPTION_LUKS1] = "luks1",
						 [CEPH_ENCRYPTION_LUKS2] = "luks2",
						 NULL };

#define CEPH_TEXT(text_name, field, bytes_max, text_help)                                          \
	{                                                                                          \
		.name = (text_name), .type = OPTION_STRING,                                        \
		.offset = offsetof(struct ceph_config, field), .min = 1, .max = (bytes_max),       \
		.help = (text_help)                                                                \
	}

const struct option ceph_options[] = {
	CEPH_TEXT(
		"uri", uri, 4 * CEPH_NAME_BYTES,
		"The image: rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE, with @SNAPSHOT behind it for "
		"a snapshot, read-only. Instead of it: pool and image."),
	CEPH_TEXT("pool", pool, CEPH_NAME_BYTES - 1, "The pool of the image."),
	CEPH_TEXT("namespace", namespace, CEPH_NAME_BYTES - 1,
		  "The namespace in the pool. Default: none."),
	CEPH_TEXT("image", image, CEPH_NAME_BYTES - 1, "The name of the image."),
	CEPH_TEXT("snapshot", snapshot, CEPH_NAME_BYTES - 1,
		  "A snapshot of the image, which is served read-only."),
	{ .name = "conf",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct ceph_config, conf),
	  .min = 1,
	  .max = PATH_MAX - 1,
	  .def = "/etc/ceph/ceph.conf",
	  .help = "Ceph's configuration file. It may be missing when mon_host is set." },
	{ .name = "cluster",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct ceph_config, cluster),
	  .min = 1,
	  .max = 63,
	  .def = "ceph",
	  .help = "The name of the cluster, for $cluster in Ceph's configuration." },
	{ .name = "user",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct ceph_config, user),
	  .min = 1,
	  .max = 63,
	  .def = "admin",
	  .help = "The user, without \"client.\". It needs the capabilities mon 'profile rbd' and "
		  "osd 'profile rbd'." },
	CEPH_TEXT("mon_host", mon_host, 1023,
		  "Addresses of monitors, separated by commas. Default: those of conf."),
	CEPH_TEXT("keyring", keyring, PATH_MAX - 1,
		  "The keyring file with the user's key. Default: that of conf. One that everybody "
		  "on this machine may read is warned of."),
	CEPH_TEXT("key_file", key_file, PATH_MAX - 1,
		  "A file with nothing but the user's key, instead of a keyring. Only owner and "
		  "group may have access to it."),
	{ .name = "exclusive",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct ceph_config, exclusive),
	  .values = exclusive_values,
	  .def = "auto",
	  .help = "The image's exclusive lock. auto: taken with the first write, and given to "
		  "another client that asks for it. hold: taken at the start and kept; other "
		  "clients cannot write. off: for images without that feature, which several "
		  "clients write as they agree among themselves." },
	{ .name = "cache",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct ceph_config, cache),
	  .values = cache_values,
	  .def = "off",
	  .help = "librbd's cache in the memory of ublkd. The kernel's page cache is above the "
		  "device anyway. writearound and writeback acknowledge writes before they are in "
		  "the cluster: if the client is lost, the next flush fails." },
	{ .name = "encryption",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct ceph_config, encryption),
	  .values = encryption_values,
	  .def = "none",
	  .help = "How the image is encrypted, by rbd encryption format. luks2 wants block_size: "
		  "4096. "
		  "An encrypted device has no discard, and opening it takes seconds." },
	CEPH_TEXT("passphrase_file", passphrase_file, PATH_MAX - 1,
		  "File with the passphrase of an encrypted image, with or without a line's end. "
		  "Only owner and group may have access to it."),
	{ .name = "images_per_client",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct ceph_config, images_per_client),
	  .min = 1,
	  .max = 1024,
	  .def = "8",
	  .help = "So many images with equal settings of the cluster share a client. Each client "
		  "has "
		  "some fifteen threads; many busy images on one wait for them." },
	{ .name = "options",
	  .type = OPTION_NODE,
	  .offset = offsetof(struct ceph_config, options),
	  .help = "Any of Ceph's own options, by name: {rbd_readahead_disable_after_bytes: 0}." },
	{ .type = OPTION_GROUP,
	  .offset = offsetof(struct ceph_config, outage),
	  .table = net_outage_options },
	OPTION_END,
};

/* The colon alone ends this scheme. */
static const char *const uri_schemes[] = { "rbd:", NULL };

const struct backend_uri ceph_backend_uri = { .option = &ceph_options[0], .schemes = uri_schemes };

/* ---- the image ---- */

static int take_uri(const struct ceph_config *c, struct ceph_target *t, struct config_refusal *r)
{
	if (c->pool || c->namespace || c->image || c->snapshot)
		return config_refuse(r, "uri",
				     "it says pool, namespace, image and snapshot: say them once");
	r->key = "uri";
	return ceph_word_parse(c->uri, t, r->words, sizeof(r->words));
}

static void take_field(char to[static CEPH_NAME_BYTES], const char *from)
{
	snprintf(to, CEPH_NAME_BYTES, "%s", from ? from : "");
}

static int take_fields(const struct ceph_config *c, struct ceph_target *t, struct config_refusal *r)
{
	if (!c->pool)
		return config_refuse(r, "pool", "the pool is missing: say uri, or pool and image");
	if (!c->image)
		return config_refuse(r, "image",
				     "the image is missing: rbd ls --pool POOL lists them");
	take_field(t->pool, c->pool);
	take_field(t->namespace, c->namespace);
	take_field(t->image, c->image);
	take_field(t->snapshot, c->snapshot);
	return 0;
}

static int take_target(const struct ceph_config *c, struct ceph_target *t, struct config_refusal *r)
{
	return c->uri ? take_uri(c, t, r) : take_fields(c, t, r);
}

int ceph_config_target(const struct ceph_config *config, struct ceph_target *ret_target,
		       char *error, size_t error_bytes)
{
	struct config_refusal r;

	if (take_target(config, ret_target, &r) == 0)
		return 0;
	snprintf(error, error_bytes, "rbd: %s: %s", r.key, r.words);
	return -EINVAL;
}

/* ---- all of it ---- */

static int judge_keys(const struct ceph_config *c, struct config_refusal *r)
{
	if (c->keyring && c->key_file)
		return config_refuse(r, "key_file", "keyring has a key already: say one of them");
	if (c->encryption != CEPH_ENCRYPTION_NONE && !c->passphrase_file)
		return config_refuse(r, "encryption", "passphrase_file is missing");
	if (c->encryption == CEPH_ENCRYPTION_NONE && c->passphrase_file)
		return config_refuse(r, "passphrase_file",
				     "say how the image is encrypted: encryption");
	return 0;
}

/* Ceph takes spaces for underscores, and none at the ends for any. */
static bool option_is(const char *ceph, const char *name)
{
	static const char space[] = " \t";

	name += strspn(name, space);
	for (; *ceph; ceph++) {
		size_t spaces = strspn(name, space);

		if (*ceph != (spaces ? '_' : *name))
			return false;
		name += spaces ? spaces : 1;
	}
	return name[strspn(name, space)] == '\0';
}

/* What this backend sets by itself, and where one says it. */
static const char *option_of_ours(const char *name)
{
	static const struct {
		const char *ceph, *ours;
	} option[] = {
		{ "rbd_cache", "cache" },
		{ "rbd_cache_policy", "cache" },
		{ "client_mount_timeout", "timeout" },
		{ "rados_mon_op_timeout", "timeout" },
		{ "rados_osd_op_timeout", "on_disconnect" },
		{ "mon_host", "mon_host" },
		{ "keyring", "keyring" },
		{ "keyfile", "key_file" },
		{ "key", "key_file" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(option); i++)
		if (option_is(option[i].ceph, name))
			return option[i].ours;
	return NULL;
}

static int judge_options(const struct yaml_node *options, struct config_refusal *r)
{
	const char *ours;

	if (!options)
		return 0;
	if (options->kind != YAML_MAP)
		return config_refuse(r, "options",
				     "expected a map of Ceph's options: {NAME: VALUE}");
	for (size_t i = 0; i < options->map.nr; i++) {
		const struct yaml_pair *p = &options->map.pairs[i];

		if (p->value->kind != YAML_SCALAR)
			return config_refuse(r, "options", "%.*s: expected a value",
					     utf8_fit(p->key->text, 64), p->key->text);
		ours = option_of_ours(p->key->text);
		if (ours)
			return config_refuse(r, "options", "%s: set %s instead", p->key->text,
					     ours);
	}
	return 0;
}

static int judge_library(struct config_refusal *r)
{
	r->key = "type";
	return ceph_library_check(r->words, sizeof(r->words));
}

void ceph_check(const void *config, const struct yaml_node *map, struct config_errors *e)
{
	const struct ceph_config *c = config;
	struct ceph_target target;
	struct config_refusal r;
	int ret = take_target(c, &target, &r);

	if (ret == 0)
		ret = judge_keys(c, &r);
	if (ret == 0)
		ret = judge_options(c->options, &r);
	if (ret == 0)
		ret = judge_library(&r);
	if (ret < 0)
		config_refusal_add(&r, map, e);
}
