/* `muster doctor --cluster FILE`: round-trip time and bandwidth of the links between the hosts of a cluster.
 */
#ifndef MST_CLI_DOCTOR_CLUSTER_H
#define MST_CLI_DOCTOR_CLUSTER_H

#include <stdbool.h>

#include "base/status.h"

/* Starts a probe on every host of the spec, measures between each two of them, and within each that has
 * several processes, prints a table (or JSON) and writes the figures to FILE.links.json. ssh NULL: the usual
 * command, and none for hosts that are this one (loopback, Unix sockets). A link that cannot be measured is
 * MST_EPEER, after the others have been; the message names the host. */
mst_status mst_doctor_cluster(const char *file, const char *ssh, bool json);

/* The probe, as link_survey.c starts it: listens and measures as the lines of its standard input request, and
 * ends with it. The lines are in link_survey.c. */
mst_status mst_doctor_probe(void);

#endif
