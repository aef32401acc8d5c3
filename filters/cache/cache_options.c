/* Options of cache in the configuration. */
#include "filters/cache/cache.h"

#include "base/util.h"

static const char *const cache_modes[] = { "auto", "readthrough", "writethrough", "writeback",
					   NULL };

const struct option cache_options[] = {
	{ .name = "mode",
	  .type = OPTION_ENUM,
	  .offset = offsetof(struct cache_config, mode),
	  .values = cache_modes,
	  .def = "auto",
	  .help = "readthrough: what is read is kept, and writes only keep up to date what is "
		  "there. "
		  "writethrough: what is written is kept too. In both, a write is complete when "
		  "the "
		  "origin has it, and losing the store loses nothing. writeback: a write is "
		  "complete "
		  "when the store has it, a flush makes it durable there, and the origin gets it "
		  "later: losing the store loses data. auto: readthrough of what is read-only, "
		  "else "
		  "writethrough." },
	{ .name = "block",
	  .type = OPTION_SIZE,
	  .offset = offsetof(struct cache_config, block_bytes),
	  .min = CACHE_BLOCK_BYTES_MIN,
	  .max = CACHE_BLOCK_BYTES_MAX,
	  .def = "64KiB",
	  .flags = OPTION_POWER_OF_TWO,
	  .help = "The unit in which space in the store is given away. Each takes 112 bytes of "
		  "memory. Parts of 4 KiB of a block are kept one by one. When it is changed, what "
		  "the store holds is dropped." },
	{ .name = "prefetch",
	  .type = OPTION_UINT,
	  .offset = offsetof(struct cache_config, prefetch),
	  .max = 64,
	  .def = "4",
	  .help = "So many blocks are fetched ahead of reads that go on where another one has "
		  "ended. "
		  "0: none." },
	{ .name = "origin_id",
	  .type = OPTION_STRING,
	  .offset = offsetof(struct cache_config, origin_id),
	  .min = 1,
	  .max = 100,
	  .def = "auto",
	  .help = "Whose bytes these are: what the store holds is used again when this and the "
		  "size "
		  "of the origin are what they were. auto: what the backend says of itself, as its "
		  "address, or a file's inode; of a block device it changes with each boot. Give a "
		  "name of your own where that is too much or too little, and change it when "
		  "somebody else has written to the origin." },
	{ .name = "dirty_max",
	  .type = OPTION_RATIO,
	  .offset = offsetof(struct cache_config, dirty_max),
	  .def = "50%",
	  .help = "With writeback, the part of the store's blocks that the origin may lack. From "
		  "half "
		  "of it on they are written without delay; writes wait at the end of it." },
	{ .name = "dirty_time",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct cache_config, clean_ns),
	  .min = NS_PER_MS,
	  .def = "5s",
	  .help = "With writeback, how long a written block may wait before it is written to the "
		  "origin." },
	{ .name = "commit_time",
	  .type = OPTION_DURATION,
	  .offset = offsetof(struct cache_config, commit_ns),
	  .min = 1,
	  .def = "5s",
	  .flags = OPTION_HIDDEN,
	  .help = "How long the index on the store may lack what nobody waits for." },
	OPTION_END,
};
