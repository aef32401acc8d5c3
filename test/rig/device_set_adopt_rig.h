/*
 * A device set with a state folder, and devices that a dead daemon left to it. Definitions: for one
 * program.
 */
#ifndef TEST_RIG_DEVICE_SET_ADOPT_RIG_H
#define TEST_RIG_DEVICE_SET_ADOPT_RIG_H

#include <limits.h>

#include <jansson.h>
#include <unistd.h>

#include "daemon/devices/device_notes.h"
#include "daemon/devices/state.h"
#include "test/rig/device_set_rig.h"

static char folder[] = "/tmp/test_device_set.XXXXXX";
static struct state notes;
static struct backend_device memory;

/* "serving 5": the phase and the id in the note of a device; "none" without one. */
static inline const char *note_of(const char *name)
{
	static char text[64];
	char path[128];
	json_t *json;

	snprintf(path, sizeof(path), "%s/%s.json", folder, name);
	json = json_load_file(path, 0, NULL);
	snprintf(text, sizeof(text), "none");
	if (json)
		snprintf(text, sizeof(text), "%s %lld",
			 json_string_value(json_object_get(json, "phase")),
			 json_integer_value(json_object_get(json, "id")));
	json_decref(json);
	return text;
}

/* As the daemon before noted it: name or "name:depth", of id 5, from the file. */
static inline struct member *adopt_as(const char *name, bool from_file)
{
	struct ublksrv_ctrl_dev_info info = { .dev_id = 5, .nr_hw_queues = 1, .queue_depth = 1 };
	struct state_record record = { .phase = STATE_SERVING,
				       .id = 5,
				       .from_file = from_file,
				       .size_bytes = 1u << 20,
				       .identity = "mem" };
	struct settings s;
	struct member *m;

	parse(&s, name);
	record.settings = settings_take(&s, 0);
	snprintf(record.name, sizeof(record.name), "%s", record.settings->options.name);
	assert_int_equal(state_write(&notes, &record), 0);
	m = device_set_adopt(&device_set, &record, &info);
	assert_null(record.settings);
	settings_free(&s);
	return m;
}

static inline struct member *adopt(const char *name)
{
	return adopt_as(name, true);
}

/* Also what is tried again every few milliseconds. */
static inline void run_retries(void)
{
	do {
		ev_run(ev, EVRUN_ONCE | EVRUN_NOWAIT);
	} while (ev_is_active(&device_set.sweep) || ev_is_active(&device_set.retry) ||
		 fake_pending());
}

/* The backend stays in use longer than anybody waits. */
static inline struct member *adopt_held_for_ever(const char *name)
{
	struct member *m;

	fake_held_nr = UINT_MAX;
	m = adopt(name);
	assert_string_equal(member_state_name(m), "waiting");
	m->past->until_ns = 0;
	run_retries();
	return m;
}

static inline void until_ended(struct member *m)
{
	while (!m->ended)
		ev_run(ev, EVRUN_ONCE);
}

static inline int adopt_setup(void **state)
{
	char words[PATH_WORDS_BYTES];

	setup(state);
	fake_held_nr = 0;
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	if (!mkdtemp(folder) || state_open(&notes, folder, words) < 0)
		return -1;
	memory = (struct backend_device){ .ops = backend_find("mem") };
	fake_backend = &memory;
	device_set.control = "/run/test.sock";
	device_set.state = &notes;
	return 0;
}

static inline int adopt_teardown(void **state)
{
	static const char *const names[] = { "sour", "absent", "held" };
	int ret;

	device_set_stop_all(&device_set);
	run();
	if (fake_find("slow"))
		fake_release("slow");
	ret = teardown(state);
	/* What was kept until the end is the next daemon's. */
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		state_remove(&notes, names[i]);
	state_close(&notes);
	return ret == 0 && rmdir(folder) == 0 ? 0 : -1;
}

#define ADOPT(fn) cmocka_unit_test_setup_teardown(fn, adopt_setup, adopt_teardown)

#endif
