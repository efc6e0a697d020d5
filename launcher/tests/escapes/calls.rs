//! Every refused call, by its number: refused, and let through to the kernel without its group.

use launcher::Layer;

use super::{as_both, attempt};

/// A group's switch, what the filter answers, and for each call its number, arguments and what the kernel itself answers.
type Group = (Layer, &'static [(&'static str, &'static str)]);

/// The kernel refuses these to everybody but the administrator of the machine, which nobody in a user namespace is.
const KERNELS_OWN: &str = "EPERM";

const GROUPS: &[Group] = &[
    (
        Layer::CallsNamespaces,
        &[
            ("272 0", "ok"),
            ("308 -1 0", "EBADF"),
            ("435 0 0", "EINVAL"),
        ],
    ),
    (
        Layer::CallsMounts,
        &[
            ("165 0 0 0 0 0", "EFAULT"),
            ("166 0 0x10000", "EINVAL"),
            ("155 0 0", KERNELS_OWN),
            ("161 0", "EFAULT"),
            ("428 -1 0 0x7fffffff", "EINVAL"),
            ("429 -1 0 -1 0 0", KERNELS_OWN),
            ("430 0 0", KERNELS_OWN),
            ("431 -1 0 0 0 0", "EINVAL"),
            ("432 -1 0 0", KERNELS_OWN),
            ("433 -1 0 0", KERNELS_OWN),
            ("442 -1 0 0x7fffffff 0 0", "EINVAL"),
        ],
    ),
    (
        Layer::CallsHandles,
        &[
            ("303 -1 0 0 0 0", "EFAULT"),
            ("304 -1 0 0", "EFAULT"),
            ("300 0x200 0", "ok"),
            ("301 -1 0 0 0 0", "EINVAL"),
        ],
    ),
    (
        Layer::CallsIoUring,
        &[
            ("425 4 0", "EFAULT"),
            ("426 -1 0 0 0 0 0", "EBADF"),
            ("427 -1 0 0 0", "EINVAL"),
        ],
    ),
    (
        Layer::CallsKeys,
        &[
            ("248 0 0 0 0 0", "EFAULT"),
            ("249 0 0 0 0", "EFAULT"),
            ("250 999", "EOPNOTSUPP"),
        ],
    ),
    (
        Layer::CallsOthers,
        &[
            ("101 0 0 0 0", "ok"),
            ("310 0 0 0 0 0 1", "EINVAL"),
            ("311 0 0 0 0 0 1", "EINVAL"),
            ("440 -1 0 0 0 0", "EBADF"),
            ("448 -1 0", "EBADF"),
            ("438 -1 0 0", "EBADF"),
            ("312 0 0 0 0 0", "ESRCH"),
        ],
    ),
    (
        Layer::CallsKernel,
        &[
            ("321 0 0 0", "EINVAL"),
            ("298 0 0 0 0 0", "EFAULT"),
            ("323 1", "ok"),
            ("278 -1 0 0 0", "EBADF"),
            ("237 1 0 0 0 0 0", "EINVAL"),
            ("238 99 0 0", "EINVAL"),
            ("256 0 99999999 0 0", "EINVAL"),
            ("279 0 0 0 0 0 99", "EINVAL"),
            ("154 0 0 0", "ok"),
        ],
    ),
    (
        Layer::CallsMachine,
        &[
            ("246 0 0 0 0", KERNELS_OWN),
            ("320 -1 -1 0 0 0", KERNELS_OWN),
            ("175 0 0 0", KERNELS_OWN),
            ("313 -1 0 0", KERNELS_OWN),
            ("176 0 0", KERNELS_OWN),
            ("169 0 0 0 0", KERNELS_OWN),
            ("167 0 0x7fffffff", "EINVAL"),
            ("168 0", KERNELS_OWN),
            ("163 0", KERNELS_OWN),
            ("103 99 0 0", KERNELS_OWN),
            ("153", KERNELS_OWN),
            ("164 1 0", "EFAULT"),
            ("227 99 0", "EINVAL"),
            ("159 0", "EFAULT"),
            ("305 0 0", "EFAULT"),
            ("170 0 0", KERNELS_OWN),
            ("171 0 0", KERNELS_OWN),
            ("179 0x7fffffff 0 0 0", "EINVAL"),
            ("172 4", "EINVAL"),
            ("173 0x7fffffff 9 1", "EINVAL"),
        ],
    ),
];

#[test]
#[cfg(target_arch = "x86_64")]
fn every_refused_call_reaches_the_kernel_without_its_group() {
    as_both(
        "escapes::calls::every_refused_call_reaches_the_kernel_without_its_group",
        || {
            let mut wrong = Vec::new();
            for (layer, calls) in GROUPS {
                let tried: Vec<String> = (calls.iter())
                    .map(|(call, _)| format!("./probe syscall {call}"))
                    .collect();
                let line = tried.join("; ");
                let closed = attempt(&line, &[]);
                let open = attempt(&line, &[*layer]);
                let answers = closed.lines().zip(open.lines());
                assert_eq!(answers.clone().count(), calls.len(), "{closed}\n{open}");
                for ((call, expected), (closed, open)) in calls.iter().zip(answers) {
                    let refused = if call.starts_with("435 ") {
                        "ENOSYS"
                    } else {
                        "EPERM"
                    };
                    // What this kernel was built without, it says so.
                    if closed != refused || (open != *expected && open != "ENOSYS") {
                        wrong.push(format!("{layer:?} {call}: {closed}, without it {open}"));
                    }
                }
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        },
    );
}
