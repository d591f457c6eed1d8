/* Contract in job_clock.h.
 *
 * An answer has a reading of the coordinator's clock from some moment between request and answer. So the
 * offset is at least the difference to the arrival of the answer, and at most the difference to the departure
 * of the request: a late answer still gives one good bound. The estimate is the middle of the tightest
 * bounds.
 *
 * The offset is a chain of turns, each a ramp towards an estimate: a turn in use never changes, and new ones
 * begin at the current time. So the conversion of a past time is always the same. */
#include "observe/job_clock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "observe/bytes.h"

#define HOST_ID      24    /* boot id, inode of the time namespace */
#define DRIFT_PER_NS 15e-6 /* by which a bound loosens with age */
#define NEWS_NS      1000  /* smaller differences between estimates are ignored */
#define OFFSET_MAX   ((int64_t)1 << 61)

/* Processes with the same id read the same monotonic clock. Returns false, with zeros, if it is unknown. */
static bool job_clock_host_id(uint8_t *out)
{
    char text[40] = "";
    struct stat space;
    unsigned digits = 0;
    memset(out, 0, HOST_ID);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    for (ssize_t i = 0; i < n && digits < 32; i++) {
        const char *hex = "0123456789abcdef", *digit = strchr(hex, text[i]);
        if (text[i] == 0 || digit == NULL)
            continue;
        out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    if (stat("/proc/self/ns/time", &space) == 0) /* absent in a kernel without time namespaces */
        mst_put_little(out + 16, (uint64_t)space.st_ino, 8);
    if (digits != 32)
        memset(out, 0, HOST_ID);
    return digits == 32;
}

/* Reads both clocks at one moment, a whole microsecond of the wall clock. */
static void job_clock_read_both(uint64_t *ns, uint64_t *wall_ns)
{
    uint64_t shortest = UINT64_MAX;
    for (unsigned i = 0; i < 8; i++) {
        uint64_t before = mst_now_ns(), wall = mst_wall_ns(), after = mst_now_ns(), rest = wall % 1000;
        if (after - before >= shortest)
            continue;
        shortest = after - before;
        *ns = before + shortest / 2 - rest;
        *wall_ns = wall - rest;
    }
}

void mst_job_clock_init(mst_job_clock *self, bool coordinator)
{
    memset(self, 0, sizeof *self);
    pthread_mutex_init(&self->mutex, NULL);
    self->own = coordinator;
    job_clock_read_both(&self->began_ns, &self->began_wall_ns);
    self->turns[self->n_turns++] = (mst_clock_turn){.at_ns = self->began_ns};
}

void mst_job_clock_fini(mst_job_clock *self)
{
    pthread_mutex_destroy(&self->mutex);
}

void mst_job_clock_answer(mst_job_clock *self, uint8_t *out)
{
    uint64_t began, began_wall;
    if (self != NULL) {
        pthread_mutex_lock(&self->mutex);
        began = self->began_ns;
        began_wall = self->began_wall_ns;
        pthread_mutex_unlock(&self->mutex);
    } else {
        job_clock_read_both(&began, &began_wall);
    }
    mst_put_little(out, mst_now_ns(), 8);
    mst_put_little(out + 8, mst_wall_ns(), 8);
    mst_put_little(out + 16, began, 8);
    mst_put_little(out + 24, began_wall, 8);
    (void)job_clock_host_id(out + 32);
}

/* ---- the offset ---- */

static int64_t job_clock_offset_at(const mst_job_clock *self, uint64_t at_ns)
{
    size_t i = self->n_turns - 1;
    while (i > 0 && self->turns[i].at_ns > at_ns)
        i--;
    const mst_clock_turn *t = &self->turns[i];
    int64_t most = at_ns > t->at_ns ? (int64_t)((at_ns - t->at_ns) / MST_CLOCK_SLEW) : 0;
    int64_t change = t->to - t->from;
    return t->from + (change > most ? most : change < -most ? -most : change);
}

static void job_clock_turn_to(mst_job_clock *self, int64_t offset)
{
    mst_clock_turn *last = &self->turns[self->n_turns - 1];
    uint64_t now = mst_now_ns();
    int64_t news = offset - last->to;
    if (news < NEWS_NS && news > -NEWS_NS)
        return;
    mst_clock_turn turn = {.at_ns = now, .from = job_clock_offset_at(self, now), .to = offset};
    if (self->n_turns == MST_CLOCK_TURNS)
        memmove(self->turns, self->turns + 1, --self->n_turns * sizeof *self->turns);
    self->turns[self->n_turns++] = turn;
}

/* Applies the bounds of an answer; returns whether they change the estimate. */
static bool job_clock_narrow(mst_job_clock *self, int64_t low, int64_t high, uint64_t now_ns)
{
    double drift_low = (double)(int64_t)(now_ns - self->low_ns) * DRIFT_PER_NS,
           drift_high = (double)(int64_t)(now_ns - self->high_ns) * DRIFT_PER_NS;
    bool first = self->answers == 0, lower = first || low >= self->low - (int64_t)drift_low,
         higher = first || high <= self->high + (int64_t)drift_high;
    int64_t new_low = lower ? low : self->low, new_high = higher ? high : self->high;
    if (new_low > new_high) { /* an old bound is not valid any more */
        new_low = low;
        new_high = high;
        lower = higher = true;
    }
    self->low = new_low;
    self->high = new_high;
    self->low_ns = lower ? now_ns : self->low_ns;
    self->high_ns = higher ? now_ns : self->high_ns;
    self->answers++;
    return lower || higher;
}

/* Before enough answers have arrived, no time has been recorded, and the clock may jump. */
static void job_clock_set_to(mst_job_clock *self, int64_t offset)
{
    self->n_turns = 1;
    self->turns[0] = (mst_clock_turn){.from = offset, .to = offset};
}

bool mst_job_clock_receive(mst_job_clock *self, uint64_t sent_ns, uint64_t received_ns, const uint8_t *answer,
                           size_t size)
{
    uint8_t id[HOST_ID];
    if (size != MST_CLOCK_ANSWER || received_ns < sent_ns)
        return false;
    uint64_t theirs = mst_get_little(answer, 8), mono, wall;
    int64_t low = (int64_t)(theirs - received_ns), high = (int64_t)(theirs - sent_ns);
    job_clock_read_both(&mono, &wall);
    int64_t walls = (int64_t)(mst_get_little(answer + 8, 8) - theirs -
                              (wall - mono)); /* of wall minus monotonic clocks */
    if (low < -OFFSET_MAX || high > OFFSET_MAX || walls < -OFFSET_MAX || walls > OFFSET_MAX ||
        mst_get_little(answer + 16, 8) > theirs)
        return false;
    /* hosts cloned at run time have one id and two clocks */
    bool same = job_clock_host_id(id) && memcmp(id, answer + 32, HOST_ID) == 0 && theirs >= sent_ns &&
                theirs <= received_ns;
    pthread_mutex_lock(&self->mutex);
    if (!self->own && !self->same) {
        if (self->answers == 0) {
            self->began_ns = mst_get_little(answer + 16, 8);
            self->began_wall_ns = mst_get_little(answer + 24, 8);
            self->same = same;
        }
        bool news = job_clock_narrow(self, low, high, received_ns);
        int64_t offset = self->same ? 0 : self->low + (self->high - self->low) / 2;
        if (news && !self->same)
            self->wall_offset = offset + walls;
        if (news && self->answers <= MST_CLOCK_ANSWERS)
            job_clock_set_to(self, offset);
        else if (news)
            job_clock_turn_to(self, offset);
    }
    pthread_mutex_unlock(&self->mutex);
    return true;
}

/* ---- reading ---- */

bool mst_job_clock_known(mst_job_clock *self)
{
    pthread_mutex_lock(&self->mutex);
    bool known = self->own || self->same || self->answers >= MST_CLOCK_ANSWERS;
    pthread_mutex_unlock(&self->mutex);
    return known;
}

uint64_t mst_job_clock_at(mst_job_clock *self, uint64_t at_ns)
{
    pthread_mutex_lock(&self->mutex);
    int64_t at = (int64_t)at_ns + job_clock_offset_at(self, at_ns) - (int64_t)self->began_ns;
    pthread_mutex_unlock(&self->mutex);
    return at > 0 ? (uint64_t)at : 0;
}

uint64_t mst_job_clock_began(mst_job_clock *self)
{
    pthread_mutex_lock(&self->mutex);
    uint64_t wall = self->began_wall_ns;
    pthread_mutex_unlock(&self->mutex);
    return wall;
}

int64_t mst_job_clock_wall_offset(mst_job_clock *self)
{
    pthread_mutex_lock(&self->mutex);
    int64_t offset = self->wall_offset;
    pthread_mutex_unlock(&self->mutex);
    return offset;
}
