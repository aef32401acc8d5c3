/* The NBD handshake with servers that keep to the protocol, of all ages. */
#include <errno.h>

#include "test/rig/nbd_handshake_case.h"

static void test_go(void **state)
{
	static const uint8_t go[] = {
		'I', 'H', 'A', 'V', 'E', 'O', 'P', 'T', 0,   0, 0, 7, 0, 0, 0,
		14,  0,	  0,   0,   4,	 'd', 'i', 's', 'k', 0, 2, 0, 3, 0, 1
	};
	const uint8_t *out;
	size_t bytes;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_best(&clear);
	add_info_text(&clear, NBD_OPT_GO, NBD_INFO_NAME, "d\x1b[2Jk");
	add_info_block_size(&clear, NBD_OPT_GO, 4096, 65536, 1u << 25);
	add_info_text(&clear, NBD_OPT_GO, 77, "of a later protocol");
	add_info_export(&clear, NBD_OPT_GO, GIB(3), FLAGS | NBD_FLAG_SEND_DF);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	/* The transmission phase is somebody else's. */
	add_text(&clear, "more");
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	assert_int_equal(used_bytes, clear.nr - 4);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_SET_META_CONTEXT, NBD_OPT_GO);
	bytes = nbd_handshake_output(&h, &out);
	assert_int_equal(be_get32(out), BOTH);
	assert_memory_equal(out + bytes - sizeof(go), go, sizeof(go));
	assert_true(h.export.size_bytes == GIB(3));
	assert_int_equal(h.export.flags, FLAGS | NBD_FLAG_SEND_DF);
	assert_true(h.export.extended && h.export.structured && h.export.has_meta);
	assert_int_equal(h.export.meta_context, 7);
	assert_true(h.export.has_block_sizes);
	assert_int_equal(h.export.min_block_bytes, 4096);
	assert_int_equal(h.export.preferred_block_bytes, 65536);
	assert_int_equal(h.export.max_payload_bytes, 1u << 25);
	assert_string_equal(h.export.name, "d\\x1b[2Jk");
	assert_false(h.export.by_name || h.export.tls);
}

/* Output may be sent in pieces while answers come: what was said stays where it is. */
static void test_output_in_pieces(void **state)
{
	const uint8_t *first, *later;
	size_t used, bytes;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	nbd_handshake_init(&h, &config);
	assert_int_equal(nbd_handshake_output(&h, &first), 0);
	nbd_handshake_feed(&h, clear.at, clear.nr, &used);
	bytes = nbd_handshake_output(&h, &first);
	assert_int_equal(bytes, 20);
	clear.nr = 0;
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 0);
	nbd_handshake_feed(&h, clear.at, clear.nr, &used);
	nbd_handshake_sent(&h, 7);
	assert_int_equal(nbd_handshake_output(&h, &later), 20 - 7 + 16);
	assert_ptr_equal(later, first + 7);
	nbd_handshake_sent(&h, 29);
	assert_int_equal(nbd_handshake_output(&h, &later), 0);
}

static void test_structured(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 3);
	add_text(&clear, "no!");
	add_rep(&clear, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, 0);
	/* What came before an error does not count. */
	add_context(&clear, 7, NBD_META_ALLOCATION);
	add_rep(&clear, NBD_OPT_SET_META_CONTEXT, NBD_REP_ERR_POLICY, 0);
	add_info_export(&clear, NBD_OPT_GO, 512, FLAGS | NBD_FLAG_SEND_FAST_ZERO);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY, NBD_OPT_SET_META_CONTEXT,
	     NBD_OPT_GO);
	assert_true(h.export.structured && !h.export.extended && !h.export.has_meta);
	assert_int_equal(h.export.flags, FLAGS);
	assert_false(h.export.has_block_sizes);
	assert_int_equal(h.export.min_block_bytes, 512);
	assert_int_equal(h.export.max_payload_bytes, 32u << 20);
}

static void test_not_wanted(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	config.no_extended = config.no_structured = true;
	add_info_export(&clear, NBD_OPT_GO, 512, FLAGS | NBD_FLAG_SEND_DF);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_GO);
	assert_int_equal(h.export.flags, FLAGS);
	start(NBD_HANDSHAKE_GO);
	config.no_meta = true;
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_MORE);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_GO);
}

static void test_export_name(void **state)
{
	(void)state;
	/* fixed newstyle, without GO */
	start(NBD_HANDSHAKE_GO);
	add_worst(&clear);
	add_rep(&clear, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	add64(&clear, MIB(5));
	add16(&clear, FLAGS);
	add_text(&clear, "x");
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	assert_int_equal(used_bytes, clear.nr - 1);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY, NBD_OPT_GO, NBD_OPT_EXPORT_NAME);
	assert_true(h.export.by_name && h.export.size_bytes == MIB(5));
	assert_false(h.export.structured || h.export.has_block_sizes);
	/* not even fixed newstyle, and with the zeroes */
	start(NBD_HANDSHAKE_GO);
	clear.nr = 0;
	add_greeting(&clear, 0);
	add64(&clear, MIB(6));
	add16(&clear, FLAGS);
	add_fill(&clear, 0, 123);
	assert_int_equal(run(), NBD_HANDSHAKE_MORE);
	add_fill(&clear, 0, 2);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	assert_int_equal(used_bytes, clear.nr - 1);
	SAID(NBD_OPT_EXPORT_NAME);
	assert_int_equal(be_get32(h.out), 0);
	assert_true(h.export.by_name && h.export.size_bytes == MIB(6));
}

