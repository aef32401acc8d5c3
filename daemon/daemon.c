/*
 * The order in which the daemon comes up, what its signals do, and the order in which it goes down.
 * Owns everything that is there once. Main thread.
 *
 * Happy path: process -> lock -> state -> reactors -> loop -> driver -> devices -> control socket
 * -> READY=1; SIGHUP reads the file again; SIGTERM or SIGINT stops the devices, then the reactors.
 *
 * Failure modes: something is missing before the first device: one line with the cure, exit code 1.
 * A device fails: logged, the others go on, and SIGHUP tries it again. Devices that do not stop in
 * time: logged by name, exit code 1. A second signal: exit at once.
 */
#include "daemon/daemon.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "daemon/handover/adopt.h"
#include "daemon/api/commands.h"
#include "daemon/runtime/driver.h"
#include "daemon/devices/device_set.h"
#include "daemon/devices/device_notes.h"
#include "daemon/devices/gc.h"
#include "daemon/metrics/http.h"
#include "daemon/runtime/loop.h"
#include "daemon/runtime/mount_namespace.h"
#include "daemon/runtime/notify.h"
#include "daemon/fdstore/fd_store.h"
#include "daemon/runtime/path.h"
#include "daemon/runtime/pins.h"
#include "daemon/runtime/process.h"
#include "daemon/runtime/reactors.h"
#include "daemon/settings/settings.h"
#include "daemon/socket/socket.h"
#include "daemon/handover/successor.h"
#include "daemon/devices/state.h"
#include "daemon/handover/upgrade.h"
#include "daemon/devices/watchdog.h"
#include "ublk/control.h"

struct daemon {
	const struct daemon_params *params;
	struct settings settings; /* the devices in it are the device set's, once taken */
	struct reactors reactors;
	struct loop loop;
	struct helpers *helpers;
	struct ctl ctl;
	struct device_host host;
	struct state state;
	struct fd_store fd_store;
	struct device_set device_set;
	struct socket_server server;
	struct commands commands;
	struct http http;
	struct standby standby;	  /* we take over from another process */
	struct adoption adoption; /* while we are */
	struct upgrade upgrade;	  /* another takes over from us */
	char program[PATH_MAX];
	struct watchdog watchdog;
	struct pins pins;
	struct ev_signal term, interrupt, hangup;
	struct ev_timer stop_deadline;
	int lock_fd;
	bool privileged; /* host_is_privileged */
	bool reloading;	 /* READY=1 is owed to the service manager */
	bool stopping;
	bool ended;
	enum exit_code exit_code;
};

/* One daemon per process: the assertion hook has no argument. */
static struct daemon the_daemon;

static void dump_ops(void)
{
	reactors_dump(&the_daemon.reactors, STDERR_FILENO);
	reactor_dump_ops(&the_daemon.loop.control, STDERR_FILENO);
}

/* ---- devices ---- */

static void log_memory(const struct daemon *d)
{
	uint64_t reactors_bytes = d->reactors.nr * reactors_memory_each(), devices_bytes = 0;

	for (size_t i = 0; i < d->settings.device_nr; i++) {
		const struct device_spec spec = device_set_spec_of(d->settings.devices[i]);

		devices_bytes += device_memory_max(&spec);
	}
	log_info("worst-case memory",
		 "devices_bytes=%llu reactors_bytes=%llu reactors=%u helpers_bytes=%u",
		 (unsigned long long)devices_bytes, (unsigned long long)reactors_bytes,
		 d->reactors.nr, BACKEND_WORK_OPENS_MAX * THREAD_STACK_BYTES);
}

/* What a dead daemon left is adopted as it was; then the configuration is applied to it. */
static int begin_devices(struct daemon *d)
{
	struct adoption adoption;
	int ret;

	if (standby_is(&d->standby)) {
		adoption_begin(&d->adoption, &d->device_set);
		device_set_check(&d->device_set);
		return 0;
	}
	ret = adoption_find(&adoption, &d->loop, &d->device_set, false);
	if (ret == 0) {
		adoption_begin(&adoption, &d->device_set);
		device_set_reload(&d->device_set, &d->settings);
	}
	adoption_free(&adoption);
	return ret;
}

