/* NVML's entry points for tests: cards as FAKE_NVML describes them, so that the true binding runs without a GPU.
   Words of FAKE_NVML, apart by spaces:
     cards=N        so many cards (2 without it, 8 at most)
     swap           the driver counts them the other way round
     badN           card N cannot be had at all
     lostN          card N fell off the bus: it is there, and every question is answered with "GPU is lost"
     migN           card N is cut into slices: 0 and 2 of three exist
     hang=PATH      as long as there is a file PATH, asking for a card does not return
     stuck=PATH     as long as there is a file PATH, the start of the library does not return
     garbledN       the name of card N has a byte 0xff and a control character
     namelessN      the UUID of card N has a byte 0xff
     hugeN          card N says it has more memory than can be
     leakN=M        M MiB of card N are in use that no process is charged for
     ancient        the driver knows no second form of the memory's question, and its reserve is in no answer
     muteN          card N does not say who computes there: timeout
     blindN         card N cannot say who computes there: not supported
     draw=P         process P draws with 300 MiB of card 0; draw=P@N:M as with pid
     rude           a bad card's error is one that nobody knows, and its words have a byte 0xff
     pid=P          process P holds 512 MiB of card 0; pid=P@N of card N, pid=P@N.S of its slice S,
                    pid=P@N:M so many MiB, pid=P@N:? an amount that the driver does not tell */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, NO_FUNCTION = 13, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, UNHEARD_OF = 542 };
enum { MOST = 8, SLICES = 3, WHOLE = -1 };
typedef int nvmlReturn_t;
typedef struct device { int card, slice; } *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } nvmlProcessInfo_t;
static struct device cards[MOST], slices[MOST][SLICES];

static const char *words(void) { const char *found = getenv("FAKE_NVML"); return found ? found : ""; }
static int has(const char *word, int card) {
    char text[16];
    snprintf(text, sizeof text, "%s%d", word, card);
    return strstr(words(), text) != NULL;
}
static int count(void) {
    const char *found = strstr(words(), "cards=");
    int number = found ? atoi(found + 6) : 2;
    return number < 0 ? 0 : number > MOST ? MOST : number;
}
/* While the file that `word` names is there, nothing returns. */
static void wait_for(const char *word) {
    char path[256] = "";
    const char *found = strstr(words(), word);
    if (!found || sscanf(found + strlen(word), "%255s", path) != 1) return;
    while (access(path, F_OK) == 0) usleep(5000);
}
static int exists(int slice) { return slice == 0 || slice == 2; }

