/* NVML's entry points for tests: two cards as FAKE_NVML describes them, so that the true binding runs without a GPU.
   Words of FAKE_NVML: "bad1" = card 1 cannot be read; "pid=N" = process N holds 512 MiB of card 0. */
#include <stdlib.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct card *nvmlDevice_t;
struct card { int index; };
static struct card cards[2] = {{0}, {1}};
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } nvmlProcessInfo_t;

static const char *words(void) { const char *found = getenv("FAKE_NVML"); return found ? found : ""; }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { (void)flags; return 0; }
nvmlReturn_t nvmlInit_v2(void) { return 0; }
nvmlReturn_t nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(nvmlReturn_t code) { return code == 15 ? "GPU is lost" : "fake error"; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index == 1 && strstr(words(), "bad1")) return 15;
    *device = &cards[index];
    return 0;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int size) {
    strncpy(text, device->index ? "GPU-bbbb" : "GPU-aaaa", size);
    return 0;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int size) {
    (void)device;
    strncpy(text, "Fake H100", size);
    return 0;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    memory->total = 80ull << 30;
    memory->used = device->index ? 0 : 512ull << 20;
    memory->free = memory->total - memory->used;
    return 0;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    (void)device; (void)current; (void)pending;
    return 3;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    const char *found = strstr(words(), "pid=");
    unsigned int have = found && device->index == 0 ? 1 : 0;
    if (*count < have) { *count = have; return 7; }
    *count = have;
    if (have) { infos[0].pid = (unsigned int)atoi(found + 4); infos[0].used = 512ull << 20; infos[0].gi = infos[0].ci = 0; }
    return 0;
}
