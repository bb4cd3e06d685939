/* messages.h - protobuf messages as answers to gRPC calls. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>

#include "kube/grpc/grpc.h"
#include "kubelet.pb-c.h"

/* `count` zeroed elements and one more as the end; the caller frees the array. */
static inline void *message_array(size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);
    if (!array)
        abort(); /* we are started again, and the daemon has all state */
    return array;
}

/* The bytes of a message, which the caller frees; NULL if memory is short. */
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
    if (!packed)
        abort(); /* as above */
    grpc_call_send(call, packed, bytes);
    free(packed);
}

/* Send the only message of an answer, and end the answer. */
static inline void message_answer(struct grpc_call *call, const ProtobufCMessage *message)
{
    message_send(call, message);
    grpc_call_end(call, GRPC_OK, NULL);
}