static void daemon_end(struct daemon *d, enum exit_code exit_code)
{
	d->exit_code = exit_code;
	d->ended = true;
	ev_break(d->loop.ev, EVBREAK_ALL);
}

/* One that the old program served and we cannot; or NULL. */
static const struct member *find_not_adopted(const struct daemon *d)
{
	list_for_each (node, &d->device_set.members) {
		const struct member *m = list_entry(node, struct member, node);

		if (m->past && m->past->device.info.state == UBLK_S_DEV_LIVE)
			return m;
	}
	return NULL;
}

/* The devices are ours; or the old program takes them back, as soon as we are no more. */
static void end_standby(struct daemon *d)
{
	const struct member *m = find_not_adopted(d);

	if (m) {
		standby_say(&d->standby, "failed device %s: %s", m->settings->options.name,
			    m->error);
		_exit(EXIT_REFUSED);
	}
	standby_say(&d->standby, "done %zu", d->adoption.found_nr);
	standby_end(&d->standby);
	adoption_free(&d->adoption);
	process_lock_pid(d->lock_fd);
	device_set_reload(&d->device_set, &d->settings);
}

static void on_device_set_changed(struct device_set *device_set)
{
	struct daemon *d = device_set->arg;

	if (d->stopping) {
		if (device_set->member_nr == 0)
			daemon_end(d, EXIT_DONE);
		return;
	}
	if (!d->reloading || !device_set_settled(device_set))
		return;
	if (standby_is(&d->standby)) {
		end_standby(d);
		return;
	}
	d->reloading = false;
	/* Not earlier: a client that gets an answer may rely on all devices having started. */
	socket_listen(&d->server);
	log_info("ready", "devices=%u", device_set->member_nr);
	notify_ready();
}

/* ---- signals ---- */

static void log_left_behind(const struct daemon *d)
{
	list_for_each (node, &d->device_set.members) {
		const struct member *m = list_entry(node, struct member, node);

		log_error("device did not stop in time", "device=%s state=%s reason=\"%s\"",
			  m->settings->options.name,
			  m->device ? device_state_name(device_state(m->device)) : "gone",
			  m->device ? device_error(m->device) : "");
	}
}

static void on_stop_deadline(struct ev_loop *ev, struct ev_timer *w, int events)
{
	struct daemon *d = container_of(w, struct daemon, stop_deadline);

	(void)ev, (void)events;
	log_left_behind(d);
	daemon_end(d, EXIT_REFUSED);
}

static void begin_stop(struct daemon *d)
{
	d->stopping = true;
	notify_stopping();
	log_info("stopping", "devices=%u", d->device_set.member_nr);
	socket_stop_listening(&d->server);
	ev_timer_set(&d->stop_deadline, (double)d->device_set.stop_timeout_ns / NS_PER_SEC, 0.);
	ev_timer_start(d->loop.ev, &d->stop_deadline);
	device_set_stop_all(&d->device_set);
}

static void on_term(struct ev_loop *ev, struct ev_signal *w, int events)
{
	struct daemon *d = w->data;

	(void)ev, (void)events;
	/* The old program takes the devices back. */
	if (standby_is(&d->standby))
		_exit(EXIT_REFUSED);
	if (!upgrade_call_off(&d->upgrade))
		return;
	if (!d->stopping) {
		begin_stop(d);
		return;
	}
	/* A second signal: do not wait. The kernel cleans up after us. */
	log_error("second signal: exit at once", "devices=%u", d->device_set.member_nr);
	_exit(EXIT_REFUSED);
}

static void set_log_level(const struct daemon *d, const struct settings *settings)
{
	int level = d->params->log_level;

	log_init((enum log_level)(level >= 0 ? level : settings->daemon.log_level));
}

