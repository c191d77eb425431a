/* Faults for `benchmarks/kills.py`, put before the C library by LD_PRELOAD.

   CVXNN_FAULT is "call:number:what": the call of that number, counted from 1, to open, write,
   fsync, linkat, rename or sync (fsync of a folder) that has to do with CVXNN_FAULT_FOLDER ends
   the process (what = kill), or it and all later ones fail with this errno. Other calls are real. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int inside(const char *path) {
    const char *folder = getenv("CVXNN_FAULT_FOLDER");
    char here[PATH_MAX];
    if (path && path[0] != '/') path = getcwd(here, sizeof here);
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int inside_handle(int handle) {
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return path[0] == '/' && inside(path); /* pipes have other names */
}

/* Whether this call is to fail; it does not return if the process is to end. */
static int fails(const char *call) {
    static int count = 0;
    const char *told = getenv("CVXNN_FAULT");
    char wanted[16], what[16];
    int number;
    if (!told || sscanf(told, "%15[^:]:%d:%15s", wanted, &number, what) != 3) return 0;
    if (strcmp(wanted, call) != 0 || ++count < number) return 0;
    if (strcmp(what, "kill") == 0) kill(getpid(), SIGKILL);
    errno = atoi(what);
    return 1;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int handle, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (inside_handle(handle) && fails("write")) return -1;
    return real(handle, data, size);
}

int fsync(int handle) {
    REAL(int, "fsync", int);
    struct stat found;
    int folder = fstat(handle, &found) == 0 && S_ISDIR(found.st_mode);
    if (inside_handle(handle) && fails(folder ? "sync" : "fsync")) return -1;
    return real(handle);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    if (inside(new) && fails("linkat")) return -1;
    return real(from, old, to, new, flags);
}

int rename(const char *old, const char *new) {
    REAL(int, "rename", const char *, const char *);
    if (inside(new) && fails("rename")) return -1;
    return real(old, new);
}

static int opened(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    int made = (flags & O_ACCMODE) != O_RDONLY && inside(path);
    if (made && fails("open")) return -1;
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened("open64", path, flags, mode);
}
