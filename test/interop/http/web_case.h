/* What checks of the http backend against http_server.py have beside fault_case.h. */
#ifndef TEST_WEB_CASE_H
#define TEST_WEB_CASE_H

#include "test/interop/fault_case.h"

/* The server, with these arguments, NULL at the end; may be NULL. */
void web_serve(struct fault_case *c, const char *const *args);
/* A store that can be written, s3_store.py. */
void web_serve_store(struct fault_case *c);
/* A command of its control socket. */
void web_tell(struct fault_case *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint64_t web_count(struct fault_case *c, const char *name);

/* The device on it, with these options beside `url`, a line each; and the model of what it holds.
 */
bool web_open_case(struct fault_case *c, const char *options, unsigned queue_nr);
bool web_open_url(struct fault_case *c, const char *url, const char *options, unsigned queue_nr);
/* It cannot be opened: the error matches the words (POSIX extended regular expression). */
void web_refused(struct fault_case *c, const char *url, const char *options, const char *words);

/* The same of a backend with all of its options. */
bool web_open_backend(struct fault_case *c, const char *backend, const char *yaml,
		      unsigned queue_nr);
void web_backend_refused(struct fault_case *c, const char *backend, const char *yaml,
			 const char *words);

/* A file that nobody else may read, in the server's folder. */
void web_write_secret(struct fault_case *c, const char *name, const char *text, char path[200]);

/* READs of all of it, in any order: all must succeed with the right bytes, and break no rule. */
void web_works(struct fault_case *c);

void web_answers_run(uint64_t seed);
void web_cache_run(uint64_t seed);
void web_outages_run(uint64_t seed);
void web_opens_run(uint64_t seed);
void s3_run(uint64_t seed);
void s3_disk_run(uint64_t seed);
void s3_disk_lists_run(uint64_t seed);
void s3_disk_leases_run(uint64_t seed);

#endif