/* A log line for each error. */
static void log_config_errors(struct config_errors *e)
{
	char *text = config_errors_text(e), *rest = text, *line;

	while ((line = strsep(&rest, "\n")))
		if (line[0])
			log_error("configuration", "error=\"%s\"", line);
	free(text);
}

static void apply(struct daemon *d, struct settings *settings)
{
	set_log_level(d, settings);
	settings_warn(settings, d->params->config_path, true);
	if (!daemon_settings_equal(&d->settings.daemon, &settings->daemon))
		log_warn("changes of the section daemon need a restart", "file=\"%s\"",
			 d->params->config_path);
	daemon_settings_follow(&d->settings.daemon, &settings->daemon);
	device_set_reload(&d->device_set, settings);
}

static void reload(struct daemon *d)
{
	struct config_errors errors;
	struct settings settings;

	config_errors_init(&errors, d->params->config_path);
	if (settings_load(&settings, d->params->config_path, &errors) == 0) {
		apply(d, &settings);
	} else {
		log_config_errors(&errors);
		log_error("configuration has errors and nothing was changed", "file=\"%s\"",
			  d->params->config_path);
	}
	settings_free(&settings);
	config_errors_fini(&errors);
}

static void on_hangup(struct ev_loop *ev, struct ev_signal *w, int events)
{
	struct daemon *d = w->data;

	(void)ev, (void)events;
	if (d->stopping || standby_is(&d->standby) || upgrade_defer_reload(&d->upgrade))
		return;
	log_info("reading the configuration again", "file=\"%s\"", d->params->config_path);
	notify_reloading();
	d->reloading = true;
	reload(d);
	device_set_check(&d->device_set);
}

static void watch_signals(struct daemon *d)
{
	struct ev_signal *watcher[] = { &d->term, &d->interrupt, &d->hangup };
	sigset_t watched;

	/* A client or journald that goes away is told by write(2). */
	signal(SIGPIPE, SIG_IGN);
	ev_signal_init(&d->term, on_term, SIGTERM);
	ev_signal_init(&d->interrupt, on_term, SIGINT);
	ev_signal_init(&d->hangup, on_hangup, SIGHUP);
	sigemptyset(&watched);
	for (size_t i = 0; i < ARRAY_SIZE(watcher); i++) {
		watcher[i]->data = d;
		ev_signal_start(d->loop.ev, watcher[i]);
		sigaddset(&watched, watcher[i]->signum);
	}
	/* One that waits since before an exec: see pass_signals in upgrade.c. */
	sigprocmask(SIG_UNBLOCK, &watched, NULL);
	ev_timer_init(&d->stop_deadline, on_stop_deadline, 0., 0.);
}

static void unwatch_signals(struct daemon *d)
{
	ev_timer_stop(d->loop.ev, &d->stop_deadline);
	ev_signal_stop(d->loop.ev, &d->term);
	ev_signal_stop(d->loop.ev, &d->interrupt);
	ev_signal_stop(d->loop.ev, &d->hangup);
}

/* ---- up and down ---- */

static int threads_start(struct daemon *d)
{
	char error[REACTORS_ERROR_BYTES];
	char folder[PATH_MAX];
	struct reactors_params params = {
		.cpus = &d->settings.daemon.reactors,
		.flight_folder = folder,
		.busy_poll_ns = d->settings.daemon.busy_poll_us * NS_PER_US,
	};
	int ret;

	path_folder(d->settings.daemon.control, folder);
	ret = reactors_start(&d->reactors, &params, error, sizeof(error));
	if (ret < 0) {
		log_error("cannot start the reactors", "reason=\"%s\"", error);
		return ret;
	}
	ret = loop_init(&d->loop);
	if (ret == 0)
		ret = helpers_create(&d->helpers, &d->loop.control);
	if (ret < 0)
		log_error("cannot set up the control ring", "error=%s", errname(ret));
	return ret;
}

