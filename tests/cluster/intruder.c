// SPDX-License-Identifier: Apache-2.0
/* A job that means harm. Linked statically, so that it runs in any image.
 * intruder ATTEMPT ARGUMENT...
 * Exit status: 0 the attempt succeeded, 1 it failed as it must, 2 it could not be made at all. What
 * was tried, and how it went, stands on standard output. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kDone = 0, kFailed = 1, kNotTried = 2 };
enum { kMostLines = 1024, kLongest = 4096 };

static int tried;
static int succeeded;

/* One attempt: worked says whether it did, errno else why not. */
static int note(int worked, const char* what, const char* on) {
  const char* why = worked ? "DONE" : strerror(errno);
  tried++;
  succeeded += worked != 0;
  if (worked || tried <= 12) printf("%s %s: %s\n", what, on, why);
  return worked;
}

static int verdict(void) {
  printf("%d attempts, %d succeeded\n", tried, succeeded);
  return tried == 0 ? kNotTried : succeeded ? kDone : kFailed;
}

static int put(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = write(fd, text, strlen(text));
  const int saved = errno;
  close(fd);
  errno = saved;
  return n == (ssize_t)strlen(text);
}

/* Becomes root of a user namespace, with a mount namespace of its own: what any user may. */
static void become_fake_root(int more) {
  char map[64];
  const unsigned uid = getuid(), gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS | more) != 0) {
    printf("no user namespace: %s\n", strerror(errno));
    exit(kNotTried);
  }
  put("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "0 %u 1", uid);
  if (!put("/proc/self/uid_map", map)) exit(kNotTried);
  snprintf(map, sizeof map, "0 %u 1", gid);
  put("/proc/self/gid_map", map);
}

/* Each process of /proc that belongs to `uid`, or with -1 to anybody but the caller. */
static void each_process(long uid, void (*attempt)(int pid)) {
  DIR* proc = opendir("/proc");
  if (proc == NULL) exit(kNotTried);
  const struct dirent* entry;
  while ((entry = readdir(proc)) != NULL) {
    char path[64];
    struct stat info;
    const int pid = atoi(entry->d_name);
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (pid <= 0 || pid == getpid() || stat(path, &info) != 0) continue;
    if (uid >= 0 ? info.st_uid == (uid_t)uid : info.st_uid != getuid()) attempt(pid);
  }
  closedir(proc);
}

static void try_open(int pid, const char* name, int flags) {
  char path[96];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  const int fd = open(path, flags | O_CLOEXEC);
  // What runs is closed to every writer, whatever his rights.
  note(fd >= 0 || errno == ETXTBSY, "open", path);
  if (fd >= 0) close(fd);
}

static void look_into(int pid) {
  for (const char* const* name = (const char* const[]){"root", "cwd", "fd", "map_files", NULL};
       *name; name++)
    try_open(pid, *name, O_RDONLY | O_DIRECTORY);
  try_open(pid, "environ", O_RDONLY);
  try_open(pid, "mem", O_RDWR);
  try_open(pid, "exe", O_RDONLY);
}

static void overwrite(int pid) { try_open(pid, "exe", O_WRONLY); }

/* Opening alone is enough for a start: setns to a namespace comes next. */
static void enter_namespaces(int pid) {
  static const char* const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char path[96], own[64], there[64] = "", here[64] = "";
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kinds[i]);
    snprintf(own, sizeof own, "/proc/self/ns/%s", kinds[i]);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      note(0, "open", path);
      continue;
    }
    const int same = readlink(path, there, sizeof there - 1) > 0 &&
                     readlink(own, here, sizeof here - 1) > 0 && strcmp(there, here) == 0;
    if (!same) note(setns(fd, 0) == 0, "setns to", path);
    close(fd);
  }
}

/* Through the descriptor of a process, which needs no path. */
static void enter_by_pidfd(int pid) {
  char name[32];
  snprintf(name, sizeof name, "pidfd of %d", pid);
  const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) return;
  note(setns(fd, CLONE_NEWNS) == 0, "setns to", name);
  note(syscall(SYS_pidfd_getfd, fd, 0, 0) >= 0, "take a descriptor by", name);
  close(fd);
}

