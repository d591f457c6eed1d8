/* The page of a report (page.h).
 *
 * Invariant: every text from a run is a JSON string in a data block, in which each "<" is written as \u003c,
 * so that no text can end the block or open a tag. */
#include "report/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "base/version.h"
#include "report/assets.h"

json_t *mst_page_string(const char *text)
{
    char *clean = mst_utf8_clean(text != NULL ? text : "");
    json_t *string = clean != NULL ? json_string(clean) : NULL;
    mst_free(clean);
    return string;
}

/* ---- sections and blocks ---- */

void mst_page_init(mst_page *self, const char *title)
{
    *self = (mst_page){.document = json_pack("{s:o, s:[]}", "title", mst_page_string(title), "sections"),
                       .title = mst_strdup(title)};
    self->failed = self->document == NULL || self->title == NULL;
    mst_page_section(self, "head", title);
}

void mst_page_fini(mst_page *self)
{
    json_decref(self->document);
    mst_free(self->title);
    *self = (mst_page){0};
}

void mst_page_section(mst_page *self, const char *id, const char *title)
{
    self->blocks = self->outer = json_array();
    json_t *section =
        json_pack("{s:s, s:o, s:o}", "id", id, "title", mst_page_string(title), "blocks", self->blocks);
    if (section == NULL || json_array_append_new(json_object_get(self->document, "sections"), section) != 0) {
        self->blocks = self->outer = NULL;
        self->failed = true;
    }
}

void mst_page_block(mst_page *self, json_t *block)
{
    self->failed = json_array_append_new(self->blocks, block) != 0 || self->failed;
}

void mst_page_fold(mst_page *self, const char *title)
{
    json_t *inner = json_array();
    mst_page_block(
        self, json_pack("{s:s, s:o, s:o}", "kind", "fold", "title", mst_page_string(title), "blocks", inner));
    self->blocks = self->failed ? NULL : inner;
}

void mst_page_fold_end(mst_page *self)
{
    self->blocks = self->outer;
}

void mst_page_text(mst_page *self, const char *style, const char *label, const char *text)
{
    mst_page_block(self,
                   json_pack("{s:s, s:s, s:o*, s:o}", "kind", "text", "class", style, "label",
                             label != NULL ? mst_page_string(label) : NULL, "text", mst_page_string(text)));
}

void mst_page_tile(mst_page *self, const char *value, const char *what)
{
    json_t *last = json_array_get(self->blocks, json_array_size(self->blocks) - 1);
    if (json_object_get(last, "tiles") == NULL) {
        last = json_pack("{s:s, s:[]}", "kind", "tiles", "tiles");
        mst_page_block(self, last);
    }
    if (self->failed) /* `last` may be gone */
        return;
    json_t *tile = json_pack("[o, s]", mst_page_string(value), what);
    self->failed = json_array_append_new(json_object_get(last, "tiles"), tile) != 0;
}

void mst_page_sheet(mst_page *self, const mst_sheet *sheet, bool title)
{
    if (mst_sheet_rows(sheet) == 0)
        return;
    json_t *block = mst_sheet_block(sheet);
    if (title && block != NULL)
        json_object_set_new(block, "title", json_string(sheet->title));
    mst_page_block(self, block);
}

void mst_page_command(mst_page *self, const char *command)
{
    mst_page_block(self, json_pack("{s:s, s:o}", "kind", "command", "text", mst_page_string(command)));
}

void mst_page_raw(mst_page *self, const char *title, const json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(1)) : NULL;
    if (text != NULL)
        mst_page_block(self, json_pack("{s:s, s:o, s:o}", "kind", "raw", "title", mst_page_string(title),
                                       "text", json_string(text)));
    free(text); /* jansson's allocation */
}

/* ---- the file ---- */

static const mst_asset *page_asset(const char *path)
{
    const mst_asset *a = mst_assets;
    while (a->path != NULL && strcmp(a->path, path) != 0)
        a++;
    return a;
}

static const char *const page_styles[] = {"/uplot.css", "/page.css", NULL};
static const char *const page_scripts[] = {"/uplot.js", "/plot.js", "/page.js", "/live.js", NULL};

static void page_add_assets(const char *const *paths, mst_string *out)
{
    for (; *paths != NULL; paths++) {
        const mst_asset *a = page_asset(*paths);
        mst_string_addn(out, (const char *)a->data, a->size);
        mst_string_add(out, "\n");
    }
}

/* 'sha256-...' of a text, for the policy. */
static void page_add_hash(const mst_string *text, mst_string *out)
{
    uint8_t hash[SHA256_DIGEST_LENGTH], base64[4 * ((sizeof hash + 2) / 3) + 1];
    SHA256((const uint8_t *)(text->text != NULL ? text->text : ""), text->size, hash);
    EVP_EncodeBlock(base64, hash, sizeof hash);
    mst_string_format(out, "'sha256-%s'", (const char *)base64);
}

static void page_add_document(const json_t *document, mst_string *out)
{
    char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(7));
    out->failed = out->failed || text == NULL;
    mst_string_add(out, "<script type=\"application/json\" id=\"data\">");
    for (const char *p = text != NULL ? text : ""; *p != '\0';) {
        size_t n = strcspn(p, "<");
        mst_string_addn(out, p, n);
        p += n;
        if (*p == '<') {
            mst_string_add(out, "\\u003c");
            p++;
        }
    }
    mst_string_add(out, "</script>\n");
    free(text); /* jansson's allocation */
}

mst_status mst_page_html(mst_page *self, mst_string *out)
{
    mst_status st = MST_OK;
    mst_string style = {0}, script = {0}, foot = {0};
    char now[21];
    const mst_asset *index = page_asset("/");
    const char *text = (const char *)index->data, *end = text + index->size;
    /* the parts of the page that differ: the head, and the document */
    const char *live = strstr(text, "<!-- live -->"), *rest = strstr(text, "<!-- end -->");
    const char *data = strstr(text, "<!-- data -->");
    mst_wall_time(now);
    mst_string_format(&foot, "Written by muster %s at %s. The page needs no network.", mst_version(), now);
    page_add_assets(page_styles, &style);
    page_add_assets(page_scripts, &script);
    if (self->failed || foot.failed || style.failed || script.failed ||
        json_object_set_new(self->document, "foot", json_string(foot.text)) != 0)
        TRY_OUT(st, mst_fail_memory());
    mst_string_addn(out, text, (size_t)(live - text));
    mst_string_add(out,
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src ");
    page_add_hash(&script, out);
    mst_string_add(out, "; style-src ");
    page_add_hash(&style, out);
    mst_string_add(out, "; base-uri 'none'; form-action 'none'\">\n<title>");
    mst_string_html(out, self->title);
    mst_string_format(out, " \xe2\x80\x93 muster report</title>\n<style>%s</style>", style.text);
    rest += strlen("<!-- end -->");
    mst_string_addn(out, rest, (size_t)(data - rest));
    page_add_document(self->document, out);
    mst_string_add(out, "<script>");
    mst_string_addn(out, script.text, script.size);
    mst_string_add(out, "</script>");
    data += strlen("<!-- data -->");
    mst_string_addn(out, data, (size_t)(end - data));
    st = out->failed ? mst_fail_memory() : MST_OK;
out:
    mst_string_fini(&style);
    mst_string_fini(&script);
    mst_string_fini(&foot);
    return st;
}
