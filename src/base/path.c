/* Paths and globs; contract in file.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

/* ---- paths ---- */

bool mst_ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

bool mst_path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool mst_path_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Length of `text` without a "." and at least one digit in front of it at its end; 0 when there is none. */
static size_t path_strip_number(const char *text, size_t n)
{
    size_t i = n;
    while (i > 0 && text[i - 1] >= '0' && text[i - 1] <= '9')
        i--;
    return i > 0 && i < n && text[i - 1] == '.' ? i - 1 : 0;
}

bool mst_path_is_temporary(const char *path)
{
    size_t n = path_strip_number(path, strlen(path));
    n = n ? path_strip_number(path, n) : 0;
    return n >= 4 && memcmp(path + n - 4, ".tmp", 4) == 0;
}

mst_status mst_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* some file systems cannot sync a folder (EINVAL), and some folders cannot be opened (EACCES); their
     * entries are as durable as possible */
    bool good = fd >= 0 ? fsync(fd) == 0 || errno == EINVAL : errno == EACCES;
    mst_status st =
        good ? MST_OK : mst_fail(MST_EIO, "%s: the folder cannot be synced: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return st;
}

mst_status mst_sync_parent(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *parent = n > 0 ? mst_strndup(path, n) : mst_strdup(".");
    mst_status st = parent != NULL ? mst_sync_folder(parent) : mst_fail_memory();
    mst_free(parent);
    return st;
}

mst_status mst_make_folders(const char *path)
{
    mst_status st = MST_OK;
    char *part = mst_strdup(path);
    if (part == NULL)
        return mst_fail_memory();
    for (char *end = part; st == MST_OK && *end != '\0';) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char kept = *end;
        *end = '\0';
        int reason = mkdir(part, 0777) == 0 ? 0 : errno;
        if (reason != 0 && !mst_path_is_folder(part)) {
            reason = reason == EEXIST ? ENOTDIR : reason;
            st = strcmp(part, path) == 0
                     ? mst_fail(MST_EIO, "the folder %s cannot be created: %s", path, strerror(reason))
                     : mst_fail(MST_EIO, "the folder %s cannot be created: %s: %s", path, part,
                                strerror(reason));
        } else if (reason == 0) {
            st = mst_sync_parent(part);
        }
        *end = kept;
    }
    mst_free(part);
    return st;
}

static mst_status path_cannot_remove(const char *path)
{
    return mst_fail(MST_EIO, "%s: cannot be removed: %s", path, strerror(errno));
}

static mst_status path_remove_children(const char *path)
{
    mst_status st = MST_OK;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno == ENOENT ? MST_OK : path_cannot_remove(path);
    struct dirent *entry;
    while (st == MST_OK && (errno = 0, entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *child = mst_sprintf("%s/%s", path, entry->d_name);
        st = child ? mst_remove_tree(child) : mst_fail_memory();
        mst_free(child);
    }
    if (st == MST_OK && errno != 0)
        st = path_cannot_remove(path);
    closedir(folder);
    return st;
}

mst_status mst_remove_tree(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? MST_OK : path_cannot_remove(path);
    bool folder = S_ISDIR(info.st_mode);
    if (folder)
        TRY(path_remove_children(path));
    if ((folder ? rmdir(path) : unlink(path)) != 0 && errno != ENOENT)
        return path_cannot_remove(path);
    return MST_OK;
}

/* ---- globs ---- */

/* The plain files of a folder; hidden ones are left out, as a glob does. */
static mst_status path_add_folder(const char *path, mst_text_list *out)
{
    mst_status st = MST_OK;
    size_t length = strlen(path);
    const char *slash = length > 0 && path[length - 1] == '/' ? "" : "/";
    DIR *folder = opendir(path);
    if (folder == NULL)
        return mst_fail(MST_EINPUT, "%s: the folder cannot be read: %s", path, strerror(errno));
    struct dirent *entry;
    while (st == MST_OK && (errno = 0, entry = readdir(folder)) != NULL) {
        struct stat info;
        if (entry->d_name[0] == '.' || mst_path_is_temporary(entry->d_name))
            continue;
        char *file = mst_sprintf("%s%s%s", path, slash, entry->d_name);
        if (file == NULL)
            st = mst_fail_memory();
        else if (stat(file, &info) == 0 && S_ISREG(info.st_mode))
            st = mst_text_list_add(out, file);
        mst_free(file);
    }
    if (st == MST_OK && errno != 0)
        st = mst_fail(MST_EIO, "%s: the folder cannot be read: %s", path, strerror(errno));
    closedir(folder);
    return st;
}

static mst_status path_add_matches(const char *pattern, mst_text_list *out)
{
    mst_status st = MST_OK;
    glob_t found = {0};
    int rc = glob(pattern, GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE, NULL, &found);
    if (rc == GLOB_NOSPACE)
        st = mst_fail_memory();
    for (size_t i = 0; rc == 0 && st == MST_OK && i < found.gl_pathc; i++)
        if (!mst_path_is_temporary(found.gl_pathv[i]) && !mst_path_is_folder(found.gl_pathv[i]))
            st = mst_text_list_add(out, found.gl_pathv[i]);
    globfree(&found);
    return st;
}

static mst_status path_add_pattern(const char *pattern, mst_text_list *out)
{
    if (strcmp(pattern, "-") == 0)
        return mst_text_list_add(out, pattern);
    if (mst_path_is_temporary(pattern))
        return mst_fail(MST_EINPUT, "%s: is a temporary file that a write left behind, not data", pattern);
    size_t before = out->n;
    bool folder = mst_path_is_folder(pattern);
    if (folder)
        TRY(path_add_folder(pattern, out));
    else if (mst_path_exists(pattern))
        TRY(mst_text_list_add(out, pattern));
    else
        TRY(path_add_matches(pattern, out));
    if (out->n > before) {
        mst_text_list_sort(out, before);
        return MST_OK;
    }
    if (folder)
        return mst_fail(MST_EINPUT, "%s: the folder has no files", pattern);
    if (strpbrk(pattern, "*?[{") == NULL)
        return mst_fail(MST_EINPUT, "%s: there is no such file", pattern);
    return mst_fail(MST_EINPUT, "%s: matches no file", pattern);
}

mst_status mst_glob(const mst_text_list *patterns, mst_text_list *out)
{
    mst_text_list found = {0};
    for (size_t i = 0; i < patterns->n; i++) {
        mst_status st = path_add_pattern(patterns->items[i], &found);
        if (st != MST_OK) {
            mst_text_list_fini(&found);
            return st;
        }
    }
    *out = found;
    return MST_OK;
}

/* ---- words of a shell ---- */

const char *mst_shell_word(const char *text, char *out, size_t size)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    size_t n = 0;
    if (*text != '\0' && text[strspn(text, safe)] == '\0') {
        snprintf(out, size, "%s", text);
        return out;
    }
    n += (size_t)snprintf(out, size, "'");
    for (; *text != '\0' && n + 6 < size; text++)
        n += (size_t)snprintf(out + n, size - n, *text == '\'' ? "'\\''" : "%c", *text);
    snprintf(out + n, size - n, "'");
    return out;
}
