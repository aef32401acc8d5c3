/* config/yaml.h: trees and positions, every refusal, limits. */
#include "test/rig/config_check.h"

#include "base/util.h"

static void assert_pos(const struct yaml_node *node, unsigned line, unsigned column)
{
	assert_int_equal(node->pos.line, line);
	assert_int_equal(node->pos.column, column);
}

static void assert_scalar(const struct yaml_node *node, const char *text, bool quoted)
{
	assert_non_null(node);
	assert_int_equal(node->kind, YAML_SCALAR);
	assert_string_equal(node->text, text);
	assert_int_equal(node->quoted, quoted);
}

/* ---- trees ---- */

static void test_tree_and_positions(void **state)
{
	struct config_check c;
	struct yaml_node *root, *list, *map;

	(void)state;
	root = check_good(&c, "first: 1\n"
			      "devices:\n"
			      "  - name: one\n"
			      "    b: {x: 2, y: [3, 4]}\n"
			      "  - \xc3\xa9: two\n");
	assert_int_equal(root->kind, YAML_MAP);
	assert_pos(root, 1, 1);
	assert_int_equal(root->map.nr, 2);
	assert_string_equal(root->map.pairs[0].key->text, "first");
	assert_pos(root->map.pairs[1].key, 2, 1);
	list = yaml_get(root, "devices");
	assert_int_equal(list->kind, YAML_LIST);
	assert_int_equal(list->list.nr, 2);
	assert_pos(list, 3, 3);
	map = yaml_get(list->list.items[0], "b");
	assert_pos(map, 4, 8);
	assert_pos(yaml_get(map, "y")->list.items[1], 4, 22);
	/* Columns are characters, not bytes. */
	assert_pos(yaml_get(list->list.items[1], "\xc3\xa9"), 5, 8);
	assert_null(yaml_get(root, "none"));
	assert_null(yaml_get(list, "first"));
	assert_null(yaml_get(NULL, "first"));
	check_fini(&c);
}

static void test_scalars_keep_their_text(void **state)
{
	struct config_check c;
	struct yaml_node *root;

	(void)state;
	root = check_good(&c, "plain: 0x10 and more # comment\n"
			      "single: 'it''s'\n"
			      "double: \"a\\tb\\u00e9\"\n"
			      "literal: |\n  x\n  y\n"
			      "folded: >-\n  x\n  y\n"
			      "wrapped: x\n  y\n");
	assert_scalar(yaml_get(root, "plain"), "0x10 and more", false);
	assert_scalar(yaml_get(root, "single"), "it's", true);
	assert_scalar(yaml_get(root, "double"), "a\tb\xc3\xa9", true);
	assert_scalar(yaml_get(root, "literal"), "x\ny\n", true);
	assert_scalar(yaml_get(root, "folded"), "x y", true);
	assert_scalar(yaml_get(root, "wrapped"), "x y", false);
	check_fini(&c);
}

static void test_null_is_plain_only(void **state)
{
	struct config_check c;
	struct yaml_node *root;

	(void)state;
	root = check_good(&c,
			  "n1: null\nn2: ~\nn3:\nn4: NULL\nn5: Null\n"
			  "t1: 'null'\nt2: \"\"\nt3: !!str null\nt4: ! null\nt5: nil\nt6: nULL\n"
			  "c1: []\nc2: {}\n");
	assert_int_equal(root->map.nr, 13);
	for (size_t i = 0; i < 13; i++)
		assert_int_equal(yaml_is_null(root->map.pairs[i].value), i < 5);
	assert_string_equal(yaml_get(root, "n1")->text, "null");
	assert_scalar(yaml_get(root, "t3"), "null", true);
	check_fini(&c);
}

static void test_empty_documents_are_empty_maps(void **state)
{
	static const char *const texts[] = {
		"",	  "\n\n", "# nothing\n", "---\n",	 "---\n...\n",
		"null\n", "~",	  "{}",		 "\xef\xbb\xbf", "\xef\xbb\xbf# bom\n"
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct config_check c;
		struct yaml_node *root = check_good(&c, texts[i]);

		assert_int_equal(root->kind, YAML_MAP);
		assert_int_equal(root->map.nr, 0);
		assert_pos(root, 1, 1);
		check_fini(&c);
	}
}