static int state_folder(struct daemon *d)
{
	char path[256], words[PATH_WORDS_BYTES];
	int ret;

	state_path(&d->settings.daemon, path);
	ret = state_open(&d->state, path, words);
	if (ret < 0) {
		log_error("cannot use the state folder", "path=\"%s\" error=%s reason=\"%s\"", path,
			  errname(ret), words);
		return ret;
	}
	/* Early: the descriptors it takes in must not be closed or used by anybody else. */
	ret = fd_store_open(&d->fd_store, d->state.path);
	if (ret < 0)
		log_error("cannot take in the fd store", "error=%s", errname(ret));
	return ret;
}

static int daemon_prepare(struct daemon *d)
{
	int ret = process_check_kernel();

	if (ret == 0)
		ret = process_prepare(d->privileged);
	if (ret < 0)
		return ret;
	d->lock_fd = standby_is(&d->standby) ? d->standby.lock_fd
					     : process_lock(d->settings.daemon.control);
	if (d->lock_fd < 0)
		return d->lock_fd;
	ret = state_folder(d);
	if (ret == 0)
		ret = threads_start(d);
	return ret < 0 ? ret : driver_open(&d->ctl, &d->loop);
}

static void make_device_set(struct daemon *d)
{
	const struct daemon_settings *settings = &d->settings.daemon;

	d->ctl.deadline_ns = settings->command_timeout_ns;
	d->ctl.unprivileged = !d->privileged;
	d->host = (struct device_host){
		.ctl = &d->ctl,
		.reactors = d->reactors.reactor,
		.reactor_cpus = d->reactors.cpu,
		.reactor_nr = d->reactors.nr,
		.helpers = d->helpers,
		.stop_deadline_ns = DEVICE_SET_STOP_DEADLINE_NS(settings->stop_timeout_ns),
	};
	device_set_init(&d->device_set, d->loop.ev, &d->host, settings->stop_timeout_ns);
	d->device_set.open_timeout_seconds = (double)settings->open_timeout_ns / NS_PER_SEC;
	d->device_set.control = settings->control;
	d->device_set.state = &d->state;
	d->device_set.fd_store = &d->fd_store;
	d->device_set.changed = on_device_set_changed;
	d->device_set.arg = d;
}

/* See struct upgrade. */
static void daemon_release(void *arg)
{
	struct daemon *d = arg;

	pins_stop(&d->pins);
	watchdog_stop(&d->watchdog);
	http_stop(&d->http);
	socket_stop_listening(&d->server);
}

/* Made before the devices: where that fails, nothing was started. */
static int control_socket(struct daemon *d)
{
	d->commands = (struct commands){
		.ev = d->loop.ev,
		.device_set = &d->device_set,
		.reactors = &d->reactors,
		.control = &d->loop.control,
		.upgrade = &d->upgrade,
		.watchdog = &d->watchdog,
		.settings = &d->settings.daemon,
		.config_path = d->params->config_path,
		.answer_seconds =
			(double)(CTL_DEADLINE_NS + d->device_set.stop_timeout_ns) / NS_PER_SEC + 5,
	};
	d->upgrade = (struct upgrade){
		.ev = d->loop.ev,
		.device_set = &d->device_set,
		.reactors = &d->reactors,
		.fd_store = &d->fd_store,
		.server = &d->server,
		.lock_fd = d->lock_fd,
		.argv = d->params->argv,
		.program = d->program,
		.release = daemon_release,
		.arg = d,
	};
	commands_attach(&d->commands, &d->server);
	return socket_bind(&d->server, d->loop.ev, d->settings.daemon.control);
}

static int metrics_server(struct daemon *d)
{
	struct metrics_source source = {
		.device_set = &d->device_set,
		.reactors = &d->reactors,
		.control = &d->loop.control,
		.watchdog = &d->watchdog,
	};

	if (!d->settings.daemon.metrics)
		return 0;
	return http_start(&d->http, d->loop.ev, d->settings.daemon.metrics, &source);
}

