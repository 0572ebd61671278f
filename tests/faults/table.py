"""The table of faults: what goes wrong, what is expected then, and the test that shows it. `docs/reliability.md` is made from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One fault. `test` is a test function, as ``file::name`` below ``tests/``."""

    fault: str
    expected: str
    test: str


SIGNALS, BENCHED, DISK, STOP = (f"faults/test_{name}.py" for name in ("signals", "benched_code", "disk", "interrupts"))
RESUME, LEFT, LOCK, CLOSED = (f"faults/test_{name}.py" for name in ("resume", "leftovers", "lock", "fail_closed"))
PAIRED = "faults/test_resume_paired.py"
BUDGET, HOSTILE, FUZZ = "faults/test_budget.py", "faults/test_hostile_size.py", "fuzz/test_fuzz.py"
LAYOUTS = "suites/training_loss/test_layouts.py"
CHECKPOINTS = "suites/training_loss/test_checkpoints.py"
ENGINE, CLI = "engine/test_faults.py", "end_to_end/test_cli.py"
CLIENT, COMMENTS, PUBLISH = "github/test_client.py", "github/test_comments.py", "github/test_commands.py"

TABLE: dict[str, tuple[Row, ...]] = {
    "Workers": (
        Row(
            "killed by any fatal signal, while preparing, verifying, building, stepping or finishing",
            "its case is `crashed`, with the signal and the stage; every other case is measured",
            f"{SIGNALS}::test_a_signal_that_ends_a_worker_is_a_crash_of_its_stage",
        ),
        Row("sent a signal that ends nothing", "measured", f"{SIGNALS}::test_a_signal_that_ends_nothing_disturbs_nothing"),
        Row("stopped (`SIGSTOP`)", "`timeout`", f"{SIGNALS}::test_a_worker_that_is_stopped_runs_out_of_time"),
        Row(
            "interrupted inside (`SIGINT`)",
            "`failed`",
            f"{SIGNALS}::test_an_interrupt_inside_a_worker_is_its_failure_and_not_ours",
        ),
        Row("any of these", "no process is left", f"{SIGNALS}::test_nothing_of_them_is_left"),
        Row(
            "an error at any point of a suite, exceptions that cannot be printed, `os._exit`, a null pointer",
            "one row that tells it, with the end of the log",
            f"{ENGINE}::test_every_fault_ends_in_one_row_that_tells_it",
        ),
        Row(
            "the process behind the workers dies",
            "the run ends with code 3; what was measured is on disk, the culprit is `crashed`, the rest `not_run`",
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
            Row(f"a rank {what}", expected, f"{LAYOUTS}::test_a_rank_that_fails_is_named_with_all_logs_and_nothing_is_left")
            for what, expected in (
                ("is killed", "`crashed`: the rank and the signal, the end of each rank's log; no process is left"),
                ("crashes in native code", "`crashed`: the rank and the signal"),
                ("leaves with exit code 0 while the others wait", "`failed`: the rank that left early"),
                (
                    "calls `sys.exit`, or raises an error of its own",
                    "`failed`: the rank and its error, not the others' broken connections",
                ),
                ("runs out of memory", "`out_of_memory`: the rank"),
                ("hangs", "`timeout` after a quarter of `run.stage_timeout_s`: the rank that the others waited for"),
                ("is killed, and has left a process of its own", "`crashed`; that process is ended, too"),
            )
        ),
        Row(
            "one rank's failure, and the cases after it",
            "they are measured",
            f"{LAYOUTS}::test_after_a_rank_that_failed_the_next_case_goes_on",
        ),
        Row(
            "one rank diverges alone",
            "`parity_broken`: the rank, the step and the signal",
            f"{LAYOUTS}::test_a_planted_fault_is_found_with_rank_and_step",
        ),
        Row(
            "a checkpoint loses the optimizer's state, its step counters, or a shard",
            "`parity_broken`: who saved and who loaded it, the step and the signal",
            f"{CHECKPOINTS}::test_a_checkpoint_that_loses_something_is_found_with_step_and_signal",
        ),
        Row(
            "ranks drift apart while they are timed",
            "the check `replicas` fails: which rank, which weights",
            f"{LAYOUTS}::test_replicas_that_drift_apart_while_timed_fail",
        ),
    ),
    "Benched code": (
        Row(
            "uses up the host's memory, or says that the GPU's is full; hangs in native code; bombs with forks; prints without end; "
            "calls `sys.exit`; writes to a full disk",
            "`out_of_memory`, `timeout` or `failed`, by what it was; the next case is measured",
            f"{BENCHED}::test_it_ends_in_one_row_that_tells_it_and_the_next_case_is_measured",
        ),
        Row(
            "replaces or freezes the functions of `time`",
            "times are measured all the same",
            f"{BENCHED}::test_a_frozen_clock_freezes_no_measurement",
        ),
        Row(
            "assigns slower clocks to every module, ours included",
            "times are measured all the same",
            f"{BENCHED}::test_no_assignment_to_a_module_slows_a_clock",
        ),
        Row(
            "replaces what takes samples, so that it reports shorter ones",
            "`clock_disagrees`: the samples do not fit the time that the parent saw",
            "engine/test_witness.py::test_through_the_engine_a_worker_that_halves_its_times_is_told",
        ),
        Row(
            "forks of forks that leave their session",
            "all of them are ended",
            f"{BENCHED}::test_a_fork_bomb_is_ended_with_all_that_left_its_session",
        ),
        Row(
            "prints for ever",
            "ended after 256 MiB, with `failed`",
            f"{BENCHED}::test_endless_output_is_ended_long_before_the_disk_is_full",
        ),
        Row(
            "an import that calls `sys.exit`",
            "its case is `failed`",
            f"{BENCHED}::test_an_import_that_ends_the_process_is_a_failure_of_its_case",
        ),
        Row(
            "the same in a module that is loaded before all cases",
            "the run ends with code 3 and says so",
            f"{BENCHED}::test_a_preloaded_module_that_ends_the_process_fails_the_run_and_says_so",
        ),
        Row(
            "deletes the run's private folder",
            "the run ends with code 3; what was measured is on disk",
            f"{BENCHED}::test_a_run_whose_private_folder_is_deleted_keeps_what_it_measured",
        ),
        Row(
            "deletes the folder of results",
            "it is written anew, with everything",
            f"{DISK}::test_an_output_folder_that_benched_code_deletes_is_written_anew",
        ),
        Row(
            "closes stdout, changes directory, leaves children or daemons behind (that could hold the GPU)",
            "measured; what it started is ended",
            f"{ENGINE}::test_nothing_that_a_worker_started_outlives_it",
        ),
        Row("does any of this", "one row for each planned case", f"{ENGINE}::test_there_is_one_row_for_each_planned_case"),
    ),
    "Disk and clock": (
        Row(
            "disk full at any file that ci-bench opens",
            "code 2 or 3, with the file's name; documents that are there are whole; no traceback, no leftover",
            f"{DISK}::test_a_disk_that_is_full_at_any_write_is_told_and_loses_nothing",
        ),
        Row(
            "disk full in the middle of a file",
            "the same, and the document of the run before stays",
            f"{DISK}::test_a_file_that_may_not_grow_further_is_told_and_the_old_one_stays",
        ),
        Row(
            "output that cannot be written",
            "code 2 before anything is measured",
            f"{DISK}::test_an_output_folder_that_cannot_be_written_is_told_before_measuring",
        ),
        Row(
            "a current folder that may not be looked into",
            "code 2, and what to do",
            "faults/test_unreadable_folder.py::test_a_folder_that_cannot_be_looked_into_is_told",
        ),
        Row(
            "a write is cut off",
            "the old file or the new one, never a part",
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
            "code 130; `results.json` is valid, marked partial, with a row for each case, and so says its report; nothing is left",
            f"{STOP}::test_an_interrupt_at_any_moment_loses_nothing",
        ),
        Row(
            "`SIGINT` or `SIGTERM` while a case hangs with children",
            "the same; all processes are ended",
            f"{CLI}::test_an_interrupted_run_leaves_what_it_measured_and_no_process",
        ),
        Row(
            "`SIGKILL` while measuring, then `--resume`",
            "goes on after the last finished case; no sample is lost or there twice",
            f"{RESUME}::test_it_goes_on_after_the_last_finished_case_and_ends_as_if_nothing_had_been",
        ),
        Row("the same with `gate --resume`", "goes on, and is judged", f"{RESUME}::test_a_gate_is_gone_on_with_and_judged"),
        Row(
            "the same with a paired gate",
            "no finished case is measured again on either side; the verdict is that of a whole gate",
            f"{PAIRED}::test_the_finished_case_is_kept_on_both_sides_and_the_verdict_is_that_of_a_whole_gate",
        ),
        Row(
            "the same where the configuration, either side's commit or either side's machine is another",
            "code 2; nothing is touched on either side",
            f"{PAIRED}::test_what_differs_on_either_side_is_refused_and_nothing_is_touched",
        ),
        Row(
            "`--resume` with another configuration, commit, machine, version or plan, or with uncommitted changes",
            "code 2; nothing is touched",
            f"{RESUME}::test_what_differs_is_refused_and_nothing_is_touched",
        ),
        Row("`--resume` with nothing to resume", "starts a new run", f"{RESUME}::test_where_nothing_was_begun_it_begins"),
        Row("`--resume` of a whole run", "stays as it is", f"{RESUME}::test_a_run_that_is_whole_is_left_as_it_is"),
        Row(
            "a budget that is not enough",
            "what tells most for its time is measured first, the rest is `not_run`",
            f"{BUDGET}::test_with_a_budget_the_most_informative_cases_come_first",
        ),
        Row(
            "a budget that is not enough for another launch, or for peaks of memory",
            "the launch isn't begun, what is open stays undecided; `within_budget` says which peaks were left out",
            "engine/test_budget.py::test_peaks_of_memory_wait_until_all_is_verified_and_timed_and_what_is_left_out_is_said",
        ),
        Row(
            "a case that spent its own budget",
            "gets no more launches",
            "engine/test_runner.py::test_a_case_that_spent_its_budget_gets_no_more_launches",
        ),
    ),
    "A shared machine": (
        Row(
            "another run of ci-bench measures on the device",
            "waits before it touches the device, says at once and each minute for whom and how long, and gives up with code 3 after `run.lock_timeout_s`; waiting is not of the budget",
            f"{LOCK}::test_a_run_waits_for_another_and_leaves_its_budget_untouched",
        ),
        Row(
            "several runs wait for it, in containers or not",
            "first come, first served",
            f"{LOCK}::test_they_are_served_in_the_order_they_came",
        ),
        Row(
            "a run that waits is killed",
            "the next one behind it waits no longer for it",
            f"{LOCK}::test_a_killed_holder_and_a_killed_waiter_keep_nobody_waiting",
        ),
        Row(
            "a GPU is there, and torch cannot use it",
            "code 3 with what NVML and torch say; the CPU is not measured in its place",
            "engine/machine/test_devices.py::test_the_cpu_is_not_measured_in_a_gpus_place",
        ),
        Row(
            "the holder of a device is killed",
            "the next run goes on at once",
            f"{LOCK}::test_it_goes_on_as_soon_as_the_holder_is_gone_however_it_went",
        ),
        Row(
            "no lock can be made",
            "measured, and said",
            f"{LOCK}::test_where_no_lock_can_be_made_measuring_goes_on_and_says_so",
        ),
        Row(
            "an earlier run was killed with its processes still there",
            "they are ended, and its folder is removed",
            f"{LEFT}::test_the_next_run_clears_away_what_a_killed_one_left",
        ),
        Row("a folder that is not provably ours", "left alone", f"{LEFT}::test_what_is_not_provably_ours_is_left_alone"),
        Row(
            "processes of others on the GPU",
            "said, and blocks beside them are measured again",
            "engine/machine/test_monitor.py::test_a_process_that_came_after_ours_taints",
        ),
    ),
    "On a GPU": (
        Row(
            "base was in doubt (a clock, a disturbed block, sides that had to follow one another), head is not",
            "green: a doubt is owed by nobody",
            "judge/test_missing.py::test_a_doubt_of_the_baselines_is_not_owed_by_head",
        ),
        Row(
            "one arm draws more power than another, and so runs at a lower clock",
            "nothing: clocks are compared between the sides of one arm",
            "engine/machine/test_health.py::test_how_far_the_clocks_of_base_and_head_may_be_apart_under_one_arm",
        ),
        Row(
            "a power cap holds all the time",
            "recorded with each block, no doubt, no block measured again; a slowdown under it is found",
            "engine/test_simulated_device.py::test_a_power_cap_that_holds_all_the_time_is_recorded_and_no_doubt",
        ),
        Row(
            "head draws more power and runs slower for it",
            "the block counts, and says so",
            "engine/test_turns.py::test_a_block_whose_sides_had_other_clocks_counts_and_says_so",
        ),
        Row(
            "the card is always throttled, or never alone",
            "at most half of a launch's blocks are measured again; the rest count, with the reason",
            "engine/test_turns.py::test_a_machine_that_is_always_disturbed_is_asked_again_for_half_of_a_launch_at_most",
        ),
        Row(
            "`run.cuda_graph`, and a suite that owes the parts of a step",
            "the whole is owed and gates in their place",
            "engine/test_simulated_device.py::test_parts_of_a_step_are_owed_by_nobody_where_it_is_replayed_from_a_graph",
        ),
        Row(
            "a capture fails and leaves the process unfit",
            "the workers are replaced, and the case is timed plainly, told",
            "engine/test_simulated_device.py::test_a_card_that_refuses_captures_is_timed_plainly",
        ),
        Row(
            "cuBLAS, cuDNN or another library finds no memory",
            "`out_of_memory`, in any of their words; with two sides there, one after the other",
            "suites/test_memory_errors.py::test_memory_that_ran_out_is_known_by_any_of_its_words",
        ),
        Row(
            "both sides do not fit, or the card takes one process at a time",
            "one after the other, told; `doctor` says so before",
            "engine/test_simulated_device.py::test_on_a_card_for_one_process_at_a_time_the_sides_follow_one_another",
        ),
        Row(
            "memory is so short that the allocator frees some in every step",
            "one after the other, told",
            "engine/test_runner.py::test_sides_that_find_no_room_beside_each_other_are_timed_one_after_the_other",
        ),
        Row(
            "an eager optimizer",
            "captured, it can be; plain, it pays nothing for that",
            "suites/transformers/test_steps.py::test_capturable_is_for_steps_that_are_captured_or_compiled_as_a_whole",
        ),
        Row(
            "a model sets TF32 by either of torch's interfaces",
            "what was asked for is in force, by both",
            "suites/torchbench/test_own_models.py::test_a_model_that_turns_tf32_on_is_measured_without_it",
        ),
        Row(
            "compiling leaves memory cached, a graph computes in a pool of its own",
            "the first is in no peak, the second is",
            "engine/timing/test_memory.py::test_a_graphs_pool_is_in_the_peak_whatever_the_allocator_calls_free",
        ),
        Row(
            "a part of a GPU (MIG)",
            "its own name, memory and processes; clocks, heat and lock are those of the whole",
            "engine/test_simulated_device.py::test_a_gate_runs_on_a_slice_of_a_card_by_its_own_name_and_memory",
        ),
        Row(
            "the second of two GPUs",
            "measured alone, under its own lock",
            "engine/test_simulated_device.py::test_a_gate_runs_on_the_second_of_two_cards_and_leaves_the_first_alone",
        ),
        Row(
            "two versions of ROCm",
            "two machines",
            "engine/machine/test_probe.py::test_two_versions_of_rocm_are_two_machines_and_a_build_for_cuda_has_none",
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
        Row("a configuration without a case", "code 2", f"{CLOSED}::test_a_configuration_without_a_case_is_refused"),
        Row("a filter that leaves no case", "code 2", f"{CLOSED}::test_a_filter_that_leaves_no_case_is_refused"),
    ),
    "Hostile documents": (
        Row(
            "1,000 changed documents for each reader and page",
            "read or refused by name; nothing is written, started or connected to",
            f"{FUZZ}::test_a_thousand_inputs_are_read_or_refused",
        ),
        Row(
            "20 MB that were made to be slow or large",
            "less than 10 s and 1 GB for each reader",
            f"{HOSTILE}::test_no_input_of_20_mb_takes_a_reader_long_or_much",
        ),
        Row(
            "texts that would be markup",
            "no tag, link or mention of theirs is in a comment",
            "report/test_hostile.py::test_no_text_changes_the_shape_or_reaches_out",
        ),
        Row(
            "archives that were made to harm",
            "refused; nothing is unpacked to disk",
            "github/test_archive.py::test_what_is_turned_down",
        ),
    ),
    "GitHub": (
        Row(
            "every fault of the retry table (no connection, resets, timeouts, 4xx, 5xx, limits, odd answers), at every method",
            "tried again or ended with the error that the table names; reads and writes as each may be repeated",
            f"{CLIENT}::test_each_fault_ends_as_it_should_for_each_method",
        ),
        Row("an outage", "an error after every try", f"{CLIENT}::test_an_outage_ends_in_an_error_after_every_try"),
        Row("a limit", "waited for as long as the server says", f"{CLIENT}::test_waits_are_as_long_as_the_server_says"),
        Row(
            "the answer to a create is lost",
            "it is not made twice",
            f"{CLIENT}::test_a_create_whose_answer_is_lost_is_not_made_twice",
        ),
        Row("the answer to a comment is lost", "no second comment", f"{COMMENTS}::test_a_lost_answer_makes_no_second_comment"),
        Row("two runs write at once", "one comment", f"{COMMENTS}::test_two_that_write_at_once_end_in_one_comment"),
        Row(
            "a fault between portions of annotations",
            "none is lost, none is there twice",
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
        Row("any fault", "the token is in no log and in no error", f"{CLIENT}::test_the_token_is_in_no_log_and_in_no_error"),
        Row("the artifact of a machine that is missing", "not a pass", f"{PUBLISH}::test_a_machine_that_is_missing_is_no_pass"),
        Row(
            "a guard is taken out of the source",
            "a test fails, for each of about three hundred ([guards.md](guards.md)); one whose test stays green fails the run",
            "benchmarks/test_guards.py::test_a_guard_whose_test_stays_green_fails_the_run",
        ),
    ),
}
"""Rows by what they are about."""