static void trace(int pid) {
  char name[32];
  snprintf(name, sizeof name, "%d", pid);
  const int traced = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0;
  note(traced, "ptrace", name);
  if (traced) ptrace(PTRACE_DETACH, pid, NULL, NULL);
  char here[8];
  struct iovec local = {here, sizeof here};
  struct iovec there = {(void*)&tried, sizeof here};
  const ssize_t n = process_vm_readv(pid, &local, 1, &there, 1, 0);
  /* Allowed, and only the address is wrong. */
  note(n >= 0 || errno == EFAULT, "read the memory of", name);
}

static void send_signal(int pid) {
  char name[32];
  snprintf(name, sizeof name, "%d", pid);
  note(kill(pid, 0) == 0, "signal", name);
}

static int on_processes(void (*attempt)(int), int argc, char** argv) {
  if (argc > 0 && strcmp(argv[0], "uid") == 0 && argc == 2)
    each_process(atol(argv[1]), attempt);
  else if (argc > 0)
    for (int i = 0; i < argc; i++) attempt(atoi(argv[i]));
  else
    each_process(-1, attempt);
  return verdict();
}

/* The mounts of this namespace, innermost last. */
static int read_mounts(char** points, char** options) {
  FILE* table = fopen("/proc/self/mountinfo", "re");
  char line[kLongest], point[kLongest], option[kLongest];
  int count = 0;
  if (table == NULL) return 0;
  while (count < kMostLines && fgets(line, sizeof line, table) != NULL) {
    if (sscanf(line, "%*s %*s %*s %*s %4095s %4095s", point, option) != 2) continue;
    points[count] = strdup(point);
    options[count++] = strdup(option);
  }
  fclose(table);
  return count;
}

/* Whether something is mounted below a mount: a copy without that shows what it hides. */
static int is_covered(char** points, int count, int of) {
  const size_t length = strcmp(points[of], "/") == 0 ? 0 : strlen(points[of]);
  for (int i = of + 1; i < count; i++)
    if (strncmp(points[i], points[of], length) == 0 && points[i][length] == '/') return 1;
  return 0;
}

/* Every mount that there is: gone, or without its flags, or copied without what covers it. What the
 * administrator keeps of the host in a job's /tmp, below `kept`, hides nothing. */
static int change_mounts(const char* kept) {
  char *points[kMostLines], *options[kMostLines];
  const int count = read_mounts(points, options);
  static const struct {
    const char* word;
    uint64_t attribute;
    unsigned long seen;
  } kFlags[] = {{"ro", MOUNT_ATTR_RDONLY, ST_RDONLY},
                {"nosuid", MOUNT_ATTR_NOSUID, ST_NOSUID},
                {"nodev", MOUNT_ATTR_NODEV, ST_NODEV},
                {"noexec", MOUNT_ATTR_NOEXEC, ST_NOEXEC}};
  for (int i = 0; i < count; i++) {
    /* Of mounts on one another the path leads to the last. */
    struct statvfs last = {.f_flag = 0};
    (void)statvfs(points[i], &last);
    for (size_t f = 0; f < sizeof kFlags / sizeof *kFlags; f++) {
      char text[kLongest + 2], word[16];
      snprintf(text, sizeof text, ",%s,", options[i]);
      snprintf(word, sizeof word, ",%s,", kFlags[f].word);
      if (strstr(text, word) == NULL || !(last.f_flag & kFlags[f].seen)) continue;
      struct mount_attr attr = {.attr_clr = kFlags[f].attribute};
      note(mount_setattr(AT_FDCWD, points[i], 0, &attr, sizeof attr) == 0, kFlags[f].word,
           points[i]);
    }
    const int copy = open_tree(AT_FDCWD, points[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    const int of_host = *kept != '\0' && strncmp(points[i], kept, strlen(kept)) == 0;
    note(copy >= 0 && !of_host && is_covered(points, count, i), "copy alone", points[i]);
    if (copy >= 0) close(copy);
    if (strcmp(points[i], "/") != 0)
      note(umount2(points[i], MNT_DETACH) == 0, "unmount", points[i]);
  }
  return verdict();
}

/* As an ordinary user: each way to mount. */
static int mount_things(void) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  note(control >= 0, "open", "/dev/loop-control");
  note(mount("none", "/tmp", "tmpfs", 0, NULL) == 0, "mount", "tmpfs");
  note(mount("/", "/tmp", NULL, MS_BIND | MS_REC, NULL) == 0, "bind", "/");
  note(mount("none", "/", NULL, MS_REC | MS_SHARED, NULL) == 0, "share", "/");
  note(umount2("/dev", MNT_DETACH) == 0, "unmount", "/dev");
  note(fsopen("tmpfs", 0) >= 0, "fsopen", "tmpfs");
  note(open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE) >= 0, "clone", "/");
  note(syscall(SYS_pivot_root, "/", "/") == 0, "pivot_root", "/");
  note(chroot("/tmp") == 0, "chroot", "/tmp");
  note(unshare(CLONE_NEWNS) == 0, "unshare", "mounts");
  note(unshare(CLONE_NEWCGROUP) == 0, "unshare", "cgroups");
  return verdict();
}

