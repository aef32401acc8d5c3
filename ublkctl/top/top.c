/*
 * `ublkctl top`: asks ublkd each interval, gives the answers to the model, shows what the model
 * says. Owns the loop, which waits in one poll() for answers, keys, signals and the next interval.
 *
 * Happy path: ask (stats, list, reactors, layers of the selected device) -> answers -> model ->
 * frame -> screen or stdout. A device that was just selected is asked for its layers at once, so
 * that the next sample has something to be compared with. Failure modes: ublkd is not there, goes
 * away or does not answer: shown, and asked again at the next interval, or each second on a screen;
 * a signal: the terminal is given back, then the signal does what it does.
 */
#include "ublkctl/ctl_commands.h"
#include "ublkctl/print/say.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "ublkctl/top/top_frame.h"
#include "ublkctl/top/top_client.h"
#include "ublkctl/top/top_model.h"
#include "ublkctl/top/top_page.h"
#include "ublkctl/top/top_screen.h"

#define INTERVAL_DEFAULT 1.0
#define RETRY_SECONDS_MAX 1.0

enum question { ASK_STATS, ASK_LIST, ASK_REACTORS, ASK_LAYERS, QUESTION_NR };

struct top {
	struct top_model model;
	struct top_client client;
	struct top_frame frame;
	bool screen; /* else text */
	int signal_fd;
	int ended_by;	    /* a signal */
	uint64_t asked_ns;  /* when the last sample was asked for; 0: not yet */
	bool only_layers;   /* is what was asked for */
	bool layers_wanted; /* of the selected device, as soon as the client is free */
	unsigned long frame_nr, count;
};

static uint64_t top_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
}

/* ---- asking ---- */

/* As a line; NULL: the name is not UTF-8. */
static char *layers_question(const char *name)
{
	json_t *request =
		json_pack("{s:s, s:s, s:b}", "command", "stats", "name", name, "layer_buckets", 1);
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;

	json_decref(request);
	return text;
}

static void ask_sample(struct top *t, uint64_t now_ns)
{
	char *layers = t->model.selected[0] ? layers_question(t->model.selected) : NULL;
	char *requests = NULL;
	unsigned nr = layers ? QUESTION_NR : QUESTION_NR - 1;

	if (asprintf(&requests,
		     "{\"command\":\"stats\",\"buckets\":true}\n{\"command\":\"list\"}\n"
		     "{\"command\":\"reactors\"}\n%s%s",
		     layers ? layers : "", layers ? "\n" : "") < 0)
		abort();
	t->only_layers = t->layers_wanted = false;
	t->asked_ns = now_ns;
	top_client_ask(&t->client, requests, nr, now_ns);
	free(requests);
	free(layers);
}

static void ask_layers(struct top *t, uint64_t now_ns)
{
	char *layers = layers_question(t->model.selected), *request = NULL;

	t->layers_wanted = false;
	if (!layers)
		return;
	if (asprintf(&request, "%s\n", layers) < 0)
		abort();
	t->only_layers = true;
	top_client_ask(&t->client, request, 1, now_ns);
	free(request);
	free(layers);
}

/* ---- answers ---- */

static void take_layers(struct top *t, unsigned question)
{
	struct sample_layers *layers = malloc(sizeof(*layers));
	const char *error;

	if (!layers)
		abort();
	if (sample_layers_read(layers, top_client_data(&t->client, question, &error)))
		top_model_take_layers(&t->model, layers);
	free(layers);
}

static void take_sample(struct top *t)
{
	struct sample sample = { 0 };
	const char *error = "";
	const json_t *stats = top_client_data(&t->client, ASK_STATS, &error);
	const json_t *list = top_client_data(&t->client, ASK_LIST, &error);
	const json_t *reactors = top_client_data(&t->client, ASK_REACTORS, &error);

	if (!stats || !list || !reactors) {
		top_model_lost(&t->model, error);
		return;
	}
	sample_read_stats(&sample, stats);
	sample_read_list(&sample, list);
	sample_read_reactors(&sample, reactors, top_now_ns());
	top_model_take(&t->model, &sample);
	if (t->client.question_nr > ASK_LAYERS)
		take_layers(t, ASK_LAYERS);
	else
		t->layers_wanted = t->model.selected[0] != '\0';
}

/* Returns whether there is something new to be seen. */
static bool take_answers(struct top *t)
{
	bool failed = t->client.state == TOP_CLIENT_FAILED;

	t->client.state = TOP_CLIENT_IDLE;
	if (t->only_layers) {
		if (!failed)
			take_layers(t, 0);
		return false;
	}
	if (failed)
		top_model_lost(&t->model, t->client.error);
	else
		take_sample(t);
	return !t->model.connected || t->model.seconds > 0;
}

/* ---- showing ---- */

static void show_frame(struct top *t)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[16] = "";

	if (localtime_r(&now, &tm))
		strftime(text, sizeof(text), "%H:%M:%S", &tm);
	top_page(&t->frame, &t->model, text);
	if (t->screen) {
		top_screen_paint(&t->frame);
		return;
	}
	if (t->frame_nr > 0)
		putchar('\n');
	top_frame_print(&t->frame, stdout);
	fflush(stdout);
}

