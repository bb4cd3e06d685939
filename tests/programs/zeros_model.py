"""Writes a model of llama's architecture in GGUF whose weights are all zero, as a sparse file (the format's specification is part of
ggml). What it generates has no sense, but it is as large, and makes the same calls, as a real one."""
import struct

WORDS = 32000
F32, Q8_0 = 0, 8  # types of tensors
BLOCK, BLOCK_BYTES = 32, 34  # of Q8_0
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5  # types of values
ALIGNMENT = 32


def _text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def _vocabulary():
    """Words of sentencepiece: three that are special, each byte, and as many more as there should be."""
    words = [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((f"<0x{byte:02X}>", 6) for byte in range(256))]
    words += [("\u2581", 1), *((chr(code), 1) for code in range(33, 127))]
    words += [(f"\u2581w{number}", 1) for number in range(WORDS - len(words))]
    return [_text(word) for word, _ in words], [struct.pack("<i", kind) for _, kind in words]


def _values(layers, width, inner, heads):
    words, kinds = _vocabulary()
    numbers = {"block_count": layers, "context_length": 4096, "embedding_length": width, "feed_forward_length": inner,
               "attention.head_count": heads, "attention.head_count_kv": heads, "rope.dimension_count": width // heads,
               "vocab_size": WORDS}
    yield "general.architecture", STRING, _text("llama")
    yield "general.name", STRING, _text("zeros")
    for name, number in numbers.items():
        yield f"llama.{name}", UINT32, struct.pack("<I", number)
    yield "llama.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-5)
    yield "tokenizer.ggml.model", STRING, _text("llama")
    yield "tokenizer.ggml.tokens", ARRAY, _array(STRING, words)
    yield "tokenizer.ggml.scores", ARRAY, _array(FLOAT32, [struct.pack("<f", -number) for number in range(WORDS)])
    yield "tokenizer.ggml.token_type", ARRAY, _array(INT32, kinds)
    for number, name in enumerate(("unknown", "bos", "eos")):
        yield f"tokenizer.ggml.{name}_token_id", UINT32, struct.pack("<I", number)


def _tensors(layers, width, inner):
    yield "token_embd.weight", (width, WORDS), Q8_0
    yield "output_norm.weight", (width,), F32
    yield "output.weight", (width, WORDS), Q8_0
    for layer in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (width,), F32
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", (width, width), Q8_0
        for name in ("ffn_gate", "ffn_up"):
            yield f"blk.{layer}.{name}.weight", (width, inner), Q8_0
        yield f"blk.{layer}.ffn_down.weight", (inner, width), Q8_0


def _aligned(size):
    return -size % ALIGNMENT + size


def write(path, layers, width, inner, heads):
    """`width` and `inner` are multiples of 32; the file has about layers * width * (4 * width + 3 * inner) bytes."""
    values = list(_values(layers, width, inner, heads))
    tensors = list(_tensors(layers, width, inner))
    described, size = b"", 0
    for name, shape, kind in tensors:
        count = 1
        for length in shape:
            count *= length
        described += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, size)
        size += _aligned(count * 4 if kind == F32 else count // BLOCK * BLOCK_BYTES)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(_text(name) + struct.pack("<I", kind) + data for name, kind, data in values) + described
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(_aligned(len(head)) + size)
