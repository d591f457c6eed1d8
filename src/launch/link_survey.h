/* A survey of the links between the hosts of a cluster: the measurement of `muster doctor --cluster`.
 *
 * Every host gets a probe (`muster doctor --probe`), one with several processes a second one beside it. Every
 * wait has a deadline; a host that misses it is left out. Thread: one. */
#ifndef MST_LAUNCH_LINK_SURVEY_H
#define MST_LAUNCH_LINK_SURVEY_H

#include <stddef.h>

#include "base/status.h"

typedef struct mst_link_survey mst_link_survey;

typedef struct mst_link {
    const char *from, *to;     /* hosts; valid as long as the survey */
    double rtt_us, gbit_per_s; /* NAN: not measured */
} mst_link;

/* Measures between each two hosts of the cluster file, and within each host that has several processes. ssh
 * NULL: the usual command, and none for hosts that are this one (loopback, Unix sockets). *out is the
 * caller's to destroy; set only on MST_OK, also if links could not be measured. */
mst_status mst_link_survey_run(const char *file, const char *ssh, mst_link_survey **out);
void mst_link_survey_destroy(mst_link_survey *self); /* NULL-safe */

size_t mst_link_survey_count(const mst_link_survey *self);
mst_link mst_link_survey_get(const mst_link_survey *self, size_t i);

/* MST_EPEER if links could not be measured; the message counts them and names the hosts. */
mst_status mst_link_survey_check(const mst_link_survey *self);

#endif
