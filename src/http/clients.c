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

/* Functions that begin with clients_ are called under the mutex. */

static void clients_link(mst_clients *self, mst_client *client)
{
    client->previous = self->last;
    client->next = NULL;
    *(self->last != NULL ? &self->last->next : &self->first) = client;
    self->last = client;
}

static void clients_unlink(mst_clients *self, mst_client *client)
{
    *(client->previous != NULL ? &client->previous->next : &self->first) = client->next;
    *(client->next != NULL ? &client->next->previous : &self->last) = client->previous;
}

/* It is no longer counted: it is closing, or removed. */
static void clients_discount(mst_clients *self, mst_client *client)
{
    if (client->closing)
        return;
    client->closing = true;
    self->n--;
    client->from->n--;
    client->from->n_waiting -= !client->answering;
}

static void clients_close(mst_clients *self, mst_client *client)
{
    if (client->closing)
        return;
    clients_discount(self, client);
    shutdown(client->fd, SHUT_RDWR);
}

/* ---- addresses ---- */

static mst_client_address **clients_chain(mst_clients *self, const struct in6_addr *address)
{
    uint64_t words[2];
    memcpy(words, address, sizeof words);
    uint64_t h = (words[0] * 0x9E3779B97F4A7C15u + words[1]) * 0x9E3779B97F4A7C15u;
    return &self->chains[(h >> 32) % MST_CLIENT_CHAINS];
}

/* The entry of an address, made if it has none; NULL: no memory. */
static mst_client_address *clients_address(mst_clients *self, const struct in6_addr *address)
{
    mst_client_address **chain = clients_chain(self, address);
    for (mst_client_address *a = *chain; a != NULL; a = a->next)
        if (memcmp(&a->address, address, sizeof *address) == 0)
            return a;
    mst_client_address *a = mst_zalloc(sizeof *a);
    if (a == NULL)
        return NULL;
    *a = (mst_client_address){.next = *chain, .address = *address};
    *chain = a;
    return a;
}

/* One connection less; the last one frees the entry. */
static void clients_leave(mst_clients *self, mst_client_address *from)
{
    if (--from->n_clients > 0)
        return;
    mst_client_address **at = clients_chain(self, &from->address);
    while (*at != from)
        at = &(*at)->next;
    *at = from->next;
    mst_free(from);
}

/* Closes a connection if there are too many: of the newest one's address, or, in all, of the address that has
 * the most. The newest one waits too, so there is always one to close: the first of its address in the list
 * that waits. */
static void clients_make_room(mst_clients *self, const mst_client *newest)
{
    const mst_client_address *from = newest->from;
    bool crowd = self->most_per_address > 0 && from->n > self->most_per_address;
    if (!crowd && self->n <= self->most)
        return;
    for (size_t i = 0; i < MST_CLIENT_CHAINS && !crowd; i++)
        for (const mst_client_address *a = self->chains[i]; a != NULL; a = a->next)
            if (a->n > from->n && a->n_waiting > 0)
                from = a;
    mst_client *c = self->first;
    while (c->from != from || c->closing || c->answering)
        c = c->next;
    clients_close(self, c);
}

static struct in6_addr address_of(const struct sockaddr *from)
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
    struct in6_addr address = address_of(from);
    mst_client *client = mst_zalloc(sizeof *client);
    pthread_mutex_lock(&self->mutex);
    mst_client_address *entry = client != NULL ? clients_address(self, &address) : NULL;
    if (entry != NULL) {
        *client = (mst_client){.fd = fd, .from = entry, .since_ns = mst_now_ns()};
        clients_link(self, client);
        self->n++;
        entry->n_clients++;
        entry->n++;
        entry->n_waiting++;
        clients_make_room(self, client);
    }
    pthread_mutex_unlock(&self->mutex);
    if (entry != NULL)
        return client;
    mst_free(client);
    shutdown(fd, SHUT_RDWR);
    return NULL;
}

void mst_clients_remove(mst_clients *self, mst_client *client)
{
    if (client == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    clients_discount(self, client);
    clients_unlink(self, client);
    clients_leave(self, client->from);
    pthread_mutex_unlock(&self->mutex);
    mst_free(client);
}

mst_client *mst_clients_find(mst_clients *self, int fd)
{
    pthread_mutex_lock(&self->mutex);
    mst_client *client = self->last; /* a new one is near the end */
    while (client != NULL && client->fd != fd)
        client = client->previous;
    pthread_mutex_unlock(&self->mutex);
    return client;
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
    pthread_mutex_lock(&self->mutex);
    if (!client->closing)
        client->from->n_waiting += (size_t)client->answering - (size_t)answering;
    client->begun = client->answering = answering;
    client->endless = endless;
    client->since_ns = mst_now_ns();
    clients_unlink(self, client);
    clients_link(self, client);
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
