/*
 * A fleet of fake devices, and what its tests ask of it. Definitions, not declarations: for one
 * program.
 */
#ifndef TEST_RIG_FLEET_RIG_H
#define TEST_RIG_FLEET_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "daemon/devices/fleet.h"
#include "test/rig/fake_backends.h"
#include "test/rig/fake_device.h"

static struct fleet fleet;
static struct device_host host;
static struct ev_loop *ev;
static unsigned changes_nr;

struct told {
	struct fleet_watch watch;
	unsigned nr;
	enum fleet_outcome outcome;
	char error[64];
};

static inline void on_told(struct fleet_watch *watch, enum fleet_outcome outcome, const char *error)
{
	struct told *t = container_of(watch, struct told, watch);

	t->nr++;
	t->outcome = outcome;
	snprintf(t->error, sizeof(t->error), "%s", error);
}

static inline void on_changed(struct fleet *f)
{
	assert_ptr_equal(f, &fleet);
	changes_nr++;
}

/* Until nothing moves any more but by us. */
static inline void run(void)
{
	do {
		ev_run(ev, EVRUN_ONCE | EVRUN_NOWAIT);
	} while (ev_is_active(&fleet.sweep) || fake_pending());
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
	m = fleet_add(&fleet, settings_take(&s, 0), from_file);
	settings_free(&s);
	return m;
}

static inline void reload(const char *names)
{
	struct settings s;

	parse(&s, names);
	fleet_reload(&fleet, &s);
	settings_free(&s);
}

static inline struct told *watch(struct told *t, struct member *m)
{
	*t = (struct told){ .watch.fn = on_told };
	fleet_watch(m, &t->watch);
	return t;
}

static inline const char *state_of(const char *name)
{
	struct member *m = fleet_find(&fleet, name);

	return m ? member_state_name(m) : "none";
}

static inline int setup(void **state)
{
	(void)state;
	ev = ev_default_loop(0);
	changes_nr = 0;
	fleet_init(&fleet, ev, &host, 10 * NS_PER_SEC);
	fleet.changed = on_changed;
	return 0;
}

/* Every test leaves a fleet that stops. */
static inline int teardown(void **state)
{
	(void)state;
	fleet_stop_all(&fleet);
	run();
	fleet_fini(&fleet);
	return fleet.member_nr == 0 && fake_nr == 0 ? 0 : -1;
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
