// Tries one thing from inside a sandbox and prints what came of it: `ok`, an error's name, or a value.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int say(long result) {
    if (result < 0) printf("%s\n", strerrorname_np(errno));
    else printf("ok\n");
    return 0;
}

static int address(const char *text, const char *port, struct sockaddr_storage *out) {
    struct sockaddr_in6 *six = (void *)out;
    struct sockaddr_in *four = (void *)out;
    memset(out, 0, sizeof *out);
    if (strchr(text, ':')) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(atoi(port));
        inet_pton(AF_INET6, text, &six->sin6_addr);
        return sizeof *six;
    }
    four->sin_family = AF_INET;
    four->sin_port = htons(atoi(port));
    inet_pton(AF_INET, text, &four->sin_addr);
    return sizeof *four;
}

static void *spin(void *nothing) { for (;;); }

static void *allocate(void *mebibytes) {
    for (long i = 0; i < atol(mebibytes); i++)
        memset(mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
    usleep(300000);
    printf("used it all\n");
    fflush(stdout);
    _exit(0);
}

int main(int count, char **argument) {
    setvbuf(stdout, 0, _IONBF, 0);
    const char *what = count > 1 ? argument[1] : "";
    if (!strcmp(what, "syscall")) {
        long a[6] = {0};
        for (int i = 0; i < 6 && i + 3 < count; i++) a[i] = strtoul(argument[i + 3], 0, 0);
        return say(syscall(strtol(argument[2], 0, 0), a[0], a[1], a[2], a[3], a[4], a[5]));
    }
    if (!strcmp(what, "socket")) return say(socket(atoi(argument[2]), atoi(argument[3]), atoi(argument[4])));
    if (!strcmp(what, "int80")) {
        unsigned char code[] = {0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3};
        void *page = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(page, code, sizeof code);
        printf("%d\n", ((int (*)(void))page)());
        return 0;
    }
    if (!strcmp(what, "tiocsti")) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        if (master < 0 || grantpt(master) || unlockpt(master)) return say(-1);
        int slave = open(ptsname(master), O_RDWR);
        if (slave < 0) return say(-1);
        printf("pty ");
        return say(syscall(SYS_ioctl, slave, strtoul(argument[2], 0, 0), "x"));
    }
    if (!strcmp(what, "open")) {
        int flags = strchr(argument[3], 'w') ? O_WRONLY : O_RDONLY;
        return say(open(argument[2], flags));
    }
    if (!strcmp(what, "kill")) return say(kill(atoi(argument[2]), atoi(argument[3])));
    if (!strcmp(what, "fds")) {
        for (int fd = 0; fd < 4096; fd++) if (fcntl(fd, F_GETFD) >= 0) printf("%d ", fd);
        printf("\n");
        return 0;
    }
    if (!strcmp(what, "ids")) {
        printf("%d %d %d %d %d\n", getuid(), geteuid(), getgid(), getpid(), getsid(0) == getpid());
        return 0;
    }
    if (!strcmp(what, "connect") || !strcmp(what, "udp")) {
        struct sockaddr_storage to;
        int length = address(argument[2], argument[3], &to);
        int fd = socket(to.ss_family, *what == 'c' ? SOCK_STREAM : SOCK_DGRAM, 0);
        struct timeval wait = {5, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        if (connect(fd, (void *)&to, length)) return say(-1);
        if (write(fd, "ping", 4) < 0) return say(-1);
        char answer[64] = {0};
        if (read(fd, answer, 63) < 0) return say(-1);
        printf("%s\n", answer);
        return 0;
    }
    if (!strcmp(what, "bind")) {
        struct sockaddr_storage to;
        int length = address(argument[2], argument[3], &to), one = 1;
        int fd = socket(to.ss_family, SOCK_STREAM, 0);
        if (count > 4) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
        return say(bind(fd, (void *)&to, length));
    }
    if (!strcmp(what, "abstract")) {
        struct sockaddr_un to = {AF_UNIX};
        strcpy(to.sun_path + 1, argument[2]);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        return say(connect(fd, (void *)&to, sizeof(sa_family_t) + 1 + strlen(argument[2])));
    }
    if (!strcmp(what, "unix")) {
        struct sockaddr_un to = {AF_UNIX};
        strcpy(to.sun_path, argument[2]);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        return say(connect(fd, (void *)&to, sizeof to));
    }
    if (!strcmp(what, "delroute")) {
        struct { struct { uint32_t length; uint16_t type, flags; uint32_t seq, pid; } head;
                 unsigned char body[12]; struct { uint16_t length, type; uint32_t value; } out; } message;
        memset(&message, 0, sizeof message);
        message.head.length = sizeof message;
        message.head.type = 25; // RTM_DELROUTE
        message.head.flags = 5;
        message.body[0] = AF_INET; message.body[4] = 255; message.body[6] = 254; message.body[7] = 2;
        message.out.length = 8; message.out.type = 4; message.out.value = 1;
        int fd = socket(AF_NETLINK, SOCK_RAW, 0);
        if (send(fd, &message, sizeof message, 0) < 0) return say(-1);
        char answer[512];
        if (recv(fd, answer, sizeof answer, 0) < 20) return say(-1);
        errno = -*(int *)(answer + 16);
        return say(errno ? -1 : 0);
    }
    if (!strcmp(what, "mem")) {
        for (long i = 0; i < atol(argument[2]); i++) {
            char *block = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (block == MAP_FAILED) { printf("refused after %ld MiB\n", i); return 42; }
            memset(block, 1, 1 << 20);
        }
        printf("used it all\n");
        return 0;
    }
    if (!strcmp(what, "memthread")) {
        // The process goes on without its first thread.
        pthread_t other;
        if (pthread_create(&other, 0, allocate, argument[2])) return 1;
        pthread_exit(0);
    }
    if (!strcmp(what, "memchild")) {
        if (!fork()) for (;;) memset(mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
        int status;
        wait(&status);
        return 0;
    }
    if (!strcmp(what, "forks")) {
        int made = 0;
        for (; made < atoi(argument[2]); made++) {
            pid_t child = fork();
            if (child < 0) { printf("%d %s\n", made, strerrorname_np(errno)); return 43; }
            if (!child) { pause(); _exit(0); }
        }
        printf("%d made\n", made);
        return 0;
    }
    if (!strcmp(what, "spinkids")) {
        for (int i = 0; i < 3; i++) if (!fork()) spin(0);
        for (;;) pause();
    }
    if (!strcmp(what, "fill") || !strcmp(what, "memfd")) {
        static char block[1 << 20];
        int in_memory = !strcmp(what, "memfd");
        int fd = in_memory ? memfd_create("m", 0) : open(argument[2], O_CREAT | O_WRONLY, 0600);
        if (fd < 0) return say(-1);
        memset(block, 7, sizeof block);
        for (int i = 0; i < atoi(argument[in_memory ? 2 : 3]); i++)
            if (write(fd, block, sizeof block) < 0) { say(-1); return 44; }
        printf("written\n");
        return 0;
    }
    if (!strcmp(what, "openmany")) {
        int made = 0;
        while (open("/dev/null", O_RDONLY) >= 0) made++;
        printf("%d %s\n", made, strerrorname_np(errno));
        return 0;
    }
    if (!strcmp(what, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "daemon")) {
        if (fork()) _exit(0);
        setsid();
        if (fork()) _exit(0);
        for (;;) pause();
    }
    if (!strcmp(what, "pause")) for (;;) pause();
    if (!strcmp(what, "symlink-race")) return 0;
    return 1;
}
