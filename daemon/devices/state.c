/*
 * The state folder. Main thread.
 *
 * Happy path: state_write makes NAME.json.new, syncs and renames it, so that NAME.json is always
 * whole; state_load reads them all at the next start. Failure modes: no room or no rights (an
 * errno: the device does not start, since it could not be adopted after a crash); a file of a newer
 * program, a damaged one, one that another user could have written: told, left alone.
 */
#include "daemon/devices/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/runtime/path.h"

#define STATE_VERSION 1 /* raised with the layout: test/kept.py */
#define STATE_SUFFIX ".json"
#define STATE_TEMPORARY STATE_SUFFIX ".new" /* no note ends so */
#define STATE_OWED ".owed"
#define STATE_FILE_BYTES_MAX (4u << 20)

static const char *const phase_names[] = {
	[STATE_ADDING] = "adding",
	[STATE_SERVING] = "serving",
	[STATE_RECOVERING] = "recovering",
};

void state_path(const struct daemon_settings *settings, char path[static 256])
{
	if (settings->state_dir)
		snprintf(path, 256, "%s", settings->state_dir);
	else
		snprintf(path, 256, "%s.state", settings->control);
}

int state_open(struct state *s, const char *path, char words[static PATH_WORDS_BYTES])
{
	size_t len = strlen(path);
	char folder[sizeof(s->path)];
	int ret;

	/* With a slash behind it a symlink would be followed. */
	while (len > 1 && path[len - 1] == '/')
		len--;
	snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
	ret = path_make_parent(folder, 0755, words);
	if (ret < 0)
		return ret;
	if (mkdir(folder, 0700) < 0 && errno != EEXIST) {
		ret = -errno;
		snprintf(words, PATH_WORDS_BYTES, "%s: %s", folder, errname(ret));
		return ret;
	}
	ret = path_open_own_folder(folder, O_RDONLY, words);
	if (ret < 0)
		return ret;
	s->fd = ret;
	strcpy(s->path, folder);
	return 0;
}

void state_close(struct state *s)
{
	if (s->path[0] != '\0')
		close(s->fd);
	s->path[0] = '\0';
}

/* ---- writing ---- */

static void note_file_name(char name[static 64], const char *device, const char *suffix)
{
	snprintf(name, 64, "%s%s", device, suffix);
}

static json_t *record_json(const struct state_record *r)
{
	return json_pack("{s:i, s:s, s:s, s:I, s:b, s:I, s:s, s:o}", "version", STATE_VERSION,
			 "name", r->name, "phase", phase_names[r->phase], "id", (json_int_t)r->id,
			 "from_file", r->from_file, "size_bytes", (json_int_t)r->size_bytes,
			 "identity", r->identity, "device", device_settings_json(r->settings));
}