static void test_byte_order_mark_moves_no_position(void **state)
{
	struct config_check c;

	(void)state;
	assert_pos(yaml_get(check_good(&c, "\xef\xbb\xbf"
					   "a: 1\n"),
			    "a"),
		   1, 4);
	check_fini(&c);
}

static void test_value_of_any_kind(void **state)
{
	static const struct {
		const char *text;
		enum yaml_kind kind;
	} cases[] = { { "", YAML_SCALAR },
		      { "x", YAML_SCALAR },
		      { "'[x]'", YAML_SCALAR },
		      { "[1, 2]", YAML_LIST },
		      { "{a: 1}", YAML_MAP } };
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct config_errors e;
		struct yaml_doc doc;

		config_errors_init(&e, "v");
		assert_int_equal(yaml_parse_value(&doc, cases[i].text, strlen(cases[i].text), &e),
				 0);
		assert_int_equal(doc.root->kind, cases[i].kind);
		assert_false(config_errors_any(&e));
		yaml_free(&doc);
		yaml_free(&doc); /* again is harmless */
		config_errors_fini(&e);
	}
}

/* ---- anchors, aliases, merge keys ---- */

static void test_alias_is_the_same_node(void **state)
{
	struct config_check c;
	struct yaml_node *root;

	(void)state;
	root = check_good(&c, "a: &x {k: 1}\nb: *x\nc: &x 2\nd: *x\n*x : key\n");
	assert_ptr_equal(yaml_get(root, "a"), yaml_get(root, "b"));
	/* An anchor given again means the newer one from there on. */
	assert_ptr_equal(yaml_get(root, "c"), yaml_get(root, "d"));
	assert_scalar(yaml_get(root, "2"), "key", false);
	check_fini(&c);
}

static void assert_text_at(const struct yaml_node *map, const char *key, const char *text)
{
	const struct yaml_node *value = yaml_get(map, key);

	assert_non_null(value);
	assert_string_equal(value->text, text);
}

static void test_merge_keys(void **state)
{
	struct config_check c;
	struct yaml_node *root, *m;

	(void)state;
	root = check_good(&c, "a: &a {x: a, y: a}\n"
			      "b: &b {<<: *a, y: b, z: b}\n"
			      "one: {x: own, <<: *b}\n"
			      "list: {<<: [*a, *b, {w: in}], q: own}\n"
			      "text: {'<<': 1}\n"
			      "none: {<<: {}}\n"
			      "first: {<<: *a, x: own}\n");
	m = yaml_get(root, "one");
	assert_int_equal(m->map.nr, 3);
	assert_text_at(m, "x", "own"); /* what the map says itself counts */
	assert_text_at(m, "y", "b");
	assert_text_at(m, "z", "b");
	m = yaml_get(root, "list");
	assert_int_equal(m->map.nr, 5);
	assert_string_equal(m->map.pairs[0].key->text, "q");
	assert_text_at(m, "y", "a"); /* then the first of the merged */
	assert_text_at(m, "w", "in");
	assert_pos(yaml_get(m, "z"), 2, 25); /* a merged value says where it was written */
	assert_text_at(yaml_get(root, "text"), "<<", "1");
	assert_int_equal(yaml_get(root, "none")->map.nr, 0);
	assert_text_at(yaml_get(root, "first"), "x", "own"); /* wherever the << stands */
	check_fini(&c);
}

static void test_bad_aliases_and_merges(void **state)
{
	(void)state;
	check_bad("a: *x\n", "f:1:4: *x: no anchor of this name above\n");
	check_bad("a: *x\nb: &x 1\n", "f:1:4: *x: no anchor of this name above\n");
	check_bad("a: &x\n  b: *x\n", "f:2:6: *x: an alias inside its own anchor has no end\n");
	check_bad("a: &x [[*x]]\n", "f:1:9: *x: an alias inside its own anchor has no end\n");
	check_bad("a: &x {<<: *x}\n", "f:1:12: *x: an alias inside its own anchor has no end\n");
	check_bad("a: &x [1]\n*x : 2\n", "f:2:1: *x: a key must be a text, not a map or a list\n");
	check_bad("a: {<<: 1}\n", "f:1:9: <<: takes a map or a list of maps, as in <<: *anchor\n");
	check_bad("a: {<<: [{}, [1]]}\n",
		  "f:1:14: <<: takes a map or a list of maps, as in <<: *anchor\n");
}

