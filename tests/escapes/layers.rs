//! Which layers close each known way out, and the test that sees it open without them: the table of `docs/escapes.md`.

use std::collections::BTreeSet;
use std::fs;

use crate::support::root;

/// A row, the layers that are switched off, the file in `launcher/tests/escapes` and the test.
const OPENED: &[(&str, &[&str], &str, &str)] = &[
    (
        "A1",
        &["CallsTerminal"],
        "terminal",
        "nothing_is_typed_into_a_terminal",
    ),
    (
        "A2",
        &["CallsTerminal"],
        "terminal",
        "nothing_is_typed_into_a_terminal",
    ),
    (
        "A3",
        &["CallsTerminal"],
        "terminal",
        "nothing_is_typed_into_a_terminal",
    ),
    (
        "A4",
        &["Descriptors", "Landlock"],
        "terminal",
        "no_descriptor_leads_out",
    ),
    (
        "A6",
        &["ProcessNamespace"],
        "processes",
        "a_daemon_outlives_a_run_only_without_the_process_namespace",
    ),
    (
        "A8",
        &["LimitOutput"],
        "limits",
        "output_is_cut_only_with_its_limit",
    ),
    (
        "A9",
        &["CallsOthers", "Undumpable", "Landlock"],
        "terminal",
        "no_descriptor_leads_out",
    ),
    (
        "B1",
        &["ProcessNamespace", "Landlock"],
        "processes",
        "processes_of_the_host_are_out_of_reach",
    ),
    (
        "B2",
        &["CallsOthers", "Undumpable", "Landlock"],
        "processes",
        "the_first_process_is_out_of_reach",
    ),
    (
        "B3",
        &["Undumpable", "Landlock"],
        "processes",
        "the_first_process_is_out_of_reach",
    ),
    (
        "B4",
        &["NoNewPrivileges", "Capabilities", "MountFlags"],
        "processes",
        "no_right_is_there_and_none_is_gained",
    ),
    (
        "B5",
        &["ProcessNamespace"],
        "processes",
        "a_daemon_outlives_a_run_only_without_the_process_namespace",
    ),
    (
        "B6",
        &["CoreLimit"],
        "processes",
        "no_right_is_there_and_none_is_gained",
    ),
    (
        "B7",
        &["SupervisorsDeath"],
        "processes",
        "a_killed_supervisor_is_outlived_only_without_the_watch",
    ),
    (
        "B8",
        &["LimitProcesses"],
        "limits",
        "processes_are_bounded_only_with_their_limit",
    ),
    (
        "B9",
        &["CallsOthers", "Undumpable", "Landlock"],
        "terminal",
        "no_descriptor_leads_out",
    ),
    (
        "C1",
        &["CallsIoUring"],
        "kernel",
        "no_way_leads_around_the_filter",
    ),
    (
        "C2",
        &["CallsOtherAbis"],
        "kernel",
        "no_way_leads_around_the_filter",
    ),
    (
        "C3",
        &["CallsNamespaces", "NestedUsers"],
        "kernel",
        "no_namespace_is_made_or_entered",
    ),
    (
        "C4",
        &["CallsNamespaces", "NestedUsers"],
        "kernel",
        "no_namespace_is_made_or_entered",
    ),
    (
        "C5",
        &["CallsKeys"],
        "kernel",
        "two_runs_do_not_meet_in_the_keyring",
    ),
    (
        "C6",
        &["CallsKernel", "CallsHandles", "CallsMachine"],
        "calls",
        "every_refused_call_reaches_the_kernel_without_its_group",
    ),
    (
        "C7",
        &["CallsMounts", "Capabilities", "Landlock"],
        "kernel",
        "no_mount_is_changed",
    ),
    (
        "C8",
        &["CallsSockets"],
        "kernel",
        "what_the_machine_shares_is_out_of_reach",
    ),
    ("C9", &["Calls"], "kernel", "no_way_leads_around_the_filter"),
    (
        "C10",
        &["View", "Hide"],
        "files",
        "a_socket_of_the_hosts_is_reached_only_where_its_folder_is_shown",
    ),
    (
        "D1",
        &["ReadOnly", "Landlock"],
        "files",
        "the_root_is_kept_by_mounts_and_by_landlock_each_alone",
    ),
    (
        "D2",
        &["Links", "Exchange"],
        "links",
        "of_a_thousand_starts_with_a_folder_exchanged_for_a_link_none_shows_the_other",
    ),
    (
        "D3",
        &[],
        "limits",
        "a_hook_is_written_to_the_project_itself_only_without_the_layer_of_changes",
    ),
    ("D4", &["Hide"], "files", "the_hosts_files_are_not_there"),
    ("D5", &["View"], "files", "the_hosts_files_are_not_there"),
    (
        "D6",
        &["ProcCovers"],
        "files",
        "what_tells_about_or_changes_the_machine_is_covered",
    ),
    ("D7", &["Devices"], "files", "the_hosts_files_are_not_there"),
    (
        "D8",
        &["View", "Hide"],
        "files",
        "a_socket_of_the_hosts_is_reached_only_where_its_folder_is_shown",
    ),
    (
        "D10",
        &["Landlock"],
        "files",
        "the_hosts_files_are_not_there",
    ),
    (
        "D11",
        &["Masks"],
        "files",
        "the_owners_settings_are_shown_only_without_the_mask",
    ),
    (
        "D12",
        &["LimitDisk"],
        "limits",
        "a_disk_is_filled_only_without_its_limit",
    ),
    (
        "E1",
        &["NetworkNamespace"],
        "network",
        "services_of_the_hosts_loopback_are_reached_only_without_the_namespace",
    ),
    (
        "E2",
        &["Capture"],
        "network",
        "a_foreign_address_is_the_runs_own_listener_only_with_the_capture",
    ),
    (
        "E3",
        &["NetworkNamespace"],
        "network",
        "a_resolver_outside_is_asked_only_without_the_namespace",
    ),
    (
        "E4",
        &["Capabilities"],
        "network",
        "routes_are_changed_only_with_capabilities",
    ),
    (
        "E8",
        &["Capture"],
        "network",
        "a_foreign_address_is_the_runs_own_listener_only_with_the_capture",
    ),
    (
        "E9",
        &["NetworkNamespace", "Landlock"],
        "network",
        "abstract_sockets_of_the_host_are_kept_away_by_the_namespace_and_by_landlock",
    ),
    (
        "F1",
        &["LimitMemory"],
        "limits",
        "memory_of_a_program_and_of_a_child_is_bounded_only_with_its_limit",
    ),
    (
        "F2",
        &["LimitCpuTime"],
        "limits",
        "processor_time_of_children_is_bounded_only_with_its_limit",
    ),
    (
        "F3",
        &["LimitWall"],
        "limits",
        "the_clock_ends_a_sleeper_only_with_its_limit",
    ),
    (
        "F4",
        &["LimitFileSize", "LimitOpenFiles"],
        "limits",
        "a_large_file_and_many_open_files_are_refused_only_with_their_limits",
    ),
];

