/* Make one write to the store fail: preloaded into the soak's process, armed from Python.

Counts every call that changes a file below a folder, in this process and its children, and lets
call number `target` fail: with an errno, or by writing only half (`SHORT_WRITE`).
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHORT_WRITE -1

struct shared {
    int armed, target, failure, count;
    char folder[PATH_MAX];
};
static struct shared *state;
static int journal = -1; /* where calls are listed, one per line */

/* Shared memory, so that ranks and workers count together. Called once, before any fork. */
void faults_prepare(void) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void faults_arm(const char *folder, int target, int failure, int descriptor) {
    snprintf(state->folder, PATH_MAX, "%s", folder);
    state->target = target;
    state->failure = failure;
    state->count = 0;
    journal = descriptor;
    state->armed = 1;
}

int faults_disarm(void) {
    state->armed = 0;
    return state->count;
}

static int is_below(const char *path) {
    return strncmp(path, state->folder, strlen(state->folder)) == 0;
}

/* Return 0, or the failure of this call. */
static int strike(const char *call, const char *path) {
    if (!is_below(path)) return 0;
    int number = __sync_fetch_and_add(&state->count, 1);
    if (journal >= 0) dprintf(journal, "%d\t%s\t%s\n", number, call, path);
    return number == state->target ? state->failure : 0;
}

static int strike_descriptor(const char *call, int descriptor) {
    char link[64], path[PATH_MAX];
    if (!state || !state->armed || descriptor == journal) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strike(call, path);
}

static int strike_path(const char *call, const char *path) {
    char whole[2 * PATH_MAX], here[PATH_MAX];
    if (!state || !state->armed) return 0;
    if (path[0] == '/') return strike(call, path);
    if (!getcwd(here, sizeof here)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", here, path);
    return strike(call, whole);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = dlsym(RTLD_NEXT, #name)
#define FAIL_WITH(call) \
    do { \
        int failed = (call); \
        if (failed) { \
            errno = failed == SHORT_WRITE ? ENOSPC : failed; \
            return -1; \
        } \
    } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int failure = strike_descriptor("write", fd);
    if (failure == SHORT_WRITE && size > 1) return real(fd, data, size / 2);
    FAIL_WITH(failure);
    return real(fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    int failure = strike_descriptor("pwrite", fd);
    if (failure == SHORT_WRITE && size > 1) return real(fd, data, size / 2, offset);
    FAIL_WITH(failure);
    return real(fd, data, size, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    int failure = strike_descriptor("writev", fd);
    if (failure == SHORT_WRITE && count > 1) return real(fd, parts, count / 2);
    FAIL_WITH(failure);
    return real(fd, parts, count);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    REAL(fwrite);
    int failure = strike_descriptor("fwrite", fileno(stream));
    if (failure == SHORT_WRITE) return real(data, size, count / 2, stream);
    if (failure) {
        errno = failure;
        return 0;
    }
    return real(data, size, count, stream);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL_WITH(strike_descriptor("fsync", fd));
    return real(fd);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    FAIL_WITH(strike_descriptor("ftruncate", fd));
    return real(fd, size);
}

int posix_fallocate64(int fd, off64_t start, off64_t size) {
    REAL(posix_fallocate64);
    int failure = strike_descriptor("fallocate", fd);
    if (failure) return failure == SHORT_WRITE ? ENOSPC : failure;
    return real(fd, start, size);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    FAIL_WITH(strike_path("rename", to));
    return real(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    FAIL_WITH(strike_path("mkdir", path));
    return real(path, mode);
}

int unlink(const char *path) {
    REAL(unlink);
    FAIL_WITH(strike_path("unlink", path));
    return real(path);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (flags & (O_WRONLY | O_RDWR)) FAIL_WITH(strike_path("open", path));
    return real(path, flags, mode);
}
