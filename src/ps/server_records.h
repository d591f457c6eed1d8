/* Records of the processes of a job (observe/record.h) on their way to the coordinator, which passes them to
 * the program; a server's own observer, and the capacity of its paths to workers. */
#ifndef MST_PS_SERVER_RECORDS_H
#define MST_PS_SERVER_RECORDS_H

#include "observe/spans.h"
#include "ps/body_pool.h"
#include "ps/server_peers.h"

typedef struct mst_server_records {
    mst_ps_clock clock;
    uint64_t sent_ns;      /* when records were last sent */
    uint64_t counted_ns;   /* when the spans last counted bytes, */
    uint64_t in, out;      /* and how many */
    uint64_t traced_queue; /* bytes queued as last traced, + 1; 0: never */
    uint32_t prober;       /* the peer whose path is being measured, */
    uint64_t probed_ns;    /* and when it last sent something; 0: none */
} mst_server_records;

mst_phase mst_server_phase_of(uint16_t type); /* the phase of handling a message of that type */

/* A LOG of another process, which may carry its own records only; also after the end of the job. */
mst_status mst_records_take(mst_server *s, uint32_t peer, const mst_message *m, const void *body);
/* A CLOCK, question or answer. */
mst_status mst_records_clock(mst_server *s, uint32_t peer, const mst_message *m, const void *body);
/* A PROBE of a worker; releases its body. */
mst_status mst_records_probe(mst_server *s, uint32_t peer, const mst_message *m, mst_body *body);
/* With --trace: writes the counter of bytes queued, if it has changed. */
void mst_records_trace_queue(mst_server *s);
/* Counts the bytes of a connection for the observer, since the last call. */
void mst_records_count(mst_server *s, mst_server_peer *peer);
void mst_records_count_all(mst_server *s); /* of all connections */
/* Sends this server's records, now and then. */
void mst_records_tick(mst_server *s);
/* The end: sends the last records; on the coordinator, waits a moment for those of the other servers. */
void mst_records_send_last(mst_server *s);
void mst_records_await_last(mst_server *s);

#endif
