/*
 * The configuration as the daemon uses it: what ublkd.yaml(5) describes, parsed and checked as a
 * whole before anything is started. Main thread.
 */
#ifndef DAEMON_SETTINGS_SETTINGS_H
#define DAEMON_SETTINGS_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/spec.h"
#include "config/errors.h"
#include "config/option.h"
#include "daemon/settings/settings_resource.h"

/* More is no configuration but a mistake or an attack; comparing all with all stays cheap. */
#define SETTINGS_DEVICES_MAX 1024
#define SETTINGS_NAME_MAX 31
#define SETTINGS_NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define SETTINGS_CONTROL_DEFAULT "/run/ublkd/control.sock"

struct daemon_settings {
	struct option_cpus reactors;
	char *control;
	char *state_dir;   /* NULL: beside the control socket */
	char *devices_dir; /* folder of snippets, or NULL */
	char *metrics;	   /* address to serve them at, or NULL */
	uint64_t busy_poll_us;
	uint64_t stop_timeout_ns;
	uint64_t open_timeout_ns;
	uint64_t command_timeout_ns;
	uint64_t watchdog_ns; /* 0: none */
	int log_level;	      /* enum log_level */
};

/* The document that settings were read from; counted, because OPTION_NODE values borrow from it. */
struct document;

struct device_options {
	char *name;
	uint64_t id;
	uint64_t queues, depth;
	uint64_t block_bytes, max_io_bytes;
	uint64_t shmem_bytes; /* of shared_memory */
	bool read_only, partition_scan;
	int data_path; /* enum data_path */
	int batch;     /* enum batch_wish */
	int recovery;  /* enum recovery */
	struct yaml_node *backend;
};

struct device_settings {
	unsigned refs; /* any thread: device_settings_ref, device_settings_free */
	struct device_options options;
	int64_t id;		      /* options.id, or -1: the kernel chooses */
	struct backend_spec *backend; /* what the backends read while the device lives */
	char stack[BACKEND_SPEC_TEXT_BYTES];
	struct document *document;
	const struct yaml_node *map; /* as it was written, in the document */
	struct settings_resources resources;
	struct config_pos pos, id_pos, data_path_pos, shmem_pos;
};

struct settings {
	struct daemon_settings daemon;
	struct device_settings **devices; /* in the order of the file; taken ones are NULL */
	size_t device_nr;
};

/* For whom configurations are read. All zero: for root's daemon. */
struct settings_mode {
	bool unprivileged;  /* the daemon has no CAP_SYS_ADMIN: unprivileged.h */
	bool user_paths;    /* its files have their places by user_paths.h */
	bool file_optional; /* a file that is missing is as one without devices */
};

/* Once, before the first configuration is read. */
void settings_set_mode(const struct settings_mode *wanted);

/* As settings_set_mode, for this process. Returns whether it is privileged (host_is_privileged). */
bool settings_mode_of_process(bool file_optional);

/* As settings_load, but every error is printed on stderr, and nothing is to be freed then. */
int settings_load_or_print(struct settings *settings, const char *path);

/* Of what is not empty: NULL, or what keeps a device from having this name, as "has ...". */
const char *settings_name_wrong(const char *name);

/*
 * Reads a whole configuration file, and the snippets of its devices_dir. Returns 0, or -EINVAL (or
 * another -errno) with every error of the file in e. The caller frees *s in every case.
 */
int settings_load(struct settings *s, const char *path, struct config_errors *e);

/*
 * Reads devices alone, for `ublkctl add`: one device, a list of them, or a map with `devices:`.
 * Otherwise as settings_load; the daemon's own settings are left empty.
 */
int settings_parse_devices(struct settings *s, const char *text, size_t bytes,
			   struct config_errors *e);

/*
 * Adds an error for whatever d would take from other (name, id, file), which exists already.
 * where tells in words where other came from.
 */
void device_settings_conflict(const struct device_settings *d, const struct device_settings *other,
			      const char *where, struct config_errors *e);

/*
 * Whether a file of devices_dir is read, by its name: *.yaml, none that is hidden or an editor's
 * backup.
 */
bool settings_is_snippet(const char *file);

/* Accepts a zeroed struct. */
void settings_free(struct settings *s);

/* Hands a device over to the caller, who frees it. */
struct device_settings *settings_take(struct settings *s, size_t idx);

/* NULL when there is none; *ret_idx may be NULL. */
struct device_settings *settings_find(const struct settings *s, const char *name, size_t *ret_idx);

/*
 * Any thread: another reference, which a device_settings_free ends; the last one frees.
 * Settings that are shared with another thread are not changed. Returns d.
 */
struct device_settings *device_settings_ref(struct device_settings *d);
/* Any thread. Accepts NULL. */
void device_settings_free(struct device_settings *d);

/* Whether a running device of a is what b asks for. */
bool device_settings_equal(const struct device_settings *a, const struct device_settings *b);

/*
 * Whether b differs from a in nothing but the `size` of the backend where the bytes live: a device
 * of a can become one of b while it is live. Returns b's.
 */
bool device_settings_resized(const struct device_settings *a, const struct device_settings *b,
			     uint64_t *ret_size_bytes);

/* Whether a daemon started with a need not be restarted for b; the log level and the
 * folder of snippets may differ. */
bool daemon_settings_equal(const struct daemon_settings *a, const struct daemon_settings *b);

/* Takes over what a running daemon can change without a restart; the log level is log_init's. */
void daemon_settings_follow(struct daemon_settings *running, struct daemon_settings *wanted);

/* A device as JSON. NULL: out of memory. The caller frees it with json_decref. */
json_t *device_settings_json(const struct device_settings *d);

/*
 * That JSON as a text which settings_parse_devices reads back to an equal device; any other value,
 * a string too, becomes YAML that says the same. NULL: out of memory. The caller frees it.
 */
char *device_json_text(const json_t *device);

/*
 * Tells what is no error but will not be as the configuration, read from path, says on this machine
 * now: reactors on CPUs that cannot be used, more memory disks than memory. On the log or stderr.
 */
void settings_warn(const struct settings *s, const char *path, bool to_log);

/* The option tables, for the manual. */
extern const struct option settings_daemon_options[];
extern const struct option settings_device_options[];

#endif
