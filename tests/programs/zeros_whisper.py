"""Writes a model for whisper.cpp, in ggml's format of it, whose weights are all zero: as large as a real one, and sparse. What it
hears has no sense, but it makes the same calls."""
import struct

MAGIC = 0x67676D6C
VOCABULARY, AUDIO_CONTEXT, TEXT_CONTEXT, MELS, FFT_BINS = 51864, 1500, 448, 80, 201
F32, F16 = 0, 1


def _attention(prefix, width):
    yield from ((f"{prefix}.{name}.weight", F16, width, width) for name in ("query", "key", "value", "out"))
    yield from ((f"{prefix}.{name}.bias", F32, width) for name in ("query", "value", "out"))


def _norm(name, width):
    yield from ((f"{name}.{part}", F32, width) for part in ("weight", "bias"))


def _block(prefix, width, attentions):
    for attention in attentions:
        yield from _norm(f"{prefix}.{attention}_ln", width)
        yield from _attention(f"{prefix}.{attention}", width)
    yield from _norm(f"{prefix}.mlp_ln", width)
    yield from ((f"{prefix}.mlp.0.weight", F16, width, 4 * width), (f"{prefix}.mlp.0.bias", F32, 4 * width),
                (f"{prefix}.mlp.2.weight", F16, 4 * width, width), (f"{prefix}.mlp.2.bias", F32, width))


def _tensors(width, layers):
    """(name, type, dimensions...)"""
    yield from (("encoder.positional_embedding", F32, width, AUDIO_CONTEXT), ("encoder.conv1.weight", F16, 3, MELS, width),
                ("encoder.conv1.bias", F32, 1, width), ("encoder.conv2.weight", F16, 3, width, width),
                ("encoder.conv2.bias", F32, 1, width), *_norm("encoder.ln_post", width))
    for number in range(layers):
        yield from _block(f"encoder.blocks.{number}", width, ["attn"])
    yield from (("decoder.positional_embedding", F32, width, TEXT_CONTEXT), ("decoder.token_embedding.weight", F16, width, VOCABULARY),
                *_norm("decoder.ln", width))
    for number in range(layers):
        yield from _block(f"decoder.blocks.{number}", width, ["attn", "cross_attn"])


def write(path, width, heads, layers):
    with open(path, "wb") as file:
        file.write(struct.pack("<I11i", MAGIC, VOCABULARY, AUDIO_CONTEXT, width, heads, layers, TEXT_CONTEXT, width, heads, layers, MELS,
                               F16))
        file.write(struct.pack("<2i", MELS, FFT_BINS) + bytes(4 * MELS * FFT_BINS))
        words = [f"w{number}".encode() for number in range(VOCABULARY - 1507)]  # the others are special, and whisper.cpp names them
        file.write(struct.pack("<i", len(words)) + b"".join(struct.pack("<I", len(word)) + word for word in words))
        for name, kind, *dimensions in _tensors(width, layers):
            size = 4 if kind == F32 else 2
            file.write(struct.pack("<3i", len(dimensions), len(name), kind) + struct.pack(f"<{len(dimensions)}i", *dimensions) +
                       name.encode())
            for dimension in dimensions:
                size *= dimension
            file.seek(size, 1)
        file.truncate()
