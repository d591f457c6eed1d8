/* The speed of the network of this host, from all TCP connections of this process, also those that MPI
 * opened. */
#ifndef MST_NET_TCP_OWN_H
#define MST_NET_TCP_OWN_H

typedef struct mst_tcp_own {
    char link[16];      /* the interface; "": nothing was seen yet */
    double bytes_per_s; /* highest rate of one connection */
} mst_tcp_own;

/* Reads all connections to other hosts; call it about once a second. *self: zeros at first. One
 * thread. */
void mst_tcp_own_look(mst_tcp_own *self);

#endif