/* ---- what is told, and the tree stays for more ---- */

static void test_duplicate_keys_are_all_told(void **state)
{
	struct config_check c;

	(void)state;
	check_parse(&c, "a: 1\nb: {x: 1, y: 2, x: 3, x: 4}\na: 2\n\"a\": 3\n");
	assert_int_equal(c.ret, -EINVAL);
	check_errors(&c.errors, "f:2:17: key \"x\" is given twice (first on line 2)\n"
				"f:2:23: key \"x\" is given twice (first on line 2)\n"
				"f:3:1: key \"a\" is given twice (first on line 1)\n"
				"f:4:1: key \"a\" is given twice (first on line 1)\n");
	assert_non_null(c.doc.root);
	assert_int_equal(c.doc.root->map.nr, 2);
	assert_text_at(c.doc.root, "a", "1");
	assert_int_equal(yaml_get(c.doc.root, "b")->map.nr, 2);
	check_fini(&c);
}

static void test_tags(void **state)
{
	struct config_check c;

	(void)state;
	check_good(&c, "a: !!int 5\nb: !!str 5\nc: !!map {}\nd: !!seq []\ne: !!null\nf: !!bool y\n"
		       "g: !<tag:yaml.org,2002:str> x\n");
	assert_scalar(yaml_get(c.doc.root, "a"), "5", false);
	assert_scalar(yaml_get(c.doc.root, "b"), "5", true);
	check_fini(&c);

	check_parse(&c, "a: !mem x\nb: !!set {y}\nc: !!map []\nd: !!seq 1\ne: 5\n");
	assert_int_equal(c.ret, -EINVAL);
	check_errors(&c.errors, "f:1:4: the tag !mem is not supported here: leave it out\n"
				"f:2:4: the tag !!set is not supported here: leave it out\n"
				"f:3:4: the tag !!map is not supported here: leave it out\n"
				"f:4:4: the tag !!seq is not supported here: leave it out\n");
	assert_text_at(c.doc.root, "e", "5");
	check_fini(&c);

	check_bad("%TAG !e! tag:x\n---\na: 1\n",
		  "f:1:1: %TAG is not supported: no option needs a tag\n");
	check_bad("%TAG", "f:1:1: %TAG is not supported: no option needs a tag\n");
	check_good(&c, "%YAML 1.1\n---\na: 100 %TAG\n");
	check_fini(&c);
}

static void test_soft_then_fatal_leaves_nothing(void **state)
{
	struct config_check c;

	(void)state;
	check_parse(&c, "a: 1\nb: {x: 1, x: 2}\nc: [\n");
	assert_int_equal(c.ret, -EINVAL);
	assert_null(c.doc.root);
	assert_int_equal(c.doc.all_nr, 0);
	assert_int_equal(c.errors.nr, 2);
	check_fini(&c);
}

/* ---- syntax ---- */

