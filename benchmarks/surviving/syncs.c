/* What the disk has of the files of a folder: their contents when they were last brought to it.
 *
 * Preloaded into a process (LD_PRELOAD). After each fsync and fdatasync of a file in the folder
 * SYNCS_OF, the file is copied to the folder SYNCS_TO, where it is what a loss of power leaves if
 * the disk has nothing else: the harshest that may happen to a file that is not written in place. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char buffer[1 << 20];

static void keep(int fd) {
  const char *of = getenv("SYNCS_OF"), *to = getenv("SYNCS_TO");
  char link[64], path[PATH_MAX], made[PATH_MAX], kept[PATH_MAX], lock[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (!of || !to || length < 0) return;
  path[length] = 0;
  struct stat status;
  size_t folder = strlen(of);
  if (strncmp(path, of, folder) || path[folder] != '/' || fstat(fd, &status)) return;
  if (!S_ISREG(status.st_mode)) return;
  const char *name = path + folder + 1;
  snprintf(lock, sizeof lock, "%s/lock", to);
  snprintf(made, sizeof made, "%s/made", to);
  snprintf(kept, sizeof kept, "%s/%s", to, name);
  /* By one process at a time, or the older of two copies could take the place of the newer. */
  int guard = open(lock, O_CREAT | O_RDWR, 0600), in = open(path, O_RDONLY);
  if (guard < 0 || in < 0 || flock(guard, LOCK_EX)) abort();
  int out = open(made, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  ssize_t got;
  while ((got = read(in, buffer, sizeof buffer)) > 0)
    if (write(out, buffer, got) != got) abort();
  if (got < 0 || close(out) || rename(made, kept)) abort();
  close(in);
  close(guard);
}

static int forward(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  int result = real(fd);
  if (!result) keep(fd);
  return result;
}

int fsync(int fd) { return forward("fsync", fd); }

int fdatasync(int fd) { return forward("fdatasync", fd); }
