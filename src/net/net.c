/* The registry of net engines and what all of them share; contract in net.h. */
#include "net/net.h"

const mst_net_engine *const mst_net_engines[] = {&mst_net_inproc, &mst_net_tcp, &mst_net_mpi, NULL};

const char *mst_role_name(mst_role role)
{
    static const char *const names[] = {"server", "worker", "probe"};
    return (unsigned)role < sizeof names / sizeof *names ? names[role] : "unknown role";
}

mst_status mst_net_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                        uint32_t n_pieces, void *token)
{
    mst_message message = *m;
    if (n_pieces > MST_PIECE_MAX || m->type < MST_NET_TYPES)
        return mst_fail(MST_EUSAGE, "net %s: a message of type %u in %u pieces cannot be sent",
                        net->engine->name, m->type, n_pieces);
    message.size = 0;
    for (uint32_t i = 0; i < n_pieces; i++)
        message.size += pieces[i].size;
    return net->engine->send(net, peer, &message, pieces, n_pieces, token);
}

void mst_net_destroy(mst_net *net)
{
    if (net != NULL)
        net->engine->destroy(net);
}
