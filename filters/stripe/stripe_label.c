/*
 * The labels of stripe_label.h. Pure.
 *
 * Happy path: parse each block -> judge them together. Failure modes: a backend has data and no
 * label, a damaged one, or that of another set, place or layout: refused in words; when all of a
 * set are there in another order, the words say which.
 */
#include "filters/stripe/stripe_label.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

#define LABEL_MAGIC "ublkdSTR"
#define LABEL_VERSION 1u /* raised with the layout: test/kept.py */

/* Add behind, and raise the version. */
struct label_disk {
	char magic[8];
	uint32_t version, is_ready;
	uint64_t set[2];
	uint64_t chunk_bytes;
	uint32_t child_nr, idx;
	uint32_t sum; /* crc32c of what is before it */
};

static uint32_t label_sum(const struct label_disk *disk)
{
	return crc32c(0, disk, offsetof(struct label_disk, sum));
}

void stripe_label_write(const struct stripe_label *label, void *block)
{
	struct label_disk disk = {
		.version = htole32(LABEL_VERSION),
		.is_ready = htole32(label->kind == STRIPE_LABEL_READY),
		.set = { htole64(label->set[0]), htole64(label->set[1]) },
		.chunk_bytes = htole64(label->chunk_bytes),
		.child_nr = htole32(label->child_nr),
		.idx = htole32(label->idx),
	};

	memcpy(disk.magic, LABEL_MAGIC, sizeof(disk.magic));
	disk.sum = htole32(label_sum(&disk));
	memset(block, 0, STRIPE_LABEL_BYTES);
	memcpy(block, &disk, sizeof(disk));
}

static bool is_zero(const uint8_t *block)
{
	return block[0] == 0 && memcmp(block, block + 1, STRIPE_LABEL_BYTES - 1) == 0;
}

void stripe_label_parse(struct stripe_label *ret_label, const void *block)
{
	struct label_disk disk;

	*ret_label = (struct stripe_label){ .kind = STRIPE_LABEL_FOREIGN };
	memcpy(&disk, block, sizeof(disk));
	if (is_zero(block))
		ret_label->kind = STRIPE_LABEL_NONE;
	if (memcmp(disk.magic, LABEL_MAGIC, sizeof(disk.magic)) != 0)
		return;
	ret_label->kind = STRIPE_LABEL_DAMAGED;
	if (le32toh(disk.sum) != label_sum(&disk) || le32toh(disk.version) != LABEL_VERSION)
		return;
	*ret_label = (struct stripe_label){
		.kind = le32toh(disk.is_ready) ? STRIPE_LABEL_READY : STRIPE_LABEL_NEW,
		.set = { le64toh(disk.set[0]), le64toh(disk.set[1]) },
		.chunk_bytes = le64toh(disk.chunk_bytes),
		.child_nr = le32toh(disk.child_nr),
		.idx = le32toh(disk.idx),
	};
}

/* ---- what they say together ---- */

struct judged {
	const struct stripe_label *labels;
	uint32_t nr;
	uint64_t chunk_bytes;
	char *words;
	size_t words_bytes;
};

static uint32_t count_of(const struct judged *j, enum stripe_label_kind kind)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < j->nr; i++)
		nr += j->labels[i].kind == kind;
	return nr;
}

/* The first of that kind, counted from 1 on, as people do. */
static uint32_t first_place(const struct judged *j, enum stripe_label_kind kind)
{
	uint32_t i = 0;

	while (j->labels[i].kind != kind)
		i++;
	return i + 1;
}

static enum stripe_verdict refuse_block(const struct judged *j, enum stripe_label_kind kind)
{
	static const char *const why[] = {
		[STRIPE_LABEL_NONE] = "is empty, while others of the stripe are not: give it the "
				      "backend that was there",
		[STRIPE_LABEL_FOREIGN] = "begins with data that are no label of a stripe: one that "
					 "was made without `verify` cannot have it; a new one "
					 "takes backends that begin with zeroes",
		[STRIPE_LABEL_DAMAGED] = "has a label that is damaged, or of a later version of "
					 "ublkd: look after that storage",
	};

	snprintf(j->words, j->words_bytes, "backend %u of the stripe %s", first_place(j, kind),
		 why[kind]);
	return STRIPE_REFUSED;
}

/*
 * False, with words: all that have a label say that there are more or fewer of them. It comes
 * before what the others hold: one too many is as it is because it is none of them.
 */
static bool are_as_many(const struct judged *j)
{
	uint32_t made_of = 0;

	for (uint32_t i = 0; i < j->nr; i++) {
		const struct stripe_label *l = &j->labels[i];

		if (l->kind != STRIPE_LABEL_READY)
			continue;
		if (l->child_nr == j->nr || (made_of && l->child_nr != made_of))
			return true;
		made_of = l->child_nr;
	}
	if (!made_of)
		return true;
	snprintf(j->words, j->words_bytes, "the stripe was made of %u backends, and has %u",
		 made_of, j->nr);
	return false;
}

