/* Pages of the store's list: however a store writes them, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/s3_disk/s3_disk_page.h"
#include "base/util.h"

#define PAGE(text) "<ListBucketResult>" text "</ListBucketResult>"
#define LAST "<IsTruncated>false</IsTruncated>"
#define MORE "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
#define ENTRY(key, size) "<Contents><Key>" key "</Key><Size>" size "</Size></Contents>"
#define NAME "o%2F00000002%2F0000000a.00000003"

struct seen {
	unsigned nr, refuses_at;
	struct s3_disk_listed listed[8];
	uint64_t size_bytes[8];
	char name[8][100];
};

static bool on_object(const struct s3_disk_listed *listed, uint64_t size_bytes, void *arg)
{
	struct seen *seen = arg;

	assert_true(seen->nr < ARRAY_SIZE(seen->listed));
	seen->size_bytes[seen->nr] = size_bytes;
	seen->listed[seen->nr++] = *listed;
	return seen->nr != seen->refuses_at;
}

static bool on_key(const char *name, uint64_t size_bytes, void *arg)
{
	struct seen *seen = arg;

	assert_true(seen->nr < ARRAY_SIZE(seen->listed));
	seen->size_bytes[seen->nr] = size_bytes;
	snprintf(seen->name[seen->nr++], sizeof(seen->name[0]), "%s", name);
	return true;
}

/* At its exact size: ASan sees a read past the end. */
static int read_bytes(const struct s3_disk_ask *ask, const char *text, size_t bytes,
		      struct s3_disk_page *page, char words[200])
{
	char *exact = malloc(bytes ? bytes : 1);
	int ret;

	assert_non_null(exact);
	memcpy(exact, text, bytes);
	words[0] = '\0';
	ret = s3_disk_page_read(ask, exact, bytes, page, words, 200);
	free(exact);
	return ret;
}

static int read_page(const char *text, const char *prefix, struct s3_disk_page *page,
		     struct seen *seen, char words[200])
{
	const struct s3_disk_ask ask = {
		.prefix = prefix, .under = "o/", .on_object = on_object, .arg = seen
	};

	*seen = (struct seen){ 0 };
	return read_bytes(&ask, text, strlen(text), page, words);
}

static void name_is(struct s3_disk_name name, uint32_t generation, uint32_t seq)
{
	assert_int_equal(name.generation, generation);
	assert_int_equal(name.seq, seq);
}

static void test_page(void **state)
{
	struct s3_disk_page page;
	struct seen seen;
	char words[200];

	(void)state;
	assert_int_equal(read_page(PAGE(LAST), "p", &page, &seen, words), 0);
	assert_true(page.is_last);
	assert_int_equal(seen.nr, 0);
	/* Escaped, or not; with elements before, between and behind them. */
	assert_int_equal(
		read_page("<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name>" LAST
			  "<Contents><Key>a%20b%2F%c3%a9/" NAME "</Key><LastModified>x"
			  "</LastModified><ETag>&quot;x&quot;</ETag><Size>65536</Size><Owner>"
			  "<ID>x</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>\n"
			  "<Contents><Size>0</Size><Key>a+b/%C3%A9/o/00000002/00000001.00000004"
			  "</Key></Contents></ListBucketResult>",
			  "a b/\303\251", &page, &seen, words),
		0);
	assert_int_equal(page.nr, 2);
	assert_int_equal(seen.nr, 2);
	name_is(seen.listed[0].name, 2, 3);
	assert_int_equal(seen.listed[0].index, 10);
	assert_int_equal(seen.size_bytes[0], 65536);
	/* One of no bytes says that there are zeroes. */
	name_is(seen.listed[1].name, 2, 4 | S3_DISK_HOLE);
	assert_int_equal(seen.listed[1].index, 1);
}

/* ---- the same list ---- */

