/* A folder of images, qemu-img to make them, and what it says beside what we read. */
#ifndef TEST_RIG_QCOW2_QCOW2_IMAGES_H
#define TEST_RIG_QCOW2_QCOW2_IMAGES_H

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_header.h"
#include "base/util.h"

static char images_folder[] = "/tmp/test_qcow2.XXXXXX";

/* Group setup and teardown of cmocka. */
static inline int images_make(void **state)
{
	(void)state;
	return mkdtemp(images_folder) && chdir(images_folder) == 0 ? 0 : -1;
}

static inline int images_remove(void **state)
{
	char command[sizeof(images_folder) + 16];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", images_folder);
	return system(command) == 0 && chdir("/") == 0 ? 0 : -1;
}

static inline bool images_have(const char *program)
{
	char command[100];

	snprintf(command, sizeof(command), "command -v %s >/dev/null", program);
	return system(command) == 0;
}

#define IMAGES_NEED(program)                                                                       \
	do {                                                                                       \
		if (!images_have(program)) {                                                       \
			print_message("# without " program "\n");                                  \
			skip();                                                                    \
		}                                                                                  \
	} while (0)

/* A line for the shell, in the folder; must end with 0. What it says is kept for a failure. */
__attribute__((format(printf, 1, 2))) static inline void images_run(const char *format, ...)
{
	char line[4000], all[sizeof(line) + 20];
	va_list args;
	int nr;

	va_start(args, format);
	nr = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	assert_in_range(nr, 1, sizeof(line) - 1);
	snprintf(all, sizeof(all), "{ %s; } >log 2>&1", line);
	if (system(all) != 0) {
		print_message("# %s\n", line);
		(void)!system("sed 's/^/# /' log");
		fail();
	}
}

/* What a line for the shell prints, as JSON. */
static inline json_t *images_json(const char *line)
{
	FILE *pipe = popen(line, "r");
	json_error_t error;
	json_t *found;

	assert_non_null(pipe);
	found = json_loadf(pipe, 0, &error);
	if (!found)
		print_message("# %s: %s\n", line, error.text);
	assert_non_null(found);
	assert_int_equal(pclose(pipe), 0);
	return found;
}

/* The first bytes of a file; *ret_image_bytes: of all of it. */
static inline size_t images_read(const char *name, void *buf, size_t bytes,
				 uint64_t *ret_image_bytes)
{
	FILE *file = fopen(name, "rb");
	size_t nr;

	assert_non_null(file);
	nr = fread(buf, 1, bytes, file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	*ret_image_bytes = (uint64_t)ftell(file);
	fclose(file);
	return nr;
}

static inline void images_parse(const char *name, struct qcow2_header *h)
{
	static uint8_t buf[QCOW2_HEADER_READ_BYTES];
	char words[QCOW2_WORDS_BYTES] = "";
	uint64_t image_bytes;
	size_t nr = images_read(name, buf, sizeof(buf), &image_bytes);
	int err = qcow2_header_parse(h, buf, nr, image_bytes, words);

	if (err)
		print_message("# %s: %s\n", name, words);
	assert_int_equal(err, 0);
}

static inline const char *images_string(const json_t *object, const char *key)
{
	const char *found = json_string_value(json_object_get(object, key));

	return found ? found : "";
}

static inline uint64_t images_number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static inline bool images_bool(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

/* What qemu-img info says of it must be what h has. */
static inline void images_same_as_info(const char *name, const struct qcow2_header *h)
{
	char line[300];
	json_t *info, *data;

	snprintf(line, sizeof(line), "qemu-img info -U --output=json %s", name);
	info = images_json(line);
	data = json_object_get(json_object_get(info, "format-specific"), "data");
	assert_string_equal(images_string(info, "format"), "qcow2");
	assert_int_equal(images_number(info, "virtual-size"), h->size_bytes);
	assert_int_equal(images_number(info, "cluster-size"), qcow2_cluster_bytes(&h->g));
	assert_string_equal(images_string(info, "backing-filename"), h->backing_name);
	assert_string_equal(images_string(info, "backing-filename-format"), h->backing_format);
	assert_int_equal(images_bool(info, "encrypted"), h->crypt != QCOW2_CRYPT_NONE);
	assert_string_equal(images_string(data, "compat"), h->g.version == 2 ? "0.10" : "1.1");
	assert_int_equal(images_number(data, "refcount-bits"), 1u << h->g.refcount_order);
	assert_string_equal(images_string(data, "compression-type"),
			    h->compression == QCOW2_COMPRESSION_ZSTD ? "zstd" : "zlib");
	assert_string_equal(images_string(data, "data-file"), h->data_file_name);
	assert_int_equal(images_bool(data, "data-file-raw"),
			 (h->autoclear & QCOW2_AUTOCLEAR_RAW_DATA_FILE) != 0);
	assert_int_equal(images_bool(data, "lazy-refcounts"),
			 (h->compatible & QCOW2_COMPAT_LAZY_REFCOUNTS) != 0);
	assert_int_equal(images_bool(data, "extended-l2"), h->g.l2_entry_bytes == 16);
	assert_int_equal(images_bool(data, "corrupt"),
			 (h->incompatible & QCOW2_INCOMPAT_CORRUPT) != 0);
	assert_int_equal(json_array_size(json_object_get(data, "bitmaps")), h->bitmap_nr);
	json_decref(info);
}

#endif
