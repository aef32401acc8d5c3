/*
 * See cache_store.h. Owns the descriptor, which holds the lock.
 *
 * Happy path: open -> the newer good header -> walk over the pages -> forget or accept: pages in
 * their other places -> headers, one after the other. Failure modes: no cache, one that is in use,
 * or that is smaller than it says: words; a power cut at any moment: as before, or as wanted, or
 * with fewer clean blocks.
 */
#include "filters/cache/cache_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errname.h"
#include "base/util.h"

__attribute__((format(printf, 3, 4))) static int store_fail(char *words, int err, const char *fmt,
							    ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, CACHE_STORE_WORDS_BYTES, fmt, ap);
	va_end(ap);
	return err;
}

/* As the backend `file` locks what it writes: the whole of it. */
static int store_lock(const struct cache_store *s, bool writes, char *words)
{
	struct flock lock = { .l_type = writes ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };

	if (fcntl(s->fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	/* A file system without locks has none of a daemon either. */
	if (errno != EAGAIN && errno != EACCES)
		return 0;
	return store_fail(words, -EBUSY, "it is in use: remove its device first, or stop ublkd");
}

/* ---- open ---- */

static int store_read(const struct cache_store *s, void *to, size_t bytes, uint64_t at)
{
	ssize_t nr = pread(s->fd, to, bytes, (off_t)at);

	if (nr < 0)
		return -errno;
	/* A sparse file ends where nothing was written. */
	memset((uint8_t *)to + nr, 0, bytes - (size_t)nr);
	return 0;
}

static int store_header(struct cache_store *s, char *words)
{
	char why[CACHE_NOTE_BYTES + CACHE_WORDS_BYTES];
	uint8_t page[CACHE_PAGE_BYTES];
	struct cache_header h;
	bool has_found = false;

	for (unsigned i = 0; i < CACHE_HEADER_NR; i++) {
		int ret = store_read(s, page, sizeof(page), (uint64_t)i * CACHE_PAGE_BYTES);

		if (ret < 0)
			return store_fail(words, ret, "it cannot be read: %s", errname(ret));
		ret = cache_header_parse(&h, page, why);
		if (ret < 0 || (has_found && h.generation <= s->header.generation))
			continue;
		s->header = h;
		has_found = true;
	}
	return has_found ? 0 : store_fail(words, -EINVAL, "it is no store of a cache: %s", why);
}

int cache_store_open(struct cache_store *s, const char *path, bool writes,
		     char words[static CACHE_STORE_WORDS_BYTES])
{
	int flags = (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct stat st;
	int ret;

	*s = (struct cache_store){ .fd = -1 };
	if (stat(path, &st) < 0)
		return store_fail(words, -errno, "it cannot be found: %s", strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return store_fail(words, -EINVAL, "it is no file and no block device");
	/* Who serves a block device has it for itself. */
	s->fd = open(path, S_ISBLK(st.st_mode) ? flags | O_EXCL : flags);
	if (s->fd < 0 && errno == EBUSY)
		return store_fail(words, -EBUSY,
				  "it is in use: remove its device first, or stop ublkd");
	if (s->fd < 0)
		return store_fail(words, -errno, "it cannot be opened: %s", errname(errno));
	ret = S_ISBLK(st.st_mode) ? 0 : store_lock(s, writes, words);
	return ret < 0 ? ret : store_header(s, words);
}

void cache_store_close(struct cache_store *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* ---- pages ---- */

/* 1: the page is set; 0: the index has none there; or -errno. */
static int store_page(const struct cache_store *s, uint32_t idx, struct cache_page *page)
{
	uint8_t two[2 * CACHE_PAGE_BYTES];
	int ret;

	if (s->header.instance == 0)
		return 0;
	ret = store_read(s, two, sizeof(two), cache_page_at(idx, 0));
	return ret < 0 ? ret : cache_page_choose(page, two, s->header.instance, idx);
}

int cache_store_walk(const struct cache_store *s,
		     void (*fn)(void *arg, const struct cache_entry *entry), void *arg)
{
	struct cache_page page;
	int ret = 0;

	for (uint32_t i = 0; ret >= 0 && i < cache_page_nr(s->header.slot_nr); i++) {
		ret = store_page(s, i, &page);
		for (unsigned k = 0; ret > 0 && k < CACHE_PAGE_ENTRIES; k++)
			if (page.entry[k].valid &&
			    cache_entry_check(&s->header, &page.entry[k]) == 0)
				fn(arg, &page.entry[k]);
	}
	return MIN(ret, 0);
}

static int store_write(const struct cache_store *s, const void *from, uint64_t at)
{
	ssize_t nr = pwrite(s->fd, from, CACHE_PAGE_BYTES, (off_t)at);

	return nr < 0 ? -errno : nr == CACHE_PAGE_BYTES ? 0 : -EIO;
}

static int store_flush(const struct cache_store *s)
{
	return fsync(s->fd) < 0 ? -errno : 0;
}

/* What is not dirty is forgotten. */
static int store_forget_clean(const struct cache_store *s, uint32_t idx)
{
	uint8_t bytes[CACHE_PAGE_BYTES];
	struct cache_page page;
	int ret = store_page(s, idx, &page);

	if (ret <= 0)
		return ret;
	for (unsigned k = 0; k < CACHE_PAGE_ENTRIES; k++)
		if (page.entry[k].dirty)
			page.entry[k].valid &= page.entry[k].dirty;
		else
			page.entry[k] = (struct cache_entry){ 0 };
	page.seq++;
	cache_page_write(&page, bytes, s->header.instance, idx);
	return store_write(s, bytes, cache_page_at(idx, page.seq));
}

/* ---- the two ways out ---- */

static int store_headers(const struct cache_store *s)
{
	uint8_t page[CACHE_PAGE_BYTES];
	int ret = 0;

	cache_header_write(&s->header, page);
	for (unsigned i = 0; ret == 0 && i < CACHE_HEADER_NR; i++) {
		ret = store_write(s, page, (uint64_t)i * CACHE_PAGE_BYTES);
		if (ret == 0)
			ret = store_flush(s);
	}
	return ret;
}

int cache_store_forget(struct cache_store *s)
{
	s->header.generation++;
	s->header.instance = 0;
	return store_headers(s);
}

int cache_store_accept(struct cache_store *s)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < cache_page_nr(s->header.slot_nr); i++)
		ret = store_forget_clean(s, i);
	if (ret == 0)
		ret = store_flush(s);
	if (ret < 0)
		return ret;
	s->header.generation++;
	s->header.found[0] = s->header.ours[0] = '\0';
	return store_headers(s);
}
