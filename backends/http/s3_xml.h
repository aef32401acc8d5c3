/*
 * What a store of S3 says in XML, read by expat: its elements, each by the names of those around it
 * and its own. Attributes, comments and namespaces do not count. A document type is refused, and
 * with it all entities but XML's own five. Pure; any thread.
 */
#ifndef BACKENDS_HTTP_S3_XML_H
#define BACKENDS_HTTP_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_XML_DEPTH_MAX 8u
#define S3_XML_PATH_BYTES 200u
/* No element that S3 describes has a longer text. */
#define S3_XML_TEXT_BYTES 4096u

/*
 * Called when an element ends, after those inside it. path: "ListBucketResult/Contents/Key"; text:
 * UTF-8, "" of an element that has others. False: nothing more is read.
 */
typedef bool s3_xml_element_fn(const char *path, const char *text, void *arg);

/*
 * Returns 0: the document was whole and fn took all of it; -EINVAL with words: it is not
 * well-formed or breaks a limit; -EINVAL, the words as they were: fn refused; -ENOMEM with words.
 * Until then fn was called for what came before.
 */
int s3_xml_read(const char *document, size_t bytes, s3_xml_element_fn *fn, void *arg, char *words,
		size_t words_bytes);

/* The values of XML Schema, with white space around them. False: it is none. */
bool s3_xml_bool(const char *text, bool *ret_value); /* also True and False */
bool s3_xml_number(const char *text, uint64_t *ret_value);

#endif
