/* The runs of a board in Prometheus' text format, version 0.0.4: the response to /metrics. */
#ifndef MST_DASH_PROMETHEUS_H
#define MST_DASH_PROMETHEUS_H

#include "dash/board.h"

void mst_prometheus_text(const mst_board *board, mst_string *out);

#endif
