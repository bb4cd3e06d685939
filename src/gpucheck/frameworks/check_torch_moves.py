"""A training with PyTorch, a step at a time, whose losses are the same bits in every run on one card. It prints "ready" and how many
bytes it has on the card. For each line "step" it prints "begin", "back" before its backward pass, and then the loss with the times
of both and of the end on the monotonic clock. For "state" it prints a checksum of its weights. gpu-check has its session leave the
card in the meantime (training.c)."""
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed by deterministic algorithms, before the import

try:
    import torch
except ImportError as error:
    print(f"not-run python3 cannot import torch: {error}")
    sys.exit()

if not torch.cuda.is_available():
    print("not-run this PyTorch has no CUDA, or none for this driver")
    sys.exit()

# Deep and narrow, with several batches in a step: the kernels are short, so host and GPU are in the middle of a pass together.
LAYERS, WIDTH, BATCHES, ROWS = 192, 512, 16, 32

torch.manual_seed(7)
torch.use_deterministic_algorithms(True)
layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)).cuda()
optimiser = torch.optim.SGD(layers.parameters(), lr=0.01, momentum=0.9)
inputs = torch.randn(BATCHES, ROWS, WIDTH).cuda()
wanted = inputs.sin()


def forward():
    loss = torch.zeros((), device="cuda")
    for batch in range(BATCHES):
        values = inputs[batch]
        for layer in layers:
            values = torch.add(values, torch.relu(layer(values)), alpha=1 / LAYERS)
        loss = loss + torch.nn.functional.mse_loss(values, wanted[batch])
    return loss


def step():
    begin = time.monotonic()
    print("begin", flush=True)
    optimiser.zero_grad(set_to_none=True)
    loss = forward()
    back = time.monotonic()
    print("back", flush=True)
    loss.backward()
    optimiser.step()
    print(f"{loss.item().hex()} {begin:.6f} {back:.6f} {time.monotonic():.6f}", flush=True)


def state():
    """A checksum over all bits of all weights."""
    total = 0
    for parameter in layers.parameters():
        total = total * 31 + int(parameter.detach().view(torch.int32).sum(dtype=torch.int64))
    print(f"{total & (1 << 64) - 1:016x}", flush=True)


torch.cuda.synchronize()
print(f"ready {torch.cuda.memory_reserved()}", flush=True)
for line in sys.stdin:
    step() if line == "step\n" else state()
