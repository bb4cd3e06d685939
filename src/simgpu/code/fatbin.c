/* fatbin.c - a fatbin holds one program for several architectures. As fatbinary 13.0 writes it:
 *
 *   header   magic, version (16 bits), header size (16 bits), bytes of all that follows (64 bits)
 *   entry    kind (16), version (16), header size (32), payload bytes with padding (64), bytes if compressed
 *            (32), offset of options (32), minor (16), major (16), architecture (32), name offset and size
 *            (2 x 32), flags (64), 0 (64), bytes when decompressed (64); then its payload */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/code/image.h"

#define KIND_PTX 1
#define KIND_CUBIN 2
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u

#define DECOMPRESSED_BYTES_MAX (UINT64_C(1) << 28)

struct header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t compressed_bytes, options_offset;
    uint16_t minor, major;
    uint32_t architecture;
    uint32_t name_offset, name_bytes;
    uint64_t flags, reserved;
    uint64_t decompressed_bytes;
};
_Static_assert(sizeof(struct header) == 16 && sizeof(struct entry) == 64, "as in the file");

/* A length of LZ4: 15 in its four bits means that more bytes follow, of which the last is not 255. */
static bool lz4_length(const uint8_t **in, const uint8_t *in_end, size_t *length)
{
    if (*length != 15)
        return true;
    for (;;) {
        if (*in == in_end)
            return false;
        uint8_t more = *(*in)++;
        *length += more;
        if (more != 255)
            return true;
    }
}

/* Decompress one LZ4 block (lz4_Block_format.md) that makes exactly `out_bytes`. */
static bool lz4_decompress(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t out_bytes)
{
    const uint8_t *in_end = in + in_bytes, *out_begin = out, *out_end = out + out_bytes;
    while (in < in_end) {
        uint8_t token = *in++;
        size_t literals = token >> 4, match = token & 15;
        if (!lz4_length(&in, in_end, &literals) || literals > (size_t)(in_end - in) ||
            literals > (size_t)(out_end - out))
            return false;
        memcpy(out, in, literals);
        in += literals;
        out += literals;
        if (in == in_end)
            return out == out_end; /* the last sequence has no match */
        if (in_end - in < 2)
            return false;
        size_t distance = in[0] | (size_t)in[1] << 8;
        in += 2;
        if (!lz4_length(&in, in_end, &match))
            return false;
        match += 4;
        if (!distance || distance > (size_t)(out - out_begin) || match > (size_t)(out_end - out))
            return false;
        for (; match; match--, out++) /* may overlap itself, so byte by byte */
            *out = *(out - distance);
    }
    return false;
}

/* Newer nvcc compresses with zstd, which we leave to the machine's own libzstd. Most machines have it; cubins
 * do not need it. */
static bool zstd_decompress(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t out_bytes,
                            bool *is_there)
{
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    size_t (*decompress)(void *, size_t, const void *, size_t) = NULL;
    if (library)
        decompress = (size_t(*)(void *, size_t, const void *, size_t))dlsym(library, "ZSTD_decompress");
    *is_there = decompress != NULL;
    bool right = decompress && decompress(out, out_bytes, in, in_bytes) == out_bytes;
    if (library)
        dlclose(library);
    return right;
}

static CUresult parse_plain(const struct entry *entry, const uint8_t *payload, size_t bytes,
                            unsigned architecture, struct sim_image **parsed, struct error *error)
{
    if (entry->kind == KIND_CUBIN)
        return cubin_parse(payload, bytes, architecture, parsed, error);
    return ptx_parse((const char *)payload, strnlen((const char *)payload, bytes), architecture, parsed,
                     error);
}

static CUresult parse_entry(const struct entry *entry, const uint8_t *payload, unsigned architecture,
                            struct sim_image **parsed, struct error *error)
{
    if (!(entry->flags & (FLAG_LZ4 | FLAG_ZSTD)))
        return parse_plain(entry, payload, entry->payload_bytes, architecture, parsed, error);
    if (entry->compressed_bytes > entry->payload_bytes || !entry->decompressed_bytes ||
        entry->decompressed_bytes > DECOMPRESSED_BYTES_MAX)
        return image_fail(error, CUDA_ERROR_INVALID_IMAGE,
                          "a damaged fatbin: the size of a compressed entry");
    uint8_t *plain = malloc(entry->decompressed_bytes);
    if (!plain)
        return image_fail(error, CUDA_ERROR_OUT_OF_MEMORY, "no host memory to decompress a fatbin");
    bool is_there = true, right;
    if (entry->flags & FLAG_ZSTD)
        right =
            zstd_decompress(payload, entry->compressed_bytes, plain, entry->decompressed_bytes, &is_there);
    else
        right = lz4_decompress(payload, entry->compressed_bytes, plain, entry->decompressed_bytes);
    CUresult result;
    if (!is_there)
        result = image_fail(
            error, CUDA_ERROR_NO_BINARY_FOR_GPU,
            "the fatbin's fitting entry is compressed with zstd and there is no libzstd.so.1: install "
            "libzstd1, or build with nvcc --compress-mode=none");
    else if (!right)
        result = image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a damaged fatbin: compressed data");
    else
        result = parse_plain(entry, plain, entry->decompressed_bytes, architecture, parsed, error);
    free(plain);
    return result;
}

/* How good an entry is: cubins before PTX, newer before older; 0 when it does not run here. */
static unsigned rank(const struct entry *entry, unsigned architecture)
{
    if (entry->kind == KIND_CUBIN && image_code_runs(entry->architecture, architecture))
        return 1000 + entry->architecture;
    if (entry->kind == KIND_PTX && entry->architecture <= architecture)
        return 1 + entry->architecture;
    return 0;
}

CUresult fatbin_parse(const uint8_t *image, size_t limit_bytes, unsigned architecture,
                      struct sim_image **parsed, struct error *error)
{
    struct header header;
    if (limit_bytes < sizeof(header))
        return image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a damaged fatbin: cut short");
    memcpy(&header, image, sizeof(header));
    if (header.header_bytes < sizeof(header) || header.header_bytes > limit_bytes ||
        header.bytes > limit_bytes - header.header_bytes || header.bytes > INT64_MAX)
        return image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a damaged fatbin: its size");
    struct entry best = {0};
    const uint8_t *best_payload = NULL;
    const uint8_t *at = image + header.header_bytes, *end = at + header.bytes;
    while (at < end) {
        struct entry entry;
        uint64_t left = (uint64_t)(end - at);
        if (left < sizeof(entry))
            return image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a damaged fatbin: an entry cut short");
        memcpy(&entry, at, sizeof(entry));
        if (entry.header_bytes < sizeof(entry) || entry.header_bytes > left ||
            entry.payload_bytes > left - entry.header_bytes)
            return image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a damaged fatbin: an entry's size");
        if (rank(&entry, architecture) > rank(&best, architecture)) {
            best = entry;
            best_payload = at + entry.header_bytes;
        }
        at += entry.header_bytes + entry.payload_bytes;
    }
    if (!best_payload)
        return image_fail(
            error, CUDA_ERROR_NO_BINARY_FOR_GPU,
            "the fatbin has neither a cubin nor PTX for sm_%u: build for that, or for an older one with "
            "PTX",
            architecture);
    return parse_entry(&best, best_payload, architecture, parsed, error);
}