/* False, with words: they were not made together, or for another stripe than this. */
static bool are_one_set(const struct judged *j)
{
	const struct stripe_label *first = j->labels;

	for (uint32_t i = 0; i < j->nr; i++) {
		const struct stripe_label *l = &j->labels[i];

		if (l->set[0] != first->set[0] || l->set[1] != first->set[1])
			snprintf(j->words, j->words_bytes,
				 "backends 1 and %u belong to different stripes", i + 1);
		else if (l->child_nr != j->nr)
			snprintf(j->words, j->words_bytes,
				 "the stripe was made of %u backends, and has %u", l->child_nr,
				 j->nr);
		else if (l->chunk_bytes != j->chunk_bytes)
			snprintf(j->words, j->words_bytes,
				 "the stripe was made with `chunk: %llu`: give it that",
				 (unsigned long long)l->chunk_bytes);
		else
			continue;
		return false;
	}
	return true;
}

/* Where the backend with this place stands; 0: nowhere. From 1 on. */
static uint32_t stands_at(const struct judged *j, uint32_t idx)
{
	for (uint32_t i = 0; i < j->nr; i++)
		if (j->labels[i].idx == idx)
			return i + 1;
	return 0;
}

/* False, with words. */
static bool are_in_order(const struct judged *j)
{
	bool are = true;
	size_t at;

	for (uint32_t i = 0; i < j->nr; i++)
		are = are && j->labels[i].idx == i;
	if (are)
		return true;
	at = (size_t)snprintf(j->words, j->words_bytes,
			      "the backends are in another order than when the stripe was made: "
			      "give them as");
	for (uint32_t i = 0; i < j->nr && at < j->words_bytes; i++)
		at += (size_t)snprintf(j->words + at, j->words_bytes - at, "%s %u", i ? "," : "",
				       stands_at(j, i));
	for (uint32_t i = 0; i < j->nr; i++)
		if (!stands_at(j, i))
			snprintf(j->words, j->words_bytes,
				 "two backends of the stripe are copies of one: give it the one "
				 "that was at place %u",
				 i + 1);
	return false;
}

enum stripe_verdict stripe_labels_judge(const struct stripe_label *labels, uint32_t child_nr,
					uint64_t chunk_bytes, char *words, size_t words_bytes)
{
	const struct judged j = { labels, child_nr, chunk_bytes, words, words_bytes };

	if (!are_as_many(&j))
		return STRIPE_REFUSED;
	if (count_of(&j, STRIPE_LABEL_FOREIGN) > 0)
		return refuse_block(&j, STRIPE_LABEL_FOREIGN);
	if (count_of(&j, STRIPE_LABEL_DAMAGED) > 0)
		return refuse_block(&j, STRIPE_LABEL_DAMAGED);
	if (count_of(&j, STRIPE_LABEL_READY) == 0)
		return STRIPE_MAKE;
	if (count_of(&j, STRIPE_LABEL_NONE) > 0)
		return refuse_block(&j, STRIPE_LABEL_NONE);
	if (!are_one_set(&j) || !are_in_order(&j))
		return STRIPE_REFUSED;
	return count_of(&j, STRIPE_LABEL_NEW) > 0 ? STRIPE_FINISH : STRIPE_IS_RIGHT;
}

bool stripe_labels_unwanted(const struct stripe_label *labels, uint32_t child_nr, char *words,
			    size_t words_bytes)
{
	const struct judged j = { labels, child_nr, 0, words, words_bytes };
	uint32_t unread_nr = count_of(&j, STRIPE_LABEL_UNREAD);
	uint32_t label_nr = count_of(&j, STRIPE_LABEL_DAMAGED) + count_of(&j, STRIPE_LABEL_NEW) +
			    count_of(&j, STRIPE_LABEL_READY);

	if (label_nr == 0)
		return false;
	if (label_nr == 1 && unread_nr == 0)
		snprintf(words, words_bytes,
			 "one backend alone has the label of a stripe that was made with `verify`: "
			 "set verify: true, which says what is missing; verify: ignore, if this "
			 "stripe is itself a backend of such a stripe");
	else if (label_nr == 1)
		snprintf(words, words_bytes,
			 "backend %u of the stripe cannot be read, and another has a label: if the "
			 "stripe was made with `verify`, set verify: true",
			 first_place(&j, STRIPE_LABEL_UNREAD));
	else
		snprintf(words, words_bytes,
			 "the backends have the labels of a stripe that was made with `verify`: "
			 "set verify: true; for a new stripe, write zeroes over the first 4 KiB of "
			 "each");
	return true;
}
