/*
 * Starts and stops the reactor threads. Owns the threads and the memory of their reactors; each
 * reactor is used by its own thread alone, but for mail and statistics.
 *
 * Happy path: main starts a thread per CPU, with all signals blocked; each makes its ring on its
 * own thread (SINGLE_ISSUER binds it) and tells main how that went; it turns until a mail says
 * stop. Failure modes: no such CPU, io_uring missing, forbidden or out of locked memory: main stops
 * the threads that did start and says why. A CPU that is offline now: its thread runs on others.
 */
#include "daemon/runtime/reactors.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "host/cpus.h"

#define SQ_ENTRIES 4096
#define CQ_ENTRIES 16384
#define SQE_BYTES 64
#define CQE_BYTES 16

struct reactor_thread {
	struct reactor reactor;
	pthread_t pthread;
	sem_t settled; /* posted once: init_ret is there */
	sem_t posted;  /* main is done with the mailbox */
	int init_ret;
	unsigned idx;
	const struct reactors_params *params; /* until settled */
	pid_t tid;			      /* once settled */
	bool running;			      /* to be joined */
	bool stop, abandon;		      /* the thread's own, set by mail */
	struct mail stop_mail;
	struct mail ping_mail;
	uint64_t ping_ns; /* main thread: when it was sent; 0: never */
	bool ping_owed;	  /* set by main, cleared by the reactor */
} __attribute__((aligned(64)));

static void *reactor_thread_main(void *arg)
{
	struct reactor_thread *t = arg;
	struct reactor_params params = {
		.idx = t->idx,
		.sq_entries = SQ_ENTRIES,
		.cq_entries = CQ_ENTRIES,
		.busy_poll_ns = t->params->busy_poll_ns,
		.flight_folder = t->params->flight_folder,
	};

	t->tid = gettid();
	t->init_ret = reactor_init(&t->reactor, &params);
	if (t->init_ret < 0) {
		sem_post(&t->settled);
		return NULL;
	}
	sem_post(&t->settled);
	reactor_run(&t->reactor, &t->stop);
	/* The mail to stop can be here before main has left mailbox_post. */
	while (sem_wait(&t->posted) < 0)
		;
	if (t->abandon)
		ring_fini(&t->reactor.ring);
	else
		reactor_fini(&t->reactor);
	return NULL;
}

/* Runs on the reactor's thread. */
static void on_stop(struct mail *mail)
{
	container_of(mail, struct reactor_thread, stop_mail)->stop = true;
}

static void on_abandon(struct mail *mail)
{
	container_of(mail, struct reactor_thread, stop_mail)->abandon = true;
	on_stop(mail);
}

/* cpu -1: wherever the main thread may run. */
static int create_on(struct reactor_thread *t, int cpu)
{
	char name[16];
	struct thread_params params = { .name = name, .run = reactor_thread_main, .arg = t };
	cpu_set_t set;

	snprintf(name, sizeof(name), "reactor-%u", t->idx);
	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		params.cpus = &set;
	}
	return thread_start(&t->pthread, &params);
}

/*
 * The CPU may have gone since the devices were made that we are to serve: without us all their
 * users hang, on another CPU they are merely slower.
 */
static int create_pinned(struct reactor_thread *t, int cpu, bool *ret_away)
{
	int ret = create_on(t, cpu);

	if (ret == -EINVAL && cpu_is_possible((unsigned)cpu)) {
		*ret_away = true;
		ret = create_on(t, -1);
	}
	t->running = ret == 0;
	return ret;
}

static const char *reactors_cure(int err)
{
	switch (-err) {
	case ENOSYS:
		return "this kernel has no io_uring; CONFIG_IO_URING is needed";
	case EPERM:
	case EACCES:
		return "io_uring is forbidden here; see sysctl kernel.io_uring_disabled and the "
		       "seccomp filter of the container";
	case ENOMEM:
		return "out of memory or above the limit of locked memory; raise LimitMEMLOCK "
		       "(ulimit -l)";
	case EMFILE:
		return "too many open files; raise LimitNOFILE (ulimit -n) to 4096 or more";
	default:
		return "see errno";
	}
}

static int start_one(struct reactors *rs, unsigned idx, const struct reactors_params *params,
		     char *error, size_t error_bytes)
{
	struct reactor_thread *t = &rs->thread[idx];
	int ret;

	t->idx = idx;
	t->params = params;
	sem_init(&t->settled, 0, 0);
	sem_init(&t->posted, 0, 0);
	rs->reactor[idx] = &t->reactor;
	ret = create_pinned(t, rs->cpu[idx], &rs->away[idx]);
	if (ret < 0) {
		snprintf(error, error_bytes, "cannot start a thread on CPU %d: %s", rs->cpu[idx],
			 errname(ret));
		return ret;
	}
	if (rs->away[idx])
		log_warn("the CPU of a reactor cannot be used; it runs on others until it can",
			 "reactor=%u cpu=%d reason=\"CPU %d %s\"", idx, rs->cpu[idx], rs->cpu[idx],
			 cpu_why_not((unsigned)rs->cpu[idx]));
	while (sem_wait(&t->settled) < 0)
		;
	if (t->init_ret < 0)
		snprintf(error, error_bytes, "cannot set up io_uring on CPU %d: %s: %s",
			 rs->cpu[idx], errname(t->init_ret), reactors_cure(t->init_ret));
	return t->init_ret;
}

