// Writes down what a program asks of the disk, for tests/test_forest_files.py, which then cuts the power at every point.
//
//     cc -shared -fPIC power.c -o power.so -ldl;  LD_PRELOAD=power.so POWER_LOG=... POWER_UNDER=FOLDER program
//
// The log has a line per call on a file under the folder, in order: open HANDLE CREATES PATH, write HANDLE OFFSET HEX,
// sync HANDLE, rename OLD NEW. Other calls that write there would be missed; save makes none.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static int is_watched[1024];

static FILE* out(void) {
  static FILE* file;
  if (file == NULL) file = fopen(getenv("POWER_LOG"), "ae");
  return file;
}

static int lies_under(const char* path) {
  const char* folder = getenv("POWER_UNDER");
  return strncmp(path, folder, strlen(folder)) == 0;
}

int open64(const char* path, int flags, ...) {
  int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, "open64");
  va_list rest;
  va_start(rest, flags);
  const int handle = real(path, flags, va_arg(rest, mode_t));
  va_end(rest);
  if (handle >= 0 && handle < 1024 && (is_watched[handle] = lies_under(path)) != 0)
    fprintf(out(), "open %d %d %s\n", handle, flags & O_CREAT, path), fflush(out());
  return handle;
}

ssize_t pwrite64(int handle, const void* bytes, size_t size, off64_t offset) {
  ssize_t (*real)(int, const void*, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
  if (handle < 1024 && is_watched[handle]) {
    fprintf(out(), "write %d %lld ", handle, (long long)offset);
    for (size_t i = 0; i < size; ++i) fprintf(out(), "%02x", ((const unsigned char*)bytes)[i]);
    fprintf(out(), "\n"), fflush(out());
  }
  return real(handle, bytes, size, offset);
}

int fsync(int handle) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  if (handle < 1024 && is_watched[handle]) fprintf(out(), "sync %d\n", handle), fflush(out());
  return real(handle);
}

int close(int handle) {
  int (*real)(int) = dlsym(RTLD_NEXT, "close");
  if (handle >= 0 && handle < 1024) is_watched[handle] = 0;
  return real(handle);
}

int rename(const char* old, const char* now) {
  int (*real)(const char*, const char*) = dlsym(RTLD_NEXT, "rename");
  if (lies_under(now)) fprintf(out(), "rename %s %s\n", old, now), fflush(out());
  return real(old, now);
}
