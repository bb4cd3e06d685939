"""CuPy under a quota: with QUOTA_BYTES as argument it runs in a session of that size, without in none. gpu-check reads what
it prints (programs.c)."""
import sys

try:
    import cupy
except ImportError as error:
    print(f"not-run python3 cannot import cupy: {error}")
    sys.exit()

QUOTA_BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else None

print(f"text version {cupy.__version__}")

if QUOTA_BYTES:
    held = []
    try:
        while len(held) < 1000:
            held.append(cupy.ones(64 << 20, dtype=cupy.uint8))
        print("failed the quota never refused CuPy anything")
    except cupy.cuda.memory.OutOfMemoryError:
        pass
    print(f"figure allocations_until_out_of_memory {len(held)} count")
    if len(held) * (64 << 20) > QUOTA_BYTES:
        print(f"failed CuPy holds {len(held)} times 64 MiB in a session of {QUOTA_BYTES} bytes")
    del held
    cupy.get_default_memory_pool().free_all_blocks()

x = cupy.arange(1 << 20, dtype=cupy.float32) / 1024
y = cupy.sqrt(x) * 3 + x
print(f"same checksum {int((y.view(cupy.uint32).astype(cupy.uint64)).sum())}")