static int opens(const char* path, int flags) {
  const int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC);
  /* A node of a device that no driver serves: the fence let it pass. */
  const int passed = fd >= 0 || errno == ENXIO || errno == ENODEV;
  if (fd >= 0) close(fd);
  return passed;
}

/* open PATH...: as a device, a file or a directory. */
static int open_paths(int argc, char** argv) {
  for (int i = 0; i < argc; i++) {
    note(opens(argv[i], O_RDONLY), "read", argv[i]);
    note(opens(argv[i], O_WRONLY), "write", argv[i]);
  }
  return verdict();
}

/* mknod DIRECTORY MAJOR MINOR: a node of one's own, and opening it. */
static int make_node(int argc, char** argv) {
  if (argc != 3) return kNotTried;
  static const mode_t kinds[] = {S_IFCHR, S_IFBLK};
  for (size_t i = 0; i < 2; i++) {
    char path[kLongest];
    snprintf(path, sizeof path, "%s/node%zu", argv[0], i);
    unlink(path);
    const dev_t device = makedev((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]));
    if (note(mknod(path, kinds[i] | 0666, device) == 0, "mknod", path))
      note(opens(path, O_RDWR), "open", path);
  }
  return verdict();
}

/* The root directory of a file system, by its number: what no path leads to. */
static int open_by_handle(int argc, char** argv) {
  for (int i = 0; i < argc; i++) {
    struct {
      struct file_handle head;
      uint32_t words[2];
    } handle = {.head = {.handle_bytes = 8, .handle_type = 1}, .words = {2, 0}};
    const int at = open(argv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) continue;
    const int fd = open_by_handle_at(at, &handle.head, O_RDONLY);
    note(fd >= 0, "open by handle on", argv[i]);
  }
  return verdict();
}

/* What a program is born with. Directories, mounts and namespaces of the host lead out. */
static int inherited(void) {
  for (int fd = 0; fd < 65536; fd++) {
    char link[64], to[kLongest] = "";
    struct stat info;
    if (fstat(fd, &info) != 0) continue;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, to, sizeof to - 1) < 0) to[0] = '\0';
    const int flags = fcntl(fd, F_GETFL);
    const int harmless = !S_ISDIR(info.st_mode) && !S_ISBLK(info.st_mode) &&
                         (flags & O_PATH) == 0 && strncmp(to, "mnt:", 4) != 0 &&
                         strstr(to, "[fscontext]") == NULL && strstr(to, "/slurmstepd") == NULL;
    errno = EPERM;
    note(!harmless, "inherited", to);
  }
  char cwd[kLongest] = "";
  struct stat top, root;
  errno = ENOENT;
  note(syscall(SYS_getcwd, cwd, sizeof cwd) < 0 || cwd[0] != '/',
       "a working directory outside:", cwd);
  for (int i = 0; i < 100; i++)
    if (chdir("..") != 0) return kNotTried;
  if (stat(".", &top) != 0 || stat("/", &root) != 0) return kNotTried;
  errno = ENOENT;
  note(top.st_ino != root.st_ino || top.st_dev != root.st_dev, "up and", "out");
  return verdict();
}

