/* The plug-in: MPI behind the table of mpi.h. Compiled once per implementation (cmake/mpi.cmake);
 * MST_MPI_NAME is its name. No other file includes <mpi.h>.
 *
 * Communicators are numbers of a small table, 0 being a copy of MPI_COMM_WORLD; requests travel in 64 bits,
 * in which both implementations' handles fit. Errors are returned, never fatal: every communicator has the
 * handler MPI_ERRORS_RETURN.
 *
 * MPI's collectives spin while they wait. Where more ranks than processors share a host, those of MPICH
 * (which does not yield) are replaced by their nonblocking forms, with yields of the processor between their
 * tests. Counts beyond INT_MAX are split into pieces of PIECE_BYTES, at the same places on all ranks. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi/plugin.h"

#define COMMS       8
#define PIECE_BYTES ((size_t)1 << 30)
#define BATCH       64 /* requests of one MPI_Testsome */

extern const mst_mpi_host *mst_mpi_plugin_host;
extern const mst_mpi_ops mst_mpi_plugin;
__attribute__((visibility("default"))) const mst_mpi_host *mst_mpi_plugin_host;

static MPI_Comm comms[COMMS]; /* the first n_comms are in use */
static int n_comms, own_rank, n_ranks;
static bool gives_way; /* collectives yield the CPU while they wait */
static bool one_host;  /* all ranks are on this host */

#define fail mst_mpi_plugin_host->fail

/* ---- errors and handles ---- */

static mst_status plugin_failed(int code, const char *function)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    text[n >= 0 && n < (int)sizeof text ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return fail(MST_EPEER, "%s failed in rank %d: %s", function, own_rank, text);
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

/* NULL, with the message recorded (MST_EUSAGE), when there is none of that number. */
static const MPI_Comm *comm_get(mst_mpi_comm number)
{
    if (number >= 0 && number < n_comms)
        return &comms[number];
    fail(MST_EUSAGE, "mpi: there is no communicator %d", number);
    return NULL;
}

/* A copy of `original`, with its error handler. */
static mst_status comm_add(MPI_Comm original, mst_mpi_comm *out)
{
    if (n_comms == COMMS)
        return fail(MST_EUSAGE, "mpi: more than %d communicators are in use", COMMS);
    CHECK(MPI_Comm_dup, (original, &comms[n_comms]));
    *out = n_comms++;
    return MST_OK;
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
    one_host = size == n_ranks;
    return MST_OK;
}

static mst_status plugin_start(int *rank, int *size)
{
    int provided = MPI_THREAD_SINGLE;
    mst_mpi_comm number;
    bool full = false;
    CHECK(MPI_Init_thread, (NULL, NULL, MPI_THREAD_FUNNELED, &provided));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_FUNNELED)
        return fail(MST_EUNSUPPORTED,
                    "this MPI does not support other threads (MPI_THREAD_FUNNELED); build it with thread "
                    "support");
    CHECK(MPI_Comm_rank, (MPI_COMM_WORLD, &own_rank));
    CHECK(MPI_Comm_size, (MPI_COMM_WORLD, &n_ranks));
    mst_status st = comm_add(MPI_COMM_WORLD, &number);
    if (st == MST_OK)
        st = plugin_crowded(&full);
#ifdef MPICH_NAME
    gives_way = full;
#endif
    *rank = own_rank;
    *size = n_ranks;
    return st;
}

static mst_status plugin_finalize(void)
{
    while (n_comms > 0)
        MPI_Comm_free(&comms[--n_comms]);
    CHECK(MPI_Finalize, ());
    return MST_OK;
}

/* MPICH closes its connections one rank after the other, and ranks that have closed ignore the remaining
 * ranks. Shared memory of one host needs no connection. */
