/* Contract in resources.h.
 *
 * CPU time, faults and switches of the process come from getrusage: /proc/self/status counts the switches of
 * one thread only, and /proc/self/stat rounds times to hundredths of a second. */
#include "observe/resources.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

#define TEXT_MAX ((size_t)1 << 16) /* of a /proc file; the rest is ignored */

typedef enum source { STAT, MEMINFO, VMSTAT, DISKSTATS, NET_DEV, IO, STATM, N_SOURCES } source;

struct mst_resources {
    int fds[N_SOURCES]; /* -1: the file does not exist */
    char *task_path;
    DIR *tasks; /* the threads of the process; NULL: the folder does not exist */
    char *text; /* TEXT_MAX + 1 */
    double tick_s;
    uint64_t page_size;
    unsigned n_cores, now; /* now: index of the last reading */
    mst_usage usage[2];
    mst_core_ticks *cores[2];
    unsigned n_links; /* with columns */
    char links[MST_NET_MAX][MST_NET_NAME];
};

static int resources_open(const char *root, const char *name)
{
    char *path = mst_sprintf("%s/%s", root, name);
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    mst_free(path);
    return fd;
}

/* Returns the text of a source, or NULL. */
static const char *resources_text(const mst_resources *self, source which)
{
    size_t n = 0;
    ssize_t got = 1;
    if (self->fds[which] < 0)
        return NULL;
    while (n < TEXT_MAX && got > 0) {
        got = pread(self->fds[which], self->text + n, TEXT_MAX - n, (off_t)n);
        n += got > 0 ? (size_t)got : 0;
    }
    self->text[n] = 0;
    return n > 0 ? self->text : NULL;
}

/* Reads the nanoseconds that the threads of the process were runnable without a core: the second figure of
 * their schedstat. Returns false if the system does not count them. */
