/*
 * backing: auto. What an image stands over, by what its header says: the spec of that, before there
 * is a device (struct backend's resolve). A helper: it opens, reads and looks at files.
 *
 * Happy path: the file below `data` -> its header -> the name there, relative to the folder of the
 * image, without links (realpath(3)) -> in the folder where such files may be -> the spec of a
 * file, or of an image that is asked in turn and has the same folder.
 *
 * An image comes from somebody else, and the name in it could be that of any file of this machine,
 * which whoever reads the device would then read. So it has to be in `backing_folder`, and the
 * format must be said in the image: a raw file that a guest writes could begin with the header of
 * an image (QEMU: CVE-2008-2004).
 *
 * Failure modes: a name that is no path, a format that is not known or not said, a file that is
 * missing or elsewhere: words with the cure. An image that cannot be opened or understood is left
 * to the open, which says why.
 */
#include "backends/qcow2/qcow2.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/qcow2/format/qcow2_header.h"
#include "base/errname.h"
#include "base/printable.h"
#include "base/util.h"
#include "storage/registry.h"
#include "storage/spec.h"

/* One question. */
struct resolve {
	const struct backend_spec *spec;
	const struct backend_child_option *as; /* the row `backing` */
	const char *path;		       /* of the image, as configured */
	struct qcow2_header header;
	char folder[PATH_MAX]; /* where backing files may be, without links */
	char base[PATH_MAX];   /* the backing file, the same */
	char *error;
	size_t error_bytes;
};

__attribute__((format(printf, 3, 4))) static int resolve_fail(const struct resolve *r, int err,
							      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->error, r->error_bytes, fmt, ap);
	va_end(ap);
	return err;
}

static const struct backend_child_option *child_row(const struct backend_spec *spec,
						    const char *name)
{
	const struct backend_child_option *row = spec->ops->children;

	while (strcmp(row->name, name) != 0)
		row++;
	return row;
}

/* ---- the image ---- */

/* The leaf that has the bytes of `data` as they are: below filters alone. NULL: none. */
static const struct backend_spec *data_leaf(const struct backend_spec *spec)
{
	const struct backend_child_option *row = child_row(spec, "data");
	const struct backend_spec *data = spec->child;

	while (data && data->as != row)
		data = data->sibling;
	while (data && data->child) {
		bool is_filter =
			!data->child->sibling && !data->ops->size_over && !data->ops->sizes_itself;

		data = is_filter ? data->child : NULL;
	}
	return data;
}

/* How many bytes the header has at most; 0: none can be had. */
static size_t read_start(const char *path, void *buf, uint64_t *ret_image_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))) {
		*ret_image_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : UINT64_MAX;
		n = pread(fd, buf, QCOW2_HEADER_READ_BYTES, 0);
	}
	close(fd);
	return n > 0 ? (size_t)n : 0;
}

/* False: there is no header that makes sense; the open will say so, or make a new image. */
static bool read_header(struct resolve *r)
{
	uint8_t *buf = malloc(QCOW2_HEADER_READ_BYTES);
	char words[QCOW2_WORDS_BYTES];
	uint64_t image_bytes = 0;
	bool is_read = false;
	size_t nr_bytes;

	if (!buf)
		return false;
	nr_bytes = read_start(r->path, buf, &image_bytes);
	if (nr_bytes > 0)
		is_read = qcow2_header_parse(&r->header, buf, nr_bytes, image_bytes, words) == 0;
	free(buf);
	return is_read;
}

/* ---- the file that it stands over ---- */

/* As QEMU sees it: a name with a colon before the first slash. */
static bool has_protocol(const char *name)
{
	return name[strcspn(name, ":/")] == ':';
}

/* The name as a path, from the folder of the image on. */
static int path_of(const struct resolve *r, const char *name, char ret_path[static PATH_MAX])
{
	char image[PATH_MAX];
	int len;

	snprintf(image, sizeof(image), "%s", r->path);
	if (name[0] == '/')
		len = snprintf(ret_path, PATH_MAX, "%s", name);
	else
		len = snprintf(ret_path, PATH_MAX, "%s/%s", dirname(image), name);
	return len < PATH_MAX ? 0
			      : resolve_fail(r, -ENAMETOOLONG,
					     "qcow2: the path of what %.*s stands over is too "
					     "long",
					     utf8_fit(r->path, 100), r->path);
}

static int backing_folder_find(struct resolve *r)
{
	const struct qcow2_config *config = r->spec->config;
	char image[PATH_MAX];
	const char *folder = config->backing_folder;

	snprintf(image, sizeof(image), "%s", r->path);
	if (!folder)
		folder = dirname(image);
	return realpath(folder, r->folder)
		       ? 0
		       : resolve_fail(r, -errno, "qcow2: backing_folder %.*s: %s",
				      utf8_fit(folder, 150), folder, errname(errno));
}

static bool is_in_folder(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return strcmp(folder, "/") == 0 || (strncmp(path, folder, len) == 0 && path[len] == '/');
}

