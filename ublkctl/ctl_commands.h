/*
 * The commands of ublkctl: each is a function of the command line, which returns the exit code of
 * the program. Errors are printed on stderr.
 */
#ifndef UBLKCTL_CTL_COMMANDS_H
#define UBLKCTL_CTL_COMMANDS_H

#include <stdbool.h>

#include "daemon/runtime/exit_code.h"

#define UBLKCTL_SOCKET_DEFAULT "/run/ublkd/control.sock"
#define UBLKCTL_STATE_DIR_DEFAULT "/run/ublkd/control.sock.state"

enum ublkctl_boundaries {
	BOUNDARIES_ALL,
	BOUNDARIES_READ,
	BOUNDARIES_WRITE,
	BOUNDARIES_FLUSH,
	BOUNDARIES_NR,
};

/* What a new image shall be, as written; NULL, 0: not given. */
struct ublkctl_image {
	const char *size, *backing, *backing_format, *cluster_size, *compat, *data_file;
	unsigned long refcount_bits;
	bool extended_l2, lazy_refcounts, data_file_raw;
};

/* What an option is for and which default it has: ublkctl_usage_text. NULL, 0: not given. */
struct ublkctl_args {
	const char *socket_path, *state_dir;
	const char *name; /* the word behind the command: a device, a file, a URI, a host */
	char **words;	  /* those behind it, NULL at the end */
	const char *file, *perfetto;
	double watch_seconds, interval;
	unsigned long count;
	const char *device_name; /* of attach */
	unsigned long queues;
	const char *host_nqn; /* of nvme-discover, and: */
	double timeout;
	const char *backing_folder;
	bool read_only, show, persist, raw;
	bool set;		    /* of udev-owner */
	struct ublkctl_image image; /* of create-image, and of attach: size and backing */
	bool json, force, remove, layers, batch, list, qmp_json;
	const char *action;	     /* of histogram, snapshot and cache */
	const char *node;	     /* of snapshot and cache */
	const char *offset, *length; /* of cache, and: */
	bool discard;
	const char *gc_device; /* of s3-gc, and: */
	bool dry_run;
	const char *layer, *op;		       /* of histogram */
	const char *boundaries[BOUNDARIES_NR]; /* as written */
};

extern const char ublkctl_usage_text[];

/* Ends the program with EXIT_USAGE. */
_Noreturn void ublkctl_usage_error(const char *what, const char *value);

/* ctl_commands.c: a file of devices, "-": standard input. Returns the bytes, or -1, told. */
#define CTL_YAML_BYTES_MAX (1u << 20)
long ctl_yaml_read(const char *path, char text[CTL_YAML_BYTES_MAX + 1]);

/* ctl_commands.c: one question, one answer. */
enum exit_code ublkctl_list(const struct ublkctl_args *a);
enum exit_code ublkctl_show(const struct ublkctl_args *a);
enum exit_code ublkctl_add(const struct ublkctl_args *a);
enum exit_code ublkctl_del(const struct ublkctl_args *a);
enum exit_code ublkctl_resize(const struct ublkctl_args *a);
enum exit_code ublkctl_share(const struct ublkctl_args *a);
enum exit_code ublkctl_unshare(const struct ublkctl_args *a);
enum exit_code ublkctl_throttle(const struct ublkctl_args *a);
enum exit_code ublkctl_gc(const struct ublkctl_args *a);
enum exit_code ublkctl_inflight(const struct ublkctl_args *a);
enum exit_code ublkctl_upgrade(const struct ublkctl_args *a);
enum exit_code ublkctl_reactors(const struct ublkctl_args *a);
enum exit_code ublkctl_version(const struct ublkctl_args *a);

enum exit_code ublkctl_stats(const struct ublkctl_args *a);
enum exit_code ublkctl_histogram(const struct ublkctl_args *a);
enum exit_code ublkctl_why_stuck(const struct ublkctl_args *a);
enum exit_code ublkctl_top(const struct ublkctl_args *a);

/* ctl_snapshot.c */
enum exit_code ublkctl_snapshot(const struct ublkctl_args *a);

/* ctl_cache.c */
enum exit_code ublkctl_cache(const struct ublkctl_args *a);

/* ctl_store.c: cache store, which asks no daemon. */
enum exit_code ublkctl_cache_store(const struct ublkctl_args *a);

/* ctl_attach.c */
enum exit_code ublkctl_attach(const struct ublkctl_args *a);
enum exit_code ublkctl_detach(const struct ublkctl_args *a);

/* These ask no daemon. */
enum exit_code ublkctl_create_image(const struct ublkctl_args *a);
enum exit_code ublkctl_flight(const struct ublkctl_args *a);
enum exit_code ublkctl_nbd_info(const struct ublkctl_args *a);
enum exit_code ublkctl_nvme_discover(const struct ublkctl_args *a);
enum exit_code ublkctl_s3_gc(const struct ublkctl_args *a);
enum exit_code ublkctl_doctor(const struct ublkctl_args *a);
enum exit_code ublkctl_udev_name(const struct ublkctl_args *a);
/* ctl_owner.c */
enum exit_code ublkctl_udev_owner(const struct ublkctl_args *a);

#endif
