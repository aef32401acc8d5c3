/* The NBD handshake with servers that refuse, go away, or break the protocol. */
#include <errno.h>

#include "test/rig/nbd_handshake_case.h"

static void test_refusals(void **state)
{
	static const struct {
		uint32_t rep;
		int err;
		const char *words;
	} cases[] = {
		{ NBD_REP_ERR_UNKNOWN, -ENOENT, "GO \"disk\": there is no such export" },
		{ NBD_REP_ERR_TLS_REQD, -EACCES, "write nbds" },
		{ NBD_REP_ERR_POLICY, -EACCES, "forbidden" },
		{ NBD_REP_ERR_SHUTDOWN, -ESHUTDOWN, "shutting down" },
		{ NBD_REP_ERR_EXT_HEADER_REQD, -EOPNOTSUPP, "extended headers" },
		{ 0x8000ffff, -EPROTO, "without a name (0x8000ffff)" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		start(NBD_HANDSHAKE_GO);
		add_worst(&clear);
		add_rep(&clear, NBD_OPT_GO, cases[i].rep, 0);
		run_to_failure(cases[i].err, cases[i].words);
		SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY, NBD_OPT_GO, NBD_OPT_ABORT);
		assert_null(strstr(h.error, "it says"));
	}
	/* What forces TLS says so at once; with extended headers there is no EXPORT_NAME. */
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_TLS_REQD, 0);
	run_to_failure(-EACCES, "write nbds");
	start(NBD_HANDSHAKE_GO);
	add_best(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	run_to_failure(-EOPNOTSUPP, "does not know");
	start(NBD_HANDSHAKE_INFO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_INFO, NBD_REP_ERR_UNSUP, 0);
	run_to_failure(-EOPNOTSUPP, "INFO \"disk\"");
}

static void test_texts_of_the_server(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, 8200);
	add_fill(&clear, 0x1b, 8200);
	run_to_failure(-ENOENT, "\\x1b\\x1b...\"");
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, 8201);
	run_to_failure(-EPROTO, "above the limit of 8200");
}

/* Each is put where the answers to EXTENDED_HEADERS, GO or LIST are expected. */
static void test_hostile(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	memcpy(clear.at, "HTTP/1.1", 8);
	run_to_failure(-EPROTO, "no NBD server");
	start(NBD_HANDSHAKE_GO);
	be_put64(clear.at + 8, NBD_OLDSTYLE_MAGIC);
	run_to_failure(-EOPNOTSUPP, "oldstyle");
	start(NBD_HANDSHAKE_GO);
	clear.at[15] ^= 1;
	run_to_failure(-EPROTO, "unknown magic");
	start(NBD_HANDSHAKE_LIST);
	clear.nr = 0;
	add_greeting(&clear, 0);
	run_to_failure(-EOPNOTSUPP, "too old to tell");

	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	clear.at[18] ^= 1;
	run_to_failure(-EPROTO, "wrong magic");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	run_to_failure(-EPROTO, "asked for EXTENDED_HEADERS, the server answers to GO");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 1);
	run_to_failure(-EPROTO, "ACK");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_INFO, 0);
	run_to_failure(-EPROTO, "reply of type INFO");
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, 99, UINT32_MAX);
	run_to_failure(-EPROTO, "4294967295 bytes");
}

static void bad_go(void)
{
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
}

static void test_hostile_infos(void **state)
{
	static const uint32_t sizes[][3] = {
		{ 0, 4096, 65536 },  { 3, 4096, 65536 },   { 131072, 131072, 131072 },
		{ 512, 256, 65536 }, { 4096, 512, 65536 }, { 512, 4095, 65536 },
		{ 512, 4096, 4095 },
	};

	(void)state;
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	run_to_failure(-EPROTO, "without saying its size");
	bad_go();
	add_info_export(&clear, NBD_OPT_GO, 1ull << 63, FLAGS);
	run_to_failure(-EPROTO, "9223372036854775808 bytes");
	bad_go();
	add_info_export(&clear, NBD_OPT_GO, 512, NBD_FLAG_SEND_FLUSH);
	run_to_failure(-EPROTO, "without HAS_FLAGS");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 1);
	add_fill(&clear, 0, 1);
	run_to_failure(-EPROTO, "of 1 bytes");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 11);
	add_fill(&clear, 0, 11);
	run_to_failure(-EPROTO, "INFO_EXPORT of 11 bytes");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 15);
	add16(&clear, NBD_INFO_BLOCK_SIZE);
	add_fill(&clear, 0, 13);
	run_to_failure(-EPROTO, "INFO_BLOCK_SIZE of 15 bytes");
	bad_go();
	add_rep(&clear, NBD_OPT_GO, NBD_REP_INFO, 2 + 4097);
	add16(&clear, NBD_INFO_NAME);
	add_fill(&clear, 'a', 4097);
	run_to_failure(-EPROTO, "a text of 4099 bytes");
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		bad_go();
		add_info_block_size(&clear, NBD_OPT_GO, sizes[i][0], sizes[i][1], sizes[i][2]);
		run_to_failure(-EPROTO, "block sizes that cannot be");
	}
	bad_go();
	for (unsigned i = 0; i <= NBD_HANDSHAKE_REPLIES_MAX; i++)
		add_info_text(&clear, NBD_OPT_GO, 77, "");
	run_to_failure(-EPROTO, "does not end its answer to GO: more than 64");
}