static bool resources_read_delays(const mst_resources *self, uint64_t *out)
{
    struct dirent *found;
    bool any = false;
    *out = 0;
    if (self->tasks == NULL)
        return false;
    rewinddir(self->tasks);
    while ((found = readdir(self->tasks)) != NULL) {
        char path[sizeof found->d_name + 128], text[96];
        unsigned long long on, ready;
        if (found->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/schedstat", self->task_path, found->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC); /* the thread sanitizer does not support openat */
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        if (fd >= 0)
            close(fd);
        text[n > 0 ? n : 0] = '\0';
        if (sscanf(text, "%llu %llu", &on, &ready) != 2)
            continue;
        *out += ready;
        any = true;
    }
    return any;
}

static double resources_seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

void mst_resources_read(mst_resources *self)
{
    struct rusage r;
    const char *text;
    self->now ^= 1;
    mst_usage *u = &self->usage[self->now];
    memset(u, 0, sizeof *u);
    u->now_ns = mst_now_ns();
    if ((text = resources_text(self, STAT)) != NULL)
        u->has_cpu = mst_proc_stat(text, &u->cpu, self->cores[self->now], self->n_cores);
    if ((text = resources_text(self, MEMINFO)) != NULL)
        u->has_memory = mst_proc_meminfo(text, &u->memory);
    if ((text = resources_text(self, VMSTAT)) != NULL)
        u->has_vm = mst_proc_vmstat(text, &u->page_ins);
    if ((text = resources_text(self, DISKSTATS)) != NULL)
        u->has_disk = mst_proc_diskstats(text, &u->disk_read, &u->disk_write);
    if ((text = resources_text(self, NET_DEV)) != NULL)
        u->has_net = mst_proc_net_dev(text, &u->net);
    if ((text = resources_text(self, IO)) != NULL)
        u->has_io = mst_proc_io(text, &u->read, &u->write);
    if ((text = resources_text(self, STATM)) != NULL)
        u->has_rss = mst_proc_statm(text, self->page_size, &u->rss);
    u->has_delay = resources_read_delays(self, &u->delay_ns);
    if (getrusage(RUSAGE_SELF, &r) == 0) {
        u->cpu_user_s = resources_seconds(r.ru_utime);
        u->cpu_system_s = resources_seconds(r.ru_stime);
        u->major_faults = (uint64_t)r.ru_majflt;
        u->switches = (uint64_t)r.ru_nivcsw;
        u->waits = (uint64_t)r.ru_nvcsw;
    }
}

mst_status mst_resources_new(const char *root, mst_resources **out)
{
    static const char *const names[N_SOURCES] = {
        [STAT] = "stat",           [MEMINFO] = "meminfo", [VMSTAT] = "vmstat",
        [DISKSTATS] = "diskstats", [IO] = "self/io",      [NET_DEV] = "thread-self/net/dev",
        [STATM] = "self/statm",
    };
    mst_resources *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    for (unsigned i = 0; i < N_SOURCES; i++)
        self->fds[i] = resources_open(root, names[i]);
    if (self->fds[NET_DEV] < 0)
        self->fds[NET_DEV] = resources_open(root, "self/net/dev");
    self->task_path = mst_sprintf("%s/self/task", root);
    self->tasks = self->task_path != NULL ? opendir(self->task_path) : NULL;
    long ticks = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
    self->tick_s = 1.0 / (double)(ticks > 0 ? ticks : 100);
    self->page_size = (uint64_t)(page > 0 ? page : 4096);
    self->text = mst_alloc(TEXT_MAX + 1);
    const char *stat = self->text != NULL ? resources_text(self, STAT) : NULL;
    self->n_cores = stat != NULL ? mst_proc_stat_cores(stat) : 0;
    for (unsigned i = 0; i < 2; i++)
        self->cores[i] = mst_calloc(self->n_cores + 1, sizeof *self->cores[i]);
    if (self->text == NULL || self->cores[0] == NULL || self->cores[1] == NULL) {
        mst_resources_destroy(self);
        return mst_fail_memory();
    }
    mst_resources_read(self);
    const mst_host_net *net = &self->usage[self->now].net;
    self->n_links = net->n;
    for (unsigned i = 0; i < net->n; i++)
        memcpy(self->links[i], net->links[i].name, MST_NET_NAME);
    *out = self;
    return MST_OK;
}

void mst_resources_destroy(mst_resources *self)
{
    if (self == NULL)
        return;
    for (unsigned i = 0; i < N_SOURCES; i++)
        if (self->fds[i] >= 0)
            close(self->fds[i]);
    if (self->tasks != NULL)
        closedir(self->tasks);
    mst_free(self->task_path);
    mst_free(self->text);
    mst_free(self->cores[0]);
    mst_free(self->cores[1]);
    mst_free(self);
}

const mst_usage *mst_resources_now(const mst_resources *self)
{
    return &self->usage[self->now];
}

void mst_resources_add_real(mst_string *out, double value)
{
    if (isfinite(value))
        mst_string_format(out, ",%.6g", value);
    else
        mst_string_add(out, ",");
}

void mst_resources_header(const mst_resources *self, mst_string *out)
{
    mst_string_add(out, "time,interval_s,cpu_user_s,cpu_system_s,cpu_iowait_s,cpu_idle_s,cpu_steal_s,"
                        "cpu_busiest,cpu_cores,mem_used,mem_free,mem_cached,page_ins,context_switches,"
                        "disk_read,disk_write,net_in,net_out");
    for (unsigned i = 0; i < self->n_links; i++)
        mst_string_format(out, ",net_%s_in,net_%s_out", self->links[i], self->links[i]);
    mst_string_format(out,
                      ",proc_cpu_user_s,proc_cpu_system_s,proc_rss,proc_read,proc_write,proc_major_faults,"
                      "proc_switches,proc_waits,proc_delay_s\n");
}

/* Counters of hosts occasionally decrease (iowait does, and interfaces are recreated). */
static uint64_t resources_growth(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void resources_add_count(mst_string *out, bool known, uint64_t value)
{
    if (known)
        mst_string_format(out, ",%llu", (unsigned long long)value);
    else
        mst_string_add(out, ",");
}

static void resources_add_cores(const mst_resources *self, bool known, mst_string *out)
{
    const mst_core_ticks *now = self->cores[self->now], *before = self->cores[self->now ^ 1];
    double busiest = 0.0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned c = 0; known && c < self->n_cores; c++) {
            uint64_t total = resources_growth(now[c].total, before[c].total),
                     busy = resources_growth(now[c].busy, before[c].busy);
            double share = total > 0 ? (double)busy / (double)total : 0.0;
            share = share < 1.0 ? share : 1.0;
            busiest = share > busiest ? share : busiest;
            if (pass == 1)
                mst_string_format(out, "%s%.3g", c > 0 ? " " : "", share);
        }
        if (pass == 0) {
            mst_resources_add_real(out, known ? busiest : (double)NAN);
            mst_string_add(out, ",");
        }
    }
}

