/*
 * Threads of this process: starting one, and what the kernel says about one. Any thread.
 *
 * A thread that is started here has all signals blocked: signals are the main thread's, and one
 * that another thread took would not wake it.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * A small stack, of address space: enough for getaddrinfo(3) and the modules that it loads. The C
 * library keeps some of these stacks for the next threads. ASan makes frames larger.
 */
#if defined(__has_feature)
#define THREAD_HAS_FEATURE(x) __has_feature(x)
#else
#define THREAD_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || THREAD_HAS_FEATURE(address_sanitizer)
#define THREAD_STACK_BYTES (1u << 20)
#else
#define THREAD_STACK_BYTES (512u << 10)
#endif

struct thread_params {
	const char *name;      /* up to 15 bytes, as in /proc/PID/task/TID/comm; copied */
	size_t stack_bytes;    /* 0: the C library's */
	const cpu_set_t *cpus; /* NULL: those of the caller */
	void *(*run)(void *arg);
	void *arg;
};

/*
 * ret_thread NULL: a detached thread; else pthread_join is due. Returns 0, or the -errno of
 * pthread_create(3) (-EINVAL: none of the CPUs can be used): then nothing was started.
 */
int thread_start(pthread_t *ret_thread, const struct thread_params *params);

/*
 * Threads of this process that neither thread_start nor the kernel (the workers of io_uring) made,
 * without the first one: those of libraries. One small file is read for each thread. About right
 * while threads begin and end; 0 when /proc cannot be read.
 */
unsigned thread_foreign_nr(void);

/* 'R', 'S', 'D' and so on, as in proc(5); '?': not known. One small file is read. */
char thread_state(pid_t tid);

/*
 * The function of the kernel that it waits in, "" when it does not wait or that is not to be known
 * (the stack wants CAP_SYS_ADMIN, wchan a kernel that shows it).
 */
void thread_function(pid_t tid, char *function, size_t bytes);

#endif
