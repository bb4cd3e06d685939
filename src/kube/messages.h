/* messages.h - answers to gRPC calls as protobuf messages. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>

#include "kube/grpc.h"
#include "kubelet.pb-c.h"

/* `count` elements of zeros, one more for its end, which the caller frees. */
static inline void *message_array(size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);
    if (!array)
        abort(); /* started again, with all state in the daemon */
    return array;
}

/* Bytes of a message, which the caller frees; NULL without memory. */
static inline uint8_t *message_pack(const ProtobufCMessage *message, size_t *bytes)
{
    *bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(*bytes ? *bytes : 1);
    if (packed)
        protobuf_c_message_pack(message, packed);
    return packed;
}

static inline void message_send(struct grpc_call *call, const ProtobufCMessage *message)
{
    size_t bytes;
    uint8_t *packed = message_pack(message, &bytes);
    if (packed)
        grpc_call_send(call, packed, bytes);
    else
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    free(packed);
}

/* The one message of an answer. */
static inline void message_answer(struct grpc_call *call, const ProtobufCMessage *message)
{
    message_send(call, message);
    grpc_call_end(call, GRPC_OK, NULL);
}
