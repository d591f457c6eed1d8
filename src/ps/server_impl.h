/* The whole server, which the files server*.c and coordinator*.c share; no other file includes this.
 *
 *   server_peers        connections
 *   server_setup        the job, the model, restored floats
 *   server_steps        pushes and the steps that they make
 *   server_answers      answers to pulls
 *   server_cut          one version of the weights over all servers
 *   server_checkpoint   a server's floats for a checkpoint
 *   server_records      records of processes
 *   replica             copies of weights on a partner server
 *   coordinator*        server 0's decisions (coordinator.h) */
#ifndef MST_PS_SERVER_IMPL_H
#define MST_PS_SERVER_IMPL_H

#include "observe/trace_file.h"
#include "ps/coordinator.h"
#include "ps/pass.h"
#include "ps/replica.h"
#include "ps/server.h"
#include "ps/server_answers.h"
#include "ps/server_checkpoint.h"
#include "ps/server_cut.h"
#include "ps/server_records.h"
#include "ps/server_setup.h"
#include "ps/server_steps.h"
#include "ps/takeover.h"

struct mst_server {
    mst_server_options options;
    const mst_server_hooks *hooks;
    mst_net *net;
    uint32_t index;
    mst_body_pool bodies;
    mst_body *reply; /* for answers that leave at once */
    mst_peer_table peers;
    char pass_key[MST_PASS_KEY]; /* the coordinator makes it; the others receive it in SETUP */
    uint32_t *servers;           /* peers: all on the coordinator, [0] and the partner's on the others */
    mst_server_worker *workers;
    mst_coordinator *co; /* server 0 */
    mst_server_model model;
    mst_placement table;
    mst_owned owned;
    mst_store *store;       /* NULL: not set up yet */
    uint64_t max_step_body; /* bytes of the largest valid STEP */
    mst_server_setup setup;
    mst_server_steps steps;
    mst_server_cut cut;
    mst_checkpoint_stream checkpoint;
    mst_server_records records;
    mst_trace_chain net_op; /* the activity of the net, for a trace */
    mst_replica replica;
    bool over;
    mst_error end; /* code MST_OK: a good end */
};

static inline bool mst_is_sync(const mst_server *s)
{
    return s->options.mode == MST_MODE_SYNC;
}

/* sync with fewer pushes than workers per step. */
static inline bool mst_has_quorum(const mst_server *s)
{
    return mst_is_sync(s) && s->options.quorum < s->options.n_workers;
}

/* sync without a quorum: every worker has a share of every step, which a successor takes over. */
static inline bool mst_has_slots(const mst_server *s)
{
    return mst_is_sync(s) && !mst_has_quorum(s);
}

/* Lost processes have successors that connect again. */
static inline bool mst_heals(const mst_server *s)
{
    return s->options.engine->survives_death;
}

/* Ends the server's loop with the status and its recorded message. */
void mst_server_fail(mst_server *s, mst_status status);

#endif
