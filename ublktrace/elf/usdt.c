/*
 * Finds static probes by the notes that sys/sdt.h leaves (section .note.stapsdt: three addresses,
 * then provider, name and arguments as strings; systemtap's UserSpaceProbeImplementation).
 *
 * Failure modes: a file that is no ELF64, or whose headers point beyond its end, has no probes.
 */
#include "ublktrace/elf/usdt.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

struct elf {
	const uint8_t *data;
	size_t bytes;
};

/* NULL when that part is not in the file. */
static const void *at(const struct elf *e, uint64_t offset, uint64_t bytes)
{
	if (offset > e->bytes || bytes > e->bytes - offset)
		return NULL;
	return e->data + offset;
}

static const Elf64_Shdr *section(const struct elf *e, const Elf64_Ehdr *h, unsigned idx)
{
	return at(e, h->e_shoff + (uint64_t)idx * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
}

/* Addresses of notes are virtual; what attaches wants the place in the file. */
static int file_offset(const struct elf *e, const Elf64_Ehdr *h, uint64_t address,
		       uint64_t *ret_offset)
{
	for (unsigned i = 0; i < h->e_phnum; i++) {
		const Elf64_Phdr *p = at(e, h->e_phoff + i * sizeof(*p), sizeof(*p));

		if (!p || p->p_type != PT_LOAD || address < p->p_vaddr ||
		    address - p->p_vaddr >= p->p_filesz)
			continue;
		*ret_offset = address - p->p_vaddr + p->p_offset;
		return 0;
	}
	return -ENOENT;
}

/* Whether the strings behind a note's addresses are that provider and name. */
static bool note_is(const char *text, size_t bytes, const char *provider, const char *name)
{
	size_t provider_bytes = strlen(provider) + 1, name_bytes = strlen(name) + 1;

	return bytes >= provider_bytes + name_bytes && !memcmp(text, provider, provider_bytes) &&
	       !memcmp(text + provider_bytes, name, name_bytes);
}

static int find_in_notes(const struct elf *e, const Elf64_Ehdr *h, const Elf64_Shdr *s,
			 const char *provider, const char *name, uint64_t *ret_offset)
{
	uint64_t pos = s->sh_offset, end = s->sh_offset + s->sh_size;

	while (pos < end) {
		const Elf64_Nhdr *n = at(e, pos, sizeof(*n));
		const uint64_t *addresses;
		uint64_t desc;

		if (!n)
			return -ENOENT;
		desc = pos + sizeof(*n) + round_up(n->n_namesz, 4);
		addresses = at(e, desc, n->n_descsz);
		if (!addresses)
			return -ENOENT;
		if (n->n_type == 3 && n->n_descsz > 24 &&
		    note_is((const char *)(addresses + 3), n->n_descsz - 24, provider, name)) {
			uint64_t address;

			memcpy(&address, addresses, sizeof(address));
			return file_offset(e, h, address, ret_offset);
		}
		pos = desc + round_up(n->n_descsz, 4);
	}
	return -ENOENT;
}

static int find_in_elf(const struct elf *e, const char *provider, const char *name,
		       uint64_t *ret_offset)
{
	const Elf64_Ehdr *h = at(e, 0, sizeof(*h));
	int ret = -ENOENT;

	if (!h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64)
		return -ENOENT;
	for (unsigned i = 0; i < h->e_shnum && ret; i++) {
		const Elf64_Shdr *s = section(e, h, i);

		if (s && s->sh_type == SHT_NOTE)
			ret = find_in_notes(e, h, s, provider, name, ret_offset);
	}
	return ret;
}

int usdt_find_in(const char *path, const char *provider, const char *name, uint64_t *ret_offset)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = -ENOENT;
	struct elf e;
	struct stat st;

	if (fd < 0)
		return -ENOENT;
	if (!fstat(fd, &st) && st.st_size > 0) {
		e.bytes = (size_t)st.st_size;
		e.data = mmap(NULL, e.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
		if (e.data != MAP_FAILED) {
			ret = find_in_elf(&e, provider, name, ret_offset);
			munmap((void *)e.data, e.bytes);
		}
	}
	close(fd);
	return ret;
}

/* The file of a running program of that name: /proc/PID/exe, so also one whose file was replaced.
 */
static bool find_running(const char *program, char *path, size_t bytes)
{
	char comm_path[64], comm[32];
	struct dirent *d;
	DIR *dir = opendir("/proc");
	bool found = false;
	FILE *f;

	while (dir && !found && (d = readdir(dir))) {
		int pid = atoi(d->d_name);

		snprintf(comm_path, sizeof(comm_path), "/proc/%d/comm", pid);
		f = pid > 0 ? fopen(comm_path, "re") : NULL;
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f)) {
			comm[strcspn(comm, "\n")] = 0;
			found = !strcmp(comm, program);
		}
		fclose(f);
		if (found)
			snprintf(path, bytes, "/proc/%d/exe", pid);
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool find_beside(const char *program, char *path, size_t bytes)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return false;
	self[n] = 0;
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	slash[1] = 0;
	return (size_t)snprintf(path, bytes, "%s%s", self, program) < bytes && !access(path, R_OK);
}

int usdt_find(const char *program, const char *name, struct usdt_place *ret_place)
{
	struct usdt_place place;
	int ret;

	if (!find_running(program, place.path, sizeof(place.path)) &&
	    !find_beside(program, place.path, sizeof(place.path)))
		snprintf(place.path, sizeof(place.path), "/usr/sbin/%s", program);
	ret = usdt_find_in(place.path, program, name, &place.offset);
	if (!ret)
		*ret_place = place;
	return ret;
}
