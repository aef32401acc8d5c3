/*
 * What the images and caches of a device say of themselves, as JSON. Main thread; reads live
 * counters of the reactors. Failure mode: out of memory makes parts of the answer null.
 */
#include "daemon/api/json_image.h"

#include "base/util.h"
#include "daemon/wire/json_words.h"
#include "ublk/device/inflight.h"

static json_t *image_tables(const struct backend_image_look *look)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:b}", "slices", (json_int_t)look->slice_nr,
			 "slices_max", (json_int_t)look->slice_max, "slice_bytes",
			 (json_int_t)look->slice_bytes, "misses", (json_int_t)look->misses, "dirty",
			 look->is_dirty);
}

static void set_image_numbers(json_t *object, const struct backend_image_look *look)
{
	const struct {
		const char *key;
		uint64_t value;
	} field[] = {
		{ "size_bytes", look->size_bytes }, { "cluster_bytes", look->cluster_bytes },
		{ "end_bytes", look->end_bytes },   { "allocated_clusters", look->allocations },
		{ "copies", look->copies },	    { "compressed_reads", look->unpacked },
	};

	for (size_t i = 0; i < ARRAY_SIZE(field); i++)
		json_object_set_new(object, field[i].key, json_integer((json_int_t)field[i].value));
}

static json_t *json_image(const struct backend_image_look *look)
{
	json_t *all = json_pack("{s:s, s:s, s:o?, s:i, s:b}", "node", look->node, "format",
				look->format, "file", look->file ? json_words(look->file) : NULL,
				"depth", (int)look->depth, "read_only", look->is_read_only);

	if (look->is_repeated)
		json_object_set_new(all, "repeated", json_true());
	set_image_numbers(all, look);
	json_object_set_new(all, "stored_bytes",
			    look->has_stored ? json_integer((json_int_t)look->stored_bytes)
					     : json_null());
	json_object_set_new(all, "tables", image_tables(look));
	return all;
}

json_t *json_images(const struct device *device)
{
	struct backend_image_look look;
	json_t *all = NULL;

	for (unsigned i = 0; device_image(device, i, &look); i++) {
		if (!all)
			all = json_array();
		json_array_append_new(all, json_image(&look));
	}
	return all;
}

/* The part of the bytes read that came from the store; null: nothing was read. */
static json_t *hit_ratio(const struct backend_cache_look *look)
{
	double all = (double)look->hit_bytes + (double)look->miss_bytes;

	return all > 0 ? json_real((double)look->hit_bytes / all) : json_null();
}

static json_t *json_cache(const struct backend_cache_look *look)
{
	json_t *all = json_pack("{s:s, s:s, s:b}", "node", look->node, "mode", look->mode, "off",
				look->is_off);
	const struct {
		const char *key;
		uint64_t value;
	} field[] = {
		{ "block_bytes", look->block_bytes },
		{ "blocks", look->block_nr },
		{ "used_blocks", look->used_nr },
		{ "dirty_bytes", look->dirty_bytes },
		{ "hits", look->hits },
		{ "misses", look->misses },
		{ "hit_bytes", look->hit_bytes },
		{ "miss_bytes", look->miss_bytes },
		{ "filled_bytes", look->filled_bytes },
		{ "passed_by", look->passed_by },
		{ "prefetched_blocks", look->prefetched },
		{ "evicted_blocks", look->evicted },
		{ "cleaned_bytes", look->cleaned_bytes },
		{ "moved_bytes", look->moved_bytes },
	};

	for (size_t i = 0; i < ARRAY_SIZE(field); i++)
		json_object_set_new(all, field[i].key, json_integer((json_int_t)field[i].value));
	json_object_set_new(all, "hit_ratio", hit_ratio(look));
	if (look->is_repeated)
		json_object_set_new(all, "repeated", json_true());
	return all;
}

json_t *json_caches(const struct device *device)
{
	struct backend_cache_look look;
	json_t *all = NULL;

	for (unsigned i = 0; device_cache(device, i, &look); i++) {
		if (!all)
			all = json_array();
		json_array_append_new(all, json_cache(&look));
	}
	return all;
}
