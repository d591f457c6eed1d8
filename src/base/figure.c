/* Numbers and units as people read them (figure.h). */
#include "base/figure.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PER_SECOND "/s"

static const char *const unit_names[] = {
    [MST_FIGURE_PLAIN] = "plain", [MST_FIGURE_COUNT] = "count", [MST_FIGURE_SECONDS] = "seconds",
    [MST_FIGURE_BYTES] = "bytes", [MST_FIGURE_RATE] = "rate",   [MST_FIGURE_SHARE] = "share",
    [MST_FIGURE_CORES] = "cores",
};

const char *mst_figure_unit_name(mst_figure_unit unit)
{
    return unit_names[unit];
}

/* ---- scales ---- */

static const char *const count_units[] = {"", "k", "M", "G", "T", "P", "E"};
static const char *const byte_units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
static const char *const rate_units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"};
#define N_SCALES (sizeof byte_units / sizeof *byte_units)

static double figure_scale(const char *const units[N_SCALES], double value, const char **name)
{
    double scale = 1;
    size_t k = 0;
    for (; k + 1 < N_SCALES && fabs(value) / scale >= 999.5; k++)
        scale *= 1000;
    *name = units[k];
    return scale;
}

double mst_figure_unit_scale(mst_figure_unit unit, double value, const char **name)
{
    double a = fabs(value);
    switch (unit) {
    case MST_FIGURE_COUNT:
        return figure_scale(count_units, value, name);
    case MST_FIGURE_BYTES:
        return figure_scale(byte_units, value, name);
    case MST_FIGURE_RATE:
        return figure_scale(rate_units, value, name);
    case MST_FIGURE_SECONDS:
        *name = a >= 0.9995 ? "s" : a >= 0.9995e-3 ? "ms" : "\xc2\xb5s";
        return a >= 0.9995 ? 1 : a >= 0.9995e-3 ? 1e-3 : 1e-6;
    case MST_FIGURE_SHARE:
        *name = "%";
        return 0.01;
    default:
        *name = "";
        return 1;
    }
}

static bool figure_is_shown(double value, double limit)
{
    return isfinite(value) && fabs(value) <= limit;
}

static const char *figure_none(char *out)
{
    memcpy(out, MST_FIGURE_NONE, sizeof MST_FIGURE_NONE);
    return out;
}

/* Decimals of a number with three digits. */
static int figure_decimals(double value)
{
    double a = fabs(value);
    return a >= 99.95 ? 0 : a >= 9.995 ? 1 : a >= 0.9995 ? 2 : 3;
}

/* Three digits without trailing zeros. Returns the length. */
static size_t figure_digits(double value, char *out)
{
    snprintf(out, MST_FIGURE_SIZE, "%.*f", figure_decimals(value), value);
    size_t n = strlen(out);
    if (strchr(out, '.') != NULL) {
        while (out[n - 1] == '0')
            n--;
        n -= out[n - 1] == '.';
        out[n] = '\0';
    }
    return n;
}

/* Adds text to a figure of n characters. */
static const char *figure_append(char *out, size_t n, const char *separator, const char *text)
{
    snprintf(out + n, MST_FIGURE_SIZE - n, "%s%s", separator, text);
    return out;
}

/* ---- single figures ---- */

const char *mst_figure_grouped(uint64_t value, char *out)
{
    char digits[24], *at = out;
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return out;
}

const char *mst_figure_size(uint64_t bytes, char *out)
{
    const char *name;
    double scale = mst_figure_unit_scale(MST_FIGURE_BYTES, (double)bytes, &name),
           scaled = (double)bytes / scale;
    snprintf(out, 32, "%.*f %s", scale == 1 ? 0 : figure_decimals(scaled), scaled,
             scale == 1 ? "bytes" : name);
    return out;
}

const char *mst_figure_count(double value, char *out)
{
    if (!figure_is_shown(value, 1e18))
        return figure_none(out);
    *out = '-';
    mst_figure_grouped((uint64_t)llround(fabs(value)), out + (value <= -0.5));
    return out;
}

