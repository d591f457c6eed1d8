/* `muster doctor --cluster FILE`: what the links between a cluster's hosts can do. */
#ifndef MST_LAUNCH_DOCTOR_CLUSTER_H
#define MST_LAUNCH_DOCTOR_CLUSTER_H

#include <stdbool.h>

#include "base/status.h"

/* Starts a probe on every host of the spec, measures between each two of them, and within each that has
 * several processes, prints a table (or JSON) and keeps the figures in FILE.links.json. ssh NULL: the usual
 * command, and none for hosts that are this one (loopback, Unix sockets). A link that cannot be measured is
 * MST_EPEER, after the others have been; the sentence names the host. */
mst_status mst_doctor_cluster(const char *file, const char *ssh, bool json);

/* The probe, as started by the above: listens and measures as its standard input says, and ends with it.
 * Lines in: listen ADDRESS     -> "listening ADDRESS" measure ADDRESS    -> "result MEDIAN_US GBIT_PER_S"
 * Lines out besides: "ready" in the beginning, "failed SENTENCE" instead of the above. */
mst_status mst_doctor_probe(void);

#endif
