/* gallery.h - what the programs of the gallery share.
 *
 *   PROGRAM MIB SEED [HOW]
 *
 * Each makes the driver calls of one framework's allocator, with its properties, sizes and order, until it holds about MIB; fills
 * what it has with bytes that follow from SEED, works on them, and looks whether they are right. At named points it prints what it
 * holds, as "at POINT memory=BYTES exported=BYTES ...", and waits for a line on standard input, or for its end. At last it prints
 * "digest NUMBER refused COUNT": what its memory held, which follows from MIB and SEED alone, and how often it was told that there
 * is no memory. It ends with 0 if it found every byte right.
 *
 * tensor   a piece of GPU memory that the program got from its allocator, with what it should hold
 * kind     what a byte that was taken from the driver is, as far as that decides whether it can leave the card */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/prototypes.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Flags of cuda.h that nothing else here has. */
#define HOST_MEMORY_MAPPED 2u      /* CU_MEMHOSTALLOC_DEVICEMAP */
#define IPC_LAZY_PEER_ACCESS 1u    /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
#define GRAPH_FREES_AT_LAUNCH 1ull /* CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH */

enum kind {
    MEMORY,   /* nobody else knows of it */
    KEPT,     /* which a pool of the driver's keeps for later, and nothing is in it */
    EXPORTED, /* others were given it */
    POOLED,   /* of a pool that others were given */
    BOUND,    /* to a multicast object */
    GRAPH,    /* which a graph's nodes allocate */
    PINNED,   /* of the host, page-locked */
    KINDS
};

struct tensor {
    CUdeviceptr at;
    size_t bytes; /* a multiple of 512 */
    uint64_t seed;
    size_t tail; /* so many bytes at its end were set by a kernel, to the seed's lower half */
};

/* Of the command line. */
extern size_t wanted_bytes;
extern uint64_t program_seed;
extern const char *how; /* "" if nothing was said */

/* Say what went wrong, and end with 1. */
_Noreturn void gallery_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gallery_must(CUresult result, const char *call);
#define MUST(call) gallery_must(call, #call)

/* Reads the command line, makes the context of GPU 0 current, and loads the kernels. */
void gallery_begin(int argument_count, char **words);
/* The same in a child that gallery_fork() made: of the command line nothing is read again. */
void gallery_begin_child(void);
/* Prints the digest; what main() returns. */
int gallery_end(void);

/* A child process, made before gallery_begin(): a driver does not survive a fork. It begins with `child`, which gets a socket to
 * its parent; the parent gets the other end. */
int gallery_fork(void (*child)(int socket));
/* Waits for the child, which must have ended well. */
void gallery_join(void);
void send_bytes(int socket, const void *bytes, size_t count);
void receive_bytes(int socket, void *bytes, size_t count);

/* So many bytes of the kind were taken from the driver; negative: given back. */
void hold(enum kind kind, ptrdiff_t bytes);
size_t held(enum kind kind);
void gallery_pause(const char *point);
/* The driver said that there is no memory, and the program goes on without. */
void gallery_refused(void);

/* Random numbers that follow from SEED. */
uint64_t up_to(uint64_t number);

/* Gives the tensor new content, by a copy and by a kernel. */
void tensor_fill(struct tensor *tensor);
/* Content of the seed's alone, written by who knows where: expect it there. */
void tensor_expect(struct tensor *tensor, uint64_t seed);
/* Reads it back, has the GPU sum it up, and adds both to the digest. Ends the program where a byte is wrong. */
void tensor_check(const struct tensor *tensor);
/* What the tensor should hold, into memory of the host. */
void tensor_content(const struct tensor *tensor, void *to);
/* Something else that the answers depend on. */
void digest_add(uint64_t number);

CUfunction gallery_kernel(const char *name);
int device_attribute(CUdevice_attribute attribute);
size_t round_up(size_t bytes, size_t unit);
