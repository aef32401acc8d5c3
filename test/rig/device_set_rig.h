/*
 * A device set of fake devices, and what its tests ask of it. Definitions, not declarations: for
 * one program.
 */
#ifndef TEST_RIG_DEVICE_SET_RIG_H
#define TEST_RIG_DEVICE_SET_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "daemon/devices/device_set.h"
#include "test/rig/fake_backends.h"
#include "test/rig/fake_device.h"

static struct device_set device_set;
static struct device_host host;
static struct ev_loop *ev;
static unsigned changes_nr;

struct told {
	struct device_set_watch watch;
	unsigned nr;
	enum device_set_outcome outcome;
	char error[64];
};

static inline void on_told(struct device_set_watch *watch, enum device_set_outcome outcome,
			   const char *error)
{
	struct told *t = container_of(watch, struct told, watch);

	t->nr++;
	t->outcome = outcome;
	snprintf(t->error, sizeof(t->error), "%s", error);
}

static inline void on_changed(struct device_set *f)
{
	assert_ptr_equal(f, &device_set);
	changes_nr++;
}

/* Until nothing moves any more but by us. */
static inline void run(void)
{
	do {
		ev_run(ev, EVRUN_ONCE | EVRUN_NOWAIT);
	} while (ev_is_active(&device_set.sweep) || fake_pending());
}

/* Of each device. */
static const char *rig_backend = "{type: mem, size: 1M}";

/* "a b:2" is two devices, the second of depth 2. */
static inline void parse(struct settings *s, const char *names)
{
	char text[8192] = "[]", copy[1024], *rest = copy, *word;
	struct config_errors e;
	size_t len = 0;

	strcpy(copy, names);
	while ((word = strsep(&rest, " "))) {
		char *depth = strchr(word, ':');

		if (depth)
			*depth++ = '\0';
		if (word[0])
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						"- {name: %s, depth: %s, backend: %s}\n", word,
						depth ? depth : "1", rig_backend);
	}
	config_errors_init(&e, "f");
	assert_int_equal(settings_parse_devices(s, text, strlen(text), &e), 0);
	config_errors_fini(&e);
}

static inline struct member *add(const char *name, bool from_file)
{
	struct settings s;
	struct member *m;

	parse(&s, name);
	m = device_set_add(&device_set, settings_take(&s, 0), from_file);
	settings_free(&s);
	return m;
}

static inline void reload(const char *names)
{
	struct settings s;

	parse(&s, names);
	device_set_reload(&device_set, &s);
	settings_free(&s);
}

static inline struct told *watch(struct told *t, struct member *m)
{
	*t = (struct told){ .watch.fn = on_told };
	device_set_watch(m, &t->watch);
	return t;
}

static inline const char *state_of(const char *name)
{
	struct member *m = device_set_find(&device_set, name);

	return m ? member_state_name(m) : "none";
}

static inline int setup(void **state)
{
	(void)state;
	ev = ev_default_loop(0);
	changes_nr = 0;
	device_set_init(&device_set, ev, &host, 10 * NS_PER_SEC);
	device_set.changed = on_changed;
	return 0;
}

/* Every test leaves a device set that stops. */
static inline int teardown(void **state)
{
	(void)state;
	device_set_stop_all(&device_set);
	run();
	device_set_fini(&device_set);
	return device_set.member_nr == 0 && fake_nr == 0 ? 0 : -1;
}

static inline int quiet(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	return 0;
}

static inline int end(void **state)
{
	(void)state;
	ev_loop_destroy(ev_default_loop(0));
	return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
