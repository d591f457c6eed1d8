/* Contract in proc_text.h. */
#include "observe/proc_text.h"

#include <ctype.h>
#include <string.h>

/* Reads a number after blanks and advances *text. Returns false, with *out 0, if there is none. */
static bool proc_number(const char **text, uint64_t *out)
{
    const char *p = *text;
    *out = 0;
    while (*p == ' ' || *p == '\t')
        p++;
    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        *out = *out * 10 + (uint64_t)(*p - '0');
    *text = p;
    return true;
}

static const char *proc_next_line(const char *p)
{
    const char *end = strchr(p, '\n');
    return end != NULL ? end + 1 : p + strlen(p);
}

static bool proc_starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Reads the number of the line that starts with `name`. */
static bool proc_field(const char *text, const char *name, uint64_t *out)
{
    *out = 0;
    for (const char *line = text; *line != 0; line = proc_next_line(line)) {
        if (!proc_starts(line, name))
            continue;
        const char *p = line + strlen(name);
        return proc_number(&p, out);
    }
    return false;
}

/* ---- the host ---- */

enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, N_TICKS };

static bool proc_ticks(const char *p, uint64_t *t)
{
    unsigned n = 0;
    memset(t, 0, N_TICKS * sizeof *t);
    while (n < N_TICKS && proc_number(&p, &t[n]))
        n++;
    return n > IDLE;
}

bool mst_proc_stat(const char *text, mst_host_cpu *out, mst_core_ticks *cores, unsigned n_cores)
{
    uint64_t t[N_TICKS], core;
    bool found = false;
    *out = (mst_host_cpu){0};
    memset(cores, 0, n_cores * sizeof *cores);
    for (const char *line = text; *line != 0; line = proc_next_line(line)) {
        const char *p = line + 3;
        if (proc_starts(line, "cpu ") && proc_ticks(p, t)) {
            found = true;
            out->user = t[USER] + t[NICE];
            out->system = t[SYSTEM] + t[IRQ] + t[SOFTIRQ];
            out->iowait = t[IOWAIT];
            out->idle = t[IDLE];
            out->steal = t[STEAL];
        } else if (proc_starts(line, "cpu") && proc_number(&p, &core) && core < n_cores && proc_ticks(p, t)) {
            for (unsigned i = 0; i < N_TICKS; i++)
                cores[core].total += t[i];
            cores[core].busy = cores[core].total - t[IDLE] - t[IOWAIT];
        } else if (proc_starts(line, "ctxt ")) {
            p = line + 4;
            proc_number(&p, &out->context_switches);
        }
    }
    return found;
}

unsigned mst_proc_stat_cores(const char *text)
{
    unsigned n = 0;
    uint64_t core;
    for (const char *line = text; *line != 0; line = proc_next_line(line)) {
        const char *p = line + 3;
        if (proc_starts(line, "cpu") && line[3] != ' ' && proc_number(&p, &core) && core < 65536 && core >= n)
            n = (unsigned)core + 1;
    }
    return n;
}

bool mst_proc_meminfo(const char *text, mst_host_memory *out)
{
    uint64_t total, free, buffers, cached, reclaimable;
    *out = (mst_host_memory){0};
    if (!proc_field(text, "MemTotal:", &total) || !proc_field(text, "MemFree:", &free))
        return false;
    proc_field(text, "Buffers:", &buffers);
    proc_field(text, "Cached:", &cached);
    proc_field(text, "SReclaimable:", &reclaimable);
    cached += buffers + reclaimable;
    out->total = total * 1024;
    out->free = free * 1024;
    out->cached = cached * 1024;
    out->used = total > free + cached ? (total - free - cached) * 1024 : 0;
    return true;
}

bool mst_proc_vmstat(const char *text, uint64_t *page_ins)
{
    bool found = proc_field(text, "pgpgin ", page_ins);
    *page_ins *= 1024; /* the kernel counts in KiB */
    return found;
}

/* Returns whether `name` is a partition of `disk`: sda1 of sda, nvme0n1p2 of nvme0n1. */
static bool proc_is_partition(const char *name, size_t n_name, const char *disk, size_t n_disk)
{
    if (n_disk == 0 || n_name <= n_disk || strncmp(name, disk, n_disk) != 0)
        return false;
    const char *p = name + n_disk, *end = name + n_name;
    p += *p == 'p' && p + 1 < end;
    while (p < end && isdigit((unsigned char)*p))
        p++;
    return p == end;
}

static bool proc_is_stacked(const char *name)
{
    static const char *const kinds[] = {"loop", "ram", "zram", "dm-", "md", "sr", "fd"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (proc_starts(name, kinds[i]))
            return true;
    return false;
}

bool mst_proc_diskstats(const char *text, uint64_t *read, uint64_t *written)
{
    enum { SECTOR = 512 }; /* for every disk */
    const char *disk = "";
    size_t n_disk = 0;
    *read = *written = 0;
    for (const char *line = text; *line != 0; line = proc_next_line(line)) {
        uint64_t major, minor, f[7];
        const char *p = line;
        if (!proc_number(&p, &major) || !proc_number(&p, &minor))
            continue;
        while (*p == ' ')
            p++;
        const char *name = p;
        size_t n_name = strcspn(name, " \n");
        p += n_name;
        unsigned n = 0;
        while (n < 7 && proc_number(&p, &f[n]))
            n++;
        if (n < 7 || proc_is_stacked(name) || proc_is_partition(name, n_name, disk, n_disk))
            continue;
        disk = name;
        n_disk = n_name;
        *read += f[2] * SECTOR;
        *written += f[6] * SECTOR;
    }
    return n_disk > 0;
}

bool mst_proc_net_dev(const char *text, mst_host_net *out)
{
    enum { OUT = 8, N_FIELDS };
    *out = (mst_host_net){0};
    bool found = false;
    for (const char *line = text; *line != 0; line = proc_next_line(line)) {
        const char *name = line + strspn(line, " "), *colon = name + strcspn(name, ":\n");
        size_t n_name = (size_t)(colon - name);
        if (*colon != ':' || n_name == 0 || n_name >= MST_NET_NAME)
            continue;
        uint64_t f[N_FIELDS];
        unsigned n = 0;
        const char *p = colon + 1;
        while (n < N_FIELDS && proc_number(&p, &f[n]))
            n++;
        if (n < N_FIELDS)
            continue;
        found = true;
        if (n_name != 2 || strncmp(name, "lo", 2) != 0) {
            out->in += f[0];
            out->out += f[OUT];
        }
        if (out->n < MST_NET_MAX) {
            mst_net_bytes *link = &out->links[out->n++];
            memcpy(link->name, name, n_name);
            link->in = f[0];
            link->out = f[OUT];
        }
    }
    return found;
}

/* ---- the process ---- */

bool mst_proc_io(const char *text, uint64_t *read, uint64_t *written)
{
    bool found = proc_field(text, "read_bytes:", read);
    return proc_field(text, "write_bytes:", written) && found;
}

bool mst_proc_statm(const char *text, uint64_t page_size, uint64_t *resident)
{
    uint64_t size;
    bool found = proc_number(&text, &size) && proc_number(&text, resident);
    *resident = found ? *resident * page_size : 0;
    return found;
}
