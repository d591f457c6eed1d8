/* Log lines. The library never prints: lines go to the sink that the program sets (none by default). */
#ifndef MST_BASE_LOG_H
#define MST_BASE_LOG_H

typedef enum mst_log_level {
    MST_LOG_ERROR,
    MST_LOG_WARN,
    MST_LOG_INFO,
    MST_LOG_DEBUG,
} mst_log_level;

/* Called from any thread with a finished line without its newline. Must not log. */
typedef void mst_log_sink(void *arg, mst_log_level level, const char *line);

/* Set once, before threads start. Lines above `level` are dropped before they are formatted. */
void mst_log_set(mst_log_sink *sink, void *arg, mst_log_level level);

void mst_log(mst_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define mst_info(...) mst_log(MST_LOG_INFO, __VA_ARGS__)
#define mst_warn(...) mst_log(MST_LOG_WARN, __VA_ARGS__)

#endif
