/* What s3_options.c and s3_open.c share. */
#ifndef BACKENDS_HTTP_S3_CONFIG_H
#define BACKENDS_HTTP_S3_CONFIG_H

#include "backends/http/s3_target.h"
#include "backends/http/web.h"

/* The configuration's. Returns 0, or -EINVAL with words. Any thread. */
int s3_config_target(const struct s3_config *config, struct s3_target *ret_target, char *error,
		     size_t error_bytes);

#endif
