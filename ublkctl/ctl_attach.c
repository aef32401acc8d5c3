/*
 * attach and detach: a device from one word, and its end.
 *
 * Happy path of attach: the word's backend -> (--size, --backing) a new image -> a name -> YAML ->
 * (--persist) a temporary snippet -> the control command add -> the snippet gets its name -> the
 * block device can be opened. In this order a reload at any moment finds the device as it is, and
 * what was not attached is not kept. Failure modes: printed by whoever finds them, EXIT_REFUSED; a
 * device that fails leaves nothing behind. One that is not live before ublkd answers goes on, and
 * is not kept. A snippet that cannot be kept, or a node that does not come: told, and the device
 * stays, since somebody may use it already.
 *
 * Happy path of detach: the device by name or node -> del -> its snippet is removed. Failure modes:
 * a device in use stays, and its snippet too.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "ublkctl/attach_words.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_commands.h"
#include "ublkctl/ctl_image.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/node_wait.h"
#include "ublkctl/print/say.h"
#include "ublkctl/snippet.h"

/* Names that others may take before us. */
#define TRIES_MAX 100
#define NODE_PREFIX "/dev/ublkb"
#define NAMES_FOLDER "/dev/ublkd/"

/* ---- what both ask ---- */

/* NULL: there is none. */
static const json_t *find_listed(const json_t *list, const char *key, const char *text)
{
	json_t *device;
	size_t i;

	json_array_foreach(list, i,
			   device) if (strcmp(client_text(device, key), text) == 0) return device;
	return NULL;
}

static enum exit_code ask_list(const struct ublkctl_args *a, json_t **ret_list)
{
	return client_ask(a->socket_path, client_request("list", NULL), CLIENT_SECONDS, ret_list);
}

static enum exit_code ask_settings(const struct ublkctl_args *a, json_t **ret_settings)
{
	return client_ask(a->socket_path, client_request("settings", NULL), CLIENT_SECONDS,
			  ret_settings);
}

/* ---- attach ---- */

struct attachment {
	const struct ublkctl_args *args;
	struct attach_device device;
	char folder_below[PATH_MAX];
	char value[PATH_MAX + 1], name[SETTINGS_NAME_MAX + 1];
	json_t *list;	  /* of all devices, before this one */
	json_t *settings; /* with --persist */
	const char *folder;
	struct snippet snippet;
	char *yaml;
	unsigned tries; /* of names that we chose */
};

static bool name_is_taken(const char *name, const void *arg)
{
	const struct attachment *at = arg;

	return find_listed(at->list, "name", name) ||
	       (at->folder && snippet_exists(at->folder, name));
}

