/*
 * `ublkctl doctor`: checks what ublkd needs of this machine and changes nothing.
 * Needs no daemon. Owns the findings until they are printed.
 *
 * Happy path: every check adds an OK. Failure modes: WARN is what ublkd can live with, FAIL what it
 * cannot; both come with the cure.
 */
#include "ublkctl/ctl_commands.h"

#include <jansson.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/util.h"
#include "ublkctl/client.h"
#include "daemon/wire/json_words.h"
#include "ublkctl/ctl_print.h"
#include "ublkctl/doctor_driver.h"
#include "ublkctl/print/say.h"
#include "daemon/runtime/process.h"
#include "ublkctl/print/table.h"
#include "host/caps.h"
#include "host/mounts.h"

#define NOFILE_WANTED 4096

static json_t *findings;
static bool failed;

static const char *const verdict_name[] = { "OK", "WARN", "FAIL" };

void doctor_find(enum doctor_verdict verdict, const char *what, const char *cure, const char *fmt,
		 ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (verdict == DOCTOR_FAIL)
		failed = true;
	json_array_append_new(findings, json_pack("{s:s, s:s, s:o, s:o}", "verdict",
						  verdict_name[verdict], "what", what, "found",
						  json_words(text), "cure", json_words(cure)));
}

/* The first number or word of a file, or "" when it cannot be read. */
static const char *first_word(const char *path, char *buf, size_t bytes)
{
	FILE *file = fopen(path, "re");

	buf[0] = '\0';
	if (file && !fgets(buf, (int)bytes, file))
		buf[0] = '\0';
	if (file)
		fclose(file);
	buf[strcspn(buf, " \t\n")] = '\0';
	return buf;
}

static void check_release(void)
{
	unsigned major = 0, minor = 0;
	struct utsname name;
	bool fits;

	uname(&name);
	fits = sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 8));
	doctor_find(fits ? DOCTOR_OK : DOCTOR_FAIL, "kernel", fits ? "" : "run Linux 6.8 or newer",
		    "Linux %s", name.release);
}

/* ---- privileges and limits ---- */

static void check_privileges(void)
{
	static const struct {
		unsigned bit;
		enum doctor_verdict verdict;
		const char *name, *why;
	} cap[] = {
		{ CAP_SYS_ADMIN, DOCTOR_FAIL, "CAP_SYS_ADMIN",
		  "ublk devices and a mount namespace" },
		{ CAP_IPC_LOCK, DOCTOR_WARN, "CAP_IPC_LOCK", "locked memory" },
		{ CAP_SYS_RESOURCE, DOCTOR_WARN, "CAP_SYS_RESOURCE",
		  "PR_SET_IO_FLUSHER and limits" },
	};
	bool all = true;

	for (size_t i = 0; i < ARRAY_SIZE(cap); i++)
		if (!host_has_cap(cap[i].bit)) {
			all = false;
			doctor_find(cap[i].verdict, "privileges",
				    "run as root, or give the service this capability",
				    "no %s, needed for %s", cap[i].name, cap[i].why);
		}
	if (all)
		doctor_find(DOCTOR_OK, "privileges", "",
			    "CAP_SYS_ADMIN, CAP_IPC_LOCK, CAP_SYS_RESOURCE");
}

static void check_memlock(void)
{
	struct rlimit limit = { 0 };
	bool can_lock = host_has_cap(CAP_IPC_LOCK);

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (can_lock || limit.rlim_max == RLIM_INFINITY)
		doctor_find(DOCTOR_OK, "locked memory", "", "%s",
			    can_lock ? "any amount" : "no limit");
	else
		doctor_find(host_is_privileged() ? DOCTOR_WARN : DOCTOR_OK, "locked memory",
			    "LimitMEMLOCK=infinity, or CAP_IPC_LOCK",
			    "at most %llu KiB: ublkd will run without locking its memory",
			    (unsigned long long)limit.rlim_max / 1024);
}

static void check_nofile(void)
{
	struct rlimit limit = { 0 };
	bool enough;

	getrlimit(RLIMIT_NOFILE, &limit);
	enough = limit.rlim_max >= NOFILE_WANTED;
	doctor_find(enough ? DOCTOR_OK : DOCTOR_WARN, "open files",
		    enough ? "" : "LimitNOFILE=65536, or ulimit -Hn 65536", "at most %llu",
		    (unsigned long long)limit.rlim_max);
}

static void check_cpus(void)
{
	cpu_set_t allowed;

	CPU_ZERO(&allowed);
	sched_getaffinity(0, sizeof(allowed), &allowed);
	doctor_find(DOCTOR_OK, "CPUs", "", "%d of %ld usable", CPU_COUNT(&allowed),
		    sysconf(_SC_NPROCESSORS_ONLN));
}