static void test_syntax_errors(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{ "a: 1\n b: 2\n", "f:2:3: \": \" cannot stand here: quote the text, or check the "
				   "indentation\n" },
		{ "a: b: 2\n", "f:1:5: \": \" cannot stand here: quote the text, or check the "
			       "indentation\n" },
		{ "a: 1\nfoo\nb: 2\n", "f:2:1: no \":\" after this key\n" },
		{ "a:\n  b: 1\n c: 2\n", "f:3:2: expected a key: check the indentation and the "
					 "quotes\n" },
		{ "a: 'x'y\n", "f:1:7: expected a key: check the indentation and the quotes\n" },
		{ "a:\n- 1\n-2\nb: 1\n", "f:3:1: no \":\" after this key\n" },
		{ "a:\n  - 1\n  b: 2\n", "f:3:3: expected \"- \": check the indentation\n" },
		{ "a: [1, 2\nb: 3\n", "f:2:2: expected \",\" or \"]\" (of what begins at 1:4)\n" },
		{ "a: [1, 2", "f:2:1: expected \",\" or \"]\" (of what begins at 1:4)\n" },
		{ "a: [,]\n", "f:1:5: expected a value\n" },
		{ "a: {b: 1\nc: 3\n", "f:2:2: expected \",\" or \"}\" (of what begins at 1:4)\n" },
		{ "a: \"x\nb: 1\n", "f:1:4: this quote is never closed\n" },
		{ "a: 'x\n---\nb: 1\n", "f:1:4: this quote is never closed\n" },
		{ "a: 1\n\tb: 2\n", "f:2:1: a tab cannot indent: use spaces\n" },
		{ "a:\n\tb: 2\n", "f:2:1: a tab cannot indent: use spaces\n" },
		{ "a: @x\n", "f:1:4: a text cannot begin with @: quote it\n" },
		{ "\xc3\xa9: `x\n", "f:1:4: a text cannot begin with `: quote it\n" },
		{ "a: - 1\n", "f:1:4: \"- \" cannot stand here: begin the list on a line of its "
			      "own\n" },
		{ "a: 1\n---\nb: 2\n", "f:2:1: a second document: one file holds one\n" },
		{ "a: 1\n...\nb: 2\n", "f:3:1: expected the end of the file\n" },
		{ "- 1\n", "f:1:1: expected a map at the top, as in devices: ...\n" },
		{ "text\n", "f:1:1: expected a map at the top, as in devices: ...\n" },
		{ "a: \"x\\0y\"\n", "f:1:4: a NUL character (\\0) inside the text\n" },
		{ "? [a]\n: 1\n", "f:1:3: a key must be a text, not a map or a list\n" },
		{ "{a: 1}: 1\n", "f:1:1: a key must be a text, not a map or a list\n" },
		{ "a: \"\\q\"\n", "f:1:5: found unknown escape character, while parsing a quoted "
				  "scalar\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_bad(cases[i].text, cases[i].expected);
}

/* What has no map at its top is nothing to go on with. */
static void test_wrong_root_is_not_given_out(void **state)
{
	struct config_check c;

	(void)state;
	check_parse(&c, "[1]\n");
	assert_int_equal(c.ret, -EINVAL);
	assert_null(c.doc.root);
	check_fini(&c);
}

static void test_bad_bytes(void **state)
{
	static const char utf8[] = "f:2:4: invalid UTF-8: save the file as UTF-8\n";
	static const struct {
		const char *bytes, *expected;
		size_t nr;
	} cases[] = {
		{ "\xff", utf8, 0 },
		{ "\x80", utf8, 0 },
		{ "\xc0\x80", utf8, 0 }, /* overlong */
		{ "\xe0\x9f\xbf", utf8, 0 },
		{ "\xf0\x8f\xbf\xbf", utf8, 0 },
		{ "\xed\xa0\x80", utf8, 0 }, /* surrogates */
		{ "\xed\xbf\xbf", utf8, 0 },
		{ "\xf4\x90\x80\x80", utf8, 0 }, /* above U+10FFFF */
		{ "\xf8\x88\x80\x80\x80", utf8, 0 },
		{ "\xc3", utf8, 0 }, /* cut at the end of the text */
		{ "\xe2\x82", utf8, 0 },
		{ "\xf0\x9f\x98", utf8, 0 },
		{ "\xc3x", utf8, 0 },
		{ "\0", "f:2:4: a NUL byte: this is no text file\n", 1 },
		{ "\x1b", "f:2:4: the control character U+001B is not allowed\n", 0 },
		{ "\x7f", "f:2:4: the control character U+007F is not allowed\n", 0 },
		{ "\xc2\x9b", "f:2:4: the control character U+009B is not allowed\n", 0 },
		{ "\xef\xbf\xbf", "f:2:4: the control character U+FFFF is not allowed\n", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t nr = cases[i].nr ? cases[i].nr : strlen(cases[i].bytes);
		char text[32] = "\xc3\xa9: 1\n\xc3\xa9: ";

		memcpy(text + 10, cases[i].bytes, nr);
		check_bad_bytes(text, 10 + nr, cases[i].expected);
	}
	check_bad_bytes("\xff\xfe"
			"a\0:\0 \0b\0",
			10, "f:1:1: UTF-16: save the file as UTF-8\n");
	check_bad_bytes("\xfe\xff\0a", 4, "f:1:1: UTF-16: save the file as UTF-8\n");
}

static void test_all_of_unicode_that_is_allowed(void **state)
{
	struct config_check c;
	const char *text = "a: \"\xc2\xa0\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbd\xf0\x90\x80\x80"
			   "\xf4\x8f\xbf\xbf\"\n";

	(void)state;
	check_good(&c, text);
	check_fini(&c);
	/* CR, CR LF, NEL, LS and PS end a line, here as in libyaml. */
	check_bad("a: 1\r\n\x01", "f:2:1: the control character U+0001 is not allowed\n");
	check_bad("a: 1\r\x01", "f:2:1: the control character U+0001 is not allowed\n");
	check_good(&c, "a: 1\r");
	check_fini(&c);
	check_bad("a: 1\r\nb: 2\rc: 3\xc2\x85"
		  "d: 4\xe2\x80\xa8"
		  "e: 5\xe2\x80\xa9"
		  "f: @\n",
		  "f:6:4: a text cannot begin with @: quote it\n");
	check_bad("a: 1\r\nb: 2\rc: 3\xc2\x85"
		  "d: 4\xe2\x80\xa8"
		  "e: 5\xe2\x80\xa9"
		  "f: \x01\n",
		  "f:6:4: the control character U+0001 is not allowed\n");
}

/* ---- limits ---- */

/* head, unit nr times, tail. */
static char *text_repeat(const char *head, const char *unit, size_t nr, const char *tail)
{
	char *text = malloc(strlen(head) + nr * strlen(unit) + strlen(tail) + 1), *at = text;

	assert_non_null(text);
	at = stpcpy(at, head);
	while (nr-- > 0)
		at = stpcpy(at, unit);
	strcpy(at, tail);
	return text;
}

static void check_repeat(const char *head, const char *unit, size_t nr, const char *tail,
			 const char *expected)
{
	char *text = text_repeat(head, unit, nr, tail);
	struct config_check c;

	check_parse(&c, text);
	check_errors(&c.errors, expected);
	assert_int_equal(c.ret, *expected ? -EINVAL : 0);
	check_fini(&c);
	free(text);
}

static void test_depth_limit(void **state)
{
	char *flow = text_repeat("a: ", "[", YAML_DEPTH_MAX - 1, "");
	char *good = text_repeat(flow, "]", YAML_DEPTH_MAX - 1, "\n");
	struct config_check c;

	(void)state;
	check_good(&c, good);
	check_fini(&c);
	free(good);
	free(flow);
	check_repeat("a: ", "[", YAML_DEPTH_MAX, "",
		     "f:1:83: nested too deep (at most 80 levels)\n");
	check_repeat("", "- ", YAML_DEPTH_MAX + 1, "x",
		     "f:1:161: nested too deep (at most 80 levels)\n");
	check_repeat("a: ", "{a: ", YAML_DEPTH_MAX, "",
		     "f:1:320: nested too deep (at most 80 levels)\n");
}

#define TEN_OF "[[[[[[[[[["
#define TEN_ENDS "]]]]]]]]]]"

/* An alias brings the levels of what it stands for. */
static void test_depth_limit_counts_aliases(void **state)
{
	struct config_check c;

	(void)state;
	check_good(&c, "a: &a " TEN_OF "1" TEN_ENDS "\n"
		       "b: &b " TEN_OF TEN_OF TEN_OF "*a" TEN_ENDS TEN_ENDS TEN_ENDS "\n"
		       "c: [" TEN_OF TEN_OF TEN_OF "[[[[[[[[*b]]]]]]]]" TEN_ENDS TEN_ENDS TEN_ENDS
		       "]\n");
	check_fini(&c);
	check_bad("a: &a " TEN_OF "1" TEN_ENDS "\n"
		  "b: &b " TEN_OF TEN_OF TEN_OF "*a" TEN_ENDS TEN_ENDS TEN_ENDS "\n"
		  "c: " TEN_OF TEN_OF TEN_OF TEN_OF "*b" TEN_ENDS TEN_ENDS TEN_ENDS TEN_ENDS "\n",
		  "f:3:44: *b: nested too deep with what the alias stands for (at most 80 "
		  "levels)\n");
	/* An empty list is a level too; a text is none. */
	check_repeat("a: &a []\nb: ", "[", 79, "*a",
		     "f:2:83: *a: nested too deep with what the alias stands for (at most 80 "
		     "levels)\n");
	check_good(&c, "a: &a x\nb: " TEN_OF TEN_OF TEN_OF TEN_OF TEN_OF TEN_OF TEN_OF
		       "[[[[[[[[[*a]]]]]]]]]" TEN_ENDS TEN_ENDS TEN_ENDS TEN_ENDS TEN_ENDS TEN_ENDS
			       TEN_ENDS "\n");
	check_fini(&c);
}

#define TOO_LARGE "too large: above 100000 values, each alias counted with all it stands for\n"

static void test_node_limit_is_exact(void **state)
{
	(void)state;
	/* The map, the key, the list, and one node per item. */
	check_repeat("a:\n", "- x\n", YAML_NODES_MAX - 3, "", "");
	check_repeat("a:\n", "- x\n", YAML_NODES_MAX - 2, "", "f:99999:3: " TOO_LARGE);
	check_repeat("a:\n", "- []\n", YAML_NODES_MAX - 2, "", "f:99999:3: " TOO_LARGE);
	/* The map, a, its list of 97 (98 nodes), b, the list: then 98 for each alias. */
	check_repeat("a: &a [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\nb:\n",
		     "- *a\n", 1019, "", "");
	check_repeat("a: &a [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\nb:\n",
		     "- *a\n", 1020, "", "f:1022:3: " TOO_LARGE);
}

/* A long text counts for what copying it at each alias would cost. */
static void test_node_limit_counts_text(void **state)
{
	char *head = text_repeat("a: &a ", "x", 9999 * YAML_NODE_TEXT_BYTES, "\nb:\n");

	(void)state;
	check_repeat(head, "- *a\n", 8, "", "");
	check_repeat(head, "- *a\n", 9, "", "f:11:3: " TOO_LARGE);
	free(head);
}

static void test_white_space_limit(void **state)
{
	(void)state;
	check_repeat("a:", " ", 1024, "b", "");
	check_repeat("a:", " ", 1025, "b",
		     "f:1:1028: more than 1024 spaces or empty lines in a row\n");
	check_repeat("a: 1", "\n", 1025, "b: 2",
		     "f:1026:1: more than 1024 spaces or empty lines in a row\n");
	check_repeat("a: 1", "\n \t\n", 300, "",
		     "f:514:1: more than 1024 spaces or empty lines in a row\n");
	/* Comments are no white space: a long block of them is a usual thing. */
	check_repeat("", "#                                        x\n", 5000, "a: 1\n", "");
}

static void test_size_limit(void **state)
{
	(void)state;
	check_repeat("# ", "x", YAML_FILE_BYTES_MAX - 2, "", "");
	check_repeat("# ", "x", YAML_FILE_BYTES_MAX - 1, "",
		     "f: larger than 4 MiB: this is no configuration\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree_and_positions),
		cmocka_unit_test(test_scalars_keep_their_text),
		cmocka_unit_test(test_null_is_plain_only),
		cmocka_unit_test(test_empty_documents_are_empty_maps),
		cmocka_unit_test(test_byte_order_mark_moves_no_position),
		cmocka_unit_test(test_value_of_any_kind),
		cmocka_unit_test(test_alias_is_the_same_node),
		cmocka_unit_test(test_merge_keys),
		cmocka_unit_test(test_bad_aliases_and_merges),
		cmocka_unit_test(test_duplicate_keys_are_all_told),
		cmocka_unit_test(test_tags),
		cmocka_unit_test(test_soft_then_fatal_leaves_nothing),
		cmocka_unit_test(test_syntax_errors),
		cmocka_unit_test(test_wrong_root_is_not_given_out),
		cmocka_unit_test(test_bad_bytes),
		cmocka_unit_test(test_all_of_unicode_that_is_allowed),
		cmocka_unit_test(test_depth_limit),
		cmocka_unit_test(test_depth_limit_counts_aliases),
		cmocka_unit_test(test_node_limit_is_exact),
		cmocka_unit_test(test_node_limit_counts_text),
		cmocka_unit_test(test_white_space_limit),
		cmocka_unit_test(test_size_limit),
	};

	return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
