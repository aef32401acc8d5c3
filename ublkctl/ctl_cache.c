/*
 * ublkctl cache: the caches of a device; one is warmed or dropped.
 *
 * Happy path: stats prints the table that show has. warm and drop wait until ublkd says that it is
 * done, as long as it takes; on a terminal warm asks meanwhile how far it is. When this program
 * ends, by ^C, ublkd notices that nobody waits any more, and ends the work.
 *
 * Failure modes: as of all commands that ask one question (ctl_commands.c).
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/util.h"
#include "ublkctl/client.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/print/say.h"

#define PROGRESS_MS 500

/* ---- stats ---- */

static unsigned long long looked_at(const json_t *job)
{
	return client_number(job, "fetched_bytes") + client_number(job, "present_bytes") +
	       client_number(job, "passed_bytes");
}

/* "1GiB of 4GiB, 25 %" */
static void print_progress(const json_t *job)
{
	unsigned long long done = looked_at(job), total = client_number(job, "total_bytes");
	char now[FORMAT_BYTES], all[FORMAT_BYTES];

	say_to(stdout, "%s of %s, %.0f %%", format_bytes(done, now), format_bytes(total, all),
	       total > 0 ? 100. * (double)done / (double)total : 100.);
}

static void print_cache_stats(const json_t *data)
{
	const json_t *job = json_object_get(data, "command");

	print_caches(json_object_get(data, "caches"));
	if (!json_is_object(job))
		return;
	say_to(stdout, "under way: %s %s", client_text(job, "action"), client_text(job, "node"));
	if (client_number(job, "total_bytes") > 0) {
		say_to(stdout, ", ");
		print_progress(job);
	}
	putchar('\n');
}

/* ---- warm, drop ---- */

static void print_warmed(const json_t *data)
{
	unsigned long long passed = client_number(data, "passed_bytes");
	char fetched[FORMAT_BYTES], here[FORMAT_BYTES], words[FORMAT_BYTES];

	say_to(stdout, "%s fetched, %s there already",
	       format_bytes(client_number(data, "fetched_bytes"), fetched),
	       format_bytes(client_number(data, "present_bytes"), here));
	if (passed > 0)
		say_to(stdout, ", %s passed over as they were being changed",
		       format_bytes(passed, words));
	putchar('\n');
	if (!json_is_true(json_object_get(data, "full")))
		return;
	say_to(stdout, "the cache is full: ");
	print_progress(data);
	say_to(stdout, "; ublkctl cache drop makes room, a larger store keeps more\n");
}

static void print_dropped(const json_t *data)
{
	unsigned long long dirty = client_number(data, "dirty_bytes");
	char bytes[FORMAT_BYTES];

	say_to(stdout, "%s dropped\n", format_bytes(client_number(data, "dropped_bytes"), bytes));
	if (dirty > 0)
		say_to(stdout,
		       "%s stay dirty: the storage behind the cache does not have them yet\n",
		       format_bytes(dirty, bytes));
}

struct warm_progress {
	const struct ublkctl_args *a;
	bool is_shown;
};

/* By a second connection. What goes wrong is told by the first. */
static void show_progress(void *arg)
{
	struct warm_progress *p = arg;
	json_t *request = client_request("cache", p->a->name), *data = NULL, *refusal = NULL;
	const json_t *job;

	json_object_set_new(request, "action", json_string("stats"));
	client_try(p->a->socket_path, request, CLIENT_SECONDS, &data, &refusal);
	job = json_object_get(data, "command");
	if (json_is_object(job)) {
		fputs("\r\033[K", stdout);
		print_progress(job);
		fflush(stdout);
		p->is_shown = true;
	}
	json_decref(data);
	json_decref(refusal);
}

static enum exit_code wait_for_job(const struct ublkctl_args *a, json_t *request, bool is_warm)
{
	struct warm_progress progress = { .a = a };
	const struct client_meanwhile meanwhile = { .every_ms = PROGRESS_MS,
						    .fn = show_progress,
						    .arg = &progress };
	bool shows = is_warm && !a->json && isatty(STDOUT_FILENO);
	json_t *data = NULL, *refusal = NULL;
	enum exit_code code;

	code = client_try_long(a->socket_path, request, shows ? &meanwhile : NULL, &data, &refusal);
	if (progress.is_shown) {
		fputs("\r\033[K", stdout);
		fflush(stdout);
	}
	if (refusal)
		client_tell_refusal(refusal);
	else if (data && a->json)
		print_json(data);
	else if (data)
		(is_warm ? print_warmed : print_dropped)(data);
	json_decref(data);
	json_decref(refusal);
	return code;
}

/* ---- the command line ---- */

static void check_cache_words(const struct ublkctl_args *a, bool is_stats, bool is_warm)
{
	bool is_store = strcmp(a->action, "store") == 0;

	if (!is_stats && !is_warm && !is_store && strcmp(a->action, "drop") != 0)
		ublkctl_usage_error("cache takes stats, warm, drop or store, not ", a->action);
	if ((a->discard || a->force) && !is_store)
		ublkctl_usage_error("--discard and --force apply to cache store, not to ",
				    a->action);
	if (a->discard && a->force)
		ublkctl_usage_error("--discard and --force exclude each other: cache ", a->action);
	if ((a->offset || a->length) && !is_warm)
		ublkctl_usage_error("--offset and --length apply to cache warm, not to ",
				    a->action);
	if (a->node && (is_stats || is_store))
		ublkctl_usage_error("--node applies to cache warm and drop, not to ", a->action);
}

enum exit_code ublkctl_cache(const struct ublkctl_args *a)
{
	bool is_stats = strcmp(a->action, "stats") == 0, is_warm = strcmp(a->action, "warm") == 0;
	json_t *request;

	check_cache_words(a, is_stats, is_warm);
	if (strcmp(a->action, "store") == 0)
		return ublkctl_cache_store(a);
	request = client_request("cache", a->name);
	json_object_set_new(request, "action", json_string(a->action));
	client_set_text(&request, "node", a->node);
	client_set_text(&request, "offset", a->offset);
	client_set_text(&request, "length", a->length);
	if (is_stats)
		return client_ask_and_print(a, request, CLIENT_SECONDS, print_cache_stats);
	return wait_for_job(a, request, is_warm);
}
