// Logs what a process does to the files below one folder, for tests that cut its power. Loaded with LD_PRELOAD.
//
//     POWERCUT_ROOT=/folder POWERCUT_LOG=/elsewhere/log LD_PRELOAD=powercut.so program
//
// Each record is: char kind | uint64 inode | uint64 offset | uint64 length of a | uint64 length of b | a | b. All calls
// under the folder are made and logged under one lock, so the log has their order. Kinds, with what a and b hold:
//
//     C file made (path)         D directory made (path)    W written at offset (data)    T truncated to offset
//     R renamed (from, to)       U removed (path)           L linked (from, to)           S synced (path)
//     A mark of the program (text)       ! something that the log cannot tell (what)
//
// C and D give the inode of what was made; W, T and S that of what they change. To sync is to log it: it costs no time.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int log_file = -1;

__attribute__((constructor)) static void start(void) {
    const char* folder = getenv("POWERCUT_ROOT");
    const char* log = getenv("POWERCUT_LOG");
    if (!folder || !log || !realpath(folder, root)) return;
    root_length = strlen(root);
    log_file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void* data, size_t size) {
    const char* at = data;
    while (size) {
        long done = syscall(SYS_write, log_file, at, size);
        if (done <= 0) abort();
        at += done;
        size -= (size_t)done;
    }
}

static void record(char kind, uint64_t inode, uint64_t offset, const void* a, uint64_t a_size, const char* b) {
    int before = errno;
    char head[33];
    uint64_t b_size = b ? strlen(b) : 0;
    head[0] = kind;
    memcpy(head + 1, &inode, 8);
    memcpy(head + 9, &offset, 8);
    memcpy(head + 17, &a_size, 8);
    memcpy(head + 25, &b_size, 8);
    put(head, sizeof head);
    put(a, a_size);
    put(b, b_size);
    errno = before;
}

