/* The handshake as a state machine; contract in handshake.h, layout in docs/WIRE.md.
 *
 * Invariants
 * 1. in never holds more than the message whose length its prefix gives, and that length is checked before
 * the body is taken: the bytes of an unauthenticated peer cost MST_SHAKE_MAX bytes of memory, whatever they
 * are.
 * 2. state leaves RUNNING once. DONE needs the other side's proof over both nonces.
 * 3. The prefix, the version text at the start of an identity, and REFUSE are the same in all wire versions,
 * so that the refusal of another version can be read. */
#include "net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* ---- layout ---- */

static void shake_put_prefix(const mst_shake *h, uint8_t *at, mst_shake_kind kind, size_t length)
{
    mst_put_u32(at, MST_WIRE_MAGIC);
    mst_put_u16(at + 4, h->wire);
    at[6] = (uint8_t)kind;
    at[7] = 0;
    mst_put_u16(at + 8, (uint16_t)length);
    mst_put_u16(at + 10, 0);
}

static void shake_put_identity(const mst_shake *h, uint8_t *at, mst_shake_kind kind,
                               const uint8_t nonce[MST_SHAKE_NONCE])
{
    shake_put_prefix(h, at, kind, MST_SHAKE_IDENTITY);
    at += MST_SHAKE_PREFIX;
    memcpy(at, h->version, MST_SHAKE_VERSION);
    at += MST_SHAKE_VERSION;
    mst_put_u32(at, (uint32_t)h->self.role);
    mst_put_u32(at + 4, h->self.index);
    mst_put_u64(at + 8, h->self.incarnation);
    memcpy(at + 16, h->self.job, MST_JOB_MAX);
    memcpy(at + 16 + MST_JOB_MAX, nonce, MST_SHAKE_NONCE);
    mst_put_u32(at + 16 + MST_JOB_MAX + MST_SHAKE_NONCE, (uint32_t)h->seal);
}

/* A text field of an unauthenticated peer: ends within n bytes, holds printable characters only. */
static bool shake_text_is_sound(const uint8_t *at, size_t n)
{
    size_t i = 0;
    while (i < n && at[i] >= 0x20 && at[i] < 0x7f)
        i++;
    return i < n && at[i] == 0;
}

/* ---- endings ---- */

static void shake_fail(mst_shake *h, const char *text)
{
    snprintf(h->text, sizeof h->text, "%s", text);
    h->state = MST_SHAKE_FAILED;
}

/* Ends with the message here and sends the other side's view of it. */
static void shake_refuse(mst_shake *h, const char *here, const char *there)
{
    uint8_t *at = h->out + MST_SHAKE_PREFIX;
    size_t n = strlen(there) < MST_SHAKE_MESSAGE ? strlen(there) : MST_SHAKE_MESSAGE;
    shake_put_prefix(h, h->out, MST_SHAKE_REFUSE, 8 + n);
    mst_put_u32(at, (uint32_t)h->self.role);
    mst_put_u32(at + 4, h->self.index);
    memcpy(at + 8, there, n);
    h->n_out = MST_SHAKE_PREFIX + 8 + n;
    shake_fail(h, here);
}

static void shake_other_name(const mst_shake *h, char *out, size_t size)
{
    if (h->named)
        snprintf(out, size, "%s %u (%s)", mst_role_name(h->other.role), h->other.index, h->address);
    else
        snprintf(out, size, "%s", h->address);
}

/* The two processes differ in `what`: mine here, theirs there. Both get "refused ...: that server <has> X,
 * this worker <has> Y". */
static void shake_differ(mst_shake *h, const char *it, const char *this, const char *theirs, const char *mine)
{
    char name[160], here[MST_SHAKE_MESSAGE + 160], there[MST_SHAKE_MESSAGE];
    shake_other_name(h, name, sizeof name);
    const char *other = h->named ? mst_role_name(h->other.role) : "process",
               *self = mst_role_name(h->self.role);
    snprintf(here, sizeof here, "refused %s: that %s %s %s, this %s %s %s", name, other, it, theirs, self,
             this, mine);
    snprintf(there, sizeof there, "that %s %s %s, this %s %s %s", self, it, mine, other, this, theirs);
    shake_refuse(h, here, there);
    h->refused = true;
}

static void shake_broken(mst_shake *h, const char *what)
{
    char here[MST_SHAKE_MESSAGE + 160];
    snprintf(here, sizeof here, "%s is not a muster process, or it failed: %s", h->address, what);
    shake_fail(h, here);
}