static void write_cgroups(const char* directory, int depth) {
  static const char* const files[] = {
      "devices.allow",         "cgroup.procs",      "tasks",
      "release_agent",         "notify_on_release", "cgroup.subtree_control",
      "memory.limit_in_bytes", "memory.max",        "freezer.state",
      "cgroup.freeze"};
  char path[kLongest];
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, files[i]);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) continue;
    note(fd >= 0, "write", path);
    if (fd >= 0) close(fd);
  }
  DIR* dir = depth > 0 ? opendir(directory) : NULL;
  const struct dirent* entry;
  while (dir != NULL && (entry = readdir(dir)) != NULL) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    write_cgroups(path, depth - 1);
  }
  if (dir != NULL) closedir(dir);
}

/* cgroups DEPTH, and as fake root the same hierarchies after mounting them again. */
static int take_cgroups(int argc, char** argv) {
  write_cgroups("/sys/fs/cgroup", argc > 0 ? atoi(argv[0]) : 4);
  const pid_t child = fork();
  if (child == 0) {
    become_fake_root(CLONE_NEWCGROUP);
    static const char* const kinds[] = {"devices", "memory", "freezer"};
    tried = succeeded = 0;
    if (mount("none", "/tmp", "tmpfs", 0, NULL) != 0) _exit(kNotTried);
    for (size_t i = 0; i < 3; i++)
      if (mount("none", "/tmp", "cgroup", 0, kinds[i]) == 0) write_cgroups("/tmp", 1);
    if (mount("none", "/tmp", "cgroup2", 0, NULL) == 0) write_cgroups("/tmp", 1);
    printf("as fake root %d attempts, %d succeeded\n", tried, succeeded);
    fflush(stdout);
    _exit(succeeded ? kDone : kFailed);
  }
  int status = 0;
  waitpid(child, &status, 0);
  note(WIFEXITED(status) && WEXITSTATUS(status) == kDone, "as fake root", "the same");
  return verdict();
}

/* A /proc and /sys without what covers parts of them. */
static int mount_afresh(void) {
  become_fake_root(CLONE_NEWPID | CLONE_NEWNET);
  const pid_t child = fork();
  if (child == 0) {
    if (mount("none", "/tmp", "tmpfs", 0, NULL) != 0) _exit(kNotTried);
    note(
        mount("proc", "/tmp", "proc", 0, NULL) == 0 && access("/tmp/driver/nvidia/gpus", F_OK) == 0,
        "see all of", "/proc/driver/nvidia");
    note(mount("sysfs", "/tmp", "sysfs", 0, NULL) == 0 &&
             access("/tmp/kernel/uevent_helper", W_OK) == 0,
         "write to", "/sys/kernel");
    note(mount("devtmpfs", "/tmp", "devtmpfs", 0, NULL) == 0, "mount", "devtmpfs");
    fflush(stdout);
    _exit(verdict());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kNotTried;
}

/* memory NAME: of another, POSIX's and System V's; or offers such with "offer". */
static int shared_memory(int argc, char** argv) {
  if (argc < 1) return kNotTried;
  const key_t key = 0x42454c4c;
  if (argc == 2 && strcmp(argv[1], "offer") == 0) {
    const int fd = shm_open(argv[0], O_RDWR | O_CREAT, 0666);
    const int id = shmget(key, 4096, IPC_CREAT | 0600);
    if (fd < 0 || fchmod(fd, 0666) != 0 || id < 0) return kNotTried;
    printf("%d\n", id);
    return kDone;
  }
  note(shm_open(argv[0], O_RDWR, 0) >= 0, "shm_open", argv[0]);
  const int id = shmget(key, 4096, 0);
  note(id >= 0 && shmat(id, NULL, 0) != (void*)-1, "attach", "a segment of System V");
  return verdict();
}

/* abstract NAME listen|connect: sockets that lie in no file system. */
static int abstract(int argc, char** argv) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  if (argc != 2) return kNotTried;
  strncpy(name.sun_path + 1, argv[0], sizeof name.sun_path - 2);
  const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[0]));
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (strcmp(argv[1], "listen") == 0) {
    if (bind(fd, (struct sockaddr*)&name, size) != 0 || listen(fd, 8) != 0) return kNotTried;
    while (1) pause();
  }
  note(connect(fd, (struct sockaddr*)&name, size) == 0, "connect to", argv[0]);
  return verdict();
}

