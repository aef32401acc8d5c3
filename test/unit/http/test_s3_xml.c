/* Documents of XML: what is told of each element, limits, and the values of XML Schema. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/http/s3_xml.h"
#include "base/util.h"

struct told {
	char text[2000];
	const char *refuses; /* a path */
};

static bool on_element(const char *path, const char *text, void *arg)
{
	struct told *told = arg;
	size_t n = strlen(told->text);

	snprintf(told->text + n, sizeof(told->text) - n, "%s=%s;", path, text);
	return !told->refuses || strcmp(path, told->refuses) != 0;
}

static int read_document(const char *document, struct told *told, char words[200])
{
	told->text[0] = '\0';
	snprintf(words, 200, "none");
	return s3_xml_read(document, strlen(document), on_element, told, words, 200);
}

static void test_elements(void **state)
{
	static const struct {
		const char *document, *told;
	} cases[] = {
		{ "<a/>", "a=;" },
		{ "<a> x </a>", "a= x ;" },
		{ "<a>\n <b>1</b>\n <b>2</b> <c><d/></c></a>", "a/b=1;a/b=2;a/c/d=;a/c=;a=;" },
		{ "<a>x&amp;&#65;<!-- y --><![CDATA[<b>&amp;]]></a>", "a=x&A<b>&amp;;" },
		{ "<n:a xmlns:n=\"u/v\"><b n:c=\"d\">x</b></n:a>", "a/b=x;a=;" },
		{ "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe9</a>", "a=\303\251;" },
		{ "<a><b><c><d><e><f><g><h>x</h></g></f></e></d></c></b></a>",
		  "a/b/c/d/e/f/g/h=x;a/b/c/d/e/f/g=;a/b/c/d/e/f=;a/b/c/d/e=;a/b/c/d=;a/b/c=;a/"
		  "b=;a=;" },
	};
	struct told told = { 0 };
	char words[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(read_document(cases[i].document, &told, words), 0);
		assert_string_equal(told.text, cases[i].told);
		assert_string_equal(words, "none");
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *document, *told, *words;
	} cases[] = {
		{ "", "", "no element found at byte 0" },
		{ "<a><b>1</b><c>", "a/b=1;", "no element found at byte 14" },
		{ "<a><b>1</b></c>", "a/b=1;", "mismatched tag at byte 13" },
		{ "<a>x<b/></a>", "", "it has text beside elements at byte 4" },
		{ "<a><b/>x</a>", "a/b=;", "it has text beside elements at byte 8" },
		{ "<a><b><c><d><e><f><g><h><i/></h></g></f></e></d></c></b></a>", "",
		  "its elements are too deep or too long at byte 24" },
		{ "<!DOCTYPE a><a/>", "", "it has a document type" },
		{ "<!DOCTYPE a [<!ENTITY b 'x'>]><a>&b;</a>", "", "it has a document type" },
		{ "<a>&b;</a>", "", "undefined entity at byte 3" },
	};
	struct told told = { 0 };
	char words[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(read_document(cases[i].document, &told, words), -EINVAL);
		assert_string_equal(told.text, cases[i].told);
		if (strncmp(words, cases[i].words, strlen(cases[i].words)) != 0)
			fail_msg("\"%s\", not \"%s\"", words, cases[i].words);
	}
}

/* The caller's own words are left. */
static void test_caller_refuses(void **state)
{
	struct told told = { .refuses = "a/b" };
	char words[200];

	(void)state;
	assert_int_equal(read_document("<a><c/><b/><b/></a>", &told, words), -EINVAL);
	assert_string_equal(told.text, "a/c=;a/b=;");
	assert_string_equal(words, "none");
	told.refuses = "a";
	assert_int_equal(read_document("<a/>", &told, words), -EINVAL);
	assert_string_equal(told.text, "a=;");
}

/* The longest text and the longest path, and one byte more. */
static void test_long(void **state)
{
	static char document[3 * S3_XML_TEXT_BYTES];
	struct told told = { 0 };
	char words[200];

	(void)state;
	for (unsigned more = 0; more < 2; more++) {
		size_t bytes = S3_XML_TEXT_BYTES - 1 + more;

		memcpy(document, "<a>", 3);
		memset(document + 3, 'x', bytes);
		strcpy(document + 3 + bytes, "</a>");
		assert_int_equal(read_document(document, &told, words), more ? -EINVAL : 0);
		bytes = S3_XML_PATH_BYTES - 1 + more;
		memset(document + 1, 'x', bytes);
		strcpy(document + 1 + bytes, "/>");
		assert_int_equal(read_document(document, &told, words), more ? -EINVAL : 0);
	}
	assert_non_null(strstr(words, "too deep or too long"));
	memset(document, ' ', sizeof(document) - 1);
	memcpy(document, "<a>", 3);
	assert_int_equal(read_document(document, &told, words), -EINVAL);
	assert_non_null(strstr(words, "a text in it is too long"));
}

static void test_values(void **state)
{
	static const char *const no_bools[] = { "",	 " ",  "yes", "TRUE",	   "tRue",
						"true.", "00", "2",   "true false" };
	static const char *const no_numbers[] = { "",	 " ",	"-1",  "+1",
						  "1.0", "0x1", "1 2", "9223372036854775808" };
	uint64_t number = 7;
	bool value = false;

	(void)state;
	assert_true(s3_xml_bool("\t true\r\n", &value) && value);
	assert_true(s3_xml_bool("False", &value) && !value);
	assert_true(s3_xml_bool("1", &value) && value);
	assert_true(s3_xml_bool("0", &value) && !value);
	assert_true(s3_xml_bool("True", &value) && value);
	assert_true(s3_xml_bool("false", &value) && !value);
	for (size_t i = 0; i < ARRAY_SIZE(no_bools); i++)
		assert_false(s3_xml_bool(no_bools[i], &value));
	assert_true(s3_xml_number(" 0012\n", &number));
	assert_int_equal(number, 12);
	assert_true(s3_xml_number("0", &number));
	assert_int_equal(number, 0);
	for (size_t i = 0; i < ARRAY_SIZE(no_numbers); i++)
		assert_false(s3_xml_number(no_numbers[i], &number));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elements),       cmocka_unit_test(test_refused),
		cmocka_unit_test(test_caller_refuses), cmocka_unit_test(test_long),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