static void test_end(void **state)
{
	static const struct {
		const char *text;
		bool is_last;
	} cases[] = {
		{ "false", true },
		{ "False", true },
		{ "0", true },
		{ " \r\n\tfalse ", true },
		{ "true", false },
		{ "True", false },
		{ "1", false },
		{ "\ntrue\t", false },
		{ " 1", false },
		{ "<![CDATA[true]]>", false },
		{ "tr<!-- -->ue", false },
		{ "&#49;", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_disk_page page;
		struct seen seen;
		char text[400], words[200];

		snprintf(text, sizeof(text), PAGE("<IsTruncated>%s</IsTruncated>%s%s"),
			 cases[i].text, ENTRY("p/" NAME, "5"),
			 cases[i].is_last ? ""
					  : "<NextContinuationToken>t</NextContinuationToken>");
		if (read_page(text, "p", &page, &seen, words) != 0)
			fail_msg("refused: %s: %s", cases[i].text, words);
		assert_int_equal(page.is_last, cases[i].is_last);
		assert_int_equal(seen.nr, 1);
	}
}

static void test_written_otherwise(void **state)
{
	static const char *const same[] = {
		PAGE(LAST ENTRY("p/" NAME, "5")),
		PAGE(LAST "<KeyCount>1</KeyCount>" ENTRY("p/" NAME, "5")),
		PAGE(LAST "<KeyCount> 1\n</KeyCount>" ENTRY("p/" NAME, "\t005 ")),
		PAGE(LAST "<Contents ><Key >p/" NAME "</Key\n><Size>5</Size></Contents >"),
		PAGE(LAST "<Contents a='&lt;' b=\">\"><Key>p/" NAME
			  "</Key><Size>5</Size></Contents>"),
		PAGE(LAST "<Contents xmlns=\"x\"><Key>p/" NAME "</Key><Size>5</Size></Contents>"),
		"<x:ListBucketResult xmlns:x=\"u/v\"><x:IsTruncated>0</x:IsTruncated><x:Contents>"
		"<Key>p/" NAME "</Key><x:Size>5</x:Size></x:Contents></x:ListBucketResult>",
		PAGE(LAST "<Contents><Key><![CDATA[p/" NAME "]]></Key><Size>5</Size></Contents>"),
		PAGE(LAST
		     "<Contents><Key>p&#x2f;o%2&#70;00000002<!-- x -->%2F0000000a.00000003</Key>"
		     "<Size>5</Size></Contents>"),
		PAGE("<!-- " ENTRY("p/x", "5") " -->" ENTRY("p/" NAME, "5") "<?x?>" LAST),
		PAGE(LAST "<CommonPrefixes/><NextContinuationToken/>" ENTRY("p/" NAME, "5")) "\n",
		"\xef\xbb\xbf" PAGE(LAST ENTRY("p/" NAME, "5")),
		"<?xml version='1.0' encoding='ISO-8859-1'?>" PAGE(LAST ENTRY("p/" NAME, "5")),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		struct s3_disk_page page;
		struct seen seen;
		char words[200];

		if (read_page(same[i], "p", &page, &seen, words) != 0)
			fail_msg("refused: %s: %s", same[i], words);
		assert_true(page.is_last && page.nr == 1 && seen.nr == 1);
		name_is(seen.listed[0].name, 2, 3);
		assert_int_equal(seen.listed[0].index, 10);
		assert_int_equal(seen.size_bytes[0], 5);
	}
}

static void test_size(void **state)
{
	struct s3_disk_page page;
	struct seen seen;
	char words[200];

	(void)state;
	assert_int_equal(read_page(PAGE(LAST ENTRY("p/" NAME, "0") ENTRY("p/" NAME, " 00 ")
						ENTRY("p/" NAME, "10")),
				   "p", &page, &seen, words),
			 0);
	assert_int_equal(seen.nr, 3);
	name_is(seen.listed[0].name, 2, 3 | S3_DISK_HOLE);
	name_is(seen.listed[1].name, 2, 3 | S3_DISK_HOLE);
	name_is(seen.listed[2].name, 2, 3);
}

static void test_more(void **state)
{
	static const struct {
		const char *token, *escaped;
	} cases[] = {
		{ "p/o/1", "p%2Fo%2F1" },
		{ "Az09-._~", "Az09-._~" },
		{ "a+b=/%2F", "a%2Bb%3D%2F%252F" },
		/* It is XML. */
		{ "a&amp;b&lt;&gt;&quot;&apos;&#39;", "a%26b%3C%3E%22%27%27" },
		{ "&amp;amp;", "%26amp%3B" },
		{ "<![CDATA[<&amp;]]>", "%3C%26amp%3B" },
		{ "\303\251 ", "%C3%A9%20" },
	};
	char text[400], words[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_disk_page page;
		struct seen seen;

		snprintf(text, sizeof(text),
			 PAGE("<IsTruncated>true</IsTruncated>%s"
			      "<NextContinuationToken>%s</NextContinuationToken>"),
			 ENTRY("p/" NAME, "5"), cases[i].token);
		assert_int_equal(read_page(text, "p", &page, &seen, words), 0);
		assert_false(page.is_last);
		assert_string_equal(page.token, cases[i].escaped);
		assert_int_equal(page.nr, 1);
	}
}

/* ---- what is refused ---- */

static void test_bad(void **state)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		/* No list, or not all of it. */
		{ "", "no element found" },
		{ "\n", "no element found" },
		{ "{\"IsTruncated\": false}", "not well-formed" },
		{ "<html>nginx</html>", "the document is \"html\"" },
		{ "<Error><Code>x</Code></Error>", "the document is \"Error/Code\"" },
		{ "<ListBucketResults>" LAST "</ListBucketResults>", "the document is" },
		{ "<x>" PAGE(LAST) "</x>", "the document is \"x/ListBucketResult" },
		{ LAST, "the document is \"IsTruncated\"" },
		{ PAGE(""), "it does not say IsTruncated" },
		{ PAGE(ENTRY("p/" NAME, "5")), "it does not say IsTruncated" },
		{ PAGE("<Contents>" LAST "</Contents>"), "Contents without Key or Size" },
		{ "<ListBucketResult>" LAST ENTRY("p/" NAME, "5"), "no element found" },
		{ PAGE(LAST "<Contents>"), "mismatched tag" },
		{ PAGE(LAST) PAGE(LAST), "junk after document element" },
		{ PAGE(LAST) "x", "junk after document element" },
		{ "<x:ListBucketResult>" LAST "</x:ListBucketResult>", "unbound prefix" },
		{ PAGE(LAST "<Name>&o;</Name>"), "undefined entity" },
		{ PAGE(LAST "<Name>&am</Name>"), "not well-formed" },
		{ PAGE(LAST "<Name>\x01</Name>"), "not well-formed" },
		{ PAGE(LAST "<Name>\xff</Name>"), "not well-formed" },
		{ "<!DOCTYPE x>" PAGE(LAST), "it has a document type" },
		{ "<!DOCTYPE x [<!ENTITY o 'x'>]>" PAGE(LAST), "it has a document type" },
		{ "<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" PAGE(LAST), "it has a document type" },
		/* The end. */
		{ PAGE("<IsTruncated>maybe</IsTruncated>"), "IsTruncated is \"maybe\"" },
		{ PAGE("<IsTruncated>TRUE</IsTruncated>"), "IsTruncated is \"TRUE\"" },
		{ PAGE("<IsTruncated></IsTruncated>"), "IsTruncated is \"\"" },
		{ PAGE("<IsTruncated/>"), "IsTruncated is \"\"" },
		{ PAGE("<IsTruncated>2</IsTruncated>"), "IsTruncated is \"2\"" },
		{ PAGE("<IsTruncated>tr ue</IsTruncated>"), "IsTruncated is \"tr ue\"" },
		{ PAGE("<IsTruncated>false<x/></IsTruncated>"), "text beside elements" },
		{ PAGE("<IsTruncated><x/>false</IsTruncated>"), "text beside elements" },
		{ PAGE(LAST LAST), "IsTruncated is \"false\"" },
		{ PAGE(LAST MORE), "IsTruncated is \"true\"" },
		{ PAGE("<IsTruncated>true</IsTruncated>"), "there is no NextContinuationToken" },
		{ PAGE("<IsTruncated>1</IsTruncated><NextContinuationToken/>"),
		  "there is no NextContinuationToken" },
		{ PAGE(LAST "<NextContinuationToken>t</NextContinuationToken>"),
		  "there is a NextContinuationToken" },
		{ PAGE(MORE "<NextContinuationToken>u</NextContinuationToken>"),
		  "NextContinuationToken is \"u\"" },
		/* Their number. */
		{ PAGE(LAST "<KeyCount>1</KeyCount>"), "KeyCount is 1, and there are 0 keys" },
		{ PAGE(LAST ENTRY("p/" NAME, "5") "<KeyCount>0</KeyCount>"),
		  "KeyCount is 0, and there are 1 keys" },
		{ PAGE(LAST "<KeyCount>0</KeyCount><KeyCount>0</KeyCount>"), "KeyCount is \"0\"" },
		{ PAGE(LAST "<KeyCount>x</KeyCount>"), "KeyCount is \"x\"" },
		{ PAGE(LAST "<KeyCount>-0</KeyCount>"), "KeyCount is \"-0\"" },
		{ PAGE(LAST "<KeyCount/>"), "KeyCount is \"\"" },
		{ PAGE(LAST "<CommonPrefixes><Prefix>p/o/</Prefix></CommonPrefixes>"),
		  "CommonPrefixes is \"p/o/\"" },
		/* Keys where no list has them. */
		{ PAGE(LAST "<contents><Key>p/" NAME "</Key><Size>5</Size></contents>"),
		  "it has ListBucketResult/contents/Key, which no list has" },
		{ PAGE(LAST "<All>" ENTRY("p/" NAME, "5") "</All>"),
		  "it has ListBucketResult/All/Contents/Key, which no list has" },
		{ PAGE(LAST "<Contents><key>p/" NAME "</key><Size>5</Size></Contents>"),
		  "it has ListBucketResult/Contents/key, which no list has" },
		{ PAGE(LAST "<CONTENTS/>"), "it has ListBucketResult/CONTENTS, which no list has" },
		/* Contents. */
		{ PAGE(LAST "<Contents></Contents>"), "Contents without Key or Size" },
		{ PAGE(LAST "<Contents/>"), "Contents without Key or Size" },
		{ PAGE(LAST "<Contents><Key>p/" NAME "</Key></Contents>"),
		  "Contents without Key or Size" },
		{ PAGE(LAST "<Contents><Size>5</Size></Contents>"),
		  "Contents without Key or Size" },
		/* Of the next one, or behind the end of this. */
		{ PAGE(LAST "<Contents><Size>5</Size></Contents><Key>p/" NAME "</Key>"),
		  "Contents without Key or Size" },
		{ PAGE(LAST "<Contents><Key>p/" NAME "</Key><Key>p/" NAME
			    "</Key><Size>5</Size></Contents>"),
		  "Key is \"p/" },
		{ PAGE(LAST "<Contents><Key>p/" NAME
			    "</Key><Size>5</Size><Size>5</Size></Contents>"),
		  "Size is \"5\"" },
		{ PAGE(LAST ENTRY("p/" NAME, "")), "Size is \"\"" },
		{ PAGE(LAST ENTRY("p/" NAME, "5x")), "Size is \"5x\"" },
		{ PAGE(LAST ENTRY("p/" NAME, "-5")), "Size is \"-5\"" },
		{ PAGE(LAST ENTRY("p/" NAME, "99999999999999999999")), "Size is \"9999" },
		{ PAGE(LAST ENTRY("p%", "5")), "Key is \"p%\"" },
		{ PAGE(LAST ENTRY("p%2", "5")), "Key is \"p%2\"" },
		{ PAGE(LAST ENTRY("p%zz", "5")), "Key is \"p%zz\"" },
		{ PAGE(LAST ENTRY("p%-1", "5")), "Key is \"p%-1\"" },
		{ PAGE(LAST ENTRY("p% 1", "5")), "Key is \"p% 1\"" },
		{ PAGE(LAST ENTRY("p%00/" NAME, "5")), "Key is \"p%00/" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct s3_disk_page page;
		struct seen seen;
		char words[200];

		if (read_page(bad[i].text, "p", &page, &seen, words) != -EINVAL)
			fail_msg("taken: \"%s\"", bad[i].text);
		if (!strstr(words, bad[i].words))
			fail_msg("\"%s\", not \"%s\": %s", words, bad[i].words, bad[i].text);
	}
}

