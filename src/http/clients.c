/* The connections of a web server; contract in clients.h. */
#include "http/clients.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"

void mst_clients_init(mst_clients *self, size_t most, size_t most_per_address, uint64_t timeout_ns)
{
    *self = (mst_clients){.most = most, .most_per_address = most_per_address, .timeout_ns = timeout_ns};
    pthread_mutex_init(&self->mutex, NULL);
}

void mst_clients_fini(mst_clients *self)
{
    pthread_mutex_destroy(&self->mutex);
}

/* Under the mutex. */
static void clients_close(mst_clients *self, mst_client *client)
{
    if (client->closing)
        return;
    client->closing = true;
    self->n--;
    shutdown(client->fd, SHUT_RDWR);
}

/* The connections of an address, and the one of them that has waited longest for its request; or NULL. */
static size_t clients_of_address(const mst_clients *self, const struct in6_addr *address, mst_client **oldest)
{
    size_t n = 0;
    *oldest = NULL;
    for (mst_client *c = self->first; c != NULL; c = c->next) {
        if (c->closing || memcmp(&c->address, address, sizeof *address) != 0)
            continue;
        n++;
        if (!c->answering && (*oldest == NULL || c->since_ns < (*oldest)->since_ns))
            *oldest = c;
    }
    return n;
}

/* Closes a connection if there are too many: of the newest one's address, or, in all, of the address that has
 * the most. The newest one waits too, so there is always one to close. */
static void clients_make_room(mst_clients *self, const mst_client *newest)
{
    mst_client *oldest, *victim;
    if (self->most_per_address == 0 && self->n <= self->most)
        return;
    size_t most = clients_of_address(self, &newest->address, &victim);
    bool crowd = self->most_per_address > 0 && most > self->most_per_address;
    if (!crowd && self->n <= self->most)
        return;
    for (const mst_client *c = self->first; c != NULL && !crowd; c = c->next) {
        size_t n = clients_of_address(self, &c->address, &oldest);
        if (n > most && oldest != NULL) {
            most = n;
            victim = oldest;
        }
    }
    if (victim != NULL)
        clients_close(self, victim);
}

static struct in6_addr client_address(const struct sockaddr *from)
{
    struct in6_addr address = {0};
    if (from != NULL && from->sa_family == AF_INET6)
        address = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    else if (from != NULL && from->sa_family == AF_INET)
        memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    return address;
}

mst_client *mst_clients_add(mst_clients *self, int fd, const struct sockaddr *from)
{
    mst_client *client = mst_zalloc(sizeof *client);
    if (client == NULL) {
        shutdown(fd, SHUT_RDWR);
        return NULL;
    }
    pthread_mutex_lock(&self->mutex);
    *client = (mst_client){
        .previous = self->last, .fd = fd, .address = client_address(from), .since_ns = mst_now_ns()};
    *(self->last != NULL ? &self->last->next : &self->first) = client;
    self->last = client;
    self->n++;
    clients_make_room(self, client);
    pthread_mutex_unlock(&self->mutex);
    return client;
}

void mst_clients_remove(mst_clients *self, mst_client *client)
{
    if (client == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    self->n -= !client->closing;
    *(client->previous != NULL ? &client->previous->next : &self->first) = client->next;
    *(client->next != NULL ? &client->next->previous : &self->last) = client->previous;
    pthread_mutex_unlock(&self->mutex);
    mst_free(client);
}

void mst_clients_begin(mst_clients *self, mst_client *client)
{
    if (client == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    client->begun = true;
    pthread_mutex_unlock(&self->mutex);
}

void mst_clients_set(mst_clients *self, mst_client *client, bool answering, bool endless)
{
    if (client == NULL)
        return;
    uint64_t now = mst_now_ns();
    pthread_mutex_lock(&self->mutex);
    client->begun = client->answering = answering;
    client->endless = endless;
    client->since_ns = now;
    pthread_mutex_unlock(&self->mutex);
}

void mst_clients_close_slow(mst_clients *self)
{
    pthread_mutex_lock(&self->mutex);
    uint64_t now = mst_now_ns(); /* not before any since_ns, which other threads set */
    for (mst_client *c = self->first; c != NULL; c = c->next)
        if (!c->endless && now - c->since_ns > self->timeout_ns * (c->answering ? 3 : 1))
            clients_close(self, c);
    pthread_mutex_unlock(&self->mutex);
}

size_t mst_clients_close_idle(mst_clients *self, uint64_t idle_ns)
{
    pthread_mutex_lock(&self->mutex);
    uint64_t now = mst_now_ns();
    for (mst_client *c = self->first; c != NULL; c = c->next) {
        int waiting = 0;
        if (!c->begun && now - c->since_ns > idle_ns && ioctl(c->fd, FIONREAD, &waiting) == 0 && waiting == 0)
            clients_close(self, c);
    }
    size_t n = self->n;
    pthread_mutex_unlock(&self->mutex);
    return n;
}

size_t mst_clients_count(mst_clients *self)
{
    pthread_mutex_lock(&self->mutex);
    size_t n = self->n;
    pthread_mutex_unlock(&self->mutex);
    return n;
}