static int backing_find(struct resolve *r)
{
	const char *name = r->header.backing_name;
	char path[PATH_MAX];
	int ret;

	if (strncmp(name, "file:", 5) == 0)
		name += 5;
	else if (has_protocol(name))
		return resolve_fail(r, -EOPNOTSUPP,
				    "qcow2: %.*s stands over \"%.*s\", which is no path: write "
				    "the backend for it in the place of backing: auto",
				    utf8_fit(r->path, 80), r->path, utf8_fit(name, 60), name);
	ret = path_of(r, name, path);
	if (ret == 0)
		ret = backing_folder_find(r);
	if (ret < 0)
		return ret;
	if (!realpath(path, r->base))
		return resolve_fail(r, -errno, "qcow2: %.*s stands over %.*s: %s%s",
				    utf8_fit(r->path, 80), r->path, utf8_fit(path, 80), path,
				    errname(errno), errno == ENOENT ? ", it is missing" : "");
	if (is_in_folder(r->base, r->folder))
		return 0;
	return resolve_fail(r, -EACCES,
			    "qcow2: %.*s stands over %.*s, which is not in %.*s: set "
			    "backing_folder if it may",
			    utf8_fit(r->path, 60), r->path, utf8_fit(r->base, 60), r->base,
			    utf8_fit(r->folder, 60), r->folder);
}

/* ---- its spec ---- */

/* A YAML text in double quotes; what is no letter by its number. */
static void put_quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\x%02x", c);
		else if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

static void put_file(FILE *out, const struct resolve *r)
{
	fputs("{type: file, path: ", out);
	put_quoted(out, r->base);
	fputc('}', out);
}

static void put_image(FILE *out, const struct resolve *r)
{
	fputs("{type: qcow2, backing: auto, backing_folder: ", out);
	put_quoted(out, r->folder);
	fputs(", data: ", out);
	put_file(out, r);
	fputc('}', out);
}

static int make_spec(struct resolve *r, bool is_image, struct backend_spec **ret_child)
{
	char *yaml = NULL;
	size_t bytes;
	FILE *out = open_memstream(&yaml, &bytes);
	int ret;

	if (!out)
		return resolve_fail(r, -ENOMEM, "out of memory");
	if (is_image)
		put_image(out, r);
	else
		put_file(out, r);
	ret = fclose(out) == 0 ? backend_spec_from_text(ret_child, yaml, r->error, r->error_bytes)
			       : resolve_fail(r, -ENOMEM, "out of memory");
	free(yaml);
	if (ret == 0)
		(*ret_child)->as = r->as;
	return ret;
}

static int find_format(const struct resolve *r, bool *ret_is_image)
{
	const char *format = r->header.backing_format;

	*ret_is_image = strcmp(format, "qcow2") == 0;
	if (*ret_is_image || strcmp(format, "raw") == 0)
		return 0;
	if (format[0])
		return resolve_fail(r, -EOPNOTSUPP,
				    "qcow2: %.*s stands over \"%.*s\" of the format %s: only raw "
				    "and qcow2 can be read",
				    utf8_fit(r->path, 80), r->path,
				    utf8_fit(r->header.backing_name, 60), r->header.backing_name,
				    format);
	return resolve_fail(r, -EINVAL,
			    "qcow2: %.*s does not say of which format \"%.*s\" is, which it stands "
			    "over: say it with qemu-img rebase -u -F qcow2 (or raw) -b NAME IMAGE",
			    utf8_fit(r->path, 60), r->path, utf8_fit(r->header.backing_name, 60),
			    r->header.backing_name);
}

static int resolve_image(struct resolve *r, struct backend_spec **ret_child)
{
	bool is_image = false;
	int ret;

	if (!read_header(r) || r->header.backing_name[0] == '\0')
		return 0;
	ret = backing_find(r);
	if (ret == 0)
		ret = find_format(r, &is_image);
	return ret < 0 ? ret : make_spec(r, is_image, ret_child);
}

const char *qcow2_backing_word(const struct backend_spec *spec)
{
	return backend_spec_word(spec, child_row(spec, "backing"));
}

int qcow2_resolve(const struct backend_spec *spec, struct backend_spec **ret_child, char *error,
		  size_t error_bytes)
{
	const struct backend_child_option *as = child_row(spec, "backing");
	const char *word = qcow2_backing_word(spec);
	const struct backend_spec *leaf;
	struct resolve *r;
	int ret;

	if (!word || strcmp(word, "auto") != 0)
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	*r = (struct resolve){ .spec = spec, .as = as, .error = error, .error_bytes = error_bytes };
	leaf = data_leaf(spec);
	r->path = leaf ? backend_spec_leaf_path(leaf) : NULL;
	ret = r->path ? resolve_image(r, ret_child)
		      : resolve_fail(
				r, -EOPNOTSUPP,
				"qcow2: backing: auto reads a file, and data is none: write the "
				"backend that the image stands over in the place of auto");
	free(r);
	return ret;
}