static int below(const char* path) {
    return log_file >= 0 && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

// The absolute path of `name` in `folder`, its own last part not followed. Empty where there is none.
static void absolute(int folder, const char* name, char* found) {
    int before = errno;
    char whole[PATH_MAX * 2], parent[PATH_MAX];  // names of tests are far shorter
    found[0] = 0;
    if (log_file < 0 || !name) return;
    if (name[0] == '/') {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        char base[PATH_MAX], link[64];
        ssize_t n;
        if (folder == AT_FDCWD) {
            n = getcwd(base, sizeof base) ? (ssize_t)strlen(base) : -1;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            n = readlink(link, base, sizeof base - 1);
        }
        if (n < 0) return;
        base[n] = 0;
        snprintf(whole, sizeof whole, "%s/%s", base, name);
    }
    size_t size = strlen(whole);
    while (size > 1 && whole[size - 1] == '/') whole[--size] = 0;
    char* last = strrchr(whole, '/');
    *last = 0;
    if (realpath(*whole ? whole : "/", parent) && strlen(parent) + strlen(last + 1) + 2 < PATH_MAX) {
        strcpy(found, parent[1] ? parent : "");
        strcat(strcat(found, "/"), last + 1);
    }
    errno = before;
}

// Whether an open file lies below the root; its inode and kind.
static int tracked(int file, struct stat* found) {
    char link[64], path[PATH_MAX];
    int before = errno;
    if (log_file < 0 || file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    int yes = 0;
    if (n > 0) {
        path[n] = 0;
        yes = below(path) && !fstat(file, found) && (S_ISREG(found->st_mode) || S_ISDIR(found->st_mode));
    }
    errno = before;
    return yes;
}

void powercut_mark(const char* text) {
    if (log_file < 0) return;
    pthread_mutex_lock(&guard);
    record('A', 0, 0, text, strlen(text), NULL);
    pthread_mutex_unlock(&guard);
}

static int open_at(int folder, const char* name, int flags, mode_t mode) {
    char path[PATH_MAX];
    struct stat was, is;
    absolute(folder, name, path);
    if (!below(path) || !(flags & (O_CREAT | O_TRUNC))) return (int)syscall(SYS_openat, folder, name, flags, mode);
    pthread_mutex_lock(&guard);
    int there = !lstat(path, &was);
    int file = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (file >= 0 && tracked(file, &is)) {
        if (!there) record('C', is.st_ino, 0, path, strlen(path), NULL);
        else if ((flags & O_TRUNC) && was.st_size) record('T', is.st_ino, 0, NULL, 0, NULL);
    }
    pthread_mutex_unlock(&guard);
    return file;
}

#define OPEN(name, folder, prefix)                       \
    int name {                                           \
        mode_t mode = 0;                                 \
        if (flags & (O_CREAT | O_TMPFILE)) {             \
            va_list rest;                                \
            va_start(rest, flags);                       \
            mode = va_arg(rest, mode_t);                 \
            va_end(rest);                                \
        }                                                \
        return open_at(folder, path, flags, mode);       \
    }
OPEN(open(const char* path, int flags, ...), AT_FDCWD, )
OPEN(open64(const char* path, int flags, ...), AT_FDCWD, )
OPEN(openat(int folder, const char* path, int flags, ...), folder, )
OPEN(openat64(int folder, const char* path, int flags, ...), folder, )
int creat(const char* path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char* path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static uint64_t position(int file, const struct stat* found) {
    if (syscall(SYS_fcntl, file, F_GETFL) & O_APPEND) return (uint64_t)found->st_size;
    return (uint64_t)syscall(SYS_lseek, file, 0, SEEK_CUR);
}

ssize_t write(int file, const void* data, size_t size) {
    struct stat found;
    if (!tracked(file, &found)) return syscall(SYS_write, file, data, size);
    pthread_mutex_lock(&guard);
    fstat(file, &found);
    uint64_t at = position(file, &found);
    ssize_t done = syscall(SYS_write, file, data, size);
    if (done > 0) record('W', found.st_ino, at, data, (uint64_t)done, NULL);
    pthread_mutex_unlock(&guard);
    return done;
}

static ssize_t write_at(int file, const void* data, size_t size, off64_t offset) {
    struct stat found;
    if (!tracked(file, &found)) return syscall(SYS_pwrite64, file, data, size, offset);
    pthread_mutex_lock(&guard);
    ssize_t done = syscall(SYS_pwrite64, file, data, size, offset);
    if (done > 0) record('W', found.st_ino, (uint64_t)offset, data, (uint64_t)done, NULL);
    pthread_mutex_unlock(&guard);
    return done;
}
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) { return write_at(file, data, size, offset); }
ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) { return write_at(file, data, size, offset); }

ssize_t writev(int file, const struct iovec* parts, int count) {
    struct stat found;
    if (!tracked(file, &found)) return syscall(SYS_writev, file, parts, count);
    for (int i = 0; i < count; i++)  // the first alone: callers go on after a short write
        if (parts[i].iov_len) return write(file, parts[i].iov_base, parts[i].iov_len);
    return 0;
}

static int truncate_file(int file, off64_t size) {
    struct stat found;
    if (!tracked(file, &found)) return (int)syscall(SYS_ftruncate, file, size);
    pthread_mutex_lock(&guard);
    int failed = (int)syscall(SYS_ftruncate, file, size);
    if (!failed) record('T', found.st_ino, (uint64_t)size, NULL, 0, NULL);
    pthread_mutex_unlock(&guard);
    return failed;
}
int ftruncate(int file, off_t size) { return truncate_file(file, size); }
int ftruncate64(int file, off64_t size) { return truncate_file(file, size); }

static int sync_file(int file, long call) {
    struct stat found;
    char link[64], path[PATH_MAX];
    if (!tracked(file, &found)) return (int)syscall(call, file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    pthread_mutex_lock(&guard);
    ssize_t n = readlink(link, path, sizeof path - 1);
    record('S', found.st_ino, 0, path, n < 0 ? 0 : (uint64_t)n, NULL);
    pthread_mutex_unlock(&guard);
    return 0;
}
int fsync(int file) { return sync_file(file, SYS_fsync); }
int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }

static int rename_at(int folder, const char* from, int other, const char* to, unsigned flags) {
    char a[PATH_MAX], b[PATH_MAX];
    absolute(folder, from, a);
    absolute(other, to, b);
    pthread_mutex_lock(&guard);
    int failed = (int)syscall(SYS_renameat2, folder, from, other, to, flags);
    if (!failed && (below(a) || below(b))) {
        if (flags || !below(a) || !below(b)) record('!', 0, 0, "rename", 6, NULL);
        else record('R', 0, 0, a, strlen(a), b);
    }
    pthread_mutex_unlock(&guard);
    return failed;
}
int rename(const char* from, const char* to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int folder, const char* from, int other, const char* to) { return rename_at(folder, from, other, to, 0); }
int renameat2(int folder, const char* from, int other, const char* to, unsigned flags) {
    return rename_at(folder, from, other, to, flags);
}

static int unlink_at(int folder, const char* name, int flags) {
    char path[PATH_MAX];
    absolute(folder, name, path);
    pthread_mutex_lock(&guard);
    int failed = (int)syscall(SYS_unlinkat, folder, name, flags);
    if (!failed && below(path)) record('U', 0, 0, path, strlen(path), NULL);
    pthread_mutex_unlock(&guard);
    return failed;
}
int unlink(const char* path) { return unlink_at(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlink_at(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int folder, const char* path, int flags) { return unlink_at(folder, path, flags); }

static int make_directory(int folder, const char* name, mode_t mode) {
    char path[PATH_MAX];
    struct stat found;
    absolute(folder, name, path);
    pthread_mutex_lock(&guard);
    int failed = (int)syscall(SYS_mkdirat, folder, name, mode);
    if (!failed && below(path) && !lstat(path, &found)) record('D', found.st_ino, 0, path, strlen(path), NULL);
    pthread_mutex_unlock(&guard);
    return failed;
}
int mkdir(const char* path, mode_t mode) { return make_directory(AT_FDCWD, path, mode); }
int mkdirat(int folder, const char* path, mode_t mode) { return make_directory(folder, path, mode); }

static int link_at(int folder, const char* from, int other, const char* to, int flags) {
    char a[PATH_MAX], b[PATH_MAX];
    absolute(folder, from, a);
    absolute(other, to, b);
    pthread_mutex_lock(&guard);
    int failed = (int)syscall(SYS_linkat, folder, from, other, to, flags);
    if (!failed && below(b)) record(below(a) ? 'L' : '!', 0, 0, a, strlen(a), b);
    pthread_mutex_unlock(&guard);
    return failed;
}
int link(const char* from, const char* to) { return link_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int folder, const char* from, int other, const char* to, int flags) {
    return link_at(folder, from, other, to, flags);
}

static void untold(int file, const char* what) {
    struct stat found;
    if (!tracked(file, &found)) return;
    pthread_mutex_lock(&guard);
    record('!', found.st_ino, 0, what, strlen(what), NULL);
    pthread_mutex_unlock(&guard);
}

static int is_shared_memory(int file) {  // SQLite's: nothing in it is needed after a crash
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    return n > 4 && !strncmp(path + n - 4, "-shm", 4);
}

void* mmap64(void* at, size_t size, int protection, int flags, int file, off64_t offset) {
    if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && file >= 0 && !is_shared_memory(file)) untold(file, "mmap");
    return (void*)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
    return mmap64(at, size, protection, flags, file, offset);
}

int fallocate(int file, int mode, off_t offset, off_t size) {
    untold(file, "fallocate");
    return (int)syscall(SYS_fallocate, file, mode, offset, size);
}
int fallocate64(int file, int mode, off64_t offset, off64_t size) {
    untold(file, "fallocate");
    return (int)syscall(SYS_fallocate, file, mode, offset, size);
}