/* Keys that were not asked for, and keys that are no object's. */
static void test_foreign(void **state)
{
	static const char *const elsewhere[] = {
		"q/" NAME,    "pp/" NAME, "p" NAME,	 "/p/" NAME,  "%2Fp/" NAME,
		NAME,	      "",	  "p",		 "p/",	      "p//" NAME,
		"p/manifest", "p/probe",  "p%2fx/" NAME, "p/x/" NAME, "p/map/00000001.0",
		" p/" NAME,
	};
	static const char *const unknown[] = {
		"p/o/",
		"p/" NAME "x",
		"p/" NAME "/",
		"p/o/1/0.1",
		"p/o%2F00000000%2F0000000a.00000003",
		"p/o%2F00000002%2F0000000A.00000003",
		"p/o/README",
	};
	char text[400], words[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere) + ARRAY_SIZE(unknown); i++) {
		bool is_elsewhere = i < ARRAY_SIZE(elsewhere);
		const char *key = is_elsewhere ? elsewhere[i] : unknown[i - ARRAY_SIZE(elsewhere)];
		struct s3_disk_page page;
		struct seen seen;

		snprintf(text, sizeof(text),
			 PAGE("%s%s<Contents><Key>%s</Key><Size>5</Size></Contents>"), LAST,
			 ENTRY("p/" NAME, "5"), key);
		if (read_page(text, "p", &page, &seen, words) != -EINVAL)
			fail_msg("taken: \"%s\"", key);
		if (!strstr(words, is_elsewhere ? "a key that was not asked for: "
						: "a key that is none of this disk's: ") ||
		    !strstr(words, " (5 bytes)"))
			fail_msg("\"%s\": %s", key, words);
	}
}

