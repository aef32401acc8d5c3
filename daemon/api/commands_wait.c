/*
 * add and del: answered when the devices are live or gone. Main thread.
 *
 * Happy path: a wait with one watch per device; each watch counts down; the last one answers and
 * frees the wait. Failure modes: a device that fails or refuses has an error in the answer, and one
 * that is gone but has lost what was written (by force: the answer warns, and succeeds); at the
 * deadline the answer names the devices that are not done; if the client disconnects, the wait is
 * freed and the devices continue.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "daemon/api/commands_internal.h"
#include "daemon/api/json_device.h"
#include "daemon/wire/json_words.h"

struct wait;

struct waited {
	struct device_set_watch watch;
	struct wait *wait;
	char name[SETTINGS_NAME_MAX + 1];
	bool done;
};

struct wait {
	struct commands_pending pending;
	struct commands *commands;
	struct socket_client *client;
	enum device_set_outcome wanted;
	bool by_force;
	struct ev_timer deadline;
	json_t *errors, *warnings;
	size_t nr, done_nr;
	struct waited waited[];
};

static void free_wait(struct wait *w)
{
	ev_timer_stop(w->commands->ev, &w->deadline);
	for (size_t i = 0; i < w->nr; i++)
		if (!w->waited[i].done)
			device_set_unwatch(&w->waited[i].watch);
	json_decref(w->errors);
	json_decref(w->warnings);
	free(w);
}

static void append_words(json_t *list, const char *name, const char *words)
{
	json_array_append_new(list, json_words_format("%s: %s", name, words));
}

static void add_error(struct wait *w, const char *name, const char *error)
{
	append_words(w->errors, name, error);
}

/* The names that were waited for: what was asked is done. */
static json_t *waited_names(const struct wait *w)
{
	json_t *all = json_array();

	for (size_t i = 0; i < w->nr; i++)
		json_array_append_new(all, json_string(w->waited[i].name));
	return all;
}

/* What the users of these devices have to know, "NAME: words"; NULL: nothing. */
static json_t *waited_notes(const struct wait *w)
{
	json_t *all = NULL, *notes, *note;
	size_t idx;

	for (size_t i = 0; i < w->nr; i++) {
		const char *name = w->waited[i].name;
		const struct member *m = device_set_find(w->commands->device_set, name);

		notes = m ? json_device_notes(m) : NULL;
		if (notes && !all)
			all = json_array();
		json_array_foreach(notes, idx, note) json_array_append_new(
			all, json_words_format("%s: %s", name, json_string_value(note)));
		json_decref(notes);
	}
	return all;
}

static void finish_wait(struct wait *w)
{
	struct socket_client *client = w->client;
	size_t error_nr = json_array_size(w->errors);
	char several[64];

	if (error_nr == 0) {
		socket_answer(client, json_pack("{s:o, s:o*, s:O*}", "devices", waited_names(w),
						"notes", waited_notes(w), "warnings",
						json_array_size(w->warnings) ? w->warnings : NULL));
	} else if (error_nr == 1) {
		socket_refuse(client, json_string_value(json_array_get(w->errors, 0)),
			      json_incref(w->errors));
	} else {
		snprintf(several, sizeof(several), "%zu of %zu devices failed", error_nr, w->nr);
		socket_refuse(client, several, json_incref(w->errors));
	}
	free_wait(w);
}

static void on_outcome(struct device_set_watch *watch, enum device_set_outcome outcome,
		       const char *error)
{
	struct waited *d = container_of(watch, struct waited, watch);
	struct wait *w = d->wait;

	d->done = true;
	if (outcome != w->wanted)
		add_error(w, d->name,
			  error[0] != '\0'	       ? error
			  : outcome == DEVICE_SET_GONE ? "was deleted meanwhile"
			  : outcome == DEVICE_SET_LIVE ? "is live"
						       : "failed");
	else if (error[0] != '\0')
		append_words(w->by_force ? w->warnings : w->errors, d->name, error);
	if (++w->done_nr == w->nr)
		finish_wait(w);
}

static void on_wait_deadline(struct ev_loop *ev, struct ev_timer *timer, int events)
{
	struct wait *w = container_of(timer, struct wait, deadline);

	(void)ev, (void)events;
	for (size_t i = 0; i < w->nr; i++)
		if (!w->waited[i].done)
			add_error(w, w->waited[i].name, "is not done yet; it goes on");
	finish_wait(w);
}

