/* Becomes another program under the system call filter that containers have: no namespaces, no mounts. With a second
   list of numbers, those calls fail with the given error: deny [-NUMBER:ERRNO]... PROGRAM ARGUMENT... */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter f[256];
static int n;
static void put(unsigned short code, unsigned k, unsigned char t, unsigned char e) {
  struct sock_filter i = {code, t, e, k};
  f[n++] = i;
}
static void fails(long number, int error) {
  put(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
  put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
}
int main(int c, char **v) {
  int denied[] = {SYS_add_key, SYS_request_key, SYS_keyctl, SYS_bpf, SYS_perf_event_open, SYS_mount, SYS_umount2,
    SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_fsconfig, SYS_fspick,
    SYS_mount_setattr, SYS_setns, SYS_unshare, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_userfaultfd, SYS_open_by_handle_at, SYS_syslog, SYS_reboot, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_pidfd_getfd, SYS_ptrace, SYS_kcmp};
  int at = 1, plain = 0;
  put(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
  for (; at < c && v[at][0] == '-'; at++) {
    char *rest;
    long number = strtol(v[at] + 1, &rest, 10);
    plain = 1;
    fails(number, atoi(rest + 1));
  }
  if (!plain) {
    for (unsigned i = 0; i < sizeof denied / sizeof *denied; i++) fails(denied[i], EPERM);
    fails(SYS_clone3, ENOSYS);
    put(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    put(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]), 0, 0);
    put(BPF_JMP | BPF_JSET | BPF_K, 0x7e020000, 0, 1);
    put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
    put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  }
  put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  struct sock_fprog p = {n, f};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) return 120;
  execvp(v[at], v + at);
  perror(v[at]);
  return 121;
}
