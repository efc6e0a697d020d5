// Tries one way out of a sandbox and prints what came of it: `ok`, an error's name, or what it found.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int say(long result) {
    if (result < 0) printf("%s\n", strerrorname_np(errno));
    else printf("ok\n");
    return 0;
}

static void *wait_for_ever(void *nothing) { for (;;) pause(); }

int main(int count, char **argument) {
    setvbuf(stdout, 0, _IONBF, 0);
    const char *what = count > 1 ? argument[1] : "";
    const char *first = count > 2 ? argument[2] : "";
    if (!strcmp(what, "type")) { // into the terminal that is this process's own
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        if (master < 0 || grantpt(master) || unlockpt(master)) return say(-1);
        if (fork()) { wait(0); return 0; }
        setsid();
        int slave = open(ptsname(master), O_RDWR);
        if (slave < 0 || ioctl(slave, TIOCSCTTY, 0)) return say(-1);
        char code[] = "\x02";
        return say(syscall(SYS_ioctl, slave, strtoul(first, 0, 0), code));
    }
    if (!strcmp(what, "climb")) { // from any descriptor that was passed on
        for (int fd = 3; fd < 1024; fd++) {
            int out = openat(fd, "etc/hostname", O_RDONLY);
            if (out >= 0) { printf("out\n"); return 0; }
        }
        printf("nothing\n");
        return 0;
    }
    if (!strcmp(what, "daemon")) { // and does not return before it is one
        int ready[2];
        char byte;
        if (pipe(ready)) return say(-1);
        if (fork()) { close(ready[1]); read(ready[0], &byte, 1); return 0; }
        setsid();
        if (fork()) _exit(0);
        write(ready[1], "x", 1);
        wait_for_ever(0);
    }
    if (!strcmp(what, "seize")) return say(ptrace(PTRACE_SEIZE, atoi(first), 0, 0));
    if (!strcmp(what, "traceme")) return say(ptrace(PTRACE_TRACEME, 0, 0, 0));
    if (!strcmp(what, "peek")) { // EFAULT: may read, but nothing is there
        char here;
        struct iovec to = {&here, 1}, from = {(void *)8, 1};
        return say(process_vm_readv(atoi(first), &to, 1, &from, 1, 0));
    }
    if (!strcmp(what, "getfd")) {
        int process = syscall(SYS_pidfd_open, atoi(first), 0);
        if (process < 0) return say(-1);
        long result = -1;
        for (int fd = 0; fd < 64 && result < 0; fd++) {
            result = syscall(SYS_pidfd_getfd, process, fd, 0);
            if (result < 0 && errno != EBADF) break;
        }
        return say(result);
    }
    if (!strcmp(what, "setns")) {
        int space = open(first, O_RDONLY);
        return space < 0 ? say(-1) : say(setns(space, 0));
    }
    if (!strcmp(what, "unshare")) return say(unshare(strtoul(first, 0, 0)));
    if (!strcmp(what, "clone3")) {
        uint64_t arguments[11] = {strtoul(first, 0, 0), 0, 0, 0, SIGCHLD};
        long child = syscall(SYS_clone3, arguments, sizeof arguments);
        if (!child) _exit(0);
        return say(child);
    }
    if (!strcmp(what, "ring")) {
        char parameters[120] = {0};
        return say(syscall(SYS_io_uring_setup, 4, parameters));
    }
    if (!strcmp(what, "key")) return say(syscall(SYS_add_key, "user", first, "v", 1, KEY_SPEC_USER_KEYRING));
    if (!strcmp(what, "findkey"))
        return say(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", first, 0));
    if (!strcmp(what, "handle")) {
        struct { struct file_handle head; char space[128]; } handle = {{128}};
        int mount;
        return say(name_to_handle_at(AT_FDCWD, first, &handle.head, &mount, 0));
    }
    if (!strcmp(what, "tmpfs")) return say(mount("none", first, "tmpfs", 0, 0));
    if (!strcmp(what, "umount")) return say(umount2(first, MNT_DETACH));
    if (!strcmp(what, "remount")) return say(mount(0, first, 0, MS_REMOUNT | MS_BIND, 0));
    if (!strcmp(what, "chroot")) return say(chroot(first));
    if (!strcmp(what, "mknod")) return say(mknod(first, S_IFCHR | 0666, strtoul(argument[3], 0, 0)));
    if (!strcmp(what, "name")) return say(sethostname("x", 1));
    if (!strcmp(what, "personality")) return say(syscall(SYS_personality, 0x0040000));
    if (!strcmp(what, "threads")) {
        pthread_t one;
        pthread_create(&one, 0, wait_for_ever, 0);
        return system("true") || execlp("sh", "sh", "-c", "true", NULL);
    }
    if (!strcmp(what, "filters")) { // of every thread
        pthread_t one;
        pthread_create(&one, 0, wait_for_ever, 0);
        char line[256], path[64];
        for (int thread = 0; thread < 2; thread++) {
            sprintf(path, thread ? "/proc/thread-self/status" : "/proc/self/status");
            FILE *status = fopen(path, "r");
            while (status && fgets(line, sizeof line, status))
                if (!strncmp(line, "Seccomp:", 8)) printf("%d ", atoi(line + 8));
        }
        printf("\n");
        return 0;
    }
    if (!strcmp(what, "signal")) return say(kill(atoi(first), 0));
    if (!strcmp(what, "rewrite")) { // opens what is at a descriptor anew, for writing
        char path[64];
        sprintf(path, "/proc/self/fd/%s", first);
        int again = open(path, O_WRONLY | O_APPEND);
        return again < 0 ? say(-1) : say(write(again, "!", 1));
    }
    return 1;
}