static const mst_net_bytes *resources_link(const mst_host_net *net, const char *name)
{
    for (unsigned i = 0; i < net->n; i++)
        if (strcmp(net->links[i].name, name) == 0)
            return &net->links[i];
    return NULL;
}

void mst_resources_line(const mst_resources *self, double time, mst_string *out)
{
    const mst_usage *u = &self->usage[self->now], *b = &self->usage[self->now ^ 1];
    bool cpu = u->has_cpu && b->has_cpu, vm = u->has_vm && b->has_vm, disk = u->has_disk && b->has_disk,
         net = u->has_net && b->has_net, io = u->has_io && b->has_io;
    mst_string_format(out, "%.6f,%.6f", time, (double)(u->now_ns - b->now_ns) * 1e-9);
    const uint64_t ticks[] = {
        resources_growth(u->cpu.user, b->cpu.user), resources_growth(u->cpu.system, b->cpu.system),
        resources_growth(u->cpu.iowait, b->cpu.iowait), resources_growth(u->cpu.idle, b->cpu.idle),
        resources_growth(u->cpu.steal, b->cpu.steal)};
    for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++)
        mst_resources_add_real(out, cpu ? (double)ticks[i] * self->tick_s : (double)NAN);
    resources_add_cores(self, cpu, out);
    resources_add_count(out, u->has_memory, u->memory.used);
    resources_add_count(out, u->has_memory, u->memory.free);
    resources_add_count(out, u->has_memory, u->memory.cached);
    resources_add_count(out, vm, resources_growth(u->page_ins, b->page_ins));
    resources_add_count(out, cpu, resources_growth(u->cpu.context_switches, b->cpu.context_switches));
    resources_add_count(out, disk, resources_growth(u->disk_read, b->disk_read));
    resources_add_count(out, disk, resources_growth(u->disk_write, b->disk_write));
    resources_add_count(out, net, resources_growth(u->net.in, b->net.in));
    resources_add_count(out, net, resources_growth(u->net.out, b->net.out));
    for (unsigned i = 0; i < self->n_links; i++) {
        const mst_net_bytes *now = resources_link(&u->net, self->links[i]),
                            *before = resources_link(&b->net, self->links[i]);
        bool known = net && now != NULL && before != NULL;
        resources_add_count(out, known, known ? resources_growth(now->in, before->in) : 0);
        resources_add_count(out, known, known ? resources_growth(now->out, before->out) : 0);
    }
    mst_resources_add_real(out, u->cpu_user_s - b->cpu_user_s);
    mst_resources_add_real(out, u->cpu_system_s - b->cpu_system_s);
    resources_add_count(out, u->has_rss, u->rss);
    resources_add_count(out, io, resources_growth(u->read, b->read));
    resources_add_count(out, io, resources_growth(u->write, b->write));
    resources_add_count(out, true, resources_growth(u->major_faults, b->major_faults));
    resources_add_count(out, true, resources_growth(u->switches, b->switches));
    resources_add_count(out, true, resources_growth(u->waits, b->waits));
    bool delay = u->has_delay && b->has_delay;
    mst_resources_add_real(out,
                           delay ? (double)resources_growth(u->delay_ns, b->delay_ns) * 1e-9 : (double)NAN);
    mst_string_add(out, "\n");
}
