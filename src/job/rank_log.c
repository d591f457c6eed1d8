/* Contract in rank_log.h.
 *
 * Records travel over the connection of the rank monitor, not over MPI or a shared file system: hosts may
 * share no file system, and MPI belongs to the communication thread, which is busy with the steps. A rank
 * that is slow or lost does not delay the others, and the records that it has sent are kept. */
#include "job/rank_log.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "net/tcp_own.h"
#include "ranks/rank_monitor.h"

#define FINISH_MS 8000 /* for sending the last records; shorter than the wait of rank 0 for them */

_Static_assert(MST_RECORD_HEAD + MST_RECORD_MAX <= MST_RANK_RECORD_MAX,
               "a record fits into a message of the monitor");
_Static_assert(MST_CLOCK_ANSWER == MST_RANK_CLOCK_SIZE, "the rank monitor carries the clock's answers");

static bool next_record(void *arg, void **out_record, size_t *bytes)
{
    mst_record record;
    if (!mst_observe_take(arg, &record))
        return false;
    uint8_t *out = mst_alloc(MST_RECORD_HEAD + record.n);
    if (out != NULL) {
        mst_record_encode(&record, out);
        memcpy(out + MST_RECORD_HEAD, record.data, record.n);
    }
    mst_free((void *)record.data);
    *out_record = out;
    *bytes = MST_RECORD_HEAD + record.n;
    return out != NULL;
}

static void answer_clock(void *arg, uint8_t *answer)
{
    mst_observe_clock_answer(arg, answer);
}

static bool receive_clock(void *arg, uint64_t asked_ns, const void *answer, size_t bytes)
{
    return mst_observe_clock_receive(arg, asked_ns, answer, bytes);
}

/* The traffic of this process's connections. A process is one rank, so there is one of these, used by the
 * monitor's thread alone. */
static mst_tcp_own connections;

static void look_at_network(void *arg)
{
    mst_tcp_own_look(&connections);
    mst_observe_link(arg, connections.link, 8.0 * connections.bytes_per_s);
}

static void receive_record(void *arg, int rank, const void *data, size_t bytes)
{
    char name[MST_PROCESS_NAME];
    mst_record record;
    snprintf(name, sizeof name, "rank-%d", rank);
    if (mst_record_decode(data, bytes, &record) == MST_OK && strcmp(record.process, name) == 0)
        mst_observe_forward(arg, &record);
}

void mst_rank_log_send(mst_comm *comm, mst_observe *observe)
{
    mst_rank_records records = {
        .arg = observe, .next = next_record, .clock_received = receive_clock, .tick = look_at_network};
    mst_rank_records_set(mst_comm_monitor(comm), &records);
}

void mst_rank_log_finish(mst_comm *comm, mst_observe *observe)
{
    mst_observe_end(observe);
    mst_rank_records_end(mst_comm_monitor(comm), FINISH_MS);
}

void mst_rank_log_take(void *comm, mst_observe *observe)
{
    mst_rank_records records = {
        .arg = observe, .received = receive_record, .clock = answer_clock, .tick = look_at_network};
    mst_rank_records_set(mst_comm_monitor(comm), &records);
}

void mst_rank_log_stop(mst_comm *comm)
{
    mst_rank_records_set(mst_comm_monitor(comm), NULL);
}