const char *mst_figure_short(double value, char *out)
{
    const char *name;
    if (!figure_is_shown(value, 1e20))
        return figure_none(out);
    if (value != 0 && fabs(value) < 0.01) {
        snprintf(out, MST_FIGURE_SIZE, "%.3g", value);
        return out;
    }
    double scale = mst_figure_unit_scale(MST_FIGURE_COUNT, value, &name);
    return figure_append(out, figure_digits(value / scale, out), "", name);
}

const char *mst_figure_bytes(double value, char *out)
{
    const char *name;
    if (!figure_is_shown(value, 1e20))
        return figure_none(out);
    double scale = mst_figure_unit_scale(MST_FIGURE_BYTES, value, &name);
    return figure_append(out, figure_digits(scale == 1 ? round(value) : value / scale, out), " ", name);
}

const char *mst_figure_rate(double value, char *out)
{
    mst_figure_bytes(value, out);
    return figure_append(out, strlen(out), PER_SECOND, "");
}

const char *mst_figure_seconds(double value, char *out)
{
    const char *name;
    if (!figure_is_shown(value, 1e12))
        return figure_none(out);
    if (value >= 3599.5) {
        snprintf(out, MST_FIGURE_SIZE, "%.0f h %.0f min", floor((value + 30) / 3600),
                 floor(fmod(value + 30, 3600) / 60));
    } else if (value >= 99.95) {
        double whole = floor(value + 0.5);
        int n = snprintf(out, MST_FIGURE_SIZE, "%.0f min", floor(whole / 60));
        if (fmod(whole, 60) > 0)
            snprintf(out + n, MST_FIGURE_SIZE - (size_t)n, " %.0f s", fmod(whole, 60));
    } else {
        double scale = mst_figure_unit_scale(MST_FIGURE_SECONDS, value == 0 ? 1 : fmax(value, 0), &name);
        figure_append(out, figure_digits(value / scale, out), " ", name);
    }
    return out;
}

const char *mst_figure_percent(double share, char *out)
{
    if (!figure_is_shown(share, 1e6))
        return figure_none(out);
    snprintf(out, MST_FIGURE_SIZE, "%.*f%%", fabs(share) >= 0.0995 || share == 0 ? 0 : 1, share * 100);
    return out;
}

const char *mst_figure_precise(double share, char *out)
{
    if (!figure_is_shown(share, 1e6))
        return figure_none(out);
    snprintf(out, MST_FIGURE_SIZE, "%.2f%%", share * 100);
    return out;
}

const char *mst_figure_real(double value, char *out)
{
    if (!isfinite(value))
        return figure_none(out);
    snprintf(out, MST_FIGURE_SIZE, "%.4g", value);
    return out;
}

const char *mst_figure_cores(double value, char *out)
{
    if (!figure_is_shown(value, 1e12))
        return figure_none(out);
    snprintf(out, MST_FIGURE_SIZE, "%.2f", value);
    return out;
}

const char *mst_figure_bits(double bytes_per_s, char *out)
{
    double mbits = bytes_per_s * 8e-6;
    snprintf(out, MST_FIGURE_SIZE, "%.4g %s", mbits >= 1000 ? mbits / 1000 : mbits,
             mbits >= 1000 ? "Gbit/s" : "Mbit/s");
    return out;
}

/* ---- columns ---- */

/* Adds zeros to the number at the start of the text until it has that many digits. Whole bytes, minutes,
 * hours and exponents stay as they are. */
static const char *figure_pad(char *text, int digits)
{
    size_t n = strspn(text, "-0123456789."), rest = strlen(text + n) + 1;
    int has = 0;
    bool point = false, leading = true;
    for (size_t i = 0; i < n; i++) {
        point = point || text[i] == '.';
        leading = leading && (text[i] < '1' || text[i] > '9');
        has += !leading && text[i] != '.';
    }
    if (n == 0 || leading || has >= digits || text[n] == 'e' || strncmp(text + n, " B", 2) == 0 ||
        strncmp(text + n, " min", 4) == 0 || strncmp(text + n, " h", 2) == 0)
        return text;
    size_t zeros = (size_t)(digits - has) + !point;
    if (n + zeros + rest > MST_FIGURE_SIZE)
        return text;
    memmove(text + n + zeros, text + n, rest);
    memset(text + n, '0', zeros);
    if (!point)
        text[n] = '.';
    return text;
}

