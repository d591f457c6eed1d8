/* The plug-in: MPI behind the table of mpi.h. Compiled once per implementation (cmake/mpi.cmake), with
 * MST_MPI_NAME the name of that one; the only file of muster that sees <mpi.h>.
 *
 * Communicators are numbers of a small table, 0 being a copy of MPI_COMM_WORLD; requests travel in 64 bits,
 * in which both implementations' handles fit. Errors are returned, never fatal: every communicator has the
 * handler MPI_ERRORS_RETURN.
 *
 * MPI's collectives spin while they wait. Where more ranks than processors share a host, those of MPICH
 * (which does not yield) are replaced by their nonblocking forms, with yields of the processor between their
 * tests. Counts beyond INT_MAX are split into pieces of PIECE_BYTES. All ranks split at the same places, from
 * values that all have. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi/plugin.h"

#define COMMS       64
#define PIECE_BYTES ((size_t)1 << 30)
#define BATCH       64 /* requests of one MPI_Testsome */

extern const mst_mpi_host *mst_mpi_plugin_host;
extern const mst_mpi_ops mst_mpi_plugin;
__attribute__((visibility("default"))) const mst_mpi_host *mst_mpi_plugin_host;

typedef struct comm {
    bool used;
    MPI_Comm all;   /* what the caller's messages and collectives run on */
    MPI_Comm aside; /* for messages of this file; MPI_COMM_NULL until the first */
    int rank, size;
} comm;

static comm comms[COMMS];
static bool gives_way; /* collectives give the processor away while they wait */
static bool one_host;  /* all ranks are here */

#define fail mst_mpi_plugin_host->fail

/* ---- errors and handles ---- */

static mst_status plugin_failed(int code, const char *function)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    text[n >= 0 && n < (int)sizeof text ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return fail(MST_EPEER, "%s failed in rank %d: %s", function, comms[0].rank, text);
}

