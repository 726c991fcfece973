/* Loaded before libc (LD_PRELOAD): records what a process does to files below POWERCUTS_ROOT.

   Each record: kind (1 byte), number of the file (8), offset (8), length of name (4), of the second
   name (4), of data (8), then both names and the data. See recording.py, which reads them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int out = -1;
static char root[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("POWERCUTS_LOG"), *top = getenv("POWERCUTS_ROOT");
    if (!name || !top) return;
    snprintf(root, sizeof root, "%s/", top);
    out = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *data, size_t length) {
    const char *at = data;
    while (length > 0) {
        long written = syscall(SYS_write, out, at, length);
        if (written <= 0) abort();
        at += written, length -= written;
    }
}

static int below(const char *path) {
    size_t length = strlen(root) - 1;
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static void record(char kind, uint64_t file, uint64_t offset, const char *one, const char *two,
                   const void *data, uint64_t length) {
    int saved = errno;
    uint32_t first = strlen(one), second = strlen(two);
    pthread_mutex_lock(&lock);
    put(&kind, 1), put(&file, 8), put(&offset, 8), put(&first, 4), put(&second, 4), put(&length, 8);
    put(one, first), put(two, second), put(data, length);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

/* The absolute path of a name seen from a folder; 0 if it is none of ours. */
static int locate(int folder, const char *name, char *path) {
    char base[2048], link[64];
    if (out < 0 || !name) return 0;
    if (name[0] == '/') {
        snprintf(path, 4096, "%s", name);
    } else {
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
        snprintf(path, 4096, "%s/%s", base, name);
    }
    return below(path);
}

static int of_file(int fd, char *path, struct stat *found) {
    char link[64];
    if (out < 0 || fd == out) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path) && fstat(fd, found) == 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int (*real)(int, const char *, int, ...), int folder, const char *name, int flags,
                  mode_t mode) {
    char path[4096];
    struct stat found;
    int ours = (flags & O_ACCMODE) != O_RDONLY && locate(folder, name, path);
    int there = ours && stat(path, &found) == 0;
    int fd = real(folder, name, flags, mode);
    if (ours && fd >= 0 && fstat(fd, &found) == 0) {
        if (!there) record('C', found.st_ino, 0, path, "", "", 0);
        else if (flags & O_TRUNC) record('T', found.st_ino, 0, path, "", "", 0);
    }
    return fd;
}

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int openat(int folder, const char *name, int flags, ...) { MODE(flags) return opened(REAL(openat), folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return opened(REAL(openat64), folder, name, flags, mode); }
int open(const char *name, int flags, ...) { MODE(flags) return opened(REAL(openat), AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(REAL(openat64), AT_FDCWD, name, flags, mode); }

ssize_t write(int fd, const void *data, size_t length) {
    char path[4096];
    struct stat found;
    int ours = of_file(fd, path, &found) && S_ISREG(found.st_mode);
    off_t at = !ours ? 0 : fcntl(fd, F_GETFL) & O_APPEND ? found.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t written = REAL(write)(fd, data, length);
    if (ours && written > 0) record('W', found.st_ino, at, path, "", data, written);
    return written;
}

static ssize_t at_place(ssize_t written, int fd, const void *data, off64_t at) {
    char path[4096];
    struct stat found;
    if (written > 0 && of_file(fd, path, &found)) record('W', found.st_ino, at, path, "", data, written);
    return written;
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return at_place(REAL(pwrite)(fd, data, length, at), fd, data, at); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) { return at_place(REAL(pwrite64)(fd, data, length, at), fd, data, at); }

static int cut(int done, int fd, off64_t length) {
    char path[4096];
    struct stat found;
    if (done == 0 && of_file(fd, path, &found)) record('T', found.st_ino, length, path, "", "", 0);
    return done;
}
int ftruncate(int fd, off_t length) { return cut(REAL(ftruncate)(fd, length), fd, length); }
int ftruncate64(int fd, off64_t length) { return cut(REAL(ftruncate64)(fd, length), fd, length); }

static int synced(int done, int fd) {
    char path[4096];
    struct stat found;
    int saved = errno;
    if (done == 0 && of_file(fd, path, &found)) record(S_ISDIR(found.st_mode) ? 'D' : 'S', found.st_ino, 0, path, "", "", 0);
    errno = saved;
    return done;
}
int fsync(int fd) { return synced(REAL(fsync)(fd), fd); }
int fdatasync(int fd) { return synced(REAL(fdatasync)(fd), fd); }

int renameat(int from, const char *old, int to, const char *new) {
    char one[4096], two[4096];
    int ours = locate(from, old, one) & locate(to, new, two);
    int done = REAL(renameat)(from, old, to, new);
    if (ours && done == 0) record('R', 0, 0, one, two, "", 0);
    return done;
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

int unlinkat(int folder, const char *name, int flags) {
    char path[4096];
    int ours = locate(folder, name, path);
    int done = REAL(unlinkat)(folder, name, flags);
    if (ours && done == 0) record('U', 0, 0, path, "", "", 0);
    return done;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[4096];
    int ours = locate(folder, name, path);
    int done = REAL(mkdirat)(folder, name, mode);
    if (ours && done == 0) record('M', 0, 0, path, "", "", 0);
    return done;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