const char *mst_figure_column(mst_figure_unit unit, double value, char *out)
{
    switch (unit) {
    case MST_FIGURE_COUNT:
        return mst_figure_count(value, out);
    case MST_FIGURE_SECONDS:
        mst_figure_seconds(value, out);
        return figure_pad(out, 3);
    case MST_FIGURE_BYTES:
        mst_figure_bytes(value, out);
        return value == 0 ? figure_none(out) : figure_pad(out, 3);
    case MST_FIGURE_RATE:
        mst_figure_rate(value, out);
        return value == 0 ? figure_none(out) : figure_pad(out, 3);
    case MST_FIGURE_SHARE:
        return value == 0 ? figure_none(out) : mst_figure_percent(value, out);
    case MST_FIGURE_CORES:
        return mst_figure_cores(value, out);
    default:
        mst_figure_real(value, out);
        return figure_pad(out, 4);
    }
}

const char *mst_figure_text(mst_figure_unit unit, double value, char *out)
{
    switch (unit) {
    case MST_FIGURE_COUNT:
        return fabs(value) >= 1e5 && value != floor(value) ? mst_figure_short(value, out)
                                                           : mst_figure_count(value, out);
    case MST_FIGURE_SECONDS:
        return mst_figure_seconds(value, out);
    case MST_FIGURE_BYTES:
        return mst_figure_bytes(value, out);
    case MST_FIGURE_RATE:
        return mst_figure_rate(value, out);
    case MST_FIGURE_SHARE:
        return mst_figure_precise(value, out);
    default:
        return mst_figure_real(value, out);
    }
}

static int figure_spread_decimals(mst_figure_unit unit, double shown)
{
    if (unit == MST_FIGURE_PLAIN || unit == MST_FIGURE_CORES)
        return shown < 10 ? 4 : 2;
    return unit == MST_FIGURE_SHARE ? 2 : shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2;
}

const char *mst_figure_spread(mst_figure_unit unit, double mean, double deviation, char *out)
{
    const char *name = "";
    bool small_count = unit == MST_FIGURE_COUNT && fabs(mean) < 1e5;
    double scale = small_count ? 1 : mst_figure_unit_scale(unit, mean, &name), shown = fabs(mean) / scale;
    if (unit == MST_FIGURE_COUNT && mean == floor(mean) && !(deviation > 0))
        return mst_figure_count(mean, out);
    if (!isfinite(mean) || shown > 1e9 || (unit == MST_FIGURE_SECONDS && mean >= 99.95)) {
        char more[MST_FIGURE_SIZE];
        mst_figure_text(unit, mean, out);
        size_t n = strlen(out);
        if (deviation >= 0)
            snprintf(out + n, 2 * MST_FIGURE_SIZE - n, " \xc2\xb1 %s",
                     mst_figure_text(unit, deviation, more));
        return out;
    }
    int decimals = figure_spread_decimals(unit, shown);
    size_t n = (size_t)snprintf(out, 2 * MST_FIGURE_SIZE, "%.*f", decimals, mean / scale);
    if (deviation >= 0)
        n += (size_t)snprintf(out + n, 2 * MST_FIGURE_SIZE - n, " \xc2\xb1 %.*f", decimals,
                              fmin(deviation / scale, 1e9));
    bool apart = unit == MST_FIGURE_BYTES || unit == MST_FIGURE_RATE || unit == MST_FIGURE_SECONDS;
    snprintf(out + n, 2 * MST_FIGURE_SIZE - n, "%s%s", apart ? " " : "", name);
    return out;
}
