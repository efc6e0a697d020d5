//! Every known way out of a sandbox, by its row in the list, and the test that tries it.
//!
//! A to F are the classes: terminal and descriptors, processes, the kernel, files, network, limits. Numbers are the
//! single tries. The tests of `launcher/tests/escapes` name the layers that close each way and see it open without
//! them; those elsewhere are of what is no layer of a sandbox: the proxy, the review of changes, the limits.

mod layers;

use std::collections::BTreeSet;
use std::fs;

use crate::support::root;

/// What holds a row.
enum Held {
    /// Tests, each with its file.
    By(&'static [(&'static str, &'static str)]),
    /// Nothing to try: a way that is not there, and why.
    NotThere(&'static str),
}

use Held::{By, NotThere};

const TERMINAL: &str = "launcher/tests/escapes/terminal.rs";
const PROCESSES: &str = "launcher/tests/escapes/processes.rs";
const KERNEL: &str = "launcher/tests/escapes/kernel.rs";
const CALLS: &str = "launcher/tests/escapes/calls.rs";
const FILES: &str = "launcher/tests/escapes/files.rs";
const NETWORK: &str = "launcher/tests/escapes/network.rs";
const EXHAUSTION: &str = "launcher/tests/exhaustion.rs";
const CHANGES: &str = "launcher/tests/changes.rs";
const ATTACKS: &str = "tests/attacks/mod.rs";

const TYPED: Held = By(&[(TERMINAL, "nothing_is_typed_into_a_terminal")]);
const DESCRIPTORS: Held = By(&[(TERMINAL, "no_descriptor_leads_out")]);
const FIRST_PROCESS: Held = By(&[(PROCESSES, "the_first_process_is_out_of_reach")]);
const HOSTS_PROCESSES: Held = By(&[(PROCESSES, "processes_of_the_host_are_out_of_reach")]);
const RIGHTS: Held = By(&[(PROCESSES, "no_right_is_there_and_none_is_gained")]);
const AROUND: Held = By(&[(KERNEL, "no_way_leads_around_the_filter")]);
const NAMESPACES: Held = By(&[
    (KERNEL, "no_namespace_is_made_or_entered"),
    (
        KERNEL,
        "nesting_is_refused_by_the_filter_and_by_the_kernels_limit_each_alone",
    ),
]);
const MOUNTS: Held = By(&[
    (KERNEL, "no_mount_is_changed"),
    (
        CALLS,
        "every_refused_call_reaches_the_kernel_without_its_group",
    ),
]);
const EVERY_CALL: Held = By(&[(
    CALLS,
    "every_refused_call_reaches_the_kernel_without_its_group",
)]);
const SHARED: Held = By(&[(KERNEL, "what_the_machine_shares_is_out_of_reach")]);
const KEYS: Held = By(&[(KERNEL, "two_runs_do_not_meet_in_the_keyring")]);
const COVERED: Held = By(&[(FILES, "what_tells_about_or_changes_the_machine_is_covered")]);
const HOSTS_FILES: Held = By(&[(FILES, "the_hosts_files_are_not_there")]);
const READ_ONLY: Held = By(&[
    (
        FILES,
        "the_root_is_kept_by_mounts_and_by_landlock_each_alone",
    ),
    (FILES, "a_path_to_read_is_not_written"),
]);
const SOCKETS: Held = By(&[(
    FILES,
    "a_socket_of_the_hosts_is_reached_only_where_its_folder_is_shown",
)]);
const ABSTRACT: Held = By(&[(
    NETWORK,
    "abstract_sockets_of_the_host_are_kept_away_by_the_namespace_and_by_landlock",
)]);
const LOOPBACK: Held = By(&[(
    NETWORK,
    "services_of_the_hosts_loopback_are_reached_only_without_the_namespace",
)]);
const NOWHERE: Held = By(&[(NETWORK, "nothing_else_is_there")]);

const LIST: &[(&str, Held)] = &[
    ("A1", TYPED),
    ("A2", TYPED),
    ("A3", TYPED),
    ("A4", DESCRIPTORS),
    (
        "A5",
        By(&[(FILES, "a_working_folder_outside_the_view_is_refused")]),
    ),
    (
        "A6",
        By(&[
            (
                PROCESSES,
                "a_daemon_outlives_a_run_only_without_the_process_namespace",
            ),
            (
                "launcher/tests/processes.rs",
                "a_background_child_does_not_hold_the_run_open",
            ),
        ]),
    ),
    (
        "A7",
        By(&[(
            "cli/sequences.rs",
            "what_commands_the_terminal_does_not_pass",
        )]),
    ),
    (
        "A8",
        By(&[(EXHAUSTION, "an_output_flood_is_cut_and_ended")]),
    ),
    ("A9", DESCRIPTORS),
    ("B1", HOSTS_PROCESSES),
    ("B2", FIRST_PROCESS),
    ("B3", FIRST_PROCESS),
    ("B4", RIGHTS),
    (
        "B5",
        By(&[(
            PROCESSES,
            "a_daemon_outlives_a_run_only_without_the_process_namespace",
        )]),
    ),
    ("B6", RIGHTS),
    (
        "B7",
        By(&[(
            PROCESSES,
            "a_killed_supervisor_is_outlived_only_without_the_watch",
        )]),
    ),
    (
        "B8",
        By(&[(EXHAUSTION, "a_fork_bomb_is_bounded_and_ended")]),
    ),
    // The race needs a process with more rights in reach; the first process has none, and no descriptor can be taken.
    ("B9", DESCRIPTORS),
    (
        "B10",
        NotThere("a sandbox holds no state that another process would join by"),
    ),
    ("C1", AROUND),
    ("C2", AROUND),
    ("C3", NAMESPACES),
    ("C4", NAMESPACES),
    ("C5", KEYS),
    ("C6", EVERY_CALL),
    ("C7", MOUNTS),
    ("C8", SHARED),
    ("C9", AROUND),
    ("C10", SOCKETS),
    ("D1", READ_ONLY),
    (
        "D2",
        By(&[
            (
                "launcher/tests/files.rs",
                "a_workspace_behind_a_symbolic_link_is_refused",
            ),
            (
                "launcher/tests/files.rs",
                "a_workspace_exchanged_during_the_start_is_never_the_other_folder",
            ),
        ]),
    ),
    (
        "D3",
        By(&[(
            "tests/changes.rs",
            "files_that_this_machine_would_run_later_are_told",
        )]),
    ),
    ("D4", HOSTS_FILES),
    ("D5", HOSTS_FILES),
    ("D6", COVERED),
    ("D7", HOSTS_FILES),
    ("D8", SOCKETS),
    (
        "D9",
        By(&[
            (CHANGES, "every_kind_of_change_is_told"),
            (CHANGES, "a_folder_exchanged_for_a_link_does_not_lead_out"),
            (CHANGES, "what_leads_to_a_process_is_refused_and_told"),
            (
                "tests/changes.rs",
                "deletions_are_told_first_and_all_of_them",
            ),
        ]),
    ),
    ("D10", HOSTS_FILES),
    (
        "D11",
        By(&[
            (FILES, "the_owners_settings_are_shown_only_without_the_mask"),
            ("tests/reads.rs", "a_run_cannot_change_its_own_policy"),
            (
                "tests/changes.rs",
                "files_that_this_machine_would_run_later_are_told",
            ),
        ]),
    ),
    (
        "D12",
        By(&[(EXHAUSTION, "a_workspace_that_is_filled_ends_the_program")]),
    ),
    (
        "D13",
        NotThere("the program is never set-user-id; whoever starts it is who builds the sandbox"),
    ),
    ("E1", LOOPBACK),
    (
        "E2",
        By(&[
            (
                NETWORK,
                "a_foreign_address_is_the_runs_own_listener_only_with_the_capture",
            ),
            ("tests/network.rs", "datagrams_and_raw_packets_go_nowhere"),
        ]),
    ),
    (
        "E3",
        By(&[
            (
                "tests/network.rs",
                "a_refused_name_is_answered_so_that_the_refusal_can_be_explained",
            ),
            ("proxy/tests/names.rs", "other_records_have_no_data"),
        ]),
    ),
    (
        "E4",
        By(&[(NETWORK, "routes_are_changed_only_with_capabilities")]),
    ),
    (
        "E5",
        By(&[(
            "launcher/tests/network.rs",
            "the_listeners_cannot_be_taken_over",
        )]),
    ),
    (
        "E6",
        By(&[(
            "proxy/tests/identity.rs",
            "a_token_through_the_door_of_another_run_is_refused",
        )]),
    ),
    (
        "E7",
        By(&[
            (ATTACKS, "no_spelling_of_a_host_is_taken_for_another"),
            (ATTACKS, "no_spelling_of_an_address_is_let_through"),
        ]),
    ),
    (
        "E8",
        By(&[(
            NETWORK,
            "a_foreign_address_is_the_runs_own_listener_only_with_the_capture",
        )]),
    ),
    ("E9", ABSTRACT),
    (
        "E10",
        NotThere(
            "no folder that leads to Windows or to `/init` is shown; not tried on such a machine",
        ),
    ),
    ("E11", NOWHERE),
    (
        "E12",
        By(&[(
            "proxy/tests/addresses.rs",
            "a_name_that_leads_inside_is_refused_however_it_does",
        )]),
    ),
    (
        "F1",
        By(&[
            (
                EXHAUSTION,
                "a_program_that_allocates_without_end_is_ended_for_memory",
            ),
            (
                "launcher/tests/limits.rs",
                "memory_of_the_command_and_of_its_children_is_bounded",
            ),
        ]),
    ),
    (
        "F2",
        By(&[(
            EXHAUSTION,
            "a_spinner_and_spinning_children_are_ended_for_processor_time",
        )]),
    ),
    ("F3", By(&[(EXHAUSTION, "a_sleeper_is_ended_by_the_clock")])),
    (
        "F4",
        By(&[
            (
                EXHAUSTION,
                "a_file_that_grows_too_large_is_told_even_where_the_program_takes_the_signal_for_nothing",
            ),
            (EXHAUSTION, "more_open_files_than_allowed_are_refused"),
            (
                EXHAUSTION,
                "a_full_tmp_is_told_beside_the_programs_own_error",
            ),
        ]),
    ),
    (
        "F5",
        By(&[
            ("tests/limits.rs", "a_steps_own_exit_code_is_kept"),
            ("tests/limits.rs", "a_signal_is_128_more"),
            ("tests/limits.rs", "a_command_that_is_not_there_is_127"),
            (
                "tests/limits.rs",
                "a_command_that_cannot_be_executed_is_126",
            ),
        ]),
    ),
    (
        "F6",
        By(&[(
            "launcher/tests/setup.rs",
            "without_user_namespaces_nothing_runs_and_the_cause_is_told",
        )]),
    ),
    ("01", TYPED),
    ("02", TYPED),
    ("03", TYPED),
    ("04", FIRST_PROCESS),
    ("05", DESCRIPTORS),
    ("06", HOSTS_PROCESSES),
    ("07", HOSTS_PROCESSES),
    ("08", FIRST_PROCESS),
    ("09", FIRST_PROCESS),
    ("10", FIRST_PROCESS),
    ("11", FIRST_PROCESS),
    ("12", ABSTRACT),
    ("13", SOCKETS),
    ("14", LOOPBACK),
    ("15", NOWHERE),
    ("16", SHARED),
    ("17", SHARED),
    ("18", SHARED),
    ("19", SHARED),
    ("20", AROUND),
    ("21", KEYS),
    ("22", NAMESPACES),
    ("23", NAMESPACES),
    ("24", COVERED),
    ("25", COVERED),
    ("26", COVERED),
    ("27", MOUNTS),
    ("28", MOUNTS),
    ("29", MOUNTS),
    ("30", MOUNTS),
    ("31", EVERY_CALL),
    ("32", EVERY_CALL),
    ("33", EVERY_CALL),
    ("34", EVERY_CALL),
    ("35", EVERY_CALL),
    ("36", RIGHTS),
    ("37", AROUND),
    ("38", AROUND),
    ("39", READ_ONLY),
    ("40", HOSTS_FILES),
    ("41", HOSTS_FILES),
    ("42", HOSTS_FILES),
    (
        "43",
        By(&[(
            KERNEL,
            "shared_memory_of_the_host_is_seen_only_without_the_namespace",
        )]),
    ),
    ("44", SHARED),
    ("45", EVERY_CALL),
    ("46", COVERED),
    ("47", DESCRIPTORS),
    ("48", NAMESPACES),
    ("49", HOSTS_FILES),
    ("50", SHARED),
    (
        "51",
        By(&[("launcher/tests/limits.rs", "open_files_are_bounded")]),
    ),
    ("52", TYPED),
    ("53", COVERED),
    ("54", NOWHERE),
    (
        "55",
        NotThere("a program in memory may be run: it can do what any other program of the run can"),
    ),
];

#[test]
fn every_row_of_the_list_is_held_by_tests_that_are_there() {
    for (row, held) in LIST {
        match held {
            By(tests) => {
                for (file, test) in *tests {
                    let source = fs::read_to_string(root().join(file))
                        .unwrap_or_else(|error| panic!("{row}: {file}: {error}"));
                    let is_there = source.contains(&format!("fn {test}("));
                    assert!(is_there, "{row} names `{test}`, which is not in {file}");
                }
            }
            NotThere(why) => assert!(!why.is_empty(), "{row}"),
        }
    }
}

#[test]
fn no_row_of_the_list_is_left_out() {
    let classes = [
        ("A", 9),
        ("B", 10),
        ("C", 10),
        ("D", 13),
        ("E", 12),
        ("F", 6),
    ];
    let lettered = classes
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    let numbered = (1..=55).map(|number| format!("{number:02}"));
    let expected: BTreeSet<String> = lettered.chain(numbered).collect();
    let found: BTreeSet<String> = LIST.iter().map(|(row, _)| (*row).to_owned()).collect();
    assert_eq!(found, expected);
    assert_eq!(found.len(), LIST.len());
}

#[test]
fn every_way_out_that_the_launcher_closes_is_in_the_list() {
    let folder = root().join("launcher/tests/escapes");
    let read = |file| fs::read_to_string(root().join(file)).unwrap();
    let text = read("tests/escapes.rs") + &read("tests/escapes/layers.rs");
    // What switches layers off is tried as such, and no row.
    let besides = ["mod.rs", "switch.rs"];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if besides.contains(&name.as_str()) {
            continue;
        }
        let source = fs::read_to_string(entry.path()).unwrap();
        for (_, rest) in source
            .match_indices("#[test]")
            .map(|(at, _)| source.split_at(at))
        {
            let test = rest
                .split("fn ")
                .nth(1)
                .and_then(|rest| rest.split('(').next());
            let test = test.unwrap();
            let is_listed = text.contains(&format!("\"{test}\"")) || OWN.contains(&test);
            assert!(is_listed, "{name}: `{test}` is no row's");
        }
    }
}

/// Ways that were found here and are in no list.
const OWN: &[&str] = &[
    "a_file_given_to_read_is_not_opened_for_writing",
    "a_workspace_that_is_a_link_leads_to_the_other_folder_only_where_links_are_followed",
];
