/* Contract in endpoint.h. */
#include "http/endpoint.h"

#include <unistd.h>

#include "base/alloc.h"

mst_status mst_endpoint_open(mst_endpoint *self, const mst_endpoint_options *options)
{
    bool loopback = false;
    mst_address any = options->listen;
    *self = (mst_endpoint){.fd = -1, .guard.names = options->names};
    mst_status st = mst_listen(&options->listen, &self->fd, &self->port, &loopback);
    if (st == MST_EIO && options->other_port) {
        any.port = 0;
        st = mst_listen(&any, &self->fd, &self->port, &loopback);
    }
    TRY(st);
    TRY(mst_token_require(options->token, loopback, &self->token));
    self->guard.token = self->token;
    char *server = mst_address_url(&options->listen, self->port);
    const char *token = self->token != NULL ? self->token : "";
    if (server != NULL)
        self->url =
            mst_sprintf("%s%s%s%s", server, options->path, self->token != NULL ? "?token=" : "", token);
    mst_free(server);
    return self->url != NULL ? MST_OK : mst_fail_memory();
}

void mst_endpoint_close(mst_endpoint *self)
{
    if (self->fd >= 0)
        close(self->fd);
    mst_free(self->token);
    mst_free(self->url);
    *self = (mst_endpoint){.fd = -1};
}

mst_status mst_endpoint_unsupported(const char *server, const char *instead)
{
    return mst_fail(MST_EUNSUPPORTED,
                    "this muster was built without libmicrohttpd, which %s needs: install libmicrohttpd-dev "
                    "and build again%s",
                    server, instead);
}

#ifdef MUSTER_HTTP

#include <microhttpd.h>

void mst_endpoint_notify(mst_clients *clients, struct MHD_Connection *connection, bool closed, void **client)
{
    if (closed) {
        mst_clients_remove(clients, *client);
        *client = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info != NULL ? info->connect_fd : -1;
    *client = fd >= 0 ? mst_clients_find(clients, fd) : NULL;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (fd >= 0 && *client == NULL)
        *client = mst_clients_add(clients, fd, info != NULL ? info->client_addr : NULL);
}

mst_client *mst_endpoint_client(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

#endif
