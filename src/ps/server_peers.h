/* A server's connections: the process of every peer, admission of a connection, and its loss. */
#ifndef MST_PS_SERVER_PEERS_H
#define MST_PS_SERVER_PEERS_H

#include "ps/peer_table.h"

typedef struct mst_server mst_server;

/* Events of the net; arg: the server. */
void mst_server_peer_up(void *arg, uint32_t peer, const mst_identity *who);
void mst_server_peer_down(void *arg, uint32_t peer, const mst_net_loss *loss);

/* The index of a peer of that kind; UINT32_MAX: not a peer of that kind. */
uint32_t mst_server_peer_index(const mst_server *s, uint32_t peer, mst_peer_kind kind);
/* Releases the bodies of a peer that is down or was dropped. */
void mst_server_peer_forget(mst_server *s, uint32_t peer);
/* Drops a process that has just connected, with the recorded message. */
void mst_server_refuse(mst_server *s, uint32_t peer, mst_status status);
/* Drops a worker, with a reason; it may join again. */
void mst_server_expel(mst_server *s, uint32_t worker, const char *why);
/* Drops another server, on the coordinator. */
void mst_server_expel_server(mst_server *s, uint32_t server, const char *why);
/* Fails if messages of that type need a member, and the peer is a worker that is none. */
mst_status mst_server_check_member(const mst_server *s, uint32_t peer, uint16_t type);
/* Drops a worker because of an invalid message, and ends its process. */
void mst_server_refuse_worker(mst_server *s, uint32_t worker, const char *why);
/* The coordinator: ends the process of a worker that is about to be dropped for an invalid message. */
void mst_server_end_faulty(mst_server *s, uint32_t peer, const char *why);
/* The coordinator has admitted a process as a worker. */
void mst_server_admit(mst_server *s, uint32_t worker);
/* Other servers: reports to the coordinator that a member is gone, once. why: of MST_GONE_FAULT. */
void mst_server_report_gone(mst_server *s, uint32_t worker, uint32_t flags, const char *why);
/* Forgets all workers and their pushes; they join again, because of `why`. */
void mst_server_reset_workers(mst_server *s, const char *why);
/* sync: the worker is lost elsewhere. Reads its connection until it ends, for a moment at most, so that
 * pushes that were sent to all servers count on all. */
void mst_server_drain(mst_server *s, uint32_t worker);
/* Drops the workers whose moment is over. */
void mst_server_end_drains(mst_server *s);
/* Drops the workers that have a fault (mst_server_worker). */
void mst_server_expel_faulty(mst_server *s);
void mst_server_peers_fini(mst_server *s);

/* A failed send to a peer that is gone is no failure: the loss is reported separately. */
static inline mst_status mst_unless_gone(mst_status st)
{
    return st == MST_EPEER || st == MST_ETIMEOUT ? MST_OK : st;
}

#endif