static int watch_reactors(struct daemon *d)
{
	struct watchdog_params params = {
		.ev = d->loop.ev,
		.device_set = &d->device_set,
		.reactors = &d->reactors,
		.home = &d->loop.control,
		.limit_ns = d->settings.daemon.watchdog_ns,
	};
	int ret = watchdog_start(&d->watchdog, &params);

	if (ret < 0)
		log_error("cannot start the watchdog", "error=%s", errname(ret));
	else
		pins_start(&d->pins, d->loop.ev, &d->reactors, params.limit_ns > 0);
	return ret;
}

static void daemon_serve(struct daemon *d)
{
	watch_signals(d);
	mount_namespace_follow(d->loop.ev);
	log_memory(d);
	d->reloading = true;
	if (begin_devices(d) == 0)
		while (!d->ended)
			ev_run(d->loop.ev, 0);
	mount_namespace_unfollow(d->loop.ev);
	unwatch_signals(d);
}

/* Accepts what prepare left half done. */
static void tear_down(struct daemon *d)
{
	/* Who did not stop, did not answer or does not leave uses this: exit ends it. */
	if (d->device_set.member_nr > 0 || gc_busy() ||
	    (d->ctl.fd >= 0 && ctl_cmd_busy(&d->ctl.features_cmd)) || !loop_leave(&d->loop))
		return;
	pins_stop(&d->pins);
	/* First: a thread whose last mail has been read may not have left mailbox_post yet. */
	reactors_stop(&d->reactors);
	watchdog_stop(&d->watchdog);
	ctl_close(&d->ctl);
	fd_store_close(&d->fd_store);
	state_close(&d->state);
	helpers_close(d->helpers);
	loop_fini(&d->loop);
	settings_free(&d->settings);
	if (d->lock_fd >= 0)
		close(d->lock_fd);
}

enum exit_code daemon_check(const struct daemon_params *params)
{
	const char *config_path = params->config_path;
	struct settings settings;

	settings_mode_of_process(params->config_optional);
	if (settings_load_or_print(&settings, config_path) < 0)
		return EXIT_REFUSED;
	settings_warn(&settings, config_path, false);
	printf("%s: %zu device%s, no errors\n", config_path, settings.device_nr,
	       settings.device_nr == 1 ? "" : "s");
	settings_free(&settings);
	return EXIT_DONE;
}

/* Gets ready while the old program serves; true: its devices are the driver's now. */
static bool stand_by(struct daemon *d)
{
	if (!standby_is(&d->standby))
		return true;
	if (adoption_find(&d->adoption, &d->loop, &d->device_set, true) < 0) {
		standby_say(&d->standby,
			    "failed the notes of the devices in %s cannot be used; "
			    "the log says why",
			    d->state.path);
		return false;
	}
	return standby_say(&d->standby, "ready %s %zu", UBLKD_VERSION, d->adoption.found_nr) &&
	       standby_wait_for_go(&d->standby);
}

enum exit_code daemon_run(const struct daemon_params *params)
{
	struct daemon *d = &the_daemon;

	*d = (struct daemon){ .params = params, .lock_fd = -1, .exit_code = EXIT_REFUSED };
	standby_init(&d->standby);
	process_program(params->argv[0], d->program);
	/*
	 * The next program is told the whole path: executed from this mount namespace of our own,
	 * it could not find out by /proc/self/exe.
	 */
	if (d->program[0] != '\0')
		params->argv[0] = d->program;
	settings_resource_by_text();
	d->privileged = settings_mode_of_process(params->config_optional);
	if (settings_load_or_print(&d->settings, params->config_path) < 0)
		return EXIT_REFUSED;
	d->ctl.fd = -1;
	set_log_level(d, &d->settings);
	settings_warn(&d->settings, params->config_path, true);
	assert_hook = dump_ops;
	if (daemon_prepare(d) == 0) {
		make_device_set(d);
		if (stand_by(d) && control_socket(d) == 0 && metrics_server(d) == 0 &&
		    watch_reactors(d) == 0)
			daemon_serve(d);
		http_stop(&d->http);
		socket_fini(&d->server);
		device_set_fini(&d->device_set);
	}
	tear_down(d);
	return d->exit_code;
}