/* ---- proofs ---- */

#define WORDS 20

/* HMAC-SHA256 with the secret over the words, HELLO and CHALLENGE. */
static bool shake_digest(const mst_shake *h, const char words[WORDS], uint8_t out[32])
{
    uint8_t text[WORDS + sizeof h->hello + sizeof h->challenge];
    unsigned n = 0;
    memcpy(text, words, WORDS);
    memcpy(text + WORDS, h->hello, sizeof h->hello);
    memcpy(text + WORDS + sizeof h->hello, h->challenge, sizeof h->challenge);
    const char *secret = h->secret != NULL ? h->secret : "";
    return HMAC(EVP_sha256(), secret, (int)strlen(secret), text, sizeof text, out, &n) != NULL && n == 32;
}

static bool shake_prove(const mst_shake *h, bool by_dialer, uint8_t out[MST_SHAKE_PROOF])
{
    static const char words[2][WORDS] = {"muster listener 3", "muster dialer 3"};
    return shake_digest(h, words[by_dialer], out);
}

bool mst_shake_key(const mst_shake *h, bool by_dialer, uint8_t out[MST_SEAL_KEY])
{
    static const char words[2][WORDS] = {"listener's frames 3", "dialer's frames 3"};
    return shake_digest(h, words[by_dialer], out);
}

/* Whether the other side's proof is at `at`. */
static bool shake_is_proved(const mst_shake *h, const uint8_t *at)
{
    uint8_t proof[MST_SHAKE_PROOF];
    return shake_prove(h, !h->dialer, proof) && CRYPTO_memcmp(proof, at, MST_SHAKE_PROOF) == 0;
}

static void shake_wrong_secret(mst_shake *h)
{
    char name[160], here[MST_SHAKE_MESSAGE + 160];
    shake_other_name(h, name, sizeof name);
    snprintf(here, sizeof here, "refused %s: " MST_WIRE_OTHER_SECRET, name);
    shake_refuse(h, here, MST_WIRE_OTHER_SECRET);
    h->refused = true;
}

static void shake_needs_tls(mst_shake *h)
{
    char name[160], here[MST_SHAKE_MESSAGE + 160];
    shake_other_name(h, name, sizeof name);
    snprintf(here, sizeof here,
             "refused %s: it does not use TLS; give it --tls, or give all processes of the job --no-tls",
             name);
    shake_refuse(h, here,
                 "it accepts connections from other hosts with TLS only; give this process --tls, or give "
                 "all processes of the job --no-tls");
    h->refused = true;
}

static void shake_other_user(mst_shake *h)
{
    char name[160], here[MST_SHAKE_MESSAGE + 160];
    shake_other_name(h, name, sizeof name);
    snprintf(here, sizeof here, "refused %s: it runs as another user, and the job has no secret", name);
    shake_refuse(h, here,
                 "it runs as another user; give the job a secret, or start this process as that user");
    h->refused = true;
}

/* ---- messages ---- */

/* Reads the identity in the message in `in` into other and checks that it fits; false: the handshake is over.
 */
static bool shake_take_identity(mst_shake *h)
{
    const uint8_t *at = h->in + MST_SHAKE_PREFIX;
    uint16_t wire = mst_get_u16(h->in + 4);
    char version[MST_SHAKE_VERSION] = "?", mine[8], theirs[8];
    if (shake_text_is_sound(at, MST_SHAKE_VERSION))
        memcpy(version, at, sizeof version);
    const uint8_t *fields = at + MST_SHAKE_VERSION;
    uint32_t role = mst_get_u32(fields);
    if (wire != h->wire) {
        char it[64], self[64];
        snprintf(mine, sizeof mine, "%u", h->wire);
        snprintf(theirs, sizeof theirs, "%u", wire);
        snprintf(it, sizeof it, "%s (muster %s)", theirs, version);
        snprintf(self, sizeof self, "%s (muster %s)", mine, h->version);
        shake_differ(h, "uses wire version", "uses", it, self);
        return false;
    }
    uint32_t seal = mst_get_u32(fields + 16 + MST_JOB_MAX + MST_SHAKE_NONCE);
    if (role > MST_ROLE_PROBE || seal > MST_SEAL_MAC || !shake_text_is_sound(at, MST_SHAKE_VERSION) ||
        !shake_text_is_sound(fields + 16, MST_JOB_MAX)) {
        shake_broken(h, "its identity is not one");
        return false;
    }
    h->other.role = (mst_role)role;
    h->other.index = mst_get_u32(fields + 4);
    h->other.incarnation = mst_get_u64(fields + 8);
    memcpy(h->other.job, fields + 16, MST_JOB_MAX);
    h->named = true;
    if (seal > h->seal)
        h->seal = (mst_seal_kind)seal;
    if (strcmp(version, h->version) != 0) {
        shake_differ(h, "runs muster", "runs", version, h->version);
        return false;
    }
    if (h->other.job[0] != '\0' && h->self.job[0] != '\0' && strcmp(h->other.job, h->self.job) != 0) {
        shake_differ(h, "belongs to job", "to job", h->other.job, h->self.job);
        return false;
    }
    return true;
}

