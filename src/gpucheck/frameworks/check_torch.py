"""PyTorch under a quota: with QUOTA_BYTES as argument it runs in a session of that size, without in none. gpu-check reads what
it prints (programs.c)."""
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed by deterministic algorithms, before the import
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compiler processes

try:
    import torch
except ImportError as error:
    print(f"not-run python3 cannot import torch: {error}")
    sys.exit()

QUOTA_BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else None

print(f"text version {torch.__version__}")
if not torch.cuda.is_available():
    print("not-run this PyTorch has no CUDA, or none for this driver")
    sys.exit()


def out_of_memory():
    """Beyond the quota PyTorch raises its own error, and everything works afterwards."""
    held = []
    try:
        while len(held) < 1000:
            held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
        print("failed the quota never refused PyTorch anything")
    except torch.cuda.OutOfMemoryError:
        pass
    reserved = torch.cuda.memory_reserved()
    print(f"figure reserved_at_out_of_memory {reserved} bytes")
    print(f"figure allocations_until_out_of_memory {len(held)} count")
    if reserved > QUOTA_BYTES:
        print(f"failed PyTorch holds {reserved} bytes in a session of {QUOTA_BYTES}")
    del held
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    if total != QUOTA_BYTES:
        print(f"failed torch.cuda.mem_get_info says {total} bytes in all in a session of {QUOTA_BYTES}")
    print(f"figure free_after_empty_cache {free} bytes")
    again = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    again.fill_(1)
    torch.cuda.synchronize()


def train():
    """A small loop whose losses are the same bits in every run on one card."""
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(512, 64).cuda()
    wanted = inputs.sum(dim=1, keepdim=True).sin()
    begin = time.monotonic()
    for step in range(100):
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimiser.step()
        if step % 25 == 24:
            print(f"same loss-{step} {loss.item().hex()}")
    print(f"figure training_100_steps {(time.monotonic() - begin) * 1e3:.3f} ms")
    return model, inputs


def graphs(model, inputs):
    """The same model, captured into a CUDA graph."""
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = model(inputs)
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(outputs, model(inputs)):
            print("failed a replayed CUDA graph gives other numbers than the model")
        print(f"same graph {outputs.double().sum().item().hex()}")


def compiled(inputs):
    """A compiled step, if the compiler has what it needs (a C compiler, Triton)."""
    try:
        step = torch.compile(lambda x: torch.nn.functional.gelu(x) * 2)
        with torch.no_grad():
            values = step(inputs)
        torch.cuda.synchronize()
    except Exception as error:  # torch raises many kinds if Triton or a C compiler is missing
        print(f"torch.compile: {type(error).__name__}: {str(error)[:200]}")
        print("figure compiled_step_ran 0 bool")
        return
    print("figure compiled_step_ran 1 bool")
    if not torch.allclose(values, torch.nn.functional.gelu(inputs) * 2, atol=1e-4):
        print("failed a compiled step gives other numbers than the same step uncompiled")


if QUOTA_BYTES:
    out_of_memory()
graphs(*train())
if QUOTA_BYTES:
    compiled(torch.randn(512, 64, device="cuda"))
