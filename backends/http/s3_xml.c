/*
 * Reads documents through expat. Owns the parser of each, until it is read.
 *
 * Happy path: an element begins: its name joins the path -> its text -> it ends: the caller takes
 * it. Failure modes: not well-formed, cut, a document type, a limit: the first one stops expat.
 */
#include "backends/http/s3_xml.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* Expat puts it between a namespace and a name. Neither a name nor a URI has it. */
#define XML_SEPARATOR '|'
#define XML_BLANKS " \t\r\n"

struct xml_reader {
	XML_Parser parser;
	s3_xml_element_fn *fn;
	void *arg;
	const char *why; /* a limit; NULL: none is broken */
	long long at;	 /* of that */
	bool is_stopped; /* expat calls some handlers even then */
	bool is_leaf;	 /* no element was in this one */
	unsigned depth;
	size_t path_bytes, text_bytes;
	char path[S3_XML_PATH_BYTES], text[S3_XML_TEXT_BYTES];
};

static void xml_stop(struct xml_reader *r, const char *why)
{
	r->why = why;
	r->at = XML_GetCurrentByteIndex(r->parser);
	r->is_stopped = true;
	XML_StopParser(r->parser, XML_FALSE);
}

/* Whether nothing but white space stands before or between the elements of this one. */
static bool xml_text_is_blank(struct xml_reader *r)
{
	r->text[r->text_bytes] = '\0';
	return r->text[strspn(r->text, XML_BLANKS)] == '\0';
}

static void xml_on_begin(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct xml_reader *r = arg;
	const char *separator = strrchr(name, XML_SEPARATOR);
	size_t room = sizeof(r->path) - r->path_bytes;
	int n;

	(void)attributes;
	if (r->is_stopped)
		return;
	n = snprintf(r->path + r->path_bytes, room, "%s%s", r->depth > 0 ? "/" : "",
		     separator ? separator + 1 : name);
	if (r->depth == S3_XML_DEPTH_MAX || (size_t)n >= room) {
		xml_stop(r, "its elements are too deep or too long");
	} else if (!xml_text_is_blank(r)) {
		xml_stop(r, "it has text beside elements");
	} else {
		r->path_bytes += (size_t)n;
		r->depth++;
		r->is_leaf = true;
		r->text_bytes = 0;
	}
}

static void xml_on_end(void *arg, const XML_Char *name)
{
	struct xml_reader *r = arg;
	const char *slash;

	(void)name;
	if (r->is_stopped)
		return;
	if (!xml_text_is_blank(r) && !r->is_leaf) {
		xml_stop(r, "it has text beside elements");
		return;
	}
	if (!r->fn(r->path, r->is_leaf ? r->text : "", r->arg)) {
		xml_stop(r, NULL);
		return;
	}
	slash = strrchr(r->path, '/');
	r->path_bytes = slash ? (size_t)(slash - r->path) : 0;
	r->path[r->path_bytes] = '\0';
	r->depth--;
	r->is_leaf = false;
	r->text_bytes = 0;
}

static void xml_on_text(void *arg, const XML_Char *text, int bytes)
{
	struct xml_reader *r = arg;

	if (r->is_stopped)
		return;
	if ((size_t)bytes >= sizeof(r->text) - r->text_bytes) {
		xml_stop(r, "a text in it is too long");
		return;
	}
	memcpy(r->text + r->text_bytes, text, (size_t)bytes);
	r->text_bytes += (size_t)bytes;
}

static void xml_on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
			   const XML_Char *public_id, int has_internal_subset)
{
	(void)name;
	(void)system_id;
	(void)public_id;
	(void)has_internal_subset;
	xml_stop(arg, "it has a document type");
}

static int xml_result(const struct xml_reader *r, char *words, size_t words_bytes)
{
	enum XML_Error error = XML_GetErrorCode(r->parser);
	/* -1: of no byte. Of what has stopped it, expat says where it went on. */
	long long at = r->is_stopped ? r->at : XML_GetCurrentByteIndex(r->parser);

	if (r->is_stopped && !r->why)
		return -EINVAL;
	snprintf(words, words_bytes, "%s at byte %lld",
		 r->is_stopped ? r->why : XML_ErrorString(error), MAX(at, 0));
	return error == XML_ERROR_NO_MEMORY ? -ENOMEM : -EINVAL;
}

int s3_xml_read(const char *document, size_t bytes, s3_xml_element_fn *fn, void *arg, char *words,
		size_t words_bytes)
{
	struct xml_reader r = { .fn = fn, .arg = arg };
	int ret = 0;

	if (bytes > INT_MAX) {
		snprintf(words, words_bytes, "it is too long");
		return -EINVAL;
	}
	r.parser = XML_ParserCreateNS(NULL, XML_SEPARATOR);
	if (!r.parser) {
		snprintf(words, words_bytes, "out of memory");
		return -ENOMEM;
	}
	XML_SetUserData(r.parser, &r);
	XML_SetElementHandler(r.parser, xml_on_begin, xml_on_end);
	XML_SetCharacterDataHandler(r.parser, xml_on_text);
	XML_SetStartDoctypeDeclHandler(r.parser, xml_on_doctype);
	if (XML_Parse(r.parser, document, (int)bytes, XML_TRUE) != XML_STATUS_OK)
		ret = xml_result(&r, words, words_bytes);
	XML_ParserFree(r.parser);
	return ret;
}

/* ---- texts ---- */

/* Its first character that is not blank, and how many follow it without the blanks at its end. */
static const char *xml_trim(const char *text, size_t *ret_bytes)
{
	size_t bytes;

	text += strspn(text, XML_BLANKS);
	bytes = strlen(text);
	while (bytes > 0 && strchr(XML_BLANKS, text[bytes - 1]))
		bytes--;
	*ret_bytes = bytes;
	return text;
}

bool s3_xml_bool(const char *text, bool *ret_value)
{
	static const struct {
		const char *text;
		bool value;
	} known[] = { { "true", true },	  { "1", true },  { "True", true },
		      { "false", false }, { "0", false }, { "False", false } };
	size_t bytes;

	text = xml_trim(text, &bytes);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (bytes != strlen(known[i].text) || memcmp(text, known[i].text, bytes) != 0)
			continue;
		*ret_value = known[i].value;
		return true;
	}
	return false;
}

bool s3_xml_number(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t bytes;

	text = xml_trim(text, &bytes);
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] < '0' || text[i] > '9' || value > (INT64_MAX - 9) / 10)
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	*ret_value = value;
	return bytes > 0;
}
