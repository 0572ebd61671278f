"""Options of the tools that suites replace, and their equivalents in ci-bench.yml.

They are for messages about unknown names.

They are those of PyTorch's dynamo runner and its training_loss.py, and of
`PyTorchBenchmarkArguments`.
"""

from collections.abc import Iterable, Iterator, Sequence

_ROWS = """
measure: performance = performance skip_accuracy_check
measure: accuracy = accuracy
mode: training = training train no_inference
mode: inference = inference
precision: fp16 = fp16 float16
precision: bf16 = bf16 bfloat16
precision: fp32 = float32
precision: amp_fp16 or amp_bf16 = amp
precision: amp_fp16 = fp16_opt_level
precision = amp_dtype torch_dtype
models = only model_names
model = model_name_or_path models
batch_size = batch_sizes bs
batch_size: largest = find_batch_sizes
sequence_length = sequence_lengths seq_len seq_length
speed: false = no_speed
memory: false = no_memory
memory_timeline = trace_memory_line_by_line
candidate: torchscript = torchscript
backend: torchscript = torchscript torchscript_jit_trace speedup_dynamo_ts
backend: inductor = inductor inductor_only
backend: openxla = xla trace_on_xla use_xla
backend: torch_tensorrt = speedup_fx2trt speedup_fx2trt_fp16
backend: overhead = overhead
backend: coverage = coverage
backend: export = export
backend: aot-inductor = export_aot_inductor
backend: aot-precompile = aot_precompile
backend: caching-precompile = caching_precompile
partitions = total_partitions
partition = partition_id
tables = batch_size_file
steps = iterations
prepared = randomize_input
cudagraphs: false = disable_cudagraphs
batch_invariance = batch_invariant
activation_checkpointing = enable_activation_checkpointing
dynamic with varies = dynamic_batch_only
dynamic_shapes = unbacked_batch_only compare_backed_unbacked
layouts = ddp fsdp multiprocess optimize_ddp_mode
processes = world_size
compile: {mode: …} = inductor_compile_mode
compile: {options: …} = inductor_config disable_split_reductions disable_persistent_reductions
compile: {options: …} = disable_divisible_by_16 optimus
run.blocks, run.launches = repeat iterations_per_run
run.device = device devices device_index device_idx cuda no_cuda n_gpu cpu
run.threads = threads
run.stage_timeout_s = timeout
compile: {compiled_autograd: true} = compiled_autograd
run.explain = explain minify export_profiler_trace profile_details snapshot_memory
run.explain = log_graph_breaks print_graph_breaks
run.explain = profiler_trace_name export_perfdoctor
run.launches, each a fresh process = multi_process no_multi_process
name = tag
always reported = env_print no_env_print print_memory print_compilation_time cold_start_latency
always reported = warm_start_latency timing stats
always reported = collect_outputs use_warm_peak_memory recompile_profiler dump_raw_metrics
always reported = print_dataframe_summary progress
--output = output_directory output_dir disable_output retain_output
--verbose = verbose quiet
--baseline = diff_branch
gate --baseline paired = save_model_outputs_to compare_model_outputs_with
ci-bench gate = ci
convert --to oss-benchmark = dashboard
convert --to transformers-benchmark = save_to_csv inference_time_csv_file inference_memory_csv_file
convert --to transformers-benchmark = train_time_csv_file
convert --to transformers-benchmark = train_memory_csv_file env_info_csv_file
convert --to transformers-log = log_print log_filename
"""
"""Equivalents, each before the options that it stands for."""
_ALWAYS = "always reported"
_NOTHING = (
    "part tolerance use_eval_mode export_nativert print_fx print_aten_ops nothing log_conv_args"
    " log_operator_inputs _print_latency_ms profile_dynamo_cache_lookup per_process_memory_fraction"
    " cosine skip_fp64_check xla_tolerance propagate_real_tensors specialize_int"
    " no_translation_validation suppress_errors inductor_settings nnc nvfuser prims_nvfuser"
    " distributed_master_port generate_aot_autograd_stats tpu no_tpu use_xla eager_mode slice_size"
    " average_duplicates torch_xla_tpu_print_metrics"
)
"""Options without an equivalent: docs/internals/dynamo_runner.md has the reasons."""
_SAME = (
    "filter exclude exclude_exact epochs num_samples batch_size lr optimizer backend nopython fast"
    " no_skip deterministic freezing channels_last quantization only_pretrain_model model memory"
    " speed seed layouts strict measure"
)
"""Options that are fields of the same name."""


def describe_field(name: str, fields: Sequence[str]) -> str:
    """End a sentence about a field that a suite (with these `fields`) lacks; empty if unknown.

    A suite may lack the field that an option became elsewhere.
    """
    successors = (
        ours
        for ours in _successors(name)
        if _field(ours) in fields or not _field(ours).isidentifier()
    )
    ours = next(successors, "")
    return f"; here it is {_shown(ours)}" if ours else _without(name)


def describe_flags(flags: Iterable[str]) -> str:
    """End a sentence about old flags that are fields of the configuration; empty for others."""
    successors = {
        flag: [*_successors(flag), *([_plain(flag)] if _plain(flag) in _SAME.split() else [])]
        for flag in flags
    }
    words = [f"{flag} is {_shown(ours[0])}" for flag, ours in successors.items() if ours]
    return (
        f"; in ci-bench.yml {', '.join(words)}"
        if words
        else next(filter(None, map(_without, successors)), "")
    )


def _shown(ours: str) -> str:
    return ours if ours == _ALWAYS else f"`{ours}`"


def _plain(name: str) -> str:
    """Return an option in one spelling, such as ``--total-partitions`` and ``fp16``."""
    return name.removeprefix("--").replace("-", "_").lower()


def _field(ours: str) -> str:
    return ours.partition(":")[0]


def _without(name: str) -> str:
    return "; it has no equivalent here" if _plain(name) in _NOTHING.split() else ""


def _successors(name: str) -> Iterator[str]:
    for line in _ROWS.strip().splitlines():
        ours, _, old = line.rpartition(" = ")
        if _plain(name) in old.split():
            yield ours
