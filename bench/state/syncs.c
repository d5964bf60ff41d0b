#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SQLite calls these instead of the C library's: the program's own symbols come first. */

static atomic_long syncs;

int fsync(int fd) {
	atomic_fetch_add(&syncs, 1);
	return syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
	atomic_fetch_add(&syncs, 1);
	return syscall(SYS_fdatasync, fd);
}

long count_of_syncs(void) { return atomic_load(&syncs); }