/* What is not printable is none of the words. */
static void test_printable(void **state)
{
	struct s3_disk_page page;
	struct seen seen;
	char words[200];

	(void)state;
	assert_int_equal(
		read_page(PAGE(LAST ENTRY("q%1b%0a\303\251", "7")), "p", &page, &seen, words),
		-EINVAL);
	assert_string_equal(words,
			    "it has a key that was not asked for: q\\x1b\\x0a\303\251 (7 bytes)");
}

/* The owner has rules of his own. */
static void test_refused(void **state)
{
	struct seen seen = { .refuses_at = 2 };
	const struct s3_disk_ask ask = {
		.prefix = "p", .under = "o/", .on_object = on_object, .arg = &seen
	};
	static const char text[] =
		PAGE(LAST ENTRY("p/" NAME, "5") ENTRY("p/" NAME, "6") ENTRY("p/" NAME, "7"));
	struct s3_disk_page page;
	char words[200];

	(void)state;
	assert_int_equal(read_bytes(&ask, text, strlen(text), &page, words), -EINVAL);
	assert_string_equal(words, "it has a key that is none of this disk's: "
				   "p/o/00000002/0000000a.00000003 (6 bytes)");
	assert_int_equal(seen.nr, 2);
}

static void test_keys(void **state)
{
	struct seen seen = { 0 };
	const struct s3_disk_ask ask = {
		.prefix = "a b", .under = "map/", .on_key = on_key, .arg = &seen
	};
	static const char text[] =
		PAGE(LAST ENTRY("a+b/map/00000001.0", "5") ENTRY("a%20b%2Fmap%2Fx", "0"));
	static const char other[] = PAGE(LAST ENTRY("a+b/o/x", "5"));
	struct s3_disk_page page;
	char words[200];

	(void)state;
	assert_int_equal(read_bytes(&ask, text, strlen(text), &page, words), 0);
	assert_int_equal(page.nr, 2);
	assert_string_equal(seen.name[0], "map/00000001.0");
	assert_int_equal(seen.size_bytes[0], 5);
	assert_string_equal(seen.name[1], "map/x");
	assert_int_equal(read_bytes(&ask, other, strlen(other), &page, words), -EINVAL);
}

