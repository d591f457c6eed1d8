/* The registry of net engines and what all of them share; contract in net.h. */
#include "net/net.h"

const mst_net_engine *const mst_net_engines[] = {&mst_net_inproc, &mst_net_tcp, &mst_net_mpi, NULL};

const char *mst_role_name(mst_role role)
{
    static const char *const names[] = {"server", "worker", "probe"};
    return (unsigned)role < sizeof names / sizeof *names ? names[role] : "unknown role";
}

void mst_net_destroy(mst_net *net)
{
    if (net != NULL)
        net->engine->destroy(net);
}
