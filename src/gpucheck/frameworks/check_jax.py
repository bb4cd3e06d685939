"""JAX under a quota: with QUOTA_BYTES as argument it runs in a session of that size, without in none. gpu-check reads what
it prints (programs.c)."""
import hashlib
import sys

try:
    import jax
    import jax.numpy as jnp
    import numpy
except ImportError as error:
    print(f"not-run python3 cannot import jax: {error}")
    sys.exit()

QUOTA_BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else None

print(f"text version {jax.__version__}")

if jax.default_backend() != "gpu":
    print(f"not-run this JAX has no GPU: its backend is {jax.default_backend()}")
    sys.exit()

if QUOTA_BYTES:
    held = []
    try:
        while len(held) < 1000:
            held.append(jnp.ones(64 << 20, dtype=jnp.uint8).block_until_ready())
        print("failed the quota never refused JAX anything")
    except Exception as error:  # XlaRuntimeError, which was in several modules over time
        if "RESOURCE_EXHAUSTED" not in str(error):
            print(f"failed beyond the quota JAX says {type(error).__name__}: {str(error)[:200]}")
    print(f"figure allocations_until_out_of_memory {len(held)} count")
    if len(held) * (64 << 20) > QUOTA_BYTES:
        print(f"failed JAX holds {len(held)} times 64 MiB in a session of {QUOTA_BYTES} bytes")
    del held

x = jnp.arange(4096, dtype=jnp.float32) / 4096


@jax.jit
def step(values):
    return values - 0.1 * jax.grad(lambda v: jnp.sum(jnp.sin(v) ** 2))(values)


for _ in range(20):
    x = step(x)
print(f"same checksum {hashlib.sha256(numpy.asarray(x).tobytes()).hexdigest()}")
