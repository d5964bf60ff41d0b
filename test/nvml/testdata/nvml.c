// A stand-in for NVIDIA's libnvidia-ml.so.1, for tests: two GPUs, without MIG. The file that
// NVML_STANDIN names has a word on what goes wrong, and then processes, a line for each:
// GPU PID BYTES SM.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct { int index; } device_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } info_t;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, mem, enc, dec; } sample_t;

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7, NO_DRIVER = 9, LOST = 15, MISMATCH = 18 };

static device_t devices[2] = {{0}, {1}};
static char word[64];
static struct { int gpu; unsigned pid; unsigned long long memory; unsigned sm; } all[256];
static unsigned n, calls;

static int is(const char *what) { return strcmp(word, what) == 0; }

static void load(void) {
	const char *path = getenv("NVML_STANDIN");
	FILE *f = path ? fopen(path, "r") : NULL;
	n = 0;
	word[0] = 0;
	if (!f)
		return;
	if (fscanf(f, "%63s", word) == 1)
		while (n < 256 && fscanf(f, "%d %u %llu %u", &all[n].gpu, &all[n].pid, &all[n].memory, &all[n].sm) == 4)
			n++;
	fclose(f);
	if (is("hang"))
		for (;;)
			pause();
	if (is("crash"))
		abort();
}

int nvmlInit_v2(void) {
	load();
	return is("nodriver") ? NO_DRIVER : is("mismatch") ? MISMATCH : OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int ret) {
	switch (ret) {
	case LOST: return "GPU is \033[31mlost";
	case NOT_SUPPORTED: return "Not Supported";
	case MISMATCH: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}
int nvmlSystemGetDriverVersion(char *to, unsigned len) { snprintf(to, len, "550.1"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) {
	load();
	*count = is("none") ? 0 : is("one") ? 1 : is("many") ? 4000000000u : 2;
	return is("fails") ? LOST : OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device_t **d) {
	if (i > 1)
		return LOST;
	*d = &devices[i];
	return is("lost") && i == 1 ? LOST : OK;
}
int nvmlDeviceGetName(device_t *d, char *to, unsigned len) {
	if (is("names")) // no end, and not fit for a terminal
		memset(to, 7, len);
	else
		snprintf(to, len, "Stand-in %d", d->index);
	return OK;
}
int nvmlDeviceGetUUID(device_t *d, char *to, unsigned len) { snprintf(to, len, "GPU-%d", d->index); return OK; }
int nvmlDeviceGetUtilizationRates(device_t *d, utilization_t *u) {
	u->gpu = is("absurd") ? 4000000000u : 40 + d->index;
	return OK;
}
int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *m) {
	m->total = is("absurd") ? 5 : 16ull << 30;
	m->used = (d->index + 1ull) << 30;
	m->free = m->total - m->used;
	return OK;
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(device_t *d, memory2_t *m) {
	memory_t one;
	if (m->version != (sizeof *m | 2 << 24))
		return 25;
	nvmlDeviceGetMemoryInfo(d, &one);
	m->total = one.total;
	m->used = one.used;
	return OK;
}
int nvmlDeviceGetTemperature(device_t *d, int sensor, unsigned *t) { *t = is("absurd") ? 100000 : 60 + d->index; return OK; }
#endif
int nvmlDeviceGetPowerUsage(device_t *d, unsigned *mw) { *mw = 250000; return is("lost") ? NOT_SUPPORTED : OK; }

int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, info_t *to) {
	unsigned k = 0, room = *count;
	if (is("lists") && calls++ % 4 != 3) { // it grows from call to call
		*count = room + 3;
		return INSUFFICIENT;
	}
	if (is("endless")) { // a list that takes 60 GB, and more each time
		*count = room > 1u << 30 ? 1u << 30 : 1u << 29;
		return INSUFFICIENT;
	}
	for (unsigned i = 0; i < n; i++)
		if (all[i].gpu == d->index) {
			if (k < room) {
				to[k].pid = all[i].pid;
				to[k].memory = all[i].memory;
				to[k].gi = to[k].ci = -1;
			}
			k++;
		}
	*count = k;
	return k > room ? INSUFFICIENT : OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *d, unsigned *count, info_t *to) {
	return nvmlDeviceGetComputeRunningProcesses_v3(d, count, to); // the same ones again
}
int nvmlDeviceGetProcessUtilization(device_t *d, sample_t *to, unsigned *count, unsigned long long since) {
	unsigned k = 0;
	struct timeval now;
	gettimeofday(&now, NULL);
	unsigned long long at = now.tv_sec * 1000000ull + now.tv_usec - 100000;
	if (is("nosm"))
		return NOT_SUPPORTED;
	if (!to) {
		*count = is("lists") ? 1 : 2 * n + 1;
		return INSUFFICIENT;
	}
	if (is("lists")) { // more have come since the size was asked
		*count = 7;
		return INSUFFICIENT;
	}
	if (since >= at)
		return NOT_FOUND;
	for (unsigned i = 0; i < n; i++)
		if (all[i].gpu == d->index && all[i].sm > 0) {
			to[k].pid = all[i].pid; // an old one, and the newest
			to[k].at = since - 5;
			to[k++].sm = 99;
			to[k].pid = all[i].pid;
			to[k].at = at;
			to[k++].sm = all[i].sm;
		}
	*count = k;
	return k ? OK : NOT_FOUND;
}