static void test_hostile_contexts(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		start(NBD_HANDSHAKE_GO);
		add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
		if (i == 0) {
			add_context(&clear, 1, "qemu:dirty\n");
			run_to_failure(-EPROTO, "\"qemu:dirty\\x0a\" unasked");
		} else if (i == 1) {
			add_context(&clear, 1, NBD_META_ALLOCATION);
			add_context(&clear, 2, NBD_META_ALLOCATION);
			run_to_failure(-EPROTO, "twice");
		} else if (i == 2) {
			add_rep(&clear, NBD_OPT_SET_META_CONTEXT, NBD_REP_META_CONTEXT, 3);
			add_fill(&clear, 0, 3);
			run_to_failure(-EPROTO, "of 3 bytes");
		} else {
			/* None selected is no error. */
			add_rep(&clear, NBD_OPT_SET_META_CONTEXT, NBD_REP_ACK, 0);
			assert_int_equal(run(), NBD_HANDSHAKE_MORE);
			assert_false(h.export.has_meta);
		}
	}
}

static void test_hostile_lists(void **state)
{
	size_t used;

	(void)state;
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_SERVER, 3);
	add_fill(&clear, 0, 3);
	run_to_failure(-EPROTO, "of 3 bytes");
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_SERVER, 6);
	add32(&clear, 3);
	add_text(&clear, "ab");
	run_to_failure(-EPROTO, "a name of 3 bytes in a reply of 6");
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_SERVER, 4 + 4097);
	add32(&clear, 4097);
	add_fill(&clear, 'a', 4097);
	run_to_failure(-EPROTO, "of 4101 bytes");
	/* Without end. */
	start(NBD_HANDSHAKE_LIST);
	nbd_handshake_init(&h, &config);
	nbd_handshake_feed(&h, clear.at, clear.nr, &used);
	clear.nr = 0;
	add_server(&clear, "", "");
	for (unsigned i = 0; i < NBD_HANDSHAKE_EXPORTS_MAX; i++)
		assert_int_equal(nbd_handshake_feed(&h, clear.at, clear.nr, &used),
				 NBD_HANDSHAKE_MORE);
	assert_int_equal(nbd_handshake_feed(&h, clear.at, clear.nr, &used), NBD_HANDSHAKE_FAILED);
	assert_non_null(strstr(h.error, "more than 4096"));
}

static void eof_after(size_t bytes, const char *words)
{
	struct prng p;
	size_t all = clear.nr;

	prng_init(&p, 1);
	clear.nr = bytes;
	feed_all(&p, 8);
	assert_int_equal(nbd_handshake_eof(&h), NBD_HANDSHAKE_FAILED);
	if (!strstr(h.error, words))
		fail_msg("after %zu: %s", bytes, h.error);
	clear.nr = all;
}

/* The server goes at every byte; each time there are words for it. */
static void test_eof(void **state)
{
	size_t at;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	eof_after(0, "without a greeting");
	for (at = 1; at < 18; at++)
		eof_after(at, "in the middle of its greeting");
	for (; at < 38; at++)
		eof_after(at, "asked for EXTENDED_HEADERS");
	for (; at < 58; at++)
		eof_after(at, "asked for STRUCTURED_REPLY");
	for (; at < 78; at++)
		eof_after(at, "asked for GO");
	eof_after(78, "it has none of that name");
	assert_int_equal(h.err, -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_texts_of_the_server),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_hostile_infos),
		cmocka_unit_test(test_hostile_contexts),
		cmocka_unit_test(test_hostile_lists),
		cmocka_unit_test(test_eof),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