/* Cut anywhere it is no page. */
static void test_cut(void **state)
{
	static const char text[] = "<?xml version=\"1.0\"?>" PAGE(LAST ENTRY("p/" NAME, "5"));
	struct seen seen = { 0 };
	const struct s3_disk_ask ask = {
		.prefix = "p", .under = "o/", .on_object = on_object, .arg = &seen
	};
	struct s3_disk_page page;
	char words[200];

	(void)state;
	for (size_t n = 0; n < strlen(text); n++) {
		seen.nr = 0;
		assert_int_equal(read_bytes(&ask, text, n, &page, words), -EINVAL);
		assert_string_not_equal(words, "");
	}
	/* A zero is no character of XML. */
	assert_int_equal(read_bytes(&ask, text, sizeof(text), &page, words), -EINVAL);
}

/* Keys and tokens longer than any that there can be. */
static void test_long(void **state)
{
	static char text[8000];
	struct s3_disk_page page;
	struct seen seen;
	char words[200];
	int n;

	(void)state;
	n = snprintf(text, sizeof(text), "<ListBucketResult>" LAST "<Contents><Key>");
	memset(text + n, 'k', 4000);
	snprintf(text + n + 4000, 100, "</Key><Size>5</Size></Contents></ListBucketResult>");
	assert_int_equal(read_page(text, "p", &page, &seen, words), -EINVAL);
	assert_non_null(strstr(words, "Key is \"kkkk"));
	memset(text + n, 'k', 5000);
	snprintf(text + n + 5000, 100, "</Key><Size>5</Size></Contents></ListBucketResult>");
	assert_int_equal(read_page(text, "p", &page, &seen, words), -EINVAL);
	assert_non_null(strstr(words, "a text in it is too long"));
	n = snprintf(text, sizeof(text),
		     "<ListBucketResult><IsTruncated>true</IsTruncated>"
		     "<NextContinuationToken>");
	memset(text + n, 't', 4000);
	snprintf(text + n + 4000, 100, "</NextContinuationToken></ListBucketResult>");
	assert_int_equal(read_page(text, "p", &page, &seen, words), -EINVAL);
	assert_non_null(strstr(words, "NextContinuationToken is \"tttt"));
	/* Escaped it is longer. */
	memset(text + n, '/', 4000);
	snprintf(text + n + S3_DISK_TOKEN_BYTES / 2, 100,
		 "</NextContinuationToken></ListBucketResult>");
	assert_int_equal(read_page(text, "p", &page, &seen, words), -EINVAL);
	snprintf(text + n + S3_DISK_TOKEN_BYTES / 4, 100,
		 "</NextContinuationToken></ListBucketResult>");
	assert_int_equal(read_page(text, "p", &page, &seen, words), 0);
	assert_int_equal(strlen(page.token), 3 * S3_DISK_TOKEN_BYTES / 4);
}

static void test_escape(void **state)
{
	char to[16];

	(void)state;
	assert_true(s3_disk_escape("a b/c", 5, to, sizeof(to)));
	assert_string_equal(to, "a%20b%2Fc");
	assert_true(s3_disk_escape("", 0, to, sizeof(to)));
	assert_string_equal(to, "");
	assert_true(s3_disk_escape("\0\xff", 2, to, sizeof(to)));
	assert_string_equal(to, "%00%FF");
	assert_true(s3_disk_escape("////", 4, to, sizeof(to)));
	assert_false(s3_disk_escape("/////", 5, to, sizeof(to)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_written_otherwise),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_more),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_printable),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_escape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