/* keys put|take: whether the session's keyring is shared with another user's job. */
static int keys(int argc, char** argv) {
  enum { kSession = -3 };
  if (argc != 1) return kNotTried;
  if (strcmp(argv[0], "put") == 0)
    return syscall(SYS_add_key, "user", "bellows:intruder", "x", 1, kSession) >= 0 ? kDone
                                                                                   : kNotTried;
  const long key =
      syscall(SYS_keyctl, 10 /* KEYCTL_SEARCH */, kSession, "user", "bellows:intruder", 0);
  note(key >= 0, "find", "another's key");
  return verdict();
}

/* Whether the program's file gave it something: its bits, or capabilities in its attributes. */
static int gained(void) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2];
  char ids[64];
  if (syscall(SYS_capget, &head, sets) != 0) return kNotTried;
  snprintf(ids, sizeof ids, "capabilities %x, user %d", sets[0].permitted, (int)geteuid());
  errno = EPERM;
  note(geteuid() != getuid() || getegid() != getgid() || sets[0].permitted != 0, "gain", ids);
  note(setuid(0) == 0, "become", "root");
  return verdict();
}

static int kernel_doors(void) {
  static const char* const paths[] = {"/proc/sysrq-trigger",
                                      "/proc/sys/kernel/core_pattern",
                                      "/proc/sys/kernel/modprobe",
                                      "/proc/sys/vm/panic_on_oom",
                                      "/proc/kcore",
                                      "/proc/1/mem",
                                      "/dev/mem",
                                      "/dev/kmem",
                                      "/dev/kmsg",
                                      "/sys/kernel/uevent_helper",
                                      "/sys/power/state",
                                      "/sys/class/block",
                                      "/proc/acpi/wakeup"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    if (access(paths[i], F_OK) == 0) note(opens(paths[i], O_WRONLY), "write", paths[i]);
  note(syscall(SYS_bpf, 5, NULL, 0) >= 0 || errno == EFAULT, "load", "a BPF program");
  note(syscall(SYS_init_module, NULL, 0, "") == 0 || errno == EFAULT, "load", "a kernel module");
  note(syscall(SYS_kexec_load, 0, 0, NULL, 0) == 0, "load", "a kernel");
  return verdict();
}

static int attempt(const char* name, int argc, char** argv) {
  if (strcmp(name, "fake-root") == 0 && argc > 0) {
    become_fake_root(0);
    return attempt(argv[0], argc - 1, argv + 1);
  }
  static const struct {
    const char* name;
    void (*attempt)(int pid);
  } kOnProcesses[] = {
      {"look", look_into},       {"overwrite", overwrite}, {"enter", enter_namespaces},
      {"pidfd", enter_by_pidfd}, {"trace", trace},         {"signal", send_signal}};
  for (size_t i = 0; i < sizeof kOnProcesses / sizeof *kOnProcesses; i++)
    if (strcmp(name, kOnProcesses[i].name) == 0)
      return on_processes(kOnProcesses[i].attempt, argc, argv);
  if (strcmp(name, "mounts") == 0) return change_mounts(argc > 0 ? argv[0] : "");
  if (strcmp(name, "mount") == 0) return mount_things();
  if (strcmp(name, "afresh") == 0) return mount_afresh();
  if (strcmp(name, "open") == 0) return open_paths(argc, argv);
  if (strcmp(name, "mknod") == 0) return make_node(argc, argv);
  if (strcmp(name, "handle") == 0) return open_by_handle(argc, argv);
  if (strcmp(name, "inherited") == 0) return inherited();
  if (strcmp(name, "cgroups") == 0) return take_cgroups(argc, argv);
  if (strcmp(name, "memory") == 0) return shared_memory(argc, argv);
  if (strcmp(name, "abstract") == 0) return abstract(argc, argv);
  if (strcmp(name, "keys") == 0) return keys(argc, argv);
  if (strcmp(name, "kernel") == 0) return kernel_doors();
  if (strcmp(name, "gained") == 0) return gained();
  return kNotTried;
}

int main(int argc, char** argv) {
  if (argc < 2) return kNotTried;
  setvbuf(stdout, NULL, _IOLBF, 0);
  return attempt(argv[1], argc - 2, argv + 2);
}