static unsigned auto_cpus(int *cpu)
{
	cpu_set_t allowed;
	unsigned nr = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0) {
		/* UNTESTED: only a kernel with more than CPU_SETSIZE CPUs says this. */
		cpu[0] = 0;
		return 1;
	}
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &allowed))
			cpu[nr++] = i;
	return nr;
}

static int set_cpus(struct reactors *rs, const struct option_cpus *cpus)
{
	size_t max = cpus->is_auto ? CPU_SETSIZE : MAX(cpus->nr, 1u);

	rs->cpu = calloc(max, sizeof(rs->cpu[0]));
	if (!rs->cpu)
		return -ENOMEM;
	if (cpus->is_auto) {
		rs->nr = auto_cpus(rs->cpu);
		return 0;
	}
	rs->nr = cpus->nr;
	for (unsigned i = 0; i < cpus->nr; i++)
		rs->cpu[i] = (int)cpus->cpu[i];
	return 0;
}

static int reactors_allocate(struct reactors *rs, const struct option_cpus *cpus)
{
	void *mem;
	int ret = set_cpus(rs, cpus);

	if (ret < 0)
		return ret;
	rs->reactor = calloc(rs->nr, sizeof(rs->reactor[0]));
	rs->away = calloc(rs->nr, sizeof(rs->away[0]));
	ret = posix_memalign(&mem, 64, rs->nr * sizeof(rs->thread[0]));
	if (!rs->reactor || !rs->away || ret)
		return -ENOMEM;
	rs->thread = mem;
	for (unsigned i = 0; i < rs->nr; i++)
		rs->thread[i] = (struct reactor_thread){ 0 };
	return 0;
}

int reactors_start(struct reactors *rs, const struct reactors_params *params, char *error,
		   size_t error_bytes)
{
	int ret;

	*rs = (struct reactors){ 0 };
	ret = reactors_allocate(rs, params->cpus);
	if (ret < 0)
		snprintf(error, error_bytes, "out of memory");
	for (unsigned i = 0; ret == 0 && i < rs->nr; i++)
		ret = start_one(rs, i, params, error, error_bytes);
	if (ret < 0)
		reactors_stop(rs);
	return ret;
}

static void stop_one(struct reactor_thread *t, mail_fn *how)
{
	if (!t->running)
		return;
	if (t->init_ret == 0)
		reactor_post(&t->reactor, &t->stop_mail, how);
	sem_post(&t->posted);
	pthread_join(t->pthread, NULL);
	t->running = false;
	sem_destroy(&t->settled);
	sem_destroy(&t->posted);
}

void reactors_stop(struct reactors *rs)
{
	for (unsigned i = 0; rs->thread && i < rs->nr; i++)
		stop_one(&rs->thread[i], on_stop);
	free(rs->thread);
	free(rs->reactor);
	free(rs->cpu);
	free(rs->away);
	*rs = (struct reactors){ 0 };
}

void reactors_abandon(struct reactors *rs)
{
	for (unsigned i = 0; i < rs->nr; i++)
		stop_one(&rs->thread[i], on_abandon);
}

pid_t reactors_tid(const struct reactors *rs, unsigned idx)
{
	return rs->thread[idx].tid;
}

/* Runs on the reactor's thread; the mail is main's again afterwards. */
static void on_ping(struct mail *mail)
{
	struct reactor_thread *t = container_of(mail, struct reactor_thread, ping_mail);

	__atomic_store_n(&t->ping_owed, false, __ATOMIC_RELEASE);
}

void reactors_ping(struct reactors *rs, uint64_t now_ns)
{
	for (unsigned i = 0; i < rs->nr; i++) {
		struct reactor_thread *t = &rs->thread[i];

		if (__atomic_load_n(&t->ping_owed, __ATOMIC_ACQUIRE))
			continue;
		t->ping_ns = now_ns;
		__atomic_store_n(&t->ping_owed, true, __ATOMIC_RELAXED);
		reactor_post(&t->reactor, &t->ping_mail, on_ping);
	}
}

uint64_t reactors_silent_ns(const struct reactors *rs, unsigned idx, uint64_t now_ns)
{
	const struct reactor_thread *t = &rs->thread[idx];

	return __atomic_load_n(&t->ping_owed, __ATOMIC_ACQUIRE) ? now_ns - t->ping_ns : 0;
}

void reactors_dump(const struct reactors *rs, int fd)
{
	for (unsigned i = 0; i < rs->nr; i++)
		if (rs->thread[i].running && rs->thread[i].init_ret == 0)
			reactor_dump_ops(&rs->thread[i].reactor, fd);
}

size_t reactors_memory_each(void)
{
	return sizeof(struct reactor_thread) + sizeof(struct flight_file) +
	       SQ_ENTRIES * (SQE_BYTES + sizeof(unsigned)) + CQ_ENTRIES * CQE_BYTES +
	       REACTOR_OP_NR_DEFAULT * (sizeof(struct op *) + sizeof(uint32_t));
}
