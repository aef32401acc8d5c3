/* A server that is away: requests wait as long as on_disconnect says, and no longer. */
#include <errno.h>
#include <stdio.h>

#include "base/util.h"
#include "web_case.h"

static void check_back_in_time(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "", 2))
		return;
	web_works(c);
	web_tell(c, "down");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 1000);
	EXPECT(rig_out_nr(&c->rig) == 2 * CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	web_tell(c, "up");
	if (!case_drain(c, 30000))
		return;
	case_expect_all(c, 0);
	web_works(c);
}

/* They fail, those that come fail at once, and it works again when the server is back. */
static void check_not_in_time(struct fault_case *c, const void *arg)
{
	uint64_t start;

	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "on_disconnect: {queue: 500ms}\n", 1))
		return;
	web_tell(c, "down");
	/* A request comes in a turn, which knows what time it is. */
	case_turn_for(c, 1);
	start = case_now_ms();
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 30000))
		return;
	EXPECT(case_now_ms() - start >= 400, "after %llu ms",
	       (unsigned long long)(case_now_ms() - start));
	case_expect_all(c, -EIO);
	case_logged("requests fail until the server answers again");
	for (unsigned i = 0; i < 20; i++)
		EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "served");
	web_tell(c, "up");
	for (unsigned i = 0; i < 1000; i++) {
		if (rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0)
			break;
		case_turn_for(c, 10);
	}
	web_works(c);
}

static void check_fail_at_once(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "on_disconnect: fail\n", 1))
		return;
	web_works(c);
	web_tell(c, "down");
	case_submit_all(c, BACKEND_READ, 4096);
	if (!case_drain(c, 5000))
		return;
	case_expect_all(c, -EIO);
}

/* arg: on_disconnect. A server that wants hours is asked again before requests fail. */
static void check_long_wish(struct fault_case *c, const void *arg)
{
	web_serve(c, NULL);
	if (!web_open_case(c, arg, 1))
		return;
	web_tell(c, "fault status 1 503:999999999");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0, "it failed");
	case_not_logged("requests fail until the server answers again");
	web_works(c);
}

/* They fail at once, but the server is asked again soon. */
static void check_wish_of_none(struct fault_case *c, const void *arg)
{
	uint64_t start_ms;

	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "on_disconnect: fail\n", 1))
		return;
	web_tell(c, "fault status 1 503:999999999");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "served");
	start_ms = case_now_ms();
	while (rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) < 0 &&
	       case_now_ms() < start_ms + 20000)
		case_turn_for(c, 10);
	web_works(c);
}

/* One range is never served, all others are: that request alone fails, in the end. */
static void check_one_bad_range(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "on_disconnect: {queue: 1s}\nconnections: 2\n", 1))
		return;
	web_tell(c, "fault hangup -1");
	EXPECT(rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == -EIO, "served");
	web_tell(c, "fault none");
	for (unsigned i = 0; i < 1000; i++) {
		if (rig_do(&c->rig, BACKEND_READ, 0, 0, 4096, NULL) == 0)
			break;
		case_turn_for(c, 10);
	}
	web_works(c);
}

/* Held for ever, until the device is stopped: each can be cancelled. */
static void check_cancel_held(struct fault_case *c, const void *arg)
{
	(void)arg;
	web_serve(c, NULL);
	if (!web_open_case(c, "on_disconnect: forever\n", 1))
		return;
	web_tell(c, "down");
	case_submit_all(c, BACKEND_READ, 4096);
	case_turn_for(c, 700);
	EXPECT(rig_out_nr(&c->rig) == CASE_DEPTH, "%u wait", rig_out_nr(&c->rig));
	case_cancel_all(c);
	if (case_drain(c, 5000))
		case_expect_all(c, -EIO);
}

void web_outages_run(uint64_t seed)
{
	fault_case_run("away, and back in time", 60, seed, check_back_in_time, NULL);
	fault_case_run("away for longer", 60, seed, check_not_in_time, NULL);
	fault_case_run("on_disconnect: fail", 30, seed, check_fail_at_once, NULL);
	fault_case_run("a server that wants hours is asked before requests fail", 60, seed,
		       check_long_wish, "on_disconnect: {queue: 3s}\n");
	fault_case_run("a server that wants hours, on_disconnect: fail", 60, seed,
		       check_wish_of_none, NULL);
	fault_case_run("requests that are never answered fail", 60, seed, check_one_bad_range,
		       NULL);
	fault_case_run("requests that wait are cancelled", 30, seed, check_cancel_held, NULL);
}