#define CHECK(function, arguments)                                                                           \
    do {                                                                                                     \
        int code_ = function arguments;                                                                      \
        if (code_ != MPI_SUCCESS)                                                                            \
            return plugin_failed(code_, #function);                                                          \
    } while (0)

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits into mst_mpi_request");

static mst_mpi_request plugin_pack(MPI_Request request)
{
    mst_mpi_request out = MST_MPI_NONE;
    if (request != MPI_REQUEST_NULL)
        memcpy(&out.opaque, &request, sizeof request);
    return out;
}

static MPI_Request plugin_unpack(mst_mpi_request request)
{
    MPI_Request out = MPI_REQUEST_NULL;
    if (request.opaque != 0)
        memcpy(&out, &request.opaque, sizeof out);
    return out;
}

/* NULL, with the sentence recorded (MST_EUSAGE), when there is none of that number. */
static comm *comm_get(mst_mpi_comm number)
{
    if (number >= 0 && number < COMMS && comms[number].used)
        return &comms[number];
    fail(MST_EUSAGE, "mpi: there is no communicator %d", number);
    return NULL;
}

/* Takes `all` over, which has its error handler from the communicator it was made of. */
static mst_status comm_add(MPI_Comm all, mst_mpi_comm *out)
{
    for (int i = 0; i < COMMS; i++) {
        comm *c = &comms[i];
        if (c->used)
            continue;
        *c = (comm){.all = all, .aside = MPI_COMM_NULL};
        CHECK(MPI_Comm_rank, (all, &c->rank));
        CHECK(MPI_Comm_size, (all, &c->size));
        c->used = true;
        *out = i;
        return MST_OK;
    }
    MPI_Comm_free(&all);
    return fail(MST_EUSAGE, "mpi: more than %d communicators are in use", COMMS);
}

/* ---- life ---- */

/* Whether more ranks than processors share this host; and whether all ranks do. */
static mst_status plugin_crowded(bool *out)
{
    MPI_Comm here;
    int size = 0;
    CHECK(MPI_Comm_split_type, (MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    CHECK(MPI_Comm_size, (here, &size));
    CHECK(MPI_Comm_free, (&here));
    *out = size > sysconf(_SC_NPROCESSORS_ONLN);
    one_host = size == comms[0].size;
    return MST_OK;
}

static mst_status plugin_start(int *rank, int *size)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Comm all;
    mst_mpi_comm number;
    CHECK(MPI_Init_thread, (NULL, NULL, MPI_THREAD_FUNNELED, &provided));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_FUNNELED)
        return fail(MST_EUNSUPPORTED,
                    "this MPI does not support other threads (MPI_THREAD_FUNNELED); build it with thread "
                    "support");
    CHECK(MPI_Comm_dup, (MPI_COMM_WORLD, &all));
    mst_status st = comm_add(all, &number);
    if (st != MST_OK)
        return st;
    bool full = false;
    st = plugin_crowded(&full);
#ifdef MPICH_NAME
    gives_way = full;
#endif
    *rank = comms[0].rank;
    *size = comms[0].size;
    return st;
}

static mst_status plugin_finalize(void)
{
    for (int i = 0; i < COMMS; i++)
        if (comms[i].used) {
            if (comms[i].aside != MPI_COMM_NULL)
                MPI_Comm_free(&comms[i].aside);
            MPI_Comm_free(&comms[i].all);
            comms[i].used = false;
        }
    CHECK(MPI_Finalize, ());
    return MST_OK;
}

/* MPICH closes its connections one rank after the other, and finished ranks no longer answer the others;
 * shared memory needs no answer. */
static bool plugin_hangs(void)
{
#ifdef MPICH_NAME
    return !one_host || getenv("UCX_TLS") != NULL;
#else
    return false;
#endif
}

static void plugin_abort(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void plugin_library(char *out, size_t size)
{
    static const char mpich[] = "MPICH Version:";
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int n = 0;
    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS)
        n = 0;
    text[n >= 0 && n < (int)sizeof text ? n : 0] = '\0';
    text[strcspn(text, ",\n")] = '\0';
    if (strncmp(text, mpich, sizeof mpich - 1) == 0) {
        const char *version = text + sizeof mpich - 1;
        snprintf(out, size, "MPICH v%s", version + strspn(version, " \t"));
    } else {
        snprintf(out, size, "%s", text);
    }
}

/* ---- communicators ---- */

static mst_status plugin_dup(mst_mpi_comm number, mst_mpi_comm *out)
{
    comm *c = comm_get(number);
    MPI_Comm made;
    if (c == NULL)
        return MST_EUSAGE;
    CHECK(MPI_Comm_dup, (c->all, &made));
    return comm_add(made, out);
}

static mst_status plugin_split(mst_mpi_comm number, int color, int key, mst_mpi_comm *out)
{
    comm *c = comm_get(number);
    MPI_Comm made;
    if (c == NULL)
        return MST_EUSAGE;
    CHECK(MPI_Comm_split, (c->all, color < 0 ? MPI_UNDEFINED : color, key, &made));
    if (made == MPI_COMM_NULL) {
        *out = -1;
        return MST_OK;
    }
    return comm_add(made, out);
}

static mst_status plugin_free_comm(mst_mpi_comm number)
{
    if (number < 0) /* of a rank that had no part */
        return MST_OK;
    comm *c = comm_get(number);
    if (number == 0)
        return fail(MST_EUSAGE, "mpi: the communicator of all ranks cannot be freed");
    if (c == NULL)
        return MST_EUSAGE;
    c->used = false;
    if (c->aside != MPI_COMM_NULL)
        CHECK(MPI_Comm_free, (&c->aside));
    CHECK(MPI_Comm_free, (&c->all));
    return MST_OK;
}

static mst_status plugin_comm_rank(mst_mpi_comm number, int *rank, int *size)
{
    comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    *rank = c->rank;
    *size = c->size;
    return MST_OK;
}

/* ---- messages ---- */

static mst_status plugin_check_message(const comm *c, size_t bytes, int rank)
{
    if (bytes > INT_MAX)
        return fail(MST_EUSAGE, "mpi: a message of %zu bytes is too long; at most %d bytes fit into one",
                    bytes, INT_MAX);
    if (rank >= c->size || (rank < 0 && rank != MST_MPI_ANY))
        return fail(MST_EUSAGE, "mpi: there is no rank %d; there are %d", rank, c->size);
    return MST_OK;
}

static mst_status plugin_isend(mst_mpi_comm number, const void *data, size_t bytes, int to, int tag,
                               mst_mpi_request *out)
{
    comm *c = comm_get(number);
    MPI_Request request;
    if (c == NULL)
        return MST_EUSAGE;
    mst_status st = plugin_check_message(c, bytes, to);
    if (st != MST_OK)
        return st;
    CHECK(MPI_Isend, (data, (int)bytes, MPI_BYTE, to, tag, c->all, &request));
    *out = plugin_pack(request);
    return MST_OK;
}

static mst_status plugin_irecv(mst_mpi_comm number, void *data, size_t bytes, int from, int tag,
                               mst_mpi_request *out)
{
    comm *c = comm_get(number);
    MPI_Request request;
    if (c == NULL)
        return MST_EUSAGE;
    mst_status st = plugin_check_message(c, bytes, from);
    if (st != MST_OK)
        return st;
    CHECK(MPI_Irecv, (data, (int)bytes, MPI_BYTE, from == MST_MPI_ANY ? MPI_ANY_SOURCE : from,
                      tag == MST_MPI_ANY ? MPI_ANY_TAG : tag, c->all, &request));
    *out = plugin_pack(request);
    return MST_OK;
}

/* Tests the n_active requests at those places; adds to *n_done. */
static mst_status plugin_test_batch(int n_active, MPI_Request *active, const uint32_t *at,
                                    mst_mpi_request *requests, bool *done, uint32_t *n_done)
{
    int which[BATCH] = {0}, count = 0;
    if (n_active == 1) { /* the cheap way */
        CHECK(MPI_Test, (&active[0], &count, MPI_STATUS_IGNORE));
        which[0] = 0;
    } else {
        CHECK(MPI_Testsome, (n_active, active, &count, which, MPI_STATUSES_IGNORE));
    }
    for (int i = 0; count != MPI_UNDEFINED && i < count; i++) {
        done[at[which[i]]] = true;
        requests[at[which[i]]] = MST_MPI_NONE;
        ++*n_done;
    }
    return MST_OK;
}

static mst_status plugin_test_some(uint32_t n, mst_mpi_request *requests, bool *done, uint32_t *n_done)
{
    MPI_Request active[BATCH];
    uint32_t at[BATCH];
    int n_active = 0;
    *n_done = 0;
    for (uint32_t i = 0; i < n; i++) {
        done[i] = false;
        if (requests[i].opaque == 0)
            continue;
        at[n_active] = i;
        active[n_active++] = plugin_unpack(requests[i]);
        if (n_active < BATCH)
            continue;
        mst_status st = plugin_test_batch(n_active, active, at, requests, done, n_done);
        if (st != MST_OK)
            return st;
        n_active = 0;
    }
    return n_active > 0 ? plugin_test_batch(n_active, active, at, requests, done, n_done) : MST_OK;
}

static mst_status plugin_cancel(mst_mpi_request *request)
{
    MPI_Request r = plugin_unpack(*request);
    if (request->opaque == 0)
        return MST_OK;
    *request = MST_MPI_NONE;
    CHECK(MPI_Cancel, (&r));
    CHECK(MPI_Wait, (&r, MPI_STATUS_IGNORE));
    return MST_OK;
}

static mst_status plugin_probe(mst_mpi_comm number, int from, int tag, bool *found, int *source, int *its_tag,
                               size_t *bytes)
{
    comm *c = comm_get(number);
    MPI_Status status;
    int flag = 0, count = 0;
    if (c == NULL)
        return MST_EUSAGE;
    CHECK(MPI_Iprobe, (from == MST_MPI_ANY ? MPI_ANY_SOURCE : from, tag == MST_MPI_ANY ? MPI_ANY_TAG : tag,
                       c->all, &flag, &status));
    *found = flag != 0;
    if (!flag)
        return MST_OK;
    CHECK(MPI_Get_count, (&status, MPI_BYTE, &count));
    if (source != NULL)
        *source = status.MPI_SOURCE;
    if (its_tag != NULL)
        *its_tag = status.MPI_TAG;
    if (bytes != NULL)
        *bytes = count > 0 ? (size_t)count : 0;
    return MST_OK;
}

/* ---- collectives ---- */

/* Until a nonblocking collective is done, giving the processor away. */
static int plugin_wait_giving_way(MPI_Request *request)
{
    int done = 0, code;
    while ((code = MPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done)
        sched_yield();
    return code;
}

/* Calls the function, or its nonblocking form where the processor is to be given away. */
#define COLLECTIVE(function, nonblocking, ...)                                                               \
    do {                                                                                                     \
        int code_;                                                                                           \
        if (gives_way) {                                                                                     \
            MPI_Request request_;                                                                            \
            code_ = nonblocking(__VA_ARGS__, &request_);                                                     \
            if (code_ == MPI_SUCCESS)                                                                        \
                code_ = plugin_wait_giving_way(&request_);                                                   \
        } else {                                                                                             \
            code_ = function(__VA_ARGS__);                                                                   \
        }                                                                                                    \
        if (code_ != MPI_SUCCESS)                                                                            \
            return plugin_failed(code_, #function);                                                          \
    } while (0)

static mst_status plugin_barrier(mst_mpi_comm number)
{
    comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    COLLECTIVE(MPI_Barrier, MPI_Ibarrier, c->all);
    return MST_OK;
}

static mst_status plugin_broadcast_pieces(comm *c, void *data, size_t bytes, int root)
{
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        COLLECTIVE(MPI_Bcast, MPI_Ibcast, (char *)data + at,
                   (int)(bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES), MPI_BYTE, root, c->all);
    return MST_OK;
}

static mst_status plugin_broadcast(mst_mpi_comm number, void *data, size_t bytes, int root)
{
    comm *c = comm_get(number);
    return c != NULL ? plugin_broadcast_pieces(c, data, bytes, root) : MST_EUSAGE;
}

static mst_status plugin_sum(mst_mpi_comm number, void *data, size_t n, size_t size, MPI_Datatype type)
{
    comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    for (size_t at = 0, piece = PIECE_BYTES / size; at < n; at += piece)
        COLLECTIVE(MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, (char *)data + at * size,
                   (int)(n - at < piece ? n - at : piece), type, MPI_SUM, c->all);
    return MST_OK;
}

static mst_status plugin_allreduce_f32(mst_mpi_comm number, float *data, size_t n)
{
    return plugin_sum(number, data, n, sizeof *data, MPI_FLOAT);
}

static mst_status plugin_allreduce_f64(mst_mpi_comm number, double *data, size_t n)
{
    return plugin_sum(number, data, n, sizeof *data, MPI_DOUBLE);
}

/* Every rank's part by a broadcast of its own: for parts that are too large for one call. */
static mst_status plugin_gather_by_broadcasts(comm *c, const void *mine, const size_t *bytes,
                                              const size_t *offsets, size_t every, char *all)
{
    for (int r = 0; r < c->size; r++) {
        size_t n = bytes != NULL ? bytes[r] : every;
        char *at = all + (offsets != NULL ? offsets[r] : every * (size_t)r);
        if (r == c->rank && at != (const char *)mine)
            memmove(at, mine, n);
        mst_status st = plugin_broadcast_pieces(c, at, n, r);
        if (st != MST_OK)
            return st;
    }
    return MST_OK;
}

static mst_status plugin_allgather(mst_mpi_comm number, const void *mine, size_t bytes, void *all)
{
    comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    if (bytes > INT_MAX)
        return plugin_gather_by_broadcasts(c, mine, NULL, NULL, bytes, all);
    const void *from = mine == (char *)all + bytes * (size_t)c->rank ? MPI_IN_PLACE : mine;
    COLLECTIVE(MPI_Allgather, MPI_Iallgather, from, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, c->all);
    return MST_OK;
}

/* The parts, whose bytes together fit into an int, into one block without gaps; counts has 2 * size ints. */
static mst_status plugin_gather_packed(comm *c, const void *mine, const size_t *bytes, int *counts,
                                       char *packed)
{
    int *starts = counts + c->size;
    for (int r = 0, at = 0; r < c->size; r++) {
        counts[r] = (int)bytes[r];
        starts[r] = at;
        at += counts[r];
    }
    COLLECTIVE(MPI_Allgatherv, MPI_Iallgatherv, mine, counts[c->rank], MPI_BYTE, packed, counts, starts,
               MPI_BYTE, c->all);
    return MST_OK;
}

static mst_status plugin_allgatherv(mst_mpi_comm number, const void *mine, const size_t *bytes,
                                    const size_t *offsets, void *all)
{
    comm *c = comm_get(number);
    size_t total = 0;
    bool dense = true;
    if (c == NULL)
        return MST_EUSAGE;
    for (int r = 0; r < c->size; r++) {
        dense = dense && offsets[r] == total;
        total += bytes[r];
    }
    if (total > INT_MAX)
        return plugin_gather_by_broadcasts(c, mine, bytes, offsets, 0, all);
    /* Packed where the parts are to lie, when they lie so and mine is elsewhere. */
    bool direct = dense && ((const char *)mine + bytes[c->rank] <= (char *)all ||
                            (const char *)mine >= (char *)all + total);
    size_t own = 2 * (size_t)c->size * sizeof(int);
    int *counts = mst_mpi_plugin_host->alloc(own + (direct ? 0 : total));
    if (counts == NULL)
        return fail(MST_ENOMEM, "mpi: no memory to gather %zu bytes", total);
    char *packed = direct ? all : (char *)counts + own;
    mst_status st = plugin_gather_packed(c, mine, bytes, counts, packed);
    for (int r = 0; st == MST_OK && !direct && r < c->size; r++)
        memcpy((char *)all + offsets[r], packed + counts[c->size + r], bytes[r]);
    mst_mpi_plugin_host->free(counts);
    return st;
}

static size_t plugin_n_pieces(const size_t *bytes, int size, int without)
{
    size_t n = 0;
    for (int r = 0; r < size; r++)
        if (r != without)
            n += (bytes[r] + PIECE_BYTES - 1) / PIECE_BYTES;
    return n;
}

/* Starts all messages of an exchange; requests has room for them. */
static mst_status exchange_start(comm *c, const char *out, const size_t *out_bytes, const size_t *out_offsets,
                                 char *in, const size_t *in_bytes, const size_t *in_offsets,
                                 MPI_Request *requests, int *n)
{
    for (int k = 1; k < c->size; k++) { /* so that the ranks do not all start with the same peer */
        int from = (c->rank - k + c->size) % c->size;
        for (size_t at = 0; at < in_bytes[from]; at += PIECE_BYTES)
            CHECK(MPI_Irecv, (in + in_offsets[from] + at,
                              (int)(in_bytes[from] - at < PIECE_BYTES ? in_bytes[from] - at : PIECE_BYTES),
                              MPI_BYTE, from, 0, c->aside, &requests[(*n)++]));
    }
    for (int k = 1; k < c->size; k++) {
        int to = (c->rank + k) % c->size;
        for (size_t at = 0; at < out_bytes[to]; at += PIECE_BYTES)
            CHECK(MPI_Isend, (out + out_offsets[to] + at,
                              (int)(out_bytes[to] - at < PIECE_BYTES ? out_bytes[to] - at : PIECE_BYTES),
                              MPI_BYTE, to, 0, c->aside, &requests[(*n)++]));
    }
    return MST_OK;
}

static mst_status exchange_wait(int n, MPI_Request *requests)
{
    int done = 0;
    if (!gives_way) {
        CHECK(MPI_Waitall, (n, requests, MPI_STATUSES_IGNORE));
        return MST_OK;
    }
    for (;;) {
        CHECK(MPI_Testall, (n, requests, &done, MPI_STATUSES_IGNORE));
        if (done)
            return MST_OK;
        sched_yield();
    }
}

/* By messages on a communicator of its own: MPI_Alltoallv takes offsets in ints, and one rank's may not fit
 * where another's do. */
static mst_status plugin_alltoallv(mst_mpi_comm number, const void *out, const size_t *out_bytes,
                                   const size_t *out_offsets, void *in, const size_t *in_bytes,
                                   const size_t *in_offsets)
{
    comm *c = comm_get(number);
    int n = 0;
    if (c == NULL)
        return MST_EUSAGE;
    if (c->aside == MPI_COMM_NULL)
        CHECK(MPI_Comm_dup, (c->all, &c->aside));
    if (in_bytes[c->rank] != out_bytes[c->rank])
        return fail(MST_EUSAGE, "mpi: rank %d sends itself %zu bytes and expects %zu", c->rank,
                    out_bytes[c->rank], in_bytes[c->rank]);
    size_t most = plugin_n_pieces(out_bytes, c->size, c->rank) + plugin_n_pieces(in_bytes, c->size, c->rank);
    MPI_Request *requests = mst_mpi_plugin_host->alloc((most + 1) * sizeof *requests);
    if (requests == NULL)
        return fail(MST_ENOMEM, "mpi: no memory for an exchange of %zu messages", most);
    mst_status st = exchange_start(c, out, out_bytes, out_offsets, in, in_bytes, in_offsets, requests, &n);
    if (st == MST_OK && in_bytes[c->rank] > 0)
        memmove((char *)in + in_offsets[c->rank], (const char *)out + out_offsets[c->rank],
                in_bytes[c->rank]);
    if (st == MST_OK)
        st = exchange_wait(n, requests);
    mst_mpi_plugin_host->free(requests);
    return st;
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#ifdef MPICH_VERSION
#define COMPILED_WITH MPICH_VERSION
#else
#define COMPILED_WITH TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#endif

__attribute__((visibility("default"))) const mst_mpi_ops mst_mpi_plugin = {
    .abi = MST_MPI_ABI,
    .name = MST_MPI_NAME,
    .version = COMPILED_WITH,
    .start = plugin_start,
    .finalize = plugin_finalize,
    .hangs = plugin_hangs,
    .abort = plugin_abort,
    .library = plugin_library,
    .dup = plugin_dup,
    .split = plugin_split,
    .free_comm = plugin_free_comm,
    .comm_rank = plugin_comm_rank,
    .isend = plugin_isend,
    .irecv = plugin_irecv,
    .test_some = plugin_test_some,
    .cancel = plugin_cancel,
    .probe = plugin_probe,
    .barrier = plugin_barrier,
    .broadcast = plugin_broadcast,
    .allreduce_f32 = plugin_allreduce_f32,
    .allreduce_f64 = plugin_allreduce_f64,
    .allgather = plugin_allgather,
    .allgatherv = plugin_allgatherv,
    .alltoallv = plugin_alltoallv,
};