static void shake_on_hello(mst_shake *h)
{
    uint8_t nonce[MST_SHAKE_NONCE];
    memcpy(h->hello, h->in, sizeof h->hello);
    if (!shake_take_identity(h))
        return;
    if (h->other_user) {
        shake_other_user(h);
        return;
    }
    if (h->needs_tls) {
        shake_needs_tls(h);
        return;
    }
    if (RAND_bytes(nonce, sizeof nonce) != 1) {
        shake_refuse(h, "the system has no random bytes", "the system has no random bytes");
        return;
    }
    shake_put_identity(h, h->challenge, MST_SHAKE_CHALLENGE, nonce);
    memcpy(h->out, h->challenge, sizeof h->challenge);
    h->n_out = sizeof h->challenge;
}

/* PROOF of a dialer, ACCEPT of a listener. */
static void shake_send_proof(mst_shake *h, mst_shake_kind kind)
{
    shake_put_prefix(h, h->out, kind, MST_SHAKE_PROOF);
    if (!shake_prove(h, h->dialer, h->out + MST_SHAKE_PREFIX)) {
        shake_refuse(h, "no proof could be made", "no proof could be made");
        return;
    }
    h->n_out = MST_SHAKE_PREFIX + MST_SHAKE_PROOF;
}

static void shake_on_challenge(mst_shake *h)
{
    memcpy(h->challenge, h->in, sizeof h->challenge);
    if (shake_take_identity(h))
        shake_send_proof(h, MST_SHAKE_PROVE);
}

static void shake_on_proof(mst_shake *h)
{
    if (!shake_is_proved(h, h->in + MST_SHAKE_PREFIX)) {
        shake_wrong_secret(h);
        return;
    }
    shake_send_proof(h, MST_SHAKE_ACCEPT);
    if (h->state == MST_SHAKE_RUNNING)
        h->state = MST_SHAKE_DONE;
}

static void shake_on_accept(mst_shake *h)
{
    if (shake_is_proved(h, h->in + MST_SHAKE_PREFIX))
        h->state = MST_SHAKE_DONE;
    else
        shake_wrong_secret(h);
}

static void shake_on_refuse(mst_shake *h, size_t length)
{
    char message[MST_SHAKE_MESSAGE + 1], name[160], text[sizeof h->text];
    const uint8_t *at = h->in + MST_SHAKE_PREFIX;
    uint32_t role = mst_get_u32(at);
    size_t n = length - 8;
    memcpy(message, at + 8, n);
    message[n] = '\0';
    mst_utf8_mask(message);
    if (!h->named && role <= MST_ROLE_PROBE) {
        h->other.role = (mst_role)role;
        h->other.index = mst_get_u32(at + 4);
        h->named = true;
    }
    shake_other_name(h, name, sizeof name);
    snprintf(text, sizeof text, "refused by %s: %s", name, message);
    shake_fail(h, text);
    h->refused = true;
}