static void check_huge_pages(void)
{
	char nr[32];

	first_word("/proc/sys/vm/nr_hugepages", nr, sizeof(nr));
	if (strcmp(nr, "") != 0 && strcmp(nr, "0") != 0)
		doctor_find(DOCTOR_OK, "huge pages", "", "%s reserved", nr);
	else
		doctor_find(DOCTOR_OK, "huge pages",
			    "only for memory disks with huge_pages: sysctl vm.nr_hugepages=N",
			    "none reserved");
}

static void check_uring_sysctl(void)
{
	char value[32];

	first_word("/proc/sys/kernel/io_uring_disabled", value, sizeof(value));
	if (strcmp(value, "2") == 0)
		doctor_find(DOCTOR_FAIL, "io_uring", "sysctl kernel.io_uring_disabled=0",
			    "forbidden for everybody (kernel.io_uring_disabled=2)");
	else if (strcmp(value, "1") == 0)
		doctor_find(DOCTOR_WARN, "io_uring", "sysctl kernel.io_uring_disabled=0",
			    "only for root and one group (kernel.io_uring_disabled=1)");
}

struct propagation {
	bool root_seen, root_shared;
	unsigned private_nr; /* of block devices */
	char private_point[128];
};

static bool look_at_propagation(const struct mount_info *m, void *arg)
{
	struct propagation *p = arg;

	if (strcmp(m->point, "/") == 0) {
		p->root_seen = true;
		p->root_shared = m->shared;
	} else if (!m->shared && m->source[0] == '/' && p->private_nr++ == 0) {
		snprintf(p->private_point, sizeof(p->private_point), "%s", m->point);
	}
	return true;
}

/* As ublkd would see it, were it started from here. */
static void check_propagation(void)
{
	static const char cure[] = "mount --make-rshared / before ublkd starts (systemd does it)";
	struct propagation p = { .root_seen = false };
	int ret = mounts_read("/proc/self/mountinfo", look_at_propagation, &p);

	if (ret < 0 || !p.root_seen)
		doctor_find(DOCTOR_WARN, "mounts", "start it outside of a chroot",
			    "/ is no mount point: ublkd cannot have a mount namespace of its own");
	else if (!p.root_shared)
		doctor_find(DOCTOR_WARN, "mounts", cure,
			    "private: what is mounted after the start of ublkd is not seen by it");
	else if (p.private_nr > 0)
		doctor_find(DOCTOR_OK, "mounts", "", "shared, but for %u like %s", p.private_nr,
			    p.private_point);
	else
		doctor_find(DOCTOR_OK, "mounts", "", "shared: mounts and umounts reach ublkd");
}

/* ---- what each request pays for, docs/performance.md ---- */

/* Both are the default of most distributions, and make nothing fail. */
static void check_scheduler(void)
{
	char autogroup[32];
	bool groups, psi;

	first_word("/proc/sys/kernel/sched_autogroup_enabled", autogroup, sizeof(autogroup));
	groups = strcmp(autogroup, "1") == 0;
	psi = access("/proc/pressure/cpu", R_OK) == 0;
	if (groups)
		doctor_find(
			DOCTOR_OK, "autogroup",
			"where requests come one by one: sysctl kernel.sched_autogroup_enabled=0",
			"on: each wake-up of a reactor costs more");
	if (psi)
		doctor_find(DOCTOR_OK, "pressure",
			    "where requests come one by one, and nobody reads /proc/pressure: "
			    "boot with psi=0",
			    "PSI counts each sleep and wake-up of a reactor");
	if (!groups && !psi)
		doctor_find(DOCTOR_OK, "scheduler", "", "neither autogroup nor PSI");
}

/* ---- printing ---- */

static enum table_color verdict_color(const char *verdict)
{
	if (strcmp(verdict, verdict_name[DOCTOR_OK]) == 0)
		return TABLE_GREEN;
	return strcmp(verdict, verdict_name[DOCTOR_WARN]) == 0 ? TABLE_YELLOW : TABLE_RED;
}

static void print_findings(void)
{
	json_t *finding;
	size_t i;

	json_array_foreach(findings, i, finding)
	{
		const char *verdict = client_text(finding, "verdict"),
			   *cure = client_text(finding, "cure");

		table_say(verdict_color(verdict), "%-4s", verdict);
		say_to(stdout, "  %-14s %s%s%s\n", client_text(finding, "what"),
		       client_text(finding, "found"), cure[0] ? " -> " : "", cure);
	}
}

enum exit_code ublkctl_doctor(const struct ublkctl_args *a)
{
	findings = json_array();
	failed = false;
	check_release();
	if (host_is_privileged())
		check_privileges();
	else
		doctor_check_user();
	check_uring_sysctl();
	doctor_check_ring();
	doctor_check_driver();
	check_memlock();
	check_nofile();
	check_cpus();
	check_huge_pages();
	/* Without CAP_SYS_ADMIN there is no mount namespace of its own. */
	if (host_is_privileged())
		check_propagation();
	check_scheduler();
	if (a->json)
		print_json(findings);
	else
		print_findings();
	json_decref(findings);
	return failed ? EXIT_REFUSED : EXIT_DONE;
}