static void cancel_wait(struct commands_pending *pending)
{
	free_wait(container_of(pending, struct wait, pending));
}

/* NULL: out of memory. */
static struct wait *new_wait(struct commands *c, struct socket_client *client, size_t max,
			     enum device_set_outcome wanted)
{
	struct wait *w = calloc(1, sizeof(*w) + max * sizeof(w->waited[0]));

	if (!w)
		return NULL;
	w->commands = c;
	w->client = client;
	w->wanted = wanted;
	w->errors = json_array();
	w->warnings = json_array();
	ev_timer_init(&w->deadline, on_wait_deadline, c->answer_seconds, 0.);
	ev_timer_start(c->ev, &w->deadline);
	w->pending.cancel = cancel_wait;
	client->request = &w->pending;
	return w;
}

static void wait_for_member(struct wait *w, struct member *m)
{
	struct waited *d = &w->waited[w->nr++];

	d->wait = w;
	d->watch.fn = on_outcome;
	snprintf(d->name, sizeof(d->name), "%s", m->settings->options.name);
	device_set_watch(m, &d->watch);
}

void commands_cancel(struct socket_client *client)
{
	struct commands *c = client->server->arg;
	struct commands_pending *pending = client->request;

	if (c->upgrade)
		upgrade_forget(c->upgrade, client);
	if (pending)
		pending->cancel(pending);
	client->request = NULL;
}

/* ---- del ---- */

void commands_del(struct commands *c, struct socket_client *client, const json_t *request)
{
	struct member *m = commands_named(c, client, request);
	struct wait *w;

	if (!m)
		return;
	w = new_wait(c, client, 1, DEVICE_SET_GONE);
	if (!w) {
		socket_refuse(client, "out of memory", NULL);
		return;
	}
	w->by_force = json_is_true(json_object_get(request, "force"));
	device_set_del(c->device_set, m, w->by_force);
	wait_for_member(w, m);
}

/* ---- add ---- */

/* What the new devices would take from those there are. */
static void check_against_device_set(const struct device_set *f, const struct settings *s,
				     struct config_errors *e)
{
	list_for_each (node, &f->members) {
		struct member *m = list_entry(node, struct member, node);

		/* What did not exist when it was read may have been created since. */
		if (settings_resource_read(m->settings) < 0)
			continue;
		for (size_t i = 0; i < s->device_nr; i++)
			device_settings_conflict(s->devices[i], m->settings, member_state_name(m),
						 e);
	}
	if (f->member_nr + s->device_nr > SETTINGS_DEVICES_MAX)
		config_errors_add(e, (struct config_pos){ 0 }, "more than %d devices",
				  SETTINGS_DEVICES_MAX);
}

static void add_all(struct commands *c, struct socket_client *client, struct settings *s)
{
	struct wait *w = new_wait(c, client, s->device_nr, DEVICE_SET_LIVE);
	struct member *m;

	if (!w) {
		socket_refuse(client, "out of memory", NULL);
		return;
	}
	for (size_t i = 0; i < s->device_nr; i++) {
		m = device_set_add(c->device_set, settings_take(s, i), false);
		if (m)
			wait_for_member(w, m);
		else
			add_error(w, "a device", "out of memory");
	}
	if (w->nr == 0)
		finish_wait(w);
}

void commands_add(struct commands *c, struct socket_client *client, const json_t *request)
{
	const json_t *yaml = json_object_get(request, "yaml");
	const char *file = json_string_value(json_object_get(request, "file"));
	struct config_errors errors;
	struct settings settings = { 0 };
	int ret;

	if (!yaml || c->device_set->closing) {
		socket_refuse(client, yaml ? "the daemon is stopping" : "the key yaml is missing",
			      NULL);
		return;
	}
	config_errors_init(&errors, file ? file : "<control>");
	ret = settings_parse_devices(&settings, json_string_value(yaml), json_string_length(yaml),
				     &errors);
	/* Also when there are errors: the answer has all of them. */
	if (ret != -ENOMEM)
		check_against_device_set(c->device_set, &settings, &errors);
	if (config_errors_any(&errors))
		socket_refuse_errors(client, "the configuration has errors", &errors);
	else if (ret < 0)
		socket_refuse(client, "out of memory", NULL);
	else
		add_all(c, client, &settings);
	settings_free(&settings);
	config_errors_fini(&errors);
}
