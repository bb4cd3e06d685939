#include "daemon/process/driver_left.h"

#include "daemon/gpu/card.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "ledger/ledger.h"

/* How many samples in a row must show less: three, if no process changed its slot around them, since then the driver line of each
 * has what the card shows for it. */
#define WEIGHT_NEEDED 24u
#define WEIGHT_QUIET 8u
#define WEIGHT_MOVED 1u
#define USUAL_SAMPLES 8u /* driver_left_take() */

/* After so many samples around which slots changed, bounds have told what can be told. */
#define AHEAD_SAMPLES 4u

typedef void see_left(struct daemon *daemon, struct session *session, unsigned policy_gpu, void *argument);

/* Call `see` for each session that has the GPU and a ledger. */
static void each_on(struct daemon *daemon, unsigned gpu, see_left *see, void *argument)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; session->ledger.usage && i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)gpu)
                see(daemon, session, i, argument);
}

void driver_left_begin(struct daemon *daemon)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; session->ledger.usage && i < session->gpu_count; i++) {
            session->gpus[i].let_go_before = ledger_let_go_total(session->ledger.usage, i);
            session->gpus[i].ahead_before = ledger_ahead_total(session->ledger.usage, i);
        }
}

/* One GPU, of which sessions are told what is left one after the other. */
struct look {
    uint64_t listed_bytes; /* by NVML for processes, and managed memory, which is charged and not listed */
    uint64_t rest_bytes;   /* that nobody has been told of yet */
    uint64_t used_bytes;   /* of the card: more cannot be left, by one sample alone */
    bool has_any, is_open;
};

static void add_hidden(struct daemon *daemon, struct session *session, unsigned policy_gpu, void *argument)
{
    struct look *look = argument;
    (void)daemon;
    for (const struct process *process = session->processes; process; process = process->next)
        look->listed_bytes +=
            ledger_slot_sample(session->ledger.usage, process->slot, policy_gpu).hidden_bytes;
    look->has_any |= ledger_left(session->ledger.usage, policy_gpu) > 0;
}

/* `most`: what can be left of `left` bytes by this sample. Returns what still counts. */
static uint64_t lower(struct session_gpu *gpu, uint64_t left, uint64_t most)
{
    if (most >= left) {
        gpu->left_weight = 0;
        return left;
    }
    if (gpu->left_weight == 0 || gpu->left_most < most)
        gpu->left_most = most;
    gpu->left_weight += gpu->has_moved ? WEIGHT_MOVED : WEIGHT_QUIET;
    if (gpu->left_weight < WEIGHT_NEEDED)
        return left;
    gpu->left_weight = 0;
    return gpu->left_most;
}

static void take(struct daemon *daemon, struct session *session, unsigned policy_gpu, void *argument)
{
    struct look *look = argument;
    struct session_gpu *gpu = &session->gpus[policy_gpu];
    (void)daemon;
    uint64_t left = ledger_left_take(session->ledger.usage, policy_gpu, gpu->let_go_before);
    uint64_t most = left < look->rest_bytes ? left : look->rest_bytes;
    uint64_t now = lower(gpu, left, most);
    if (now > look->used_bytes)
        now = look->used_bytes;
    if (now != left)
        ledger_left_set(session->ledger.usage, policy_gpu, now);
    look->rest_bytes -= most;
    look->is_open |= most < now;
}

/* What a card shows for nobody without sessions' doing: the driver's own, and graphics. It counts as such once it was seen in
 * many samples while nothing was let go of. */
static void set_usual(struct gpu *card, uint64_t unlisted_bytes, bool has_any)
{
    if (card->unlisted_samples == 0 || unlisted_bytes < card->unlisted_least)
        card->unlisted_least = unlisted_bytes;
    card->unlisted_samples++;
    if (has_any)
        card->unlisted_samples = 0;
    bool is_settled = card->unlisted_samples == USUAL_SAMPLES;
    if (is_settled)
        card->unlisted_samples = 0;
    if (is_settled || unlisted_bytes < card->unlisted_bytes || !card->has_usual)
        card->unlisted_bytes = is_settled ? card->unlisted_least : unlisted_bytes;
    card->has_usual = true;
}

bool driver_left_take(struct daemon *daemon, unsigned gpu, uint64_t shown_bytes)
{
    struct gpu *card = &daemon->gpus[gpu];
    struct look look = {.listed_bytes = shown_bytes, .used_bytes = card->used_bytes};
    each_on(daemon, gpu, add_hidden, &look);
    uint64_t unlisted = card->used_bytes > look.listed_bytes ? card->used_bytes - look.listed_bytes : 0;
    set_usual(card, unlisted, look.has_any);
    look.rest_bytes = unlisted > card->unlisted_bytes ? unlisted - card->unlisted_bytes : 0;
    each_on(daemon, gpu, take, &look);
    return look.is_open;
}

void driver_left_published(struct session *session)
{
    for (unsigned i = 0; session->ledger.usage && i < session->gpu_count; i++) {
        struct session_gpu *gpu = &session->gpus[i];
        if (gpu->has_moved && ++gpu->ahead_samples < AHEAD_SAMPLES)
            continue;
        gpu->ahead_samples = 0;
        ledger_ahead_seen(session->ledger.usage, i, gpu->ahead_before);
    }
}

static void forget(struct daemon *daemon, struct session *session, unsigned policy_gpu, void *argument)
{
    (void)daemon;
    (void)argument;
    ledger_left_take(session->ledger.usage, policy_gpu, session->gpus[policy_gpu].let_go_before);
    ledger_left_set(session->ledger.usage, policy_gpu, 0);
}

void driver_left_forget(struct daemon *daemon, unsigned gpu)
{
    each_on(daemon, gpu, forget, NULL);
}
