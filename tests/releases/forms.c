/* forms - prints the form of each message of the wire and of the ledger, a line each: what it is, and a number. Within a
 * MAJOR release lines may come and none may change. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ledger/usage.h"
#include "wire/wire.h"

#define TYPES_MOST 256u

static const struct {
    const char *name;
    uint64_t number;
} rows[] = {
#define VALUE(name)                                                                                          \
    {                                                                                                        \
#name, (uint64_t)(name)                                                                              \
    }
#define FIELD(type, field)                                                                                   \
    {                                                                                                        \
#type "." #field, offsetof(struct type, field)                                                       \
    }
#define BYTES(type)                                                                                          \
    {                                                                                                        \
#type, sizeof(struct type)                                                                           \
    }
    VALUE(WIRE_MAGIC),
    VALUE(WIRE_VERSION_HELLO),
    VALUE(WIRE_REFUSED_NO_SESSION),
    VALUE(WIRE_REFUSED_RULE),
    VALUE(WIRE_NOTICE_CONTEXT),
    VALUE(WIRE_NOTICE_DENIED),
    VALUE(WIRE_REFUSAL_BY_CARD),
    VALUE(WIRE_LEASE_FREE),
    VALUE(WIRE_LEASE_WANTED),
    VALUE(WIRE_LEASE_REPORT),
    VALUE(WIRE_LEASE_BURSTS),
    VALUE(WIRE_LEASE_STILL),
    VALUE(WIRE_LEASE_STALLS),
    VALUE(WIRE_LEASE_STEP),
    VALUE(WIRE_LEASE_COMPANY),
    VALUE(WIRE_LEASE_MEASURE),
    VALUE(WIRE_LEASE_OVERLAPS),
    VALUE(WIRE_OUTCOME_DRAINED),
    VALUE(WIRE_OUTCOME_IDLE),
    VALUE(WIRE_OUTCOME_UNDRAINED),
    VALUE(WIRE_MOVE_DONE),
    VALUE(WIRE_MOVE_GOES_ON),
    VALUE(WIRE_MOVE_BUSY),
    VALUE(WIRE_MOVE_NO_ROOM),
    VALUE(WIRE_MOVE_FAILED),
    VALUE(WIRE_MOVED_AWAY),
    VALUE(WIRE_MOVED_WAITS),
    VALUE(WIRE_MOVED_IDLE),
#define STAYS(name, word, text) VALUE(WIRE_STAYS_##name),
#include "wire/stays.def"
    FIELD(wire_hello, version_oldest),
    FIELD(wire_hello, layout_oldest),
    FIELD(wire_hello, slot),
    FIELD(wire_hello, generation),
    FIELD(wire_hello, session_id),
    FIELD(wire_hello, token),
    FIELD(wire_welcome, slot),
    FIELD(wire_welcome, layout),
    FIELD(wire_welcome, generation),
    FIELD(wire_welcome, epoch),
    FIELD(wire_welcome, policy_bytes),
    FIELD(wire_welcome, usage_bytes),
    FIELD(wire_refused, reason),
    FIELD(wire_refused, message),
    FIELD(wire_agent, version_oldest),
    FIELD(wire_agent, slot),
    FIELD(wire_agent, generation),
    FIELD(wire_agent, session_id),
    FIELD(wire_agent, token),
    FIELD(wire_notice, refusal),
    FIELD(wire_grant, lease),
    FIELD(wire_grant, flags),
    FIELD(wire_grant, ahead_us),
    FIELD(wire_revoke, patience_ns),
    FIELD(wire_closed, left_ns),
    FIELD(wire_returned, longest_ns),
    FIELD(wire_returned, waited_ns),
    FIELD(wire_returned, outcome),
    FIELD(wire_returned, ended_us),
    FIELD(wire_report, busy_ns),
    FIELD(wire_report, longest_ns),
    FIELD(wire_report, waited_ns),
    FIELD(wire_report, calls),
    FIELD(wire_report, begun_ns),
    FIELD(wire_report, least_ns),
    FIELD(wire_report, measured),
    FIELD(wire_evict, patience_ns),
    FIELD(wire_evict, idle_ns),
    FIELD(wire_restore_part, most_bytes),
    FIELD(wire_restore_part, gpu),
    FIELD(wire_moved, resident_bytes),
    FIELD(wire_moved, evicted_bytes),
    FIELD(wire_moved, stays_bytes),
    FIELD(wire_moved, arena_bytes),
    FIELD(wire_moved, result),
    FIELD(wire_moved, flags),
    FIELD(wire_need, bytes),
    FIELD(wire_need, gpu),
    FIELD(wire_need, attempt),
    FIELD(wire_room, has_room),
    VALUE(LEDGER_MAGIC),
    VALUE(LEDGER_LAYOUT),
    VALUE(LEDGER_ENGINE_PLAIN),
    VALUE(LEDGER_ENGINE_SWAP),
    VALUE(LEDGER_ENGINE_MANAGED),
    FIELD(ledger_policy, gpu_count),
    FIELD(ledger_policy, epoch),
    FIELD(ledger_policy, session_id),
    FIELD(ledger_policy, closed),
    FIELD(ledger_policy, engine),
    FIELD(ledger_policy, beats),
    FIELD(ledger_policy, may_pass_card),
    FIELD(ledger_policy, limit_from),
    FIELD(ledger_policy, gpus),
    BYTES(ledger_policy_gpu),
    FIELD(ledger_policy_gpu, uuid),
    FIELD(ledger_policy_gpu, limit_bytes),
    FIELD(ledger_policy_gpu, context_bytes),
    FIELD(ledger_policy_gpu, total_bytes),
    FIELD(ledger_policy_gpu, driver_bytes),
    FIELD(ledger_policy_gpu, orphan_bytes),
    FIELD(ledger_policy_gpu, is_mig),
    FIELD(ledger_policy_gpu, busy),
    FIELD(ledger_usage, slots_marked),
    FIELD(ledger_usage, epoch),
    FIELD(ledger_usage, gpus_used),
    FIELD(ledger_usage, joint_marked),
    FIELD(ledger_usage, owners),
    FIELD(ledger_usage, holders),
    FIELD(ledger_usage, exports),
    FIELD(ledger_usage, gpus),
    BYTES(ledger_usage),
    FIELD(usage_gpu, deciding),
    FIELD(usage_gpu, granted_bytes),
    FIELD(usage_gpu, let_go_bytes),
    FIELD(usage_gpu, taken_bytes),
    FIELD(usage_gpu, left_bytes),
    FIELD(usage_gpu, ahead_bytes),
    FIELD(usage_gpu, seen_bytes),
    FIELD(usage_gpu, words),
    FIELD(usage_gpu, requests),
    FIELD(usage_request, bytes),
    FIELD(usage_request, limit_bytes),
    FIELD(usage_request, is_charge),
    FIELD(usage_request, granted_count),
    FIELD(usage_request, refused_count),
    FIELD(usage_request, hidden_bytes),
    FIELD(usage_request, movers),
    FIELD(usage_request, more_movers),
};

/* The bytes of a message of the type; -1: there is none. */
static ssize_t message_bytes(int sockets[static 2], uint16_t type)
{
    struct wire_message message = {.header.type = type};
    return wire_send(sockets[0], &message, NULL, 0) == 0 ? recv(sockets[1], &message, sizeof(message), 0)
                                                         : -1;
}

int main(void)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) < 0)
        return 1;
    for (uint16_t type = 1; type < TYPES_MOST; type++) {
        ssize_t bytes = message_bytes(sockets, type);
        if (bytes >= 0)
            printf("message.%u %zd\n", type, bytes);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        printf("%s %llu\n", rows[i].name, (unsigned long long)rows[i].number);
    return 0;
}
