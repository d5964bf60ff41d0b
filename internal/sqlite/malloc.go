package sqlite

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static void give_back(int larger) {
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, larger);
#else
	(void)larger;
#endif
}
*/
import "C"

// giveBack has glibc return the memory of what is larger than a megabyte as soon as
// SQLite frees it. By itself glibc raises that bound to the size of whatever was freed
// (up to 32 MiB), and keeps twice as much for each of up to eight arenas a processor:
// see M_MMAP_THRESHOLD in mallopt(3).
func giveBack() { C.give_back(1 << 20) }
