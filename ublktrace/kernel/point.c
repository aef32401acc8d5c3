/*
 * Owns what was read of this machine's functions: kallsyms, ftrace's list, BTF, each once, when the
 * first point is looked up. Main thread.
 *
 * Happy path: point_look finds the symbol, that ftrace knows it, that it has a type, and that we
 * may. Failure modes: each of these that is missing is a state of its own, with its cure.
 */
#include "ublktrace/kernel/point.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ublktrace/kernel/machine.h"
#include "ublktrace/elf/symbols.h"
#include "ublktrace/elf/usdt.h"

static struct symbol *symbols;
static size_t symbol_nr;
static bool ftrace_known; /* its list could be read */

/* What the list of functions calls it: a tracepoint is known by the function that calls probes. */
static void symbol_name(const struct point *p, char *name, size_t bytes)
{
	bool tracepoint = p->how == POINT_BTF_TRACEPOINT || p->how == POINT_TRACEPOINT;

	snprintf(name, bytes, "%s%s", tracepoint ? "__traceiter_" : "", p->symbol);
}

static void point_read_lists(void)
{
	FILE *f = machine_open("/proc/kallsyms");

	if (f) {
		symbols_read_kallsyms(f, symbols, symbol_nr);
		fclose(f);
	}
	f = machine_open_tracefs("available_filter_functions");
	ftrace_known = f;
	if (f) {
		symbols_read_traceable(f, symbols, symbol_nr);
		fclose(f);
	}
}

/* One pass over all types: functions, and tracepoints as the typedef of their probe. */
static void point_read_types(const char *module)
{
	static const char prefix[] = "btf_trace_";
	int first = 1, end;
	struct btf *btf = machine_btf(module, &first);
	struct symbol *s;
	char name[SYMBOL_BYTES];

	end = btf ? (int)btf__type_cnt(btf) : 0;
	for (int id = first; id < end; id++) {
		const struct btf_type *t = btf__type_by_id(btf, (__u32)id);
		const char *text = btf__name_by_offset(btf, t->name_off);

		if (btf_is_typedef(t) && !strncmp(text, prefix, sizeof(prefix) - 1))
			snprintf(name, sizeof(name), "__traceiter_%s", text + sizeof(prefix) - 1);
		else if (btf_is_func(t) && strncmp(text, "__traceiter_", 12) != 0)
			snprintf(name, sizeof(name), "%s", text);
		else
			continue;
		s = symbols_find(symbols, symbol_nr, name);
		if (s && (!s->module || (module && !strcmp(s->module, module)) || !module))
			s->btf_id = id;
	}
}

static void free_symbols(void)
{
	for (size_t i = 0; i < symbol_nr; i++)
		free((char *)symbols[i].name);
	free(symbols);
	symbols = NULL;
	symbol_nr = 0;
}

void point_forget(void)
{
	free_symbols();
	machine_forget();
}

/* All points of the table, and one more if there is one. Returns 0 or -ENOMEM. */
static int list_symbols(const struct point *more)
{
	size_t nr;
	const struct point *all = points(&nr);
	char name[SYMBOL_BYTES];

	symbols = calloc(nr + 1, sizeof(*symbols));
	if (!symbols)
		return -ENOMEM;
	for (size_t i = 0; i < nr + (more != NULL); i++) {
		const struct point *p = i < nr ? &all[i] : more;

		if (p->how == POINT_USDT)
			continue;
		symbol_name(p, name, sizeof(name));
		symbols[symbol_nr].name = strdup(name);
		symbols[symbol_nr].module = p->module;
		if (!symbols[symbol_nr].name)
			return -ENOMEM;
		symbol_nr++;
	}
	symbols_sort(symbols, symbol_nr);
	return 0;
}

static void point_read_all(const struct point *more)
{
	const char *seen[8] = { 0 };
	unsigned seen_nr = 0, i;

	free_symbols();
	if (list_symbols(more))
		return;
	point_read_lists();
	point_read_types(NULL);
	for (size_t s = 0; s < symbol_nr && seen_nr < ARRAY_SIZE(seen); s++) {
		const char *module = symbols[s].module;

		for (i = 0; module && i < seen_nr && strcmp(seen[i], module) != 0; i++)
			;
		if (!module || i < seen_nr)
			continue;
		seen[seen_nr++] = module;
		point_read_types(module);
	}
}

const struct symbol *point_symbol(const struct point *p)
{
	char name[SYMBOL_BYTES];
	const struct symbol *s;

	symbol_name(p, name, sizeof(name));
	s = symbols_find(symbols, symbol_nr, name);
	if (s)
		return s;
	point_read_all(p);
	return symbols_find(symbols, symbol_nr, name);
}

