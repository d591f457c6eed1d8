/* How fast the network of this host is, from the TCP connections of this process, whoever opened them: MPI
 * has connections of its own, and tells nothing of them. */
#ifndef MST_NET_TCP_OWN_H
#define MST_NET_TCP_OWN_H

typedef struct mst_tcp_own {
    char link[16];      /* the interface; "": nothing was seen yet */
    double bytes_per_s; /* that it was seen to carry for one connection */
} mst_tcp_own;

/* Looks at all connections but those of loopback; about once a second. *self: zeros at first. One thread. */
void mst_tcp_own_look(mst_tcp_own *self);

#endif