static bool plugin_hangs(void)
{
#ifdef MPICH_NAME
    return !one_host || getenv("UCX_TLS") != NULL;
#else
    return false;
#endif
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

static mst_status plugin_dup(mst_mpi_comm number, mst_mpi_comm *out)
{
    const MPI_Comm *c = comm_get(number);
    return c != NULL ? comm_add(*c, out) : MST_EUSAGE;
}

/* ---- messages ---- */

static mst_status plugin_check_message(size_t bytes, int rank)
{
    if (bytes > INT_MAX)
        return fail(MST_EUSAGE, "mpi: a message of %zu bytes is too long; at most %d bytes fit into one",
                    bytes, INT_MAX);
    if (rank >= n_ranks || (rank < 0 && rank != MST_MPI_ANY))
        return fail(MST_EUSAGE, "mpi: there is no rank %d; there are %d", rank, n_ranks);
    return MST_OK;
}

static mst_status plugin_isend(mst_mpi_comm number, const void *data, size_t bytes, int to, int tag,
                               mst_mpi_request *out)
{
    const MPI_Comm *c = comm_get(number);
    MPI_Request request;
    if (c == NULL)
        return MST_EUSAGE;
    mst_status st = plugin_check_message(bytes, to);
    if (st != MST_OK)
        return st;
    CHECK(MPI_Isend, (data, (int)bytes, MPI_BYTE, to, tag, *c, &request));
    *out = plugin_pack(request);
    return MST_OK;
}

static mst_status plugin_irecv(mst_mpi_comm number, void *data, size_t bytes, int from, int tag,
                               mst_mpi_request *out)
{
    const MPI_Comm *c = comm_get(number);
    MPI_Request request;
    if (c == NULL)
        return MST_EUSAGE;
    mst_status st = plugin_check_message(bytes, from);
    if (st != MST_OK)
        return st;
    CHECK(MPI_Irecv, (data, (int)bytes, MPI_BYTE, from == MST_MPI_ANY ? MPI_ANY_SOURCE : from,
                      tag == MST_MPI_ANY ? MPI_ANY_TAG : tag, *c, &request));
    *out = plugin_pack(request);
    return MST_OK;
}

/* Tests the n_active requests at those places; adds to *n_done. */
static mst_status plugin_test_batch(int n_active, MPI_Request *active, const uint32_t *at,
                                    mst_mpi_request *requests, bool *done, uint32_t *n_done)
{
    int which[BATCH] = {0}, count = 0;
    if (n_active == 1) { /* MPI_Test is cheaper for one request */
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
    const MPI_Comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    COLLECTIVE(MPI_Barrier, MPI_Ibarrier, *c);
    return MST_OK;
}

static mst_status plugin_broadcast(mst_mpi_comm number, void *data, size_t bytes, int root)
{
    const MPI_Comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        COLLECTIVE(MPI_Bcast, MPI_Ibcast, (char *)data + at,
                   (int)(bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES), MPI_BYTE, root, *c);
    return MST_OK;
}

static mst_status plugin_sum(mst_mpi_comm number, void *data, size_t n, size_t size, MPI_Datatype type)
{
    const MPI_Comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    for (size_t at = 0, piece = PIECE_BYTES / size; at < n; at += piece)
        COLLECTIVE(MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, (char *)data + at * size,
                   (int)(n - at < piece ? n - at : piece), type, MPI_SUM, *c);
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

static mst_status plugin_allgather(mst_mpi_comm number, const void *mine, size_t bytes, void *all)
{
    const MPI_Comm *c = comm_get(number);
    if (c == NULL)
        return MST_EUSAGE;
    mst_status st = plugin_check_message(bytes, MST_MPI_ANY);
    if (st != MST_OK)
        return st;
    const void *from = mine == (char *)all + bytes * (size_t)own_rank ? MPI_IN_PLACE : mine;
    COLLECTIVE(MPI_Allgather, MPI_Iallgather, from, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *c);
    return MST_OK;
}

__attribute__((visibility("default"))) const mst_mpi_ops mst_mpi_plugin = {
    .abi = MST_MPI_ABI,
    .name = MST_MPI_NAME,
    .start = plugin_start,
    .finalize = plugin_finalize,
    .hangs = plugin_hangs,
    .library = plugin_library,
    .dup = plugin_dup,
    .isend = plugin_isend,
    .irecv = plugin_irecv,
    .test_some = plugin_test_some,
    .cancel = plugin_cancel,
    .barrier = plugin_barrier,
    .broadcast = plugin_broadcast,
    .allreduce_f32 = plugin_allreduce_f32,
    .allreduce_f64 = plugin_allreduce_f64,
    .allgather = plugin_allgather,
};