/* The processes of a device that `word` names; how many, and the first of them into `infos`. */
static unsigned int processes(const char *word, unsigned long long usual, nvmlDevice_t device, nvmlProcessInfo_t *infos, unsigned int room) {
    unsigned int number = 0;
    for (const char *at = strstr(words(), word); at; at = strstr(at + 4, word)) {
        char *rest;
        unsigned int pid = (unsigned int)strtoul(at + strlen(word), &rest, 10);
        int card = *rest == '@' ? (int)strtol(rest + 1, &rest, 10) : 0;
        int slice = *rest == '.' ? (int)strtol(rest + 1, &rest, 10) : WHOLE;
        unsigned long long used = *rest == ':' ? (rest[1] == '?' ? ~0ull : strtoull(rest + 1, NULL, 10) << 20) : usual << 20;
        if (card != device->card || slice != device->slice) continue;
        if (number < room) { infos[number].pid = pid; infos[number].used = used; infos[number].gi = infos[number].ci = 0; }
        number++;
    }
    return number;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { (void)flags; wait_for("stuck="); return OK; }
nvmlReturn_t nvmlInit_v2(void) { wait_for("stuck="); return OK; }
nvmlReturn_t nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(nvmlReturn_t code) {
    if (strstr(words(), "rude")) return "GPU \xff lost";
    return code == GPU_IS_LOST ? "GPU is lost" : "fake error";
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *found) { *found = (unsigned int)count(); return OK; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    wait_for("hang=");
    int card = strstr(words(), "swap") ? count() - 1 - (int)index : (int)index;
    if (card < 0 || card >= count()) return NOT_FOUND;
    if (has("bad", card)) return strstr(words(), "rude") ? UNHEARD_OF : GPU_IS_LOST;
    cards[card] = (struct device){card, WHOLE};
    *device = &cards[card];
    return OK;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int size) {
    char letter = (char)('a' + device->card);
    if (has("lost", device->card)) return GPU_IS_LOST;
    if (has("nameless", device->card)) snprintf(text, size, "GPU-\xff");
    else if (device->slice == WHOLE) snprintf(text, size, "GPU-%c%c%c%c", letter, letter, letter, letter);
    else snprintf(text, size, "MIG-%c%c%c%c-%d", letter, letter, letter, letter, device->slice);
    return OK;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int size) {
    if (has("lost", device->card)) return GPU_IS_LOST;
    if (has("garbled", device->card)) snprintf(text, size, "Fake \xff\x1b H100");
    else snprintf(text, size, device->slice == WHOLE ? "Fake H100" : "Fake H100 MIG 1g.10gb");
    return OK;
}
/* Of a device: what is in use, the driver's own reserve left out, and that reserve. */
static unsigned long long used_on(nvmlDevice_t device) {
    unsigned long long used = 0;
    char word[16];
    const char *at;
    for (int which = 0; which < 2; which++) {
        nvmlProcessInfo_t found[16];
        unsigned int number = processes(which ? "draw=" : "pid=", which ? 300 : 512, device, found, 16);
        for (unsigned int i = 0; i < number && i < 16; i++) used += found[i].used == ~0ull ? 1ull << 30 : found[i].used;
    }
    snprintf(word, sizeof word, "leak%d=", device->card);
    if (device->slice == WHOLE && (at = strstr(words(), word))) used += strtoull(at + strlen(word), NULL, 10) << 20;
    return used;
}
static unsigned long long reserved_on(nvmlDevice_t device) {
    nvmlProcessInfo_t found[1];
    if (strstr(words(), "ancient") || device->card || device->slice != WHOLE) return 0;
    return processes("pid=", 512, device, found, 0) ? 0 : 512ull << 20;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    if (has("lost", device->card)) return GPU_IS_LOST;
    memory->total = device->slice == WHOLE ? 80ull << 30 : 10ull << 30;
    memory->used = used_on(device) + reserved_on(device);
    if (has("huge", device->card)) memory->total = memory->used = ~0ull - 1;
    memory->free = memory->total - memory->used;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlMemory_t both;
    nvmlReturn_t said = nvmlDeviceGetMemoryInfo(device, &both);
    if (strstr(words(), "ancient")) return NO_FUNCTION;
    if (said != OK) return said;
    memory->total = both.total;
    memory->reserved = has("huge", device->card) ? 0 : reserved_on(device);
    memory->used = both.used - memory->reserved;
    memory->free = both.free;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    if (!has("mig", device->card)) return NOT_SUPPORTED;
    *current = *pending = 1;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *most) {
    *most = has("mig", device->card) ? SLICES : 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *slice) {
    if (!has("mig", device->card) || index >= SLICES || !exists((int)index)) return NOT_FOUND;
    slices[device->card][index] = (struct device){device->card, (int)index};
    *slice = &slices[device->card][index];
    return OK;
}
static nvmlReturn_t tell(const char *word, unsigned long long usual, nvmlDevice_t device, unsigned int *room, nvmlProcessInfo_t *infos) {
    unsigned int number;
    if (has("lost", device->card)) return GPU_IS_LOST;
    if (has("mute", device->card)) return TIMEOUT;
    if (has("blind", device->card)) return NOT_SUPPORTED;
    number = processes(word, usual, device, infos, infos ? *room : 0);
    if (*room < number) { *room = number; return INSUFFICIENT_SIZE; }
    *room = number;
    return OK;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *room, nvmlProcessInfo_t *infos) {
    return tell("pid=", 512, device, room, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *room, nvmlProcessInfo_t *infos) {
    return tell("draw=", 300, device, room, infos);
}