static void progress(struct top *t)
{
	bool news = take_answers(t);

	if (news || t->screen)
		show_frame(t);
	if (news)
		t->frame_nr++;
	if (news && t->frame_nr == t->count)
		t->model.quit = true;
}

/* ---- keys and signals ---- */

static void take_keys(struct top *t)
{
	char before[SAMPLE_NAME_BYTES];
	bool more = true;

	memcpy(before, t->model.selected, sizeof(before));
	while (more && !t->model.quit)
		top_model_key(&t->model, top_screen_key(&more));
	if (strcmp(before, t->model.selected) != 0)
		t->layers_wanted = true;
	show_frame(t);
}

static void take_signal(struct top *t)
{
	struct signalfd_siginfo info;

	if (read(t->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGWINCH) {
		top_screen_resize(&t->frame);
		show_frame(t);
	} else {
		t->ended_by = (int)info.ssi_signo;
		t->model.quit = true;
	}
}

/* ---- the loop ---- */

/* When the loop has something to do without an event. UINT64_MAX: never. */
static uint64_t next_ns(const struct top *t)
{
	double seconds = t->model.interval;

	if (t->client.state == TOP_CLIENT_WAITING)
		return t->client.deadline_ns;
	if (t->asked_ns == 0 || t->client.state != TOP_CLIENT_IDLE)
		return 0;
	if (t->model.paused)
		return UINT64_MAX;
	if (!t->model.connected && t->screen)
		seconds = MIN(seconds, RETRY_SECONDS_MAX);
	return t->asked_ns + (uint64_t)(seconds * NS_PER_SEC);
}

static int wait_ms(const struct top *t, uint64_t now_ns)
{
	uint64_t until_ns = next_ns(t), ms;

	if (until_ns == UINT64_MAX)
		return -1;
	ms = until_ns > now_ns ? (until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
	return (int)MIN(ms, (uint64_t)INT32_MAX);
}

static void wait_for_event(struct top *t)
{
	struct pollfd fds[] = {
		{ .fd = t->client.fd, .events = POLLIN },
		{ .fd = t->screen ? STDIN_FILENO : -1, .events = POLLIN },
		{ .fd = t->signal_fd, .events = POLLIN },
	};

	/* EINTR: stopped and continued; the times have to be looked at again. */
	if (poll(fds, ARRAY_SIZE(fds), wait_ms(t, top_now_ns())) < 0)
		return;
	if (fds[2].revents)
		take_signal(t);
	if (fds[1].revents & POLLIN)
		take_keys(t);
	else if (fds[1].revents)
		t->model.quit = true; /* the terminal is gone */
	if (t->client.state == TOP_CLIENT_WAITING)
		top_client_turn(&t->client, top_now_ns());
}

static void loop(struct top *t)
{
	while (!t->model.quit) {
		uint64_t now_ns = top_now_ns();
		enum top_client_state state = t->client.state;

		if (state == TOP_CLIENT_DONE || state == TOP_CLIENT_FAILED)
			progress(t);
		else if (state == TOP_CLIENT_IDLE && t->layers_wanted)
			ask_layers(t, now_ns);
		else if (state == TOP_CLIENT_IDLE && now_ns >= next_ns(t))
			ask_sample(t, now_ns);
		else
			wait_for_event(t);
	}
}

/* ---- begin and end ---- */

/* From now on they are read from an fd. */
static int take_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void open_screen(struct top *t)
{
	t->screen = top_screen_open();
	if (t->screen) {
		t->signal_fd = take_signals();
		top_screen_resize(&t->frame);
		show_frame(t);
		return;
	}
	say_to(stderr,
	       "ublkctl: this terminal cannot move the cursor (TERM=%s): printing plain text\n",
	       getenv("TERM") ? getenv("TERM") : "");
}

/* As if it had not been caught, for the parent process. */
static void end_by_signal(int signal_nr)
{
	sigset_t set;

	signal(signal_nr, SIG_DFL);
	raise(signal_nr);
	sigemptyset(&set);
	sigaddset(&set, signal_nr);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

enum exit_code ublkctl_top(const struct ublkctl_args *a)
{
	double interval = a->interval > 0 ? a->interval : INTERVAL_DEFAULT;
	struct top t = { .signal_fd = -1, .count = a->count };
	enum exit_code code;

	if (a->json)
		ublkctl_usage_error("top has no --json; use stats --watch", "");
	setlocale(LC_CTYPE, "");
	t.frame.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	top_client_init(&t.client, a->socket_path);
	top_model_init(&t.model, interval, a->name);
	if (!a->batch && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO))
		open_screen(&t);
	loop(&t);
	top_screen_close();
	code = t.screen || t.model.connected ? EXIT_DONE : EXIT_REFUSED;
	top_model_fini(&t.model);
	top_frame_fini(&t.frame);
	top_client_fini(&t.client);
	if (t.signal_fd >= 0)
		close(t.signal_fd);
	if (t.ended_by)
		end_by_signal(t.ended_by);
	return code;
}