/// Rows that no layer of the launcher closes: what stands in the place of what does, the file and the test.
const OPENED_ELSEWHERE: &[(&str, &str, &str, &str)] = &[
    (
        "A7",
        "a file instead of a terminal",
        "tests/interactive.rs",
        "what_commands_a_terminal_gets_into_a_file_as_it_is_and_not_to_a_terminal",
    ),
    (
        "D9",
        "`cp` instead of `changes apply`",
        "tests/changes.rs",
        "what_leads_out_of_a_project_or_gives_rights_gets_there_only_where_a_layer_is_copied",
    ),
    (
        "E6",
        "a door of no run",
        "proxy/tests/identity.rs",
        "a_token_through_the_door_of_another_run_is_refused",
    ),
    (
        "E7",
        "a comparison of texts instead of the parser",
        "policies/tests/spellings.rs",
        "what_gets_past_a_comparison_of_texts_does_not_get_past_the_one_parser",
    ),
    (
        "E12",
        "the owner's word that the name may lead there",
        "proxy/tests/addresses.rs",
        "a_name_that_leads_inside_is_followed_only_where_the_owner_wrote_so",
    ),
];

/// Rows that are not seen open, and why.
const NOT_OPENED: &[(&str, &str)] = &[
    (
        "A5",
        "no switch: the folder is not in the sandbox's root, and the kernel refuses to change to it",
    ),
    (
        "B10",
        "nothing to try: no state that another process would join by",
    ),
    ("D13", "nothing to try: the program is never set-user-id"),
    (
        "E5",
        "no switch: the kernel gives a port that is taken to nobody else",
    ),
    ("E10", "nothing to try: not tried on WSL"),
    (
        "E11",
        "stays closed: a network namespace without routes leads nowhere, whoever asks",
    ),
    ("F5", "nothing to stop: how endings are told apart"),
    ("F6", "no switch: the kernel itself refuses the namespaces"),
];

#[test]
fn each_row_is_seen_open_or_has_a_reason() {
    let elsewhere = OPENED_ELSEWHERE.iter().map(|(row, ..)| *row);
    let rows = OPENED.iter().map(|(row, ..)| *row).chain(elsewhere);
    let found: Vec<&str> = rows.chain(NOT_OPENED.iter().map(|(row, _)| *row)).collect();
    let listed: BTreeSet<&str> = super::LIST
        .iter()
        .map(|(row, _)| *row)
        .filter(|row| row.starts_with(|first: char| first.is_ascii_uppercase()))
        .collect();
    assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), listed);
    assert_eq!(found.len(), listed.len(), "a row is there twice");
}

#[test]
fn the_tests_and_layers_of_the_table_are_there_and_the_page_says_the_same() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let page = read("docs/escapes.md");
    let layers_there = read("launcher/src/weaken.rs");
    for (row, layers, file, test) in OPENED {
        let source = read(&format!("launcher/tests/escapes/{file}.rs"));
        assert!(source.contains(&format!("fn {test}(")), "{row}: {test}");
        for layer in *layers {
            let is_layer = layers_there.contains(&format!("\n    {layer},\n"));
            assert!(is_layer, "{row}: {layer} is no layer");
            // One that a loop over all groups switches off has no name there.
            let is_used = source.contains(layer) || *file == "calls";
            assert!(is_used, "{row}: {file} does not switch {layer} off");
        }
        let named: Vec<String> = layers.iter().map(|layer| format!("`{layer}`")).collect();
        let named = match layers {
            [] => "none: another mode of the workspace".to_owned(),
            _ => named.join(" "),
        };
        let line = format!("| {row} | {named} | `{file}.rs` `{test}` |\n");
        assert!(page.contains(&line), "{line}");
    }
    for (row, instead, file, test) in OPENED_ELSEWHERE {
        assert!(read(file).contains(&format!("fn {test}(")), "{row}: {test}");
        let line = format!("| {row} | none: {instead} | `{file}` `{test}` |\n");
        assert!(page.contains(&line), "{line}");
    }
    for (row, why) in NOT_OPENED {
        let line = format!("| {row} | – | not seen open. {why} |\n");
        assert!(page.contains(&line), "{line}");
    }
    let lines = page.lines().filter(|line| line.starts_with("| ")).count();
    let rows = OPENED.len() + OPENED_ELSEWHERE.len() + NOT_OPENED.len();
    assert_eq!(lines, rows + 1);
}