static int write_all(int fd, const char *text, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(fd, text, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		text += n;
		bytes -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* Whatever had the name is not written to, and what could not be completed does not stay. */
static int write_file(const struct state *s, const char *name, const char *text)
{
	int fd, ret;

	if (unlinkat(s->fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(s->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	ret = write_all(fd, text, strlen(text));
	close(fd);
	if (ret < 0)
		unlinkat(s->fd, name, 0);
	return ret;
}

int state_write(const struct state *s, const struct state_record *record)
{
	json_t *json = record_json(record);
	char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
	char name[64], temporary[64];
	int ret = -ENOMEM;

	json_decref(json);
	note_file_name(name, record->name, STATE_SUFFIX);
	note_file_name(temporary, record->name, STATE_TEMPORARY);
	if (text)
		ret = write_file(s, temporary, text);
	if (ret == 0 && renameat(s->fd, temporary, s->fd, name) < 0) {
		ret = -errno;
		unlinkat(s->fd, temporary, 0);
	}
	if (ret == 0 && fsync(s->fd) < 0)
		ret = -errno;
	free(text);
	return ret;
}

/* fd, or -errno and it is closed. */
static int owe_nothing(int fd)
{
	static const char nothing[BACKEND_OWED_BYTES];
	ssize_t n = pwrite(fd, nothing, sizeof(nothing), 0);
	int ret = n < 0 ? -errno : -ENOSPC;

	if (n == sizeof(nothing))
		return fd;
	close(fd);
	return ret;
}

int state_open_owed(const struct state *s, const char *device)
{
	char name[64];
	struct stat stat;
	int fd;

	note_file_name(name, device, STATE_OWED);
	fd = openat(s->fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &stat) < 0 || path_file_not_own(&stat)) {
		close(fd);
		return -EPERM;
	}
	return stat.st_size == BACKEND_OWED_BYTES ? fd : owe_nothing(fd);
}

int state_new_owed(const struct state *s)
{
	int fd = openat(s->fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : owe_nothing(fd);
}

int state_link_owed(const struct state *s, const char *device, int fd)
{
	char name[64], from[32];

	note_file_name(name, device, STATE_OWED);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	if (unlinkat(s->fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return linkat(AT_FDCWD, from, s->fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static void remove_file(const struct state *s, const char *device, const char *suffix)
{
	char name[64];

	note_file_name(name, device, suffix);
	if (unlinkat(s->fd, name, 0) < 0 && errno != ENOENT)
		log_warn("cannot remove a state file", "folder=\"%s\" file=%s error=%s", s->path,
			 name, errname(errno));
}

void state_remove(const struct state *s, const char *device)
{
	remove_file(s, device, STATE_SUFFIX);
	remove_file(s, device, STATE_OWED);
}

/* ---- reading ---- */

static json_t *read_json(const struct state *s, const char *name, json_error_t *error)
{
	int fd = openat(s->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	const char *wrong = NULL;
	json_t *json = NULL;
	struct stat stat;

	if (fd < 0 || fstat(fd, &stat) < 0)
		wrong = errno == ELOOP ? "it is a symlink" : errname(errno);
	else if (stat.st_size > STATE_FILE_BYTES_MAX)
		wrong = "it is too large for a note";
	else
		wrong = path_file_not_own(&stat);
	if (wrong)
		snprintf(error->text, sizeof(error->text), "%s", wrong);
	else
		json = json_loadfd(fd, JSON_REJECT_DUPLICATES, error);
	if (fd >= 0)
		close(fd);
	return json;
}

static int phase_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(phase_names); i++)
		if (strcmp(phase_names[i], name) == 0)
			return (int)i;
	return -1;
}

/* The first of the configuration's errors, or what else is wrong; NULL: all is well. */
static const char *record_parse_device(struct state_record *r, const json_t *device, char *words,
				       size_t words_bytes)
{
	char *text = device_json_text(device), *lines = NULL;
	struct config_errors errors;
	struct settings settings;
	const char *wrong = NULL;

	config_errors_init(&errors, r->name);
	if (!text || settings_parse_devices(&settings, text, strlen(text), &errors) < 0 ||
	    settings.device_nr != 1) {
		lines = config_errors_text(&errors);
		snprintf(words, words_bytes, "%.*s", lines ? (int)strcspn(lines, "\n") : 0,
			 lines ? lines : "");
		if (words[0] == '\0')
			snprintf(words, words_bytes, "it has no device");
		wrong = words;
	} else if (strcmp(settings.devices[0]->options.name, r->name) != 0) {
		wrong = "it contradicts itself";
	} else {
		r->settings = settings_take(&settings, 0);
	}
	if (text)
		settings_free(&settings);
	config_errors_fini(&errors);
	free(lines);
	free(text);
	return wrong;
}

static const char *record_parse(struct state_record *r, json_t *json, char *words,
				size_t words_bytes)
{
	const char *name, *phase, *identity;
	json_int_t id, size_bytes;
	json_t *device;
	int version, from_file;

	if (json_unpack(json, "{s:i}", "version", &version) < 0 || version < 1)
		return "it has no version";
	if (version > STATE_VERSION)
		return "a newer ublkd wrote it";
	if (json_unpack(json, "{s:s, s:s, s:I, s:b, s:I, s:s, s:o}", "name", &name, "phase", &phase,
			"id", &id, "from_file", &from_file, "size_bytes", &size_bytes, "identity",
			&identity, "device", &device) < 0)
		return "something is missing in it";
	if (strcmp(name, r->name) != 0 || phase_of(phase) < 0 || size_bytes < 0 ||
	    strlen(identity) >= sizeof(r->identity))
		return "it contradicts itself";
	r->phase = (enum state_phase)phase_of(phase);
	r->id = id;
	r->from_file = from_file;
	r->size_bytes = (uint64_t)size_bytes;
	snprintf(r->identity, sizeof(r->identity), "%s", identity);
	return record_parse_device(r, device, words, words_bytes);
}

/* NAME.json: NAME, in r; or NULL, or what is wrong with it. */
static const char *record_parse_name(struct state_record *r, const char *file)
{
	size_t len = strlen(file) - strlen(STATE_SUFFIX);

	if (len > SETTINGS_NAME_MAX)
		return "no device can have so long a name";
	snprintf(r->name, sizeof(r->name), "%.*s", (int)len, file);
	return settings_name_wrong(r->name);
}

/* Returns true when the record can be used. */
static bool load_file(const struct state *s, const char *file, struct state_record *r)
{
	char words[256];
	json_error_t error;
	json_t *json = NULL;
	const char *wrong;

	*r = (struct state_record){ .id = -1 };
	wrong = record_parse_name(r, file);
	if (!wrong) {
		json = read_json(s, file, &error);
		wrong = json ? record_parse(r, json, words, sizeof(words)) : error.text;
	}
	if (wrong)
		log_error("a state file cannot be used and is left alone",
			  "folder=\"%s\" file=\"%s\" reason=\"%s\"", s->path, file, wrong);
	json_decref(json);
	return wrong == NULL;
}

int state_check(const struct state *s, const char *device)
{
	struct state_record record;
	char name[64];
	bool usable;

	note_file_name(name, device, STATE_SUFFIX);
	if (faccessat(s->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	usable = load_file(s, name, &record);
	device_settings_free(record.settings);
	return usable ? 0 : -EEXIST;
}

static bool file_ends_with(const char *name, const char *suffix)
{
	size_t len = strlen(name), suffix_len = strlen(suffix);

	return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

/* Of its own, since a position in a folder belongs to the open file. */
static DIR *open_state_folder(const struct state *s)
{
	int fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

static int load_all(const struct state *s, DIR *dir, struct state_record **ret_records,
		    size_t *ret_nr, size_t *ret_unreadable)
{
	struct state_record *records = NULL, *more;
	struct dirent *entry;
	size_t nr = 0;

	while ((entry = readdir(dir))) {
		if (!file_ends_with(entry->d_name, STATE_SUFFIX))
			continue;
		more = realloc(records, (nr + 1) * sizeof(*records));
		if (!more) {
			state_free(records, nr);
			return -ENOMEM;
		}
		records = more;
		if (load_file(s, entry->d_name, &records[nr]))
			nr++;
		else
			(*ret_unreadable)++;
	}
	*ret_records = records;
	*ret_nr = nr;
	return 0;
}

int state_load(const struct state *s, struct state_record **ret_records, size_t *ret_nr,
	       size_t *ret_unreadable)
{
	DIR *dir = open_state_folder(s);
	int ret;

	*ret_unreadable = 0;
	if (!dir)
		return -errno;
	ret = load_all(s, dir, ret_records, ret_nr, ret_unreadable);
	closedir(dir);
	return ret;
}

void state_clean(const struct state *s)
{
	DIR *dir = open_state_folder(s);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (!file_ends_with(entry->d_name, STATE_TEMPORARY))
			continue;
		log_warn("removing a note that was never completed", "folder=\"%s\" file=\"%s\"",
			 s->path, entry->d_name);
		if (unlinkat(s->fd, entry->d_name, 0) < 0)
			log_warn("cannot remove a state file", "folder=\"%s\" file=\"%s\" error=%s",
				 s->path, entry->d_name, errname(errno));
	}
	if (dir)
		closedir(dir);
}

struct device_settings *state_take(struct state_record *record)
{
	struct device_settings *settings = record->settings;

	record->settings = NULL;
	return settings;
}

void state_free(struct state_record *records, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		device_settings_free(records[i].settings);
	free(records);
}
