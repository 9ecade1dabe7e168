/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The first process of the lab's kernel.  It mounts what a program expects to
 * find, runs one command with its output on two ports, says on a third how that
 * ended, and switches the machine off.  The ports are virtio's, or serial ones.
 *
 * scripts/lab puts the file "job" beside this program: strings that each end
 * in a NUL.  First "virtio" or "serial"; the CPUs that the command may run on, as
 * a cpuset has them, or nothing if it may run on all; the number of shares, then tag and directory
 * of each; the number of directories to keep, and these; the working directory;
 * the number of arguments and the arguments; and all that is left is the
 * environment.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"
#define CGROUPS "/sys/fs/cgroup"
#define PORT_TRIES 1000
#define PORT_PAUSE_US 10000
#define STATUS_CANNOT_RUN 126
#define STATUS_NOT_FOUND 127
#define STATUS_SIGNAL 128

struct job {
    char *text;
    char *end;
    char *next;
    bool serial;
    char *cpus;
    size_t n_shares;
    char **shares; /* tag, directory, tag, directory ... */
    size_t n_kept;
    char **kept; /* below what is mounted over, and to be seen all the same */
    int *kept_fds;
    char *cwd;
    char **argv;
    char **env;
};

static int status_port = -1;

static _Noreturn void power_off(void)
{
    /* What a serial port still has to send would not be. */
    tcdrain(status_port);
    sync();
    reboot(RB_POWER_OFF);
    for (;;) {
        pause();
    }
}

