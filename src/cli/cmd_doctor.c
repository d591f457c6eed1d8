/* `muster doctor`: the facts about the host and the build that a bug report needs. Facts that cannot be found
 * are empty (null in JSON); they never make the command fail. */
#include <dirent.h>
#include <isa-l.h>
#include <jansson.h>
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <openssl/crypto.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <uv.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>
#include <zstd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include <jpeglib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/isa.h"
#include "base/team.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/doctor_cluster.h"
#include "cli/table.h"
#include "cuda/cuda.h"
#include "dash/http.h"
#include "mpi/mpi.h"

#define COPY_BYTES   ((size_t)32 << 20) /* per thread and buffer: larger than its share of any cache */
#define COPY_SECONDS 0.1
#define LINE_SIZE    256

/* The first line of a small file, without its newline; false when there is none. */
static bool doctor_read_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    bool ok = file != NULL && fgets(out, (int)size, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* The text after "name:" (or "name\t:") in a file of such lines; false when there is none. */
static bool doctor_read_field(const char *path, const char *name, char *out, size_t size)
{
    char line[1024];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        size_t n = strlen(name), blanks = strncmp(line, name, n) == 0 ? strspn(line + n, " \t") : 0;
        if (strncmp(line, name, n) != 0 || line[n + blanks] != ':')
            continue;
        const char *value = line + n + blanks + 1;
        value += strspn(value, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* The number in the first line of a file; NAN when there is none, or "max". */
static double doctor_read_number(const char *path)
{
    char line[LINE_SIZE], *end;
    if (!doctor_read_line(path, line, sizeof line))
        return NAN;
    double value = strtod(line, &end);
    return end > line ? value : NAN;
}

static void doctor_fact(mst_table *t, const char *name, const char *text)
{
    if (text != NULL)
        mst_table_text(mst_fact(t, name), text);
    else
        mst_fact_missing(t, name, "unknown");
}

/* ---- machine ---- */

static void doctor_add_cpu(mst_table *t)
{
    char model[LINE_SIZE], quota[LINE_SIZE];
    double limit = NAN;
    bool known = doctor_read_field("/proc/cpuinfo", "model name", model, sizeof model) ||
                 doctor_read_field("/proc/cpuinfo", "CPU part", model, sizeof model);
    doctor_fact(t, "cpu", known ? model : NULL);
    mst_table_count(mst_fact(t, "cores"), (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    mst_table_count(mst_fact(t, "cores usable"), mst_cli_threads(0));
    if (doctor_read_line("/sys/fs/cgroup/cpu.max", quota, sizeof quota)) {
        double share, period;
        if (sscanf(quota, "%lf %lf", &share, &period) == 2 && period > 0)
            limit = share / period;
    }
    if (isfinite(limit))
        mst_table_real(mst_fact(t, "cores by control group"), limit, 2);
    else
        mst_fact_missing(t, "cores by control group", "no limit");
    char isas[LINE_SIZE] = "";
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        if (mst_isa_supported((mst_isa)isa))
            snprintf(isas + strlen(isas), sizeof isas - strlen(isas), "%s%s", *isas ? " " : "",
                     mst_isa_name((mst_isa)isa));
    doctor_fact(t, "instruction sets", isas);
    doctor_fact(t, "instruction set in use", mst_isa_name(mst_isa_best()));
}

static void doctor_add_kilobytes(mst_table *t, const char *name, const char *field)
{
    char text[LINE_SIZE];
    if (doctor_read_field("/proc/meminfo", field, text, sizeof text))
        mst_table_bytes(mst_fact(t, name), strtoull(text, NULL, 10) * 1024);
    else
        mst_fact_missing(t, name, "unknown");
}

/* The chosen one of "always [madvise] never". */
static const char *doctor_chosen(char *text)
{
    char *start = strchr(text, '['), *end = start ? strchr(start, ']') : NULL;
    if (end == NULL)
        return text;
    *end = '\0';
    return start + 1;
}

typedef struct copying {
    uint8_t *from, *to; /* one part per thread */
    double bytes_per_s[2];
} copying;

static void doctor_copy_part(void *arg, unsigned thread)
{
    copying *c = arg;
    memcpy(c->to + thread * COPY_BYTES, c->from + thread * COPY_BYTES, COPY_BYTES);
}

/* Bytes copied per second by n threads; NAN when memory or threads cannot be had. */
static double doctor_copy_bandwidth(unsigned n)
{
    copying c = {.from = mst_alloc_lines(n * COPY_BYTES), .to = mst_alloc_lines(n * COPY_BYTES)};
    mst_team *team = NULL;
    double rate = NAN;
    if (c.from != NULL && c.to != NULL && mst_team_new(n, &team) == MST_OK) {
        memset(c.from, 1, n * COPY_BYTES);
        mst_team_run(team, doctor_copy_part, &c); /* touches every page */
        uint64_t start = mst_now_ns(), rounds = 0;
        do {
            mst_team_run(team, doctor_copy_part, &c);
            rounds++;
        } while (mst_seconds_since(start) < COPY_SECONDS);
        rate = (double)rounds * n * COPY_BYTES / mst_seconds_since(start);
    }
    mst_team_destroy(team);
    mst_free(c.from);
    mst_free(c.to);
    return rate;
}

static void doctor_add_rate(mst_table *t, const char *name, double bytes_per_s)
{
    char text[64];
    snprintf(text, sizeof text, "%.1f GB/s", bytes_per_s * 1e-9);
    if (isfinite(bytes_per_s))
        mst_table_value(mst_fact(t, name), json_real(bytes_per_s), text);
    else
        mst_fact_missing(t, name, "unknown");
}

static void doctor_add_memory(mst_table *t)
{
    char text[LINE_SIZE];
    unsigned cores = mst_cli_threads(0) < 8 ? mst_cli_threads(0) : 8;
    doctor_add_kilobytes(t, "memory", "MemTotal");
    doctor_add_kilobytes(t, "memory available", "MemAvailable");
    double limit = doctor_read_number("/sys/fs/cgroup/memory.max");
    if (isfinite(limit))
        mst_table_bytes(mst_fact(t, "memory by control group"), (uint64_t)limit);
    else
        mst_fact_missing(t, "memory by control group", "no limit");
    bool known = doctor_read_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    doctor_fact(t, "transparent huge pages", known ? doctor_chosen(text) : NULL);
    doctor_add_rate(t, "memory copied per second by 1 thread", doctor_copy_bandwidth(1));
    if (cores > 1) {
        snprintf(text, sizeof text, "memory copied per second by %u threads", cores);
        doctor_add_rate(t, text, doctor_copy_bandwidth(cores));
    }
}

static void doctor_add_system(mst_table *t)
{
    struct statvfs disk;
    struct utsname name;
    char text[LINE_SIZE * 2];
    if (statvfs(".", &disk) == 0)
        mst_table_bytes(mst_fact(t, "disk free here"), (uint64_t)disk.f_bavail * disk.f_frsize);
    else
        mst_fact_missing(t, "disk free here", "unknown");
    bool known = uname(&name) == 0;
    if (known)
        snprintf(text, sizeof text, "%s %s %s", name.sysname, name.release, name.machine);
    doctor_fact(t, "kernel", known ? text : NULL);
#ifdef __GLIBC__
    snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
    doctor_fact(t, "libc", text);
#else
    doctor_fact(t, "libc", NULL);
#endif
}

/* ---- software ---- */

/* Finds a program in PATH; false when it is not there. */
static bool doctor_find_program(const char *program, char *out, size_t size)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        snprintf(out, size, "%.*s/%s", (int)n, path, program);
        if (n > 0 && access(out, X_OK) == 0)
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

#define TEXT_OF(x) TEXT(x)
#define TEXT(x)    #x

/* Versions of the loaded libraries, which may be newer than those at build time. */
static void doctor_add_libraries(mst_table *t)
{
    char text[LINE_SIZE];
    const dnnl_version_t *dnnl = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", dnnl->major, dnnl->minor, dnnl->patch);
    doctor_fact(t, "oneDNN", text);
    doctor_fact(t, "libuv", uv_version_string());
    doctor_fact(t, "OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING));
    doctor_fact(t, "libmicrohttpd",
                mst_http_library() != NULL ? mst_http_library() : "not built in, so muster dash is missing");
    doctor_fact(t, "libpng", png_get_libpng_ver(NULL));
#ifdef LIBJPEG_TURBO_VERSION
    doctor_fact(t, "libjpeg",
                "turbo " TEXT_OF(LIBJPEG_TURBO_VERSION) " when built"); /* the library has no call for it */
#else
    doctor_fact(t, "libjpeg", "API " TEXT_OF(JPEG_LIB_VERSION) " when built");
#endif
}

static void doctor_add_mpi(mst_table *t)
{
    mst_mpi_info plugins[8];
    uint32_t n = mst_mpi_plugins(plugins, sizeof plugins / sizeof *plugins);
    for (uint32_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "MPI %s", plugins[i].name);
        doctor_fact(t, name, plugins[i].library);
    }
    if (n == 0)
        doctor_fact(t, "MPI", "not built in");
}

static void doctor_add_gpus(mst_table *t)
{
    char text[1024], name[32];
    const mst_cuda_ops *ops;
    mst_cuda_device device;
    uint32_t n = 0;
    mst_cuda_describe(text, sizeof text);
    doctor_fact(t, "GPU plug-in", text);
    if (mst_cuda_load(&ops) != MST_OK || ops->devices(&n) != MST_OK)
        return;
    for (uint32_t i = 0; i < n && ops->device(i, &device) == MST_OK; i++) {
        snprintf(name, sizeof name, "GPU cuda:%u", i);
        mst_cuda_device_text(&device, text, sizeof text);
        doctor_fact(t, name, text);
    }
}

static void doctor_add_build(mst_table *t)
{
    char text[1024];
    doctor_fact(t, "muster", mst_version());
#ifdef __clang__
    doctor_fact(t, "compiler", __VERSION__);
#else
    doctor_fact(t, "compiler", "GCC " __VERSION__);
#endif
    doctor_fact(t, "zlib", zlibVersion());
    doctor_fact(t, "zstd", ZSTD_versionString());
    doctor_fact(t, "jansson", jansson_version_str());
    doctor_fact(t, "libyaml", yaml_get_version_string());
    unsigned xxhash = XXH_versionNumber();
    snprintf(text, sizeof text, "%u.%u.%u", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
    doctor_fact(t, "xxhash", text);
    snprintf(text, sizeof text, "%d.%d.%d", ISAL_MAJOR_VERSION, ISAL_MINOR_VERSION, ISAL_PATCH_VERSION);
    doctor_fact(t, "isa-l", text);
    doctor_add_libraries(t);
    doctor_add_mpi(t);
    doctor_add_gpus(t);
    doctor_fact(t, "npm", doctor_find_program("npm", text, sizeof text) ? text : "not found");
}

/* ---- network ---- */

static const mst_column link_columns[] = {{.key = "name"},
                                          {.key = "state"},
                                          {.key = "megabits_per_s", .right = true},
                                          {.key = "mtu", .right = true}};

static void doctor_add_link(mst_table *t, const char *name)
{
    char path[512], state[LINE_SIZE];
    mst_table_text(t, name);
    snprintf(path, sizeof path, "/sys/class/net/%s/operstate", name);
    mst_table_text(t, doctor_read_line(path, state, sizeof state) ? state : NULL);
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", name);
    double speed = doctor_read_number(path); /* -1 or an error when the driver has no value */
    mst_table_real(t, speed >= 0 ? speed : NAN, 0);
    snprintf(path, sizeof path, "/sys/class/net/%s/mtu", name);
    mst_table_real(t, doctor_read_number(path), 0);
}

static void doctor_add_links(mst_table *t)
{
    struct dirent **names = NULL;
    int n = scandir("/sys/class/net", &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.')
            doctor_add_link(t, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* ---- the command ---- */

static mst_status doctor_show(mst_table *machine, mst_table *software, mst_table *links, bool json)
{
    if (json) {
        json_t *all = json_object();
        if (json_object_set_new(all, "machine", mst_table_json_facts(machine)) != 0 ||
            json_object_set_new(all, "software", mst_table_json_facts(software)) != 0 ||
            json_object_set_new(all, "network", mst_table_json(links)) != 0) {
            json_decref(all);
            all = NULL;
        }
        return mst_cli_print_json(all);
    }
    TRY(mst_table_print(machine, "Machine", false));
    printf("\n");
    TRY(mst_table_print(software, "Software", false));
    printf("\n");
    return mst_table_print(links, "Network", true);
}

typedef struct doctor_options {
    char *cluster, *ssh;
    bool json;
} doctor_options;

static const mst_option doctor_table[] = {
    {.name = "cluster",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(doctor_options, cluster),
     .metavar = "FILE",
     .help = "Measure round trip and bandwidth between the hosts of a cluster spec, and save the figures in "
             "FILE.links.json."},
    {.name = "ssh",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(doctor_options, ssh),
     .metavar = "COMMAND",
     .help = "With --cluster: command that connects to a host; the host name and a command are appended. "
             "Default: ssh -o BatchMode=yes, and no command for this host."},
    {.name = NULL},
};

static mst_status doctor_describe_machine(bool json)
{
    mst_table *machine = NULL, *software = NULL, *links = NULL;
    mst_status st;
    TRY_OUT(st, mst_facts_new(false, &machine));
    TRY_OUT(st, mst_facts_new(false, &software));
    TRY_OUT(st, mst_table_new(link_columns, 4, &links));
    doctor_add_cpu(machine);
    doctor_add_memory(machine);
    doctor_add_system(machine);
    doctor_add_build(software);
    doctor_add_links(links);
    st = doctor_show(machine, software, links, json);
out:
    mst_table_destroy(machine);
    mst_table_destroy(software);
    mst_table_destroy(links);
    return st;
}

static bool doctor_before(int argc, char **argv, mst_status *st)
{
    if (argc != 1 || strcmp(argv[0], "--probe") != 0) /* as mst_doctor_cluster starts it */
        return false;
    *st = mst_doctor_probe();
    return true;
}

static mst_status doctor_run(mst_call *call)
{
    const doctor_options *options = call->options;
    if (options->cluster == NULL && options->ssh != NULL)
        return mst_fail(MST_EUSAGE, "--ssh needs --cluster FILE");
    return options->cluster != NULL ? mst_doctor_cluster(options->cluster, options->ssh, options->json)
                                    : doctor_describe_machine(options->json);
}

static const mst_command_group doctor_groups[] = {
    {"Options", mst_cli_json_table, offsetof(doctor_options, json)},
    {"Links", doctor_table, 0},
    {.table = NULL}};

const mst_command mst_cmd_doctor = {
    .name = "doctor",
    .summary = "describe this host and this build for a bug report; measure links",
    .run = doctor_run,
    .usage = "doctor [--json] | doctor --cluster FILE [--ssh COMMAND] [--json]",
    .no_words = true,
    .before = doctor_before,
    .groups = doctor_groups,
    .options_size = sizeof(doctor_options),
    .examples = "muster doctor --json\n"
                "muster doctor --cluster cluster.yaml\n",
};