/* The length of the body that the prefix in `in` announces; -1: the handshake is over. */
static int shake_body_length(mst_shake *h)
{
    uint8_t kind = h->in[6];
    uint16_t length = mst_get_u16(h->in + 8);
    if (mst_get_u32(h->in) != MST_WIRE_MAGIC || h->in[7] != 0 || mst_get_u16(h->in + 10) != 0) {
        shake_broken(h, "its first bytes are not a handshake");
        return -1;
    }
    bool same = mst_get_u16(h->in + 4) == h->wire, listener_has_challenged = h->named;
    bool expected, fits;
    switch (kind) {
    case MST_SHAKE_HELLO:
        expected = !h->dialer && !listener_has_challenged;
        fits = length == MST_SHAKE_IDENTITY;
        break;
    case MST_SHAKE_CHALLENGE:
        expected = h->dialer && !h->named;
        fits = length == MST_SHAKE_IDENTITY;
        break;
    case MST_SHAKE_PROVE:
        expected = !h->dialer && listener_has_challenged;
        fits = same && length == MST_SHAKE_PROOF;
        break;
    case MST_SHAKE_ACCEPT:
        expected = h->dialer && h->named;
        fits = same && length == MST_SHAKE_PROOF;
        break;
    case MST_SHAKE_REFUSE:
        expected = true;
        fits = length >= 8 && length <= 8 + MST_SHAKE_MESSAGE;
        break;
    default:
        expected = fits = false;
    }
    /* Another version may have another layout after the version text. */
    if ((kind == MST_SHAKE_HELLO || kind == MST_SHAKE_CHALLENGE) && !same && length >= MST_SHAKE_VERSION &&
        length <= MST_SHAKE_MAX - MST_SHAKE_PREFIX)
        fits = true;
    if (!expected || !fits) {
        shake_broken(h, "it sent a handshake message out of order or of a wrong length");
        return -1;
    }
    return length;
}

static void shake_handle(mst_shake *h, size_t length)
{
    switch ((mst_shake_kind)h->in[6]) {
    case MST_SHAKE_HELLO:
        shake_on_hello(h);
        break;
    case MST_SHAKE_CHALLENGE:
        shake_on_challenge(h);
        break;
    case MST_SHAKE_PROVE:
        shake_on_proof(h);
        break;
    case MST_SHAKE_ACCEPT:
        shake_on_accept(h);
        break;
    case MST_SHAKE_REFUSE:
        shake_on_refuse(h, length);
        break;
    }
}

/* ---- contract ---- */

mst_status mst_shake_init(mst_shake *h, const mst_shake_options *options, bool dialer)
{
    uint8_t nonce[MST_SHAKE_NONCE];
    memset(h, 0, sizeof *h);
    h->dialer = dialer;
    h->self = *options->self;
    h->self.job[MST_JOB_MAX - 1] = '\0';
    memset(h->self.job + strlen(h->self.job), 0, MST_JOB_MAX - strlen(h->self.job));
    h->secret = options->secret;
    h->address = options->address;
    h->wire = options->wire;
    h->seal = options->seal;
    h->needs_tls = options->needs_tls;
    h->other_user = options->other_user;
    snprintf(h->version, sizeof h->version, "%s", options->version);
    if (!dialer)
        return MST_OK;
    if (RAND_bytes(nonce, sizeof nonce) != 1)
        return mst_fail(MST_EIO, "%s: the system has no random bytes for a handshake", h->address);
    shake_put_identity(h, h->hello, MST_SHAKE_HELLO, nonce);
    memcpy(h->out, h->hello, sizeof h->hello);
    h->n_out = sizeof h->hello;
    return MST_OK;
}

void mst_shake_inside_tls(mst_shake *h)
{
    h->seal = MST_SEAL_NONE;
    h->needs_tls = false;
}

void mst_shake_fail_secret(mst_shake *h)
{
    char text[sizeof h->text];
    snprintf(text, sizeof text, "refused %s%s: " MST_WIRE_OTHER_SECRET, h->dialer ? "by " : "", h->address);
    shake_fail(h, text);
    h->refused = true;
    h->n_out = 0;
}

void mst_shake_fail_tls(mst_shake *h)
{
    shake_broken(h, "the TLS handshake failed");
    h->n_out = 0;
}

size_t mst_shake_take(mst_shake *h, const void *bytes, size_t n)
{
    size_t used = 0;
    while (h->state == MST_SHAKE_RUNNING) {
        size_t want = MST_SHAKE_PREFIX;
        if (h->n_in >= MST_SHAKE_PREFIX) {
            int length = shake_body_length(h);
            if (length < 0)
                break;
            want += (size_t)length;
            if (h->n_in == want) {
                shake_handle(h, (size_t)length);
                h->n_in = 0;
                continue;
            }
        }
        size_t take = want - h->n_in < n - used ? want - h->n_in : n - used;
        if (take == 0)
            break;
        memcpy(h->in + h->n_in, (const uint8_t *)bytes + used, take);
        h->n_in += take;
        used += take;
    }
    return used;
}