static void report(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static void report(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vdprintf(status_port >= 0 ? status_port : STDERR_FILENO, format, args);
    va_end(args);
}

/* Nothing can be run: say why to scripts/lab, or at least to the log. */
static _Noreturn void fail(const char *what, const char *name)
{
    report("error %s %s: %s\n", what, name, strerror(errno));
    power_off();
}

static void make_dirs(const char *path)
{
    char *copy = strdup(path), *slash = copy;

    while (slash) {
        slash = strchr(slash + 1, '/');
        if (slash) {
            *slash = '\0';
        }
        mkdir(copy, 0755);
        if (slash) {
            *slash = '/';
        }
    }
    free(copy);
}

static void mount_on(const char *type, const char *dir, const char *options)
{
    make_dirs(dir);
    if (mount(type, dir, type, 0, options) < 0) {
        fail("cannot mount", dir);
    }
}

static void mount_all(void)
{
    mount_on("proc", "/proc", NULL);
    mount_on("sysfs", "/sys", NULL);
    mount_on("devtmpfs", "/dev", "mode=755");
    mount_on("devpts", "/dev/pts", "ptmxmode=666,mode=620");
    mount_on("tmpfs", "/dev/shm", "mode=1777");
    mount_on("hugetlbfs", "/dev/hugepages", "pagesize=2M");
    /* Not every CPU model has pages of this size. */
    mkdir("/dev/hugepages-1G", 0755);
    if (mount("hugetlbfs", "/dev/hugepages-1G", "hugetlbfs", 0,
              "pagesize=1G") < 0) {
        rmdir("/dev/hugepages-1G");
    }
    mount_on("debugfs", "/sys/kernel/debug", NULL);
    mount_on("tracefs", "/sys/kernel/tracing", NULL);
    mount_on("cgroup2", CGROUPS, NULL);
    mount_on("tmpfs", "/tmp", "mode=1777");
    mount_on("tmpfs", "/run", "mode=755");
    mount_on("tmpfs", "/var/tmp", "mode=1777");
    symlink("/proc/self/fd", "/dev/fd");
    symlink("/proc/self/fd/0", "/dev/stdin");
    symlink("/proc/self/fd/1", "/dev/stdout");
    symlink("/proc/self/fd/2", "/dev/stderr");
}

static void open_kept(struct job *job)
{
    job->kept_fds = calloc(job->n_kept + 1, sizeof(*job->kept_fds));
    for (size_t i = 0; i < job->n_kept; i++) {
        job->kept_fds[i] = open_tree(AT_FDCWD, job->kept[i],
                                     OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (job->kept_fds[i] < 0) {
            fail("cannot keep", job->kept[i]);
        }
    }
}

static void mount_kept(const struct job *job)
{
    for (size_t i = 0; i < job->n_kept; i++) {
        make_dirs(job->kept[i]);
        if (move_mount(job->kept_fds[i], "", AT_FDCWD, job->kept[i],
                       MOVE_MOUNT_F_EMPTY_PATH) < 0) {
            fail("cannot keep", job->kept[i]);
        }
        close(job->kept_fds[i]);
    }
}

static void mount_shares(const struct job *job)
{
    for (size_t i = 0; i < job->n_shares; i++) {
        const char *tag = job->shares[2 * i], *dir = job->shares[2 * i + 1];

        make_dirs(dir);
        if (mount(tag, dir, "9p", 0,
                  "trans=virtio,version=9p2000.L,cache=mmap,msize=512000") < 0) {
            fail("cannot share", dir);
        }
    }
}

static void unmount_shares(const struct job *job)
{
    for (size_t i = job->n_shares; i-- > 0;) {
        umount2(job->shares[2 * i + 1], 0);
    }
}

static void loopback_up(void)
{
    struct ifreq request = { .ifr_name = "lo" };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return;
    }
    request.ifr_flags = IFF_UP;
    ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
}

/* Returns: the port of that name, or -1 as long as the driver has none. */
static int find_port(const char *wanted)
{
    DIR *dir = opendir(PORTS);
    struct dirent *entry;
    int found = -1;

    while (dir && found < 0 && (entry = readdir(dir))) {
        char path[600], name[64] = "";
        FILE *file;

        snprintf(path, sizeof(path), PORTS "/%s/name", entry->d_name);
        file = fopen(path, "re");
        if (!file) {
            continue;
        }
        if (fgets(name, sizeof(name), file)) {
            name[strcspn(name, "\n")] = '\0';
        }
        fclose(file);
        if (!strcmp(name, wanted)) {
            snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
            found = open(path, O_WRONLY | O_CLOEXEC);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

/* Returns: the serial line of that name; ttyS0 is the kernel's log. */
static int open_serial(const char *name)
{
    static const char *const lines[] = { "lab.out", "lab.err", "lab.status" };
    char path[] = "/dev/ttyS0";
    struct termios mode;
    int fd;

    for (int i = 0; i < 3; i++) {
        if (!strcmp(name, lines[i])) {
            path[strlen(path) - 1] = '1' + i;
        }
    }
    /* With O_NONBLOCK, as nobody on the other side says to be there. */
    fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || tcgetattr(fd, &mode) < 0) {
        fail("cannot open the port", name);
    }
    cfmakeraw(&mode);
    cfsetspeed(&mode, B115200);
    mode.c_cflag |= CLOCAL;
    if (tcsetattr(fd, TCSANOW, &mode) < 0 || fcntl(fd, F_SETFL, 0) < 0) {
        fail("cannot set up the port", name);
    }
    return fd;
}

static int open_port(const struct job *job, const char *name)
{
    if (job->serial) {
        return open_serial(name);
    }
    for (int i = 0; i < PORT_TRIES; i++) {
        int fd = find_port(name);

        if (fd >= 0) {
            return fd;
        }
        usleep(PORT_PAUSE_US);
    }
    errno = ENODEV;
    fail("cannot open the port", name);
}

static char *next_string(struct job *job)
{
    char *string = job->next;

    if (string >= job->end) {
        errno = EINVAL;
        fail("cannot use", "the job, which ends too early");
    }
    job->next += strlen(string) + 1;
    return string;
}

static char **next_strings(struct job *job, size_t n)
{
    char **strings = calloc(n + 1, sizeof(*strings));

    for (size_t i = 0; i < n; i++) {
        strings[i] = next_string(job);
    }
    return strings;
}

static size_t strings_left(const struct job *job)
{
    size_t n = 0;

    for (char *c = job->next; c < job->end; c++) {
        n += *c == '\0';
    }
    return n;
}

static void read_job(struct job *job, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t got;

    if (fd < 0 || fstat(fd, &st) < 0) {
        fail("cannot read", path);
    }
    job->text = job->next = calloc(1, st.st_size + 1);
    job->end = job->text;
    while ((got = read(fd, job->end, job->text + st.st_size - job->end)) > 0) {
        job->end += got;
    }
    close(fd);
    job->serial = !strcmp(next_string(job), "serial");
    job->cpus = next_string(job);
    job->n_shares = strtoul(next_string(job), NULL, 10);
    job->shares = next_strings(job, 2 * job->n_shares);
    job->n_kept = strtoul(next_string(job), NULL, 10);
    job->kept = next_strings(job, job->n_kept);
    job->cwd = next_string(job);
    job->argv = next_strings(job, strtoul(next_string(job), NULL, 10));
    job->env = next_strings(job, strings_left(job));
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        fail("cannot write", path);
    }
    close(fd);
}

/*
 * On CPU 0 of Debian's QEMU, KVM is not safe from what the other CPUs do:
 * docs/lab.md has more.  A cpuset, as programs set affinities by themselves:
 * libvirtd has a domain run on all CPUs that are online.
 */
static void stay_on(const char *cpus)
{
    if (!*cpus) {
        return;
    }
    write_file(CGROUPS "/cgroup.subtree_control", "+cpuset");
    make_dirs(CGROUPS "/command");
    write_file(CGROUPS "/command/cpuset.cpus", cpus);
    write_file(CGROUPS "/command/cgroup.procs", "0");
}

static _Noreturn void run_command(const struct job *job, int out, int err)
{
    sigset_t none;

    stay_on(job->cpus);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    environ = job->env;
    execvpe(job->argv[0], job->argv, job->env);
    dprintf(STDERR_FILENO, "lab: %s: %s\n", job->argv[0], strerror(errno));
    _exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

/* Returns: false once there is nothing more to come. */
static bool relay(int from, int to)
{
    static char buffer[32768];
    ssize_t got = read(from, buffer, sizeof(buffer)), put = 0, done;

    if (got < 0 && errno == EINTR) {
        return true;
    }
    while (put < got) {
        done = write(to, buffer + put, got - put);
        if (done < 0) {
            return errno == EINTR;
        }
        put += done;
    }
    return got > 0;
}

/* Reaps whoever has ended.  Returns: whether COMMAND was among them. */
static bool reap(pid_t command, int *status)
{
    bool ended = false;
    int one;
    pid_t pid;

    while ((pid = waitpid(-1, &one, WNOHANG)) > 0) {
        if (pid == command) {
            *status = one;
            ended = true;
        }
    }
    return ended;
}

/*
 * Passes on what COMMAND writes until it has ended, and what it started with
 * it; returns its wait status.
 */
static int attend(const struct job *job, pid_t command, int out, int err,
                  int signals)
{
    int to[] = { open_port(job, "lab.out"), open_port(job, "lab.err") };
    struct pollfd fds[] = {
        { .fd = out, .events = POLLIN },
        { .fd = err, .events = POLLIN },
        { .fd = signals, .events = POLLIN },
    };
    int status = 0;

    while (fds[0].fd >= 0 || fds[1].fd >= 0 || command) {
        if (poll(fds, 3, -1) < 0) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd >= 0 && fds[i].revents && !relay(fds[i].fd, to[i])) {
                fds[i].fd = -1;
            }
        }
        if (fds[2].revents) {
            struct signalfd_siginfo info;

            if (read(signals, &info, sizeof(info)) < 0) {
                continue;
            }
            if (reap(command, &status)) {
                command = 0;
                kill(-1, SIGKILL);
            }
        }
    }
    tcdrain(to[0]);
    tcdrain(to[1]);
    return status;
}

int main(int argc, char **argv)
{
    struct job job = { 0 };
    int out[2], err[2], signals, status;
    char *path;
    sigset_t chld;
    pid_t command;

    (void)argc;
    /* The job may be below /tmp, which is about to be hidden. */
    if (asprintf(&path, "%s/job", dirname(strdup(argv[0]))) < 0) {
        fail("cannot name", "the job");
    }
    read_job(&job, path);
    open_kept(&job);
    mount_all();
    status_port = open_port(&job, "lab.status");
    mount_kept(&job);
    mount_shares(&job);
    loopback_up();
    sethostname("lab", 3);
    if (chdir(job.cwd) < 0) {
        fail("cannot change to the working directory", job.cwd);
    }

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    signals = signalfd(-1, &chld, SFD_CLOEXEC);
    if (signals < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0) {
        fail("cannot make", "pipes");
    }
    command = fork();
    if (command < 0) {
        fail("cannot start", job.argv[0]);
    }
    if (command == 0) {
        run_command(&job, out[1], err[1]);
    }
    close(out[1]);
    close(err[1]);
    status = attend(&job, command, out[0], err[0], signals);

    if (chdir("/") < 0) {
        fail("cannot change to", "/");
    }
    sync();
    unmount_shares(&job);
    report("exit %d\n", WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status)
                                            : WEXITSTATUS(status));
    power_off();
}