/* The daemon has another working directory. */
static int make_absolute(const char *path, char ret_path[static PATH_MAX])
{
	char folder[PATH_MAX];
	int len;

	if (path[0] != '/' && !getcwd(folder, sizeof(folder)))
		return -errno;
	len = path[0] == '/' ? snprintf(ret_path, PATH_MAX, "%s", path)
			     : snprintf(ret_path, PATH_MAX, "%s/%s",
					strcmp(folder, "/") == 0 ? "" : folder, path);
	return len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static bool wants_new_image(const struct ublkctl_args *a)
{
	return a->image.size || a->image.backing || a->image.backing_format;
}

static enum exit_code make_attached(const struct attachment *at, const char *path)
{
	struct image_made made;
	struct stat st;

	if (!at->device.word.format) {
		say_to(stderr,
		       "ublkctl: %s: --size and --backing make a new image: name it FILE.qcow2, "
		       "or qcow2:FILE\n",
		       path);
		return EXIT_REFUSED;
	}
	if (lstat(path, &st) < 0)
		return ctl_image_make(at->args, path, &made);
	say_to(stderr,
	       "ublkctl: %s is there already: without --size and --backing it is attached as it "
	       "is\n",
	       path);
	return EXIT_REFUSED;
}

static enum exit_code fail_path(const struct attachment *at, const char *path, int err)
{
	bool is_image = at->device.word.format && err == -ENOENT;

	say_to(stderr, "ublkctl: %s: %s%s\n", path, strerror(-err),
	       is_image ? ": --size SIZE makes a new image" : "");
	return EXIT_REFUSED;
}

/* An image behind a URL: here the word of an image is a path. */
static bool is_url(const char *path)
{
	struct stat st;

	return (strstr(path, "://") || strncmp(path, "nbd:", 4) == 0) && stat(path, &st) < 0;
}

static enum exit_code fail_url(const char *path)
{
	say_to(stderr,
	       "ublkctl: %s: attach takes an image in a file alone: one behind a URL goes by "
	       "ublkctl add -f, with the backend of the URL as data of type: qcow2\n",
	       path);
	return EXIT_REFUSED;
}

static enum exit_code read_path(struct attachment *at)
{
	const char *path = at->args->name + at->device.word.value_at;
	enum exit_code code;
	struct stat st;
	int ret;

	if (at->device.word.format && is_url(path))
		return fail_url(path);
	code = wants_new_image(at->args) ? make_attached(at, path) : EXIT_DONE;
	if (code != EXIT_DONE)
		return code;
	ret = stat(path, &st) < 0 ? -errno : make_absolute(path, at->value);
	if (ret < 0)
		return fail_path(at, path, ret);
	at->device.value = at->value;
	code = ctl_image_folder(at->args, path, at->folder_below);
	if (at->folder_below[0])
		at->device.backing_folder = at->folder_below;
	return code == EXIT_DONE ? ctl_image_check(at->args, &at->device.word, path) : code;
}

static enum exit_code read_uri(struct attachment *at)
{
	char folder[PATH_MAX];
	int ret = getcwd(folder, sizeof(folder))
			  ? attach_absolute_socket(at->args->name, folder, at->value,
						   sizeof(at->value))
			  : -errno;

	if (ret < 0)
		return fail_path(at, at->args->name, ret);
	at->device.value = at->value;
	return EXIT_DONE;
}

/* --raw takes back what the end of a name says, not what was said before it. */
static enum exit_code choose_format(struct attachment *at)
{
	struct word *word = &at->device.word;
	bool wants_image = word->has_format || wants_new_image(at->args);

	if (at->args->raw && (word->is_uri || wants_image))
		ublkctl_usage_error("--raw is for the path of a file alone, not ", at->args->name);
	if (word->is_uri && wants_new_image(at->args))
		ublkctl_usage_error("--size and --backing are for an image in a file, not ",
				    at->args->name);
	if (at->args->raw)
		word->format = NULL;
	if (at->args->backing_folder && !word->format)
		ublkctl_usage_error("--backing-folder is for an image in a file, not ",
				    at->args->name);
	return word->is_uri ? read_uri(at) : read_path(at);
}

static enum exit_code read_word(struct attachment *at)
{
	char error[WORD_ERROR_BYTES];

	at->device.queues = at->args->queues;
	at->device.read_only = at->args->read_only;
	at->device.value = at->args->name;
	if (word_find(at->args->name, &at->device.word, error) < 0) {
		say_to(stderr, "ublkctl: %s: %s\n", at->args->name, error);
		return EXIT_REFUSED;
	}
	return choose_format(at);
}

static enum exit_code find_folder(struct attachment *at)
{
	enum exit_code code = ask_settings(at->args, &at->settings);

	if (code != EXIT_DONE)
		return code;
	at->folder = json_string_value(json_object_get(at->settings, "devices_dir"));
	if (at->folder)
		return EXIT_DONE;
	say_to(stderr,
	       "ublkctl: --persist: ublkd has no folder to keep devices in: set devices_dir in "
	       "the section daemon of %s, for example to /etc/ublkd/devices.d, and reload it\n",
	       client_text(at->settings, "config"));
	return EXIT_REFUSED;
}

/* Also again: then the daemon has another device of the name that was chosen before. */
static enum exit_code choose_name(struct attachment *at)
{
	enum exit_code code;

	at->device.name = at->args->device_name;
	if (at->device.name)
		return EXIT_DONE;
	json_decref(at->list);
	at->list = NULL;
	code = ask_list(at->args, &at->list);
	if (code == EXIT_DONE)
		attach_name(&at->device.word, at->device.value, name_is_taken, at, at->name);
	at->device.name = at->name;
	return code;
}

static enum exit_code begin_snippet(struct attachment *at)
{
	char *text;
	int ret;

	if (asprintf(&text, "# Written by ublkctl attach; removed by ublkctl detach %s.\n%s",
		     at->device.name, at->yaml) < 0)
		return EXIT_REFUSED;
	ret = snippet_begin(&at->snippet, at->folder, at->device.name, text);
	free(text);
	return ret < 0 ? EXIT_REFUSED : EXIT_DONE;
}

static enum exit_code make_yaml(struct attachment *at)
{
	free(at->yaml);
	at->yaml = attach_yaml(&at->device);
	if (!at->yaml) {
		say_to(stderr, "ublkctl: %s: not valid UTF-8\n", at->args->name);
		return EXIT_REFUSED;
	}
	return at->folder ? begin_snippet(at) : EXIT_DONE;
}

static enum exit_code keep_attached(struct attachment *at)
{
	if (!at->folder || snippet_keep(&at->snippet) == 0)
		return EXIT_DONE;
	say_to(stderr, "ublkctl: the device %s is attached, but not kept\n", at->device.name);
	return EXIT_REFUSED;
}

/*
 * Whether somebody took a name that we chose, between our look and the daemon's. By the words of
 * device_settings_conflict: a device of ours that is late has its name too.
 */
static bool lost_name(const struct attachment *at, const json_t *refusal)
{
	char words[SETTINGS_NAME_MAX + 64];
	json_t *error;
	size_t i;

	snprintf(words, sizeof(words), "name: \"%s\" is taken already", at->device.name);
	json_array_foreach(json_object_get(refusal, "errors"), i, error)
	{
		if (json_is_string(error) && strstr(json_string_value(error), words))
			return !at->args->device_name;
	}
	return false;
}

/* The daemon has said how: by the words of backend_block_cure. False: it has not, or twice. */
static bool takes_blocks(struct attachment *at, const json_t *refusal)
{
	static const char words[] = ": set block_size: ";
	const char *found = NULL;
	json_t *error;
	size_t i;

	json_array_foreach(json_object_get(refusal, "errors"), i, error) if (json_is_string(error))
		found = strstr(json_string_value(error), words);
	if (!found || at->device.block_bytes)
		return false;
	at->device.block_bytes = (unsigned)strtoul(found + strlen(words), NULL, 10);
	return at->device.block_bytes > 0;
}

/* *ret_again: nothing was done, and it is worth another name, or larger blocks. */
static enum exit_code attach_add(struct attachment *at, bool *ret_again)
{
	json_t *request = client_request("add", NULL), *data, *refusal;
	enum exit_code code;

	client_set_text(&request, "file", "<attach>");
	client_set_text(&request, "yaml", at->yaml);
	code = client_try(at->args->socket_path, request, 0, &data, &refusal);
	if (code == EXIT_DONE) {
		client_say_notes(stderr, "ublkctl", data);
		json_decref(data);
		return keep_attached(at);
	}
	if (at->folder)
		snippet_drop(&at->snippet);
	*ret_again = refusal && ((lost_name(at, refusal) && ++at->tries < TRIES_MAX) ||
				 takes_blocks(at, refusal));
	if (refusal && !*ret_again)
		client_tell_refusal(refusal);
	json_decref(refusal);
	return code;
}

/* Each time others were faster; and once with the blocks that the storage has. */
static enum exit_code attach_device(struct attachment *at)
{
	enum exit_code code;
	bool again;

	do {
		again = false;
		code = choose_name(at);
		if (code == EXIT_DONE)
			code = make_yaml(at);
		if (code == EXIT_DONE)
			code = attach_add(at, &again);
	} while (again);
	return code;
}

static void print_attached(const struct attachment *at, const json_t *shown)
{
	const char *path = client_text(shown, "path");
	json_t *json;

	if (at->args->json) {
		json = json_pack("{s:s, s:s, s:I, s:o?}", "name", at->device.name, "path", path,
				 "id", (json_int_t)client_number(shown, "id"), "snippet",
				 at->folder ? json_words(at->snippet.path) : NULL);
		print_json(json);
		json_decref(json);
	} else if (at->args->show) {
		say_to(stdout, "%s\n", path);
	} else {
		say_to(stdout, "%s is %s\n", path, at->device.name);
	}
}

static enum exit_code attach_await(const struct attachment *at)
{
	char error[NODE_WAIT_ERROR_BYTES];
	enum exit_code code;
	const char *path;
	json_t *shown;

	code = client_ask(at->args->socket_path, client_request("show", at->device.name),
			  CLIENT_SECONDS, &shown);
	if (code != EXIT_DONE)
		return code;
	path = client_text(shown, "path");
	if (strncmp(path, NODE_PREFIX, strlen(NODE_PREFIX)) != 0) {
		say_to(stderr, "ublkctl: the device %s is not live any more\n", at->device.name);
		code = EXIT_REFUSED;
	} else if (node_wait(path, NODE_WAIT_UDEV, NODE_WAIT_SECONDS, error) < 0) {
		say_to(stderr, "ublkctl: the device %s is attached, but after %.0f s: %s\n",
		       at->device.name, NODE_WAIT_SECONDS, error);
		code = EXIT_REFUSED;
	} else {
		print_attached(at, shown);
		if (at->device.word.is_uri)
			ctl_image_hint(at->args->name, path);
	}
	json_decref(shown);
	return code;
}

enum exit_code ublkctl_attach(const struct ublkctl_args *a)
{
	const char *wrong = a->device_name ? settings_name_wrong(a->device_name) : NULL;
	struct attachment at = { .args = a };
	enum exit_code code;

	if (wrong)
		ublkctl_usage_error("a name that cannot be: it ", wrong);
	if (a->device_name && strlen(a->device_name) > SETTINGS_NAME_MAX)
		ublkctl_usage_error("a name has at most 31 characters, not ", a->device_name);
	code = read_word(&at);
	if (code == EXIT_DONE && a->persist)
		code = find_folder(&at);
	if (code == EXIT_DONE)
		code = attach_device(&at);
	if (code == EXIT_DONE)
		code = attach_await(&at);
	free(at.yaml);
	json_decref(at.list);
	json_decref(at.settings);
	return code;
}

/* ---- detach ---- */

/*
 * The device that a word is: its name, /dev/ublkd/NAME, or any path that leads to its node. NULL:
 * there is none.
 */
static const json_t *find_detached(const json_t *list, const char *word)
{
	char node[PATH_MAX];

	if (strncmp(word, NAMES_FOLDER, strlen(NAMES_FOLDER)) == 0 &&
	    !strchr(word + strlen(NAMES_FOLDER), '/'))
		return find_listed(list, "name", word + strlen(NAMES_FOLDER));
	if (word[0] != '/')
		return find_listed(list, "name", word);
	return realpath(word, node) ? find_listed(list, "path", node) : NULL;
}

/* What keeps a device: its snippet, or any other file that the daemon reads. */
static enum exit_code detach_unkeep(const struct ublkctl_args *a, const char *name, bool from_file)
{
	json_t *settings = NULL;
	const char *folder;
	int ret = -ENOENT;

	if (ask_settings(a, &settings) != EXIT_DONE)
		return EXIT_REFUSED;
	folder = json_string_value(json_object_get(settings, "devices_dir"));
	if (folder)
		ret = snippet_remove(folder, name);
	if (ret == -ENOENT && from_file)
		say_to(stderr,
		       "ublkctl: %s is still in the configuration, and starts again with the "
		       "next reload: remove it from %s%s%s\n",
		       name, client_text(settings, "config"), folder ? ", or from a file in " : "",
		       folder ? folder : "");
	json_decref(settings);
	return ret == 0 || ret == -ENOENT ? EXIT_DONE : EXIT_REFUSED;
}

static enum exit_code detach_device(const struct ublkctl_args *a, const char *name)
{
	json_t *request = client_request("del", name), *data;
	enum exit_code code;
	bool from_file;

	code = client_ask(a->socket_path, client_request("show", name), CLIENT_SECONDS, &data);
	if (code != EXIT_DONE) {
		json_decref(request);
		return code;
	}
	from_file = json_is_true(json_object_get(data, "from_file"));
	json_decref(data);
	json_object_set_new(request, "force", json_boolean(a->force));
	code = client_ask(a->socket_path, request, 0, &data);
	if (code != EXIT_DONE)
		return code;
	if (a->json)
		print_json(data);
	json_decref(data);
	return detach_unkeep(a, name, from_file);
}

/* A device that is stopped may have its snippet still. */
static enum exit_code detach_snippet(const struct ublkctl_args *a)
{
	const char *name = a->name;
	enum exit_code code;
	json_t *settings;
	const char *folder;
	int ret = -ENOENT;

	if (strncmp(name, NAMES_FOLDER, strlen(NAMES_FOLDER)) == 0)
		name += strlen(NAMES_FOLDER);
	code = ask_settings(a, &settings);
	if (code != EXIT_DONE)
		return code;
	folder = json_string_value(json_object_get(settings, "devices_dir"));
	if (folder && !settings_name_wrong(name))
		ret = snippet_remove(folder, name);
	if (ret == -ENOENT)
		say_to(stderr, "ublkctl: ublkd has no device %s: ublkctl list shows all\n",
		       a->name);
	json_decref(settings);
	return ret == 0 ? EXIT_DONE : EXIT_REFUSED;
}

enum exit_code ublkctl_detach(const struct ublkctl_args *a)
{
	const json_t *device;
	enum exit_code code;
	json_t *list;

	code = ask_list(a, &list);
	if (code != EXIT_DONE)
		return code;
	device = find_detached(list, a->name);
	code = device ? detach_device(a, client_text(device, "name")) : detach_snippet(a);
	json_decref(list);
	return code;
}