static enum point_state state_absent(const struct point *p)
{
	unsigned kernel = machine_kernel();
	bool bounded = (p->since && kernel < p->since) || (p->until && kernel >= p->until);

	if (p->module && !machine_has_module(p->module))
		return POINT_NO_MODULE;
	if (bounded || p->how == POINT_BTF_TRACEPOINT || p->how == POINT_TRACEPOINT)
		return POINT_NO_KERNEL;
	return POINT_INLINED;
}

/* Functions of modules are named by a descriptor of their BTF, which only CAP_SYS_ADMIN gets. */
static bool point_may(const struct point *p)
{
	char lacks[64];
	bool module = p->module && p->how == POINT_FENTRY;

	return !machine_lacks(module, lacks, sizeof(lacks))[0];
}

static enum point_state state_function(const struct point *p, const struct symbol *s)
{
	if (strcmp(s->found, s->name) != 0)
		return POINT_SUFFIXED;
	if (ftrace_known && !s->traceable)
		return POINT_NOT_TRACEABLE;
	if (p->how == POINT_FENTRY && !s->btf_id)
		return POINT_NO_BTF;
	return point_may(p) ? POINT_OK : POINT_NO_RIGHT;
}

static enum point_state state_tracepoint(const struct point *p, const struct symbol *s)
{
	if (p->how == POINT_BTF_TRACEPOINT && !s->btf_id)
		return POINT_NO_BTF;
	return point_may(p) ? POINT_OK : POINT_NO_RIGHT;
}

static enum point_state state_usdt(const struct point *p, char *found, size_t found_bytes)
{
	struct usdt_place place;

	if (usdt_find("ublkd", p->symbol, &place))
		return POINT_NO_KERNEL;
	snprintf(found, found_bytes, "%s", place.path);
	return point_may(p) ? POINT_OK : POINT_NO_RIGHT;
}

enum point_state point_look(const struct point *p, char *found, size_t found_bytes)
{
	const struct symbol *s;

	found[0] = 0;
	if (p->how == POINT_USDT)
		return state_usdt(p, found, found_bytes);
	s = point_symbol(p);
	if (!s || !s->found[0])
		return state_absent(p);
	if (p->how == POINT_BTF_TRACEPOINT || p->how == POINT_TRACEPOINT) {
		snprintf(found, found_bytes, "%s", p->symbol);
		return state_tracepoint(p, s);
	}
	snprintf(found, found_bytes, "%s", s->found);
	return state_function(p, s);
}

const char *point_state_name(enum point_state state)
{
	static const char *const names[] = {
		[POINT_OK] = "attached",
		[POINT_INLINED] = "inlined",
		[POINT_SUFFIXED] = "suffixed",
		[POINT_NO_BTF] = "no BTF",
		[POINT_NOT_TRACEABLE] = "not traceable",
		[POINT_NO_MODULE] = "no module",
		[POINT_NO_RIGHT] = "no right",
		[POINT_NO_KERNEL] = "absent",
	};

	return names[state];
}

const char *point_state_cure(enum point_state state)
{
	static const char *const cures[] = {
		[POINT_OK] = "",
		[POINT_INLINED] = "the compiler inlined it into its callers: use another point",
		[POINT_SUFFIXED] = "use a kprobe or ftrace with exactly that name",
		[POINT_NO_BTF] = "it needs a kernel with CONFIG_DEBUG_INFO_BTF (and _BTF_MODULES)",
		[POINT_NOT_TRACEABLE] = "the kernel marks it notrace (inline): use another point",
		[POINT_NO_MODULE] = "load its module with modprobe",
		[POINT_NO_RIGHT] = "run it as root, or with the capability",
		[POINT_NO_KERNEL] = "this kernel or program does not have it",
	};

	return cures[state];
}

int point_tracepoint_args(const char *name)
{
	char type[SYMBOL_BYTES];
	const struct btf_type *t;
	int first, id;
	struct btf *btf = machine_btf(NULL, &first);

	if (!btf)
		return -ENOTSUP;
	snprintf(type, sizeof(type), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
	if (id < 0)
		return -ENOENT;
	t = btf__type_by_id(btf, btf__type_by_id(btf, (__u32)id)->type); /* pointer */
	t = t ? btf__type_by_id(btf, t->type) : NULL;
	return t && btf_is_func_proto(t) ? btf_vlen(t) - 1 : -ENOENT;
}
