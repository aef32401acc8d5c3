/*
 * A plugin of QEMU (TCG): counts how often each piece of a program's code was executed in the
 * guest. A piece is the program's when its bytes are those of the ELF file, at the address where
 * a position-independent program stands in a guest without address randomisation. At the end it
 * writes one line for each to OWN_OUT: offset in the file's address space, instructions, times.
 *
 *   OWN_ELF   the program
 *   OWN_OUT   the result
 *
 * The declarations are those of qemu-plugin.h, which Debian does not package; version 1 of that
 * interface has them.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
						  void (*)(qemu_plugin_id_t,
							   struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op,
						     void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *),
					   void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC extern const int qemu_plugin_version;
PUBLIC int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv);

const int qemu_plugin_version = 1;

/* ELF_ET_DYN_BASE of x86-64, of a program that is started without randomisation. */
#define LOAD_BASE 0x555555554000ull
#define TABLE_NR (1u << 16)

struct piece {
	uint64_t offset, insn_nr, times;
	struct piece *next;
};

static struct piece *table[TABLE_NR];

static struct {
	const uint8_t *bytes;
	uint64_t at, size; /* in its own address space */
} code;

static void *file_map(const char *path)
{
	int fd = path ? open(path, O_RDONLY) : -1;
	struct stat st;
	void *mem;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	return mem == MAP_FAILED ? NULL : mem;
}

static bool code_load(const char *path)
{
	const uint8_t *file = file_map(path);
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
	const Elf64_Phdr *segment;

	if (!file || memcmp(head->e_ident, ELFMAG, SELFMAG))
		return false;
	segment = (const Elf64_Phdr *)(file + head->e_phoff);
	for (unsigned i = 0; i < head->e_phnum; i++, segment++) {
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		code.bytes = file + segment->p_offset;
		code.at = segment->p_vaddr;
		code.size = segment->p_filesz;
	}
	return code.bytes;
}

/* The kernel, and other programs at the same address, have other bytes there. */
static bool is_ours(const struct qemu_plugin_tb *tb, size_t insn_nr)
{
	for (size_t i = 0; i < insn_nr; i++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t at = qemu_plugin_insn_vaddr(insn) - LOAD_BASE - code.at;
		size_t bytes = qemu_plugin_insn_size(insn);

		if (at >= code.size || bytes > code.size - at ||
		    memcmp(code.bytes + at, qemu_plugin_insn_data(insn), bytes))
			return false;
	}
	return true;
}

/* One for each address and length: QEMU may translate a piece more than once. */
static struct piece *piece_of(uint64_t offset, uint64_t insn_nr)
{
	struct piece **at = &table[(offset * 31 + insn_nr) % TABLE_NR];
	struct piece *piece = *at;

	while (piece && (piece->offset != offset || piece->insn_nr != insn_nr))
		piece = piece->next;
	if (piece)
		return piece;
	piece = calloc(1, sizeof(*piece));
	if (!piece)
		abort();
	*piece = (struct piece){ .offset = offset, .insn_nr = insn_nr, .next = *at };
	*at = piece;
	return piece;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t insn_nr = qemu_plugin_tb_n_insns(tb);
	struct piece *piece;

	(void)id;
	if (!is_ours(tb, insn_nr))
		return;
	piece = piece_of(qemu_plugin_tb_vaddr(tb) - LOAD_BASE, insn_nr);
	qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &piece->times, 1);
}

static void write_all(qemu_plugin_id_t id, void *arg)
{
	FILE *out = fopen(getenv("OWN_OUT"), "w");

	(void)id, (void)arg;
	for (unsigned i = 0; out && i < TABLE_NR; i++)
		for (const struct piece *p = table[i]; p; p = p->next)
			fprintf(out, "%llu %llu %llu\n", (unsigned long long)p->offset,
				(unsigned long long)p->insn_nr, (unsigned long long)p->times);
	if (!out || fclose(out) < 0)
		perror("own: OWN_OUT");
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	(void)info, (void)argc, (void)argv;
	if (!getenv("OWN_OUT") || !code_load(getenv("OWN_ELF"))) {
		fprintf(stderr, "own: OWN_ELF is no program, or OWN_OUT is not set\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, write_all, NULL);
	return 0;
}
