/* What node_io.c does for the word `snapshot`: a part of that file. */
#ifndef TEST_NODE_SNAPSHOT_H
#define TEST_NODE_SNAPSHOT_H

static int snapshot_ret; /* 1: the change goes on */

static void on_changed(struct backend_snapshot_change *change, int ret)
{
	(void)change;
	snapshot_ret = ret;
}

static enum backend_snapshot_op snapshot_op(const char *word)
{
	if (word && strcmp(word, "create") == 0)
		return BACKEND_SNAPSHOT_CREATE;
	if (word && strcmp(word, "apply") == 0)
		return BACKEND_SNAPSHOT_APPLY;
	if (!word || strcmp(word, "delete") != 0)
		die("snapshot: create, delete or apply");
	return BACKEND_SNAPSHOT_DELETE;
}

static void write_meanwhile(struct prng *prng)
{
	uint64_t blocks = model.size_bytes / model.block_bytes, at = prng_below(prng, blocks);
	uint64_t nr = MIN(1 + prng_below(prng, 200), blocks - at);

	if (at < blocks / 2)
		nr = MIN(nr, blocks / 2 - at);
	start(BACKEND_WRITE, 0, at * model.block_bytes, nr * model.block_bytes,
	      at < blocks / 2 ? SAME_BYTES : prng_next(prng));
}

static void do_snapshot(char *const *word)
{
	struct reactor_params reactor_params = { .sq_entries = 32, .cq_entries = 128 };
	struct backend_snapshot_change change = { .op = snapshot_op(word[1]),
						  .name = word[2] ? word[2] : "",
						  .reactor = &rig.home,
						  .done = on_changed };
	uint64_t left = word[3] ? number(word[4]) : 0;
	struct backend_device *node;
	struct prng prng;
	int ret = reactor_init(&rig.home, &reactor_params);

	prng_init(&prng, word[3] ? number(word[3]) : 1);
	snapshot_ret = 1;
	node = backend_snapshots_node(rig.device, NULL, change.words, sizeof(change.words));
	if (ret == 0)
		ret = node ? node->ops->snapshots->begin(node, &change) : -EOPNOTSUPP;
	if (ret < 0)
		die("snapshot %s: %s (%s)", word[2], change.words, errname(ret));
	for (; snapshot_ret > 0 || left > 0; left -= left > 0) {
		if (left > 0)
			write_meanwhile(&prng);
		reactor_turn(&rig.home, false);
		rig_turn(&rig);
	}
	rig_drain(&rig);
	reactor_fini(&rig.home);
	if (snapshot_ret < 0)
		die("snapshot %s: %s (%s)", word[2], change.words, errname(snapshot_ret));
}

#endif
