/* What s3_options.c, s3_open.c and disks of many objects (backends/s3_disk) share. */
#ifndef BACKENDS_HTTP_S3_CONFIG_H
#define BACKENDS_HTTP_S3_CONFIG_H

#include "backends/http/s3_target.h"
#include "backends/http/web.h"
#include "config/refusal.h"

/* The configuration's. Returns 0, or -EINVAL with words. Any thread. */
int s3_config_target(const struct s3_config *config, struct s3_target *ret_target, char *error,
		     size_t error_bytes);

/* What the option table cannot say. Returns 0, or -EINVAL with key and words. Main thread. */
int s3_judge_server(const struct s3_server_config *config, struct config_refusal *refusal);

#endif