static void test_info(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_INFO);
	add_best(&clear);
	add_info_export(&clear, NBD_OPT_INFO, 512, FLAGS);
	add_info_text(&clear, NBD_OPT_INFO, NBD_INFO_DESCRIPTION, "of \xff people");
	add_rep(&clear, NBD_OPT_INFO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_EXTENDED_HEADERS, NBD_OPT_SET_META_CONTEXT, NBD_OPT_INFO, NBD_OPT_ABORT);
	assert_string_equal(h.export.description, "of \\xff people");
}

static void test_list(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_LIST);
	add_server(&clear, "a", "first");
	add_server(&clear, "", "");
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_LIST, NBD_OPT_ABORT);
	assert_string_equal(exports, "a(first) () ");
	/* A server that does not tell. */
	start(NBD_HANDSHAKE_LIST);
	add_rep(&clear, NBD_OPT_LIST, NBD_REP_ERR_POLICY, 0);
	run_to_failure(-EACCES, "LIST: forbidden");
	SAID(NBD_OPT_LIST, NBD_OPT_ABORT);
}

static void test_tls(void **state)
{
	(void)state;
	start(NBD_HANDSHAKE_GO);
	config.tls = true;
	add_rep(&clear, NBD_OPT_STARTTLS, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_MORE);
	add_best(&tls);
	add_info_export(&tls, NBD_OPT_GO, 512, FLAGS);
	add_rep(&tls, NBD_OPT_GO, NBD_REP_ACK, 0);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_STARTTLS, NBD_OPT_EXTENDED_HEADERS, NBD_OPT_SET_META_CONTEXT, NBD_OPT_GO);
	assert_true(h.export.tls);
}

/* Refused, with whatever error: nothing more is said in clear text. */
static void test_tls_refused(void **state)
{
	static const uint32_t reps[] = { NBD_REP_ERR_UNSUP, NBD_REP_ERR_POLICY,
					 NBD_REP_ERR_PLATFORM, NBD_REP_ERR_TLS_REQD, 0x80001234 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(reps); i++) {
		start(NBD_HANDSHAKE_GO);
		config.tls = true;
		add_rep(&clear, NBD_OPT_STARTTLS, reps[i], 2);
		add_text(&clear, "no");
		run_to_failure(-EACCES, "it says: \"no\"");
		SAID(NBD_OPT_STARTTLS);
	}
	start(NBD_HANDSHAKE_GO);
	config.tls = true;
	clear.nr = 0;
	add_greeting(&clear, NBD_FLAG_NO_ZEROES);
	run_to_failure(-EACCES, "too old for TLS");
	assert_int_equal(h.out_bytes, 0);
}

static void test_tls_injection(void **state)
{
	size_t used;

	(void)state;
	start(NBD_HANDSHAKE_GO);
	config.tls = true;
	add_rep(&clear, NBD_OPT_STARTTLS, NBD_REP_ACK, 0);
	add_rep(&clear, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ACK, 0);
	nbd_handshake_init(&h, &config);
	assert_int_equal(nbd_handshake_feed(&h, clear.at, clear.nr, &used), NBD_HANDSHAKE_FAILED);
	assert_non_null(strstr(h.error, "clear text behind"));
	assert_int_equal(h.err, -EPROTO);
	SAID(NBD_OPT_STARTTLS);
}

static void test_longest_name(void **state)
{
	static char name[NBD_STRING_BYTES_MAX + 1];

	(void)state;
	memset(name, 'n', NBD_STRING_BYTES_MAX);
	start(NBD_HANDSHAKE_GO);
	config.export_name = name;
	config.tls = true;
	add_rep(&clear, NBD_OPT_STARTTLS, NBD_REP_ACK, 0);
	add_rep(&tls, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_UNSUP, 0);
	add_rep(&tls, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, 0);
	add_rep(&tls, NBD_OPT_SET_META_CONTEXT, NBD_REP_ERR_UNSUP, 0);
	add_rep(&tls, NBD_OPT_GO, NBD_REP_ERR_UNSUP, 0);
	add64(&tls, 512);
	add16(&tls, FLAGS);
	assert_int_equal(run(), NBD_HANDSHAKE_DONE);
	SAID(NBD_OPT_STARTTLS, NBD_OPT_EXTENDED_HEADERS, NBD_OPT_STRUCTURED_REPLY,
	     NBD_OPT_SET_META_CONTEXT, NBD_OPT_GO, NBD_OPT_EXPORT_NAME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_go),	     cmocka_unit_test(test_output_in_pieces),
		cmocka_unit_test(test_structured),   cmocka_unit_test(test_not_wanted),
		cmocka_unit_test(test_export_name),  cmocka_unit_test(test_info),
		cmocka_unit_test(test_list),	     cmocka_unit_test(test_tls),
		cmocka_unit_test(test_tls_refused),  cmocka_unit_test(test_tls_injection),
		cmocka_unit_test(test_longest_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
