"""Figures of trainings: peaks with CUDA graphs, optimizers, and drift between equal trainings."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.measuring import Finding, Trial, load_torch, quantiles, time_each
from ci_bench.worker.memory import memory_of, watch

MEBIBYTE = 2**20
MODES = {"eager": None, "graphs": "reduce-overhead"}
TRAINING_STEPS = 50
VOCABULARY, WIDTH = 200, 256


def measure_graph_peaks(trial: Trial) -> Finding:
    """Compare peaks with and without CUDA graphs, each built twice."""
    torch = load_torch(trial)
    builds = [(name, build) for name in MODES for build in range(2)]
    modes = {**MODES, "graphs": "default"} if trial.simulated else MODES
    values = {f"{name}, build {build}": _peaks(torch, trial, modes[name]) for name, build in builds}
    peaks = [figures.get("peak_allocated", 0.0) / MEBIBYTE for figures in values.values()]
    eager, again, graphs, graphs_again = peaks
    differences = f"{abs(again - eager):.1f} and {abs(graphs_again - graphs):.1f} MiB"
    summary = (
        f"eager {eager:.0f} MiB, with graphs {graphs:.0f} MiB; two builds differ by {differences}"
    )
    return Finding(values=values, summary=summary)


def _peaks(torch: Any, trial: Trial, mode: str | None) -> dict[str, float]:
    torch._dynamo.reset()  # noqa: SLF001 - each build compiles
    torch.cuda.empty_cache()
    width = trial.size(2048, 32)
    layers = [torch.nn.Linear(width, width) for _ in range(8)]
    network = torch.nn.Sequential(*layers).to(trial.device)
    x = torch.randn(2 * width, width, device=trial.device)
    run = network if mode is None else torch.compile(network, mode=mode)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        network.zero_grad()
        run(x).sum().backward()
        torch.cuda.synchronize()

    for _ in range(5):
        step()
    watched = watch(step, memory_of(trial.device), steps=6)
    return {**watched, "torch max_memory_reserved": float(torch.cuda.max_memory_reserved())}


def measure_optimizers(trial: Trial) -> Finding:
    """Time an eager Adam step: as it is, capturable, and fused."""
    torch = load_torch(trial)
    small = [(128, 128)] * 100 + [(128,)] * 100
    bert = [(768, 768)] * 48 + [(3072, 768)] * 24 + [(768,)] * 125 + [(30522, 768)]
    shapes: Mapping[str, Sequence[tuple[int, ...]]] = {"200 small": small, "BERT-base": bert}
    if trial.simulated:
        shapes = {"few": [(8, 8)] * 4}
    ways: dict[str, Mapping[str, bool]] = {"plain": {}, "fused": {"fused": True}}
    if not trial.simulated:  # torch checks that its weights are on a GPU
        ways["capturable"] = {"capturable": True}
    values = {
        f"{name}, {way}": _optimizer_step(torch, trial, weights, options)
        for name, weights in shapes.items()
        for way, options in ways.items()
    }
    summary = "; ".join(f"{name} {times['p50']:.0f} us" for name, times in values.items())
    return Finding(values=values, summary=summary)


def _optimizer_step(
    torch: Any,
    trial: Trial,
    shapes: Sequence[tuple[int, ...]],
    options: Mapping[str, bool],
) -> dict[str, float]:
    weights = [torch.nn.Parameter(torch.randn(shape, device=trial.device)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.Adam(weights, lr=1e-4, **options)

    def step() -> None:
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(10):
        step()
    return quantiles(time_each(step, 40))


def measure_trainings(trial: Trial) -> Finding:
    """Compare equal eager trainings with atomics, and trainings from shaken weights."""
    torch = load_torch(trial)
    steps = trial.size(TRAINING_STEPS, 10)
    reference = _losses(torch, trial, 0, steps)
    again = [_compare_losses(reference, _losses(torch, trial, 0, steps)) for _ in range(3)]
    shaken = [_compare_losses(reference, _losses(torch, trial, seed, steps)) for seed in (1, 2, 3)]
    largest = [max(drift[-1] for drift in group) for group in (again, shaken)]
    last = "repeated {:.1e}, shaken {:.1e}".format(*largest)
    summary = f"largest difference of losses after {steps} steps: {last}"
    return Finding(values={"repeated": again, "shaken": shaken}, summary=summary)


def _compare_losses(reference: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the largest difference over one step, ten, and all."""
    return [
        max(
            abs(loss - other_loss)
            for loss, other_loss in zip(reference[:count], other[:count], strict=True)
        )
        for count in (1, 10, len(reference))
    ]


def _losses(torch: Any, trial: Trial, shake: int, steps: int) -> list[float]:
    """Return the losses of a small training; a seed other than 0 shakes its first weights."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(VOCABULARY, WIDTH).to(trial.device)
    layers = (
        torch.nn.Linear(WIDTH, 2 * WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(2 * WIDTH, VOCABULARY),
    )
    network = torch.nn.Sequential(*layers).to(trial.device)
    weights = [*table.parameters(), *network.parameters()]
    if shake:
        _shake(torch, weights, shake)
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(VOCABULARY, (64, 128), generator=generator).to(trial.device)
    classes = torch.arange(VOCABULARY, device=trial.device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        rows = table(places).flatten(0, 1)
        mixed = torch.zeros(VOCABULARY, WIDTH, device=trial.device)
        mixed = mixed.index_add(0, places.flatten(), rows)
        loss = torch.nn.functional.cross_entropy(network(mixed), classes)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def _shake(torch: Any, weights: Sequence[Any], seed: int) -> None:
    """Change each weight by a rounding of fp32."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in weights:
            noise = torch.randn(weight.shape, generator=generator).to(weight.device)
            weight.mul_(1 + 2.0**-24 * noise)
