/* Runs a generator on several threads and hands its chunks on in order; contract in gen.h.
 *
 * Threads draw chunk numbers from a counter, make the chunk, wait for its turn and call fn themselves, so
 * that making and consuming overlap and at most n_threads chunks exist at once. A turn always comes or
 * `failed` is set: the lowest number drawn and not delivered belongs to a thread that is making it. */
#include "data/gen.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/team.h"

typedef struct gen_run {
    uint64_t first_row, rows, n_chunks;
    uint32_t chunk_rows;
    mst_gen_make *make;
    const void *self;
    mst_chunk_fn *fn;
    void *arg;
    mst_chunk_builder *builders; /* one per thread */

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t turned;
    uint64_t next, turn;
    bool failed;
    mst_error error;
} gen_run;

static bool draw(gen_run *r, uint64_t *number)
{
    pthread_mutex_lock(&r->mutex);
    bool more = !r->failed && r->next < r->n_chunks;
    if (more)
        *number = r->next++;
    pthread_mutex_unlock(&r->mutex);
    return more;
}

static bool wait_turn(gen_run *r, uint64_t number)
{
    pthread_mutex_lock(&r->mutex);
    while (r->turn != number && !r->failed)
        pthread_cond_wait(&r->turned, &r->mutex);
    bool mine = !r->failed;
    pthread_mutex_unlock(&r->mutex);
    return mine;
}

static void end_turn(gen_run *r, mst_status st)
{
    pthread_mutex_lock(&r->mutex);
    if (st == MST_OK)
        r->turn++;
    else if (!r->failed) {
        r->failed = true;
        mst_error_save(&r->error, st);
    }
    pthread_cond_broadcast(&r->turned);
    pthread_mutex_unlock(&r->mutex);
}

static void work(void *arg, unsigned thread)
{
    gen_run *r = arg;
    uint64_t number;
    while (draw(r, &number)) {
        uint64_t at = number * r->chunk_rows, left = r->rows - at;
        mst_chunk *chunk = NULL;
        mst_chunk_builder_clear(&r->builders[thread]);
        mst_status st =
            r->make(r->self, r->first_row + at, left < r->chunk_rows ? (uint32_t)left : r->chunk_rows,
                    &r->builders[thread], &chunk);
        if (st != MST_OK)
            end_turn(r, st);
        else if (wait_turn(r, number))
            end_turn(r, r->fn(r->arg, r->first_row + at, chunk));
        mst_chunk_release(chunk);
    }
}

mst_status mst_gen_run(uint64_t first_row, uint64_t rows, uint32_t chunk_rows, unsigned n_threads,
                       mst_gen_make *make, const void *self, mst_chunk_fn *fn, void *arg)
{
    mst_team *team = NULL;
    if (n_threads == 0)
        n_threads = 1;
    if (rows > UINT64_MAX - first_row)
        return mst_fail(MST_EUSAGE, "row numbers from %llu on leave no room for %llu rows",
                        (unsigned long long)first_row, (unsigned long long)rows);
    gen_run r = {
        .first_row = first_row,
        .rows = rows,
        .n_chunks = rows / chunk_rows + (rows % chunk_rows != 0),
        .chunk_rows = chunk_rows,
        .make = make,
        .self = self,
        .fn = fn,
        .arg = arg,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .turned = PTHREAD_COND_INITIALIZER,
    };
    TRY(mst_team_new(n_threads, &team));
    mst_status st = MST_OK;
    r.builders = mst_calloc(n_threads, sizeof *r.builders);
    if (r.builders == NULL)
        st = mst_fail_memory();
    else {
        for (unsigned i = 0; i < n_threads; i++)
            mst_chunk_builder_init(&r.builders[i]);
        mst_team_run(team, work, &r);
        if (r.failed)
            st = mst_error_restore(&r.error);
        for (unsigned i = 0; i < n_threads; i++)
            mst_chunk_builder_fini(&r.builders[i]);
    }
    mst_free(r.builders);
    mst_team_destroy(team);
    pthread_cond_destroy(&r.turned);
    pthread_mutex_destroy(&r.mutex);
    return st;
}
