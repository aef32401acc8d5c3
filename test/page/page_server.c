/*
 * The daemon's own web server without a driver: device set, metrics and page are the product's,
 * only the devices are not. Each of the four that is asked for its counters makes three more reads,
 * of which every device has part: a poll finds twelve more, in twelve rows of the heat map. Prints
 * its port and serves until it is killed, two minutes at most.
 */
#include <unistd.h>

#include "base/log.h"
#include "daemon/metrics/http.h"
#include "test/rig/fake_device.h"

#define LIFE_SECONDS 900.
/* Settings allow no such name: it must do no harm all the same. */
#define HOSTILE_NAME "<img src=x onerror=\"document.title='owned'\">\\\n\xe6\xbc\xa2"

static struct device_set device_set;
static struct device_host host;
static struct reactors reactors;
static struct reactor control;
static struct watchdog watchdog;

static int add(const char *yaml)
{
	struct config_errors e;
	struct settings s;
	int ret;

	config_errors_init(&e, "page");
	ret = settings_parse_devices(&s, yaml, strlen(yaml), &e);
	if (ret == 0)
		device_set_add(&device_set, settings_take(&s, 0), false);
	settings_free(&s);
	config_errors_fini(&e);
	return ret;
}

static void on_end(struct ev_loop *ev, struct ev_timer *w, int events)
{
	(void)w, (void)events;
	ev_break(ev, EVBREAK_ALL);
}

int main(void)
{
	const struct metrics_source source = { &device_set, &reactors, &control, &watchdog };
	struct ev_loop *ev = ev_default_loop(0);
	struct ev_timer life;
	struct http http;

	log_init(LOG_LEVEL_ERROR);
	fake_requests_more = 3;
	fake_io_young = true;
	fake_server_pid = getpid();
	device_set_init(&device_set, ev, &host, NS_PER_SEC);
	if (add("{name: disk-1, backend: {type: mem, size: 1M}}") < 0 ||
	    add("{name: net-1, backend: {type: mem, size: 1M}}") < 0 ||
	    add("{name: stuck-1, backend: {type: mem, size: 1M}}") < 0 ||
	    add("{name: hostile, backend: {type: mem, size: 1M}}") < 0)
		return 1;
	device_set_find(&device_set, "hostile")->settings->options.name = strdup(HOSTILE_NAME);
	if (http_start(&http, ev, "127.0.0.1:0", &source) < 0)
		return 1;
	printf("%u\n", http_port(&http));
	fflush(stdout);
	ev_timer_init(&life, on_end, LIFE_SECONDS, 0.);
	ev_timer_start(ev, &life);
	ev_run(ev, 0);
	return 0;
}
