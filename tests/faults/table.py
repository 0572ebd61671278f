"""The table of faults: what goes wrong, what is expected then, and the test that shows it.

`docs/internals/reliability.md` is made from it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One fault. `test` is a test function, as ``file::name`` below ``tests/``."""

    fault: str
    expected: str
    test: str


SIGNALS, BENCHED, DISK, STOP = (
    f"faults/test_{name}.py" for name in ("signals", "benched_code", "disk", "interrupts")
)
RESUME, LEFT, LOCK, CLOSED = (
    f"faults/test_{name}.py" for name in ("resume", "leftovers", "lock", "fail_closed")
)
PAIRED = "faults/test_resume_paired.py"
BUDGET, HOSTILE, FUZZ = "faults/test_budget.py", "faults/test_hostile_size.py", "fuzz/test_fuzz.py"
LAYOUTS = "suites/training_loss/test_layouts.py"
CHECKPOINTS = "suites/training_loss/test_checkpoints.py"
ENGINE, CLI = "runner/test_faults.py", "end_to_end/test_cli.py"
CLIENT, COMMENTS, PUBLISH = (
    "github/test_client.py",
    "github/test_comments.py",
    "github/test_commands.py",
)

TABLE: dict[str, tuple[Row, ...]] = {
    "Workers": (
        Row(
            "killed by any fatal signal, while preparing, verifying, building, stepping or finishing",
            "its case is `crashed`, with the signal and the stage; every other case is measured",
            f"{SIGNALS}::test_a_signal_that_ends_a_worker_is_a_crash_of_its_stage",
        ),
        Row(
            "sent a signal that ends nothing",
            "measured",
            f"{SIGNALS}::test_a_signal_that_ends_nothing_disturbs_nothing",
        ),
        Row(
            "stopped (`SIGSTOP`)",
            "`timeout`",
            f"{SIGNALS}::test_a_worker_that_is_stopped_runs_out_of_time",
        ),
        Row(
            "interrupted inside (`SIGINT`)",
            "`failed`",
            f"{SIGNALS}::test_an_interrupt_inside_a_worker_is_its_failure_and_not_ours",
        ),
        Row("any of these", "no process is left", f"{SIGNALS}::test_nothing_of_them_is_left"),
        Row(
            "an error at any point of a suite, exceptions that cannot be printed, `os._exit`, a null pointer",
            "one row reports it, with the end of the log",
            f"{ENGINE}::test_every_fault_ends_in_one_row_that_tells_it",
        ),
        Row(
            "the process behind the workers dies",
            "the run ends with code 3; finished measurements are on disk, the culprit is `crashed`, the rest `not_run`",
            f"{ENGINE}::test_a_server_that_dies_ends_the_run_and_keeps_what_was_measured",
        ),
        Row(
            "the process behind the workers hangs",
            "the run ends within its limits",
            f"{ENGINE}::test_a_server_that_no_longer_answers_cannot_hang_the_run",
        ),
    ),
    "Ranks of a case of several processes": (
        *(
            Row(
                f"a rank {what}",
                expected,
                f"{LAYOUTS}::test_a_rank_that_fails_is_named_with_all_logs_and_nothing_is_left",
            )
            for what, expected in (
                (
                    "is killed",
                    "`crashed`: the rank and the signal, the end of each rank's log; no process is left",
                ),
                ("crashes in native code", "`crashed`: the rank and the signal"),
                (
                    "leaves with exit code 0 while the others wait",
                    "`failed`: the rank that left early",
                ),
                (
                    "calls `sys.exit`, or raises an error",
                    "`failed`: the rank and its error, not the others' broken connections",
                ),
                ("runs out of memory", "`out_of_memory`: the rank"),
                (
                    "hangs",
                    "`timeout` after a quarter of `run.stage_timeout_s`: the rank that the others waited for",
                ),
                ("is killed, and has left a child process", "`crashed`; the child is stopped, too"),
            )
        ),
        Row(
            "one rank's failure, and the cases after it",
            "they are measured",
            f"{LAYOUTS}::test_next_case_runs_after_failed_rank",
        ),
        Row(
            "a single rank diverges",
            "`parity_broken`: the rank, the step and the signal",
            f"{LAYOUTS}::test_injected_fault_names_rank_and_step",
        ),
        Row(
            "a checkpoint loses the optimizer's state, its step counters, or a shard",
            "`parity_broken`: the saver, the loader, the step and the signal",
            f"{CHECKPOINTS}::test_a_checkpoint_that_loses_something_is_found_with_step_and_signal",
        ),
        Row(
            "ranks diverge while they are timed",
            "the check `replicas` fails and names the rank and the weights",
            f"{LAYOUTS}::test_replicas_that_drift_apart_while_timed_fail",
        ),
    ),
    "Benched code": (
        Row(
            "exhausts the host's memory, or raises that the GPU's is full; hangs in native code; fork bomb; prints without end; "
            "calls `sys.exit`; writes to a full disk",
            "`out_of_memory`, `timeout` or `failed`, by its cause; the next case is measured",
            f"{BENCHED}::test_it_ends_in_one_row_that_tells_it_and_the_next_case_is_measured",
        ),
        Row(
            "replaces or freezes the functions of `time`",
            "times are still measured correctly",
            f"{BENCHED}::test_a_frozen_clock_freezes_no_measurement",
        ),
        Row(
            "assigns slower clocks to every module, including those of ci-bench",
            "times are still measured correctly",
            f"{BENCHED}::test_no_assignment_to_a_module_slows_a_clock",
        ),
        Row(
            "replaces the sampling code to report shorter times",
            "`clock_disagrees`: the samples do not match the parent's clock",
            "runner/test_witness.py::test_engine_detects_halved_times",
        ),
        Row(
            "forks of forks that leave their session",
            "all of them are stopped",
            f"{BENCHED}::test_a_fork_bomb_is_ended_with_all_that_left_its_session",
        ),
        Row(
            "prints forever",
            "stopped after 256 MiB, with `failed`",
            f"{BENCHED}::test_endless_output_is_ended_long_before_the_disk_is_full",
        ),
        Row(
            "an import that calls `sys.exit`",
            "its case is `failed`",
            f"{BENCHED}::test_an_import_that_ends_the_process_is_a_failure_of_its_case",
        ),
        Row(
            "the same in a module that is loaded before all cases",
            "the run ends with code 3 and reports it",
            f"{BENCHED}::test_a_preloaded_module_that_ends_the_process_fails_the_run_and_says_so",
        ),
        Row(
            "deletes the run's private folder",
            "the run ends with code 3; finished measurements are on disk",
            f"{BENCHED}::test_a_run_whose_private_folder_is_deleted_keeps_what_it_measured",
        ),
        Row(
            "deletes the folder of results",
            "it is written again, complete",
            f"{DISK}::test_deleted_output_folder_is_restored",
        ),
        Row(
            "closes stdout, changes directory, leaves children or daemons behind (that could hold the GPU)",
            "measured; its processes are stopped",
            f"{ENGINE}::test_nothing_that_a_worker_started_outlives_it",
        ),
        Row(
            "does any of this",
            "one row for each planned case",
            f"{ENGINE}::test_there_is_one_row_for_each_planned_case",
        ),
    ),
    "Disk and clock": (
        Row(
            "disk full at any file that ci-bench opens",
            "code 2 or 3, with the file's name; existing documents stay complete; no traceback, no leftover",
            f"{DISK}::test_full_disk_is_reported_without_loss",
        ),
        Row(
            "disk full in the middle of a file",
            "the same, and the previous run's document stays",
            f"{DISK}::test_file_size_limit_keeps_old_file",
        ),
        Row(
            "output that cannot be written",
            "code 2 before anything is measured",
            f"{DISK}::test_unwritable_output_fails_before_measuring",
        ),
        Row(
            "an unreadable current folder",
            "code 2, and the next step",
            "faults/test_unreadable_folder.py::test_unreadable_folder_is_reported",
        ),
        Row(
            "a write is cut off",
            "the old file or the new one, never a partial one",
            "records/test_documents.py::test_a_write_that_is_cut_off_leaves_the_old_file_whole",
        ),
        Row(
            "the clock jumps",
            "forwards: cases beyond the budget are `not_run`; backwards: nothing is lost",
            f"{BENCHED}::test_what_a_clock_that_jumps_does_to_a_budget",
        ),
    ),
    "Interruption": (
        Row(
            "`SIGINT` or `SIGTERM` at any moment",
            "code 130; `results.json` is valid, marked partial, with a row for each case; its report shows the same; nothing is left",
            f"{STOP}::test_an_interrupt_at_any_moment_loses_nothing",
        ),
        Row(
            "`SIGINT` or `SIGTERM` while a case hangs with children",
            "the same; all processes are stopped",
            f"{CLI}::test_an_interrupted_run_leaves_what_it_measured_and_no_process",
        ),
        Row(
            "`SIGKILL` while measuring, then `--resume`",
            "continues after the last finished case; no sample is lost or duplicated",
            f"{RESUME}::test_resume_continues_after_last_case",
        ),
        Row(
            "the same with `gate --resume`",
            "continues, and is judged",
            f"{RESUME}::test_resumed_gate_is_judged",
        ),
        Row(
            "the same with a paired gate",
            "no finished case is measured again on either side; the verdict is that of an uninterrupted gate",
            f"{PAIRED}::test_the_finished_case_is_kept_on_both_sides_and_the_verdict_is_that_of_a_whole_gate",
        ),
        Row(
            "the same with another configuration, or another commit or machine on either side",
            "code 2; nothing is touched on either side",
            f"{PAIRED}::test_what_differs_on_either_side_is_refused_and_nothing_is_touched",
        ),
        Row(
            "`--resume` with another configuration, commit, machine, version or plan, or with uncommitted changes",
            "code 2; nothing is touched",
            f"{RESUME}::test_what_differs_is_refused_and_nothing_is_touched",
        ),
        Row(
            "`--resume` with nothing to resume",
            "starts a new run",
            f"{RESUME}::test_resume_of_nothing_starts_run",
        ),
        Row(
            "`--resume` of a complete run",
            "nothing changes",
            f"{RESUME}::test_a_run_that_is_whole_is_left_as_it_is",
        ),
        Row(
            "a budget that is not enough",
            "the most informative cases for their time are measured first, the rest is `not_run`",
            f"{BUDGET}::test_with_a_budget_the_most_informative_cases_come_first",
        ),
        Row(
            "a budget that is not enough for another launch, or for memory peaks",
            "the launch is not started, open metrics stay undecided; `within_budget` lists the omitted peaks",
            "runner/test_budget.py::test_memory_peaks_come_last_within_budget",
        ),
        Row(
            "a case that spent its own budget",
            "gets no more launches",
            "runner/test_runner.py::test_a_case_that_spent_its_budget_gets_no_more_launches",
        ),
    ),
    "A shared machine": (
        Row(
            "another run of ci-bench measures on the device",
            "waits before it touches the device; reports immediately and each minute which run it waits for and how long; "
            "gives up with code 3 after `run.lock_timeout_s`; waiting does not count towards the budget",
            f"{LOCK}::test_a_run_waits_for_another_and_leaves_its_budget_untouched",
        ),
        Row(
            "several runs wait for it, in containers or not",
            "first come, first served",
            f"{LOCK}::test_they_are_served_in_the_order_they_came",
        ),
        Row(
            "a run that waits is killed",
            "the next run in the queue no longer waits for it",
            f"{LOCK}::test_killed_runs_release_the_queue",
        ),
        Row(
            "a GPU is present, and torch cannot use it",
            "code 3 with the errors of NVML and torch; the CPU is not measured instead",
            "host/test_devices.py::test_the_cpu_is_not_measured_in_a_gpus_place",
        ),
        Row(
            "the holder of a device is killed",
            "the next run starts immediately",
            f"{LOCK}::test_waiter_starts_when_holder_ends",
        ),
        Row(
            "no lock can be created",
            "measured, with a notice",
            f"{LOCK}::test_missing_lock_is_reported",
        ),
        Row(
            "an earlier run was killed and its processes still run",
            "they are stopped, and its folder is removed",
            f"{LEFT}::test_the_next_run_clears_away_what_a_killed_one_left",
        ),
        Row(
            "a folder that is not provably from ci-bench",
            "not touched",
            f"{LEFT}::test_foreign_leftovers_are_kept",
        ),
        Row(
            "other processes on the GPU",
            "reported, and blocks measured at the same time are repeated",
            "host/test_monitor.py::test_a_process_that_came_after_ours_taints",
        ),
    ),
    "On a GPU": (
        Row(
            "base has a doubt (a clock, a disturbed block, sides timed one after the other), head has none",
            "green: head need not have the same doubt",
            "judge/test_missing.py::test_a_doubt_of_the_baselines_is_not_owed_by_head",
        ),
        Row(
            "one arm draws more power than another and runs at a lower clock",
            "no effect: clocks are compared between the sides of one arm",
            "host/test_health.py::test_how_far_the_clocks_of_base_and_head_may_be_apart_under_one_arm",
        ),
        Row(
            "a power cap applies all the time",
            "recorded with each block, no doubt, no block measured again; a slowdown under it is detected",
            "runner/test_simulated_device.py::test_a_power_cap_that_holds_all_the_time_is_recorded_and_no_doubt",
        ),
        Row(
            "head draws more power and runs slower as a result",
            "the block counts, and records it",
            "runner/test_turns.py::test_a_block_whose_sides_had_other_clocks_counts_and_says_so",
        ),
        Row(
            "the GPU is always throttled, or always shared",
            "at most half of a launch's blocks are measured again; the rest count, with the reason",
            "runner/test_turns.py::test_a_machine_that_is_always_disturbed_is_asked_again_for_half_of_a_launch_at_most",
        ),
        Row(
            "`run.cuda_graph`, and a suite that must time the parts of a step",
            "the whole step is required and gates instead",
            "runner/test_simulated_device.py::test_graph_replay_needs_no_parts",
        ),
        Row(
            "a capture fails and leaves the process unfit",
            "the workers are replaced, and the case is timed without graphs, with a notice",
            "runner/test_simulated_device.py::test_a_card_that_refuses_captures_is_timed_plainly",
        ),
        Row(
            "cuBLAS, cuDNN or another library finds no memory",
            "`out_of_memory`, whatever the wording; with two sides resident, they are timed one after the other",
            "suites/test_memory_errors.py::test_memory_that_ran_out_is_known_by_any_of_its_words",
        ),
        Row(
            "both sides do not fit, or the GPU takes one process at a time",
            "timed one after the other, with a notice; `doctor` warns in advance",
            "runner/test_simulated_device.py::test_on_a_card_for_one_process_at_a_time_the_sides_follow_one_another",
        ),
        Row(
            "memory is so short that the allocator frees some in every step",
            "timed one after the other, with a notice",
            "runner/test_runner.py::test_sides_without_room_run_in_turn",
        ),
        Row(
            "an eager optimizer",
            "can be captured; without capture it has no extra cost",
            "suites/transformers/test_steps.py::test_capturable_is_for_steps_that_are_captured_or_compiled_as_a_whole",
        ),
        Row(
            "a model sets TF32 by either of torch's interfaces",
            "the requested setting applies, in both interfaces",
            "suites/torchbench/test_own_models.py::test_a_model_that_turns_tf32_on_is_measured_without_it",
        ),
        Row(
            "compiling leaves memory cached, a graph computes in a separate pool",
            "peaks exclude the first and include the second",
            "worker/test_memory.py::test_a_graphs_pool_is_in_the_peak_whatever_the_allocator_calls_free",
        ),
        Row(
            "a part of a GPU (MIG)",
            "its own name, memory and processes; clocks, temperature and lock are those of the whole GPU",
            "runner/test_simulated_device.py::test_a_gate_runs_on_a_slice_of_a_card_by_its_own_name_and_memory",
        ),
        Row(
            "the second of two GPUs",
            "only that one is measured, under its own lock",
            "runner/test_simulated_device.py::test_gate_uses_second_card_only",
        ),
        Row(
            "two versions of ROCm",
            "two machines",
            "worker/test_probe.py::test_two_versions_of_rocm_are_two_machines_and_a_build_for_cuda_has_none",
        ),
    ),
    "Nothing to compare": (
        Row(
            "empty plan or results, all skipped or failed, baseline missing or empty, nothing comparable or in common",
            "a named finding that fails, with its exit code",
            f"{CLOSED}::test_it_has_a_name_and_is_not_a_pass",
        ),
        Row(
            "a policy that matches nothing",
            "code 2 before measuring",
            f"{CLOSED}::test_a_policy_that_matches_nothing_is_refused_before_measuring",
        ),
        Row(
            "a configuration without a case",
            "code 2",
            f"{CLOSED}::test_a_configuration_without_a_case_is_refused",
        ),
        Row(
            "a filter that leaves no case",
            "code 2",
            f"{CLOSED}::test_a_filter_that_leaves_no_case_is_refused",
        ),
    ),
    "Hostile documents": (
        Row(
            "1,000 changed documents for each reader and page",
            "read, or refused with the reason; nothing is written, started or connected to",
            f"{FUZZ}::test_a_thousand_inputs_are_read_or_refused",
        ),
        Row(
            "20 MB built to be slow or large",
            "less than 10 s and 1 GB for each reader",
            f"{HOSTILE}::test_no_input_of_20_mb_takes_a_reader_long_or_much",
        ),
        Row(
            "texts that contain markup",
            "no tag, link or mention from them appears in a comment",
            "report/test_hostile.py::test_no_text_changes_the_shape_or_reaches_out",
        ),
        Row(
            "malicious archives",
            "refused; nothing is unpacked to disk",
            "github/test_archive.py::test_what_is_turned_down",
        ),
    ),
    "GitHub": (
        Row(
            "every fault of the retry table (no connection, resets, timeouts, 4xx, 5xx, limits, odd answers), at every method",
            "retried, or ended with the error in the table; reads and writes are retried only if they may be repeated",
            f"{CLIENT}::test_each_fault_ends_as_it_should_for_each_method",
        ),
        Row(
            "an outage",
            "an error after every try",
            f"{CLIENT}::test_an_outage_ends_in_an_error_after_every_try",
        ),
        Row(
            "a limit",
            "waits as long as the server demands",
            f"{CLIENT}::test_waits_are_as_long_as_the_server_says",
        ),
        Row(
            "the answer to a create is lost",
            "it is not made twice",
            f"{CLIENT}::test_a_create_whose_answer_is_lost_is_not_made_twice",
        ),
        Row(
            "the answer to a comment is lost",
            "no second comment",
            f"{COMMENTS}::test_a_lost_answer_makes_no_second_comment",
        ),
        Row(
            "two runs write simultaneously",
            "one comment",
            f"{COMMENTS}::test_concurrent_writes_make_one_comment",
        ),
        Row(
            "a fault between portions of annotations",
            "none is lost, none is duplicated",
            "github/test_checks.py::test_a_fault_in_between_doubles_and_loses_nothing",
        ),
        Row(
            "GitHub down after the verdict",
            "the verdict is printed, and its own code wins over 5",
            f"{PUBLISH}::test_an_outage_after_the_verdict_hides_no_failure",
        ),
        Row(
            "a fork's token",
            "verdict and exit code, no error",
            "github/test_checks.py::test_a_forks_token_ends_in_outcomes_and_no_error",
        ),
        Row(
            "any fault",
            "the token is in no log and in no error",
            f"{CLIENT}::test_the_token_is_in_no_log_and_in_no_error",
        ),
        Row(
            "the artifact of a machine is missing",
            "not a pass",
            f"{PUBLISH}::test_missing_machine_does_not_pass",
        ),
        Row(
            "a guard is removed from the source",
            "a test fails, for each guard of the trust boundary (`benchmarks/guards_*.toml`); one whose test stays green fails the run",
            "benchmarks/test_guards.py::test_a_guard_whose_test_stays_green_fails_the_run",
        ),
    ),
}
"""Rows by what they are about."""
