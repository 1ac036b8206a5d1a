// NVIDIA's management library with cards that are not there, as far as HAMi's device plugin and node-agent ask it: FAKE_GPUS A100s with 40 GB, which can be
// divided.
//
//     cc -shared -fPIC -o DIR/libnvidia-ml.so.1 fake_nvml.c
//
// tests/deploy/test_device_plugins_on_nodes.py expects the library beside the program of a device plugin, in a folder on the nodes: HBOX_HAMI_PLUGIN names the
// one with HAMi's `device-plugin` (seen with HAMi 4707fb0 and go-nvml v0.13.3-1), HBOX_VOLCANO_PLUGIN the one with Volcano's.
//
// FAKE_NVML names a file by which it answers otherwise. A line is a call, a card and a link, `*` for any of either, and what comes of it; the first that fits
// counts:
//
//     nvmlDeviceGetName 3 * =NVIDIA H200       the answer; of numbers, in decimals
//     nvmlDeviceGetUUID 2 * 15                 an error of NVML's: the card is lost
//     nvmlInit_v2 * * hang                     a call that never comes back
//     nvmlDeviceGetCount_v2 * * crash          one that ends its caller
//     mig 1 * =0:0,2:4                         the card is divided: profile:start, as by nvmlDeviceCreateGpuInstanceWithPlacement
//     event 3 8 =79                            an event of card 3, of type 8, an XID: of a line that is appended while a caller waits for events
//
// The file is read at nvmlInit_v2, and every 20 ms by nvmlEventSetWait_v2.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CARDS = 16, PARTS = 7, MEMORY_MB = 40960 };

typedef struct {
    unsigned used, ci, profile, start, size, card, at;
} part;

static char cards[CARDS];
static part parts[CARDS][PARTS];
static unsigned mig[CARDS];

// 1, 2, 3, 4 and 7 slices; the table is in NVIDIA's MIG user guide.
static const struct {
    unsigned slices, memory, size, sm, count, starts[7];
} profiles[] = {
    {1, 4864, 1, 14, 7, {0, 1, 2, 3, 4, 5, 6}}, {2, 9856, 2, 28, 3, {0, 2, 4}}, {3, 19968, 4, 42, 2, {0, 4}},
    {4, 19968, 4, 56, 1, {0}},                  {7, 40192, 8, 98, 1, {0}},
};
enum { PROFILES = sizeof profiles / sizeof *profiles };

static char script[65536];
enum { ANY = -1 };

// What the file says of a call: "" where it says nothing.
static const char *told(const char *call, int card, int link) {
    static char outcome[512];
    char name[64], own[16], its[16], line[1024];
    for (const char *at = script; *at;) {
        const char *end = strchr(at, '\n');
        size_t length = end ? (size_t)(end - at) : strlen(at);
        snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), at);
        at += length + (end != NULL);
        *outcome = 0;
        if (sscanf(line, "%63s %15s %15s %511[^\n]", name, own, its, outcome) != 4 || strcmp(name, call)) continue;
        if ((strcmp(own, "*") && atoi(own) != card) || (strcmp(its, "*") && atoi(its) != link)) continue;
        return outcome;
    }
    return "";
}
static nvmlReturn_t outcome(const char *told) {
    if (!strcmp(told, "hang")) for (;;) pause();
    if (!strcmp(told, "crash")) raise(SIGSEGV);
    return *told && *told != '=' ? (nvmlReturn_t)atoi(told) : NVML_SUCCESS;
}
static long number(const char *told, long otherwise) { return *told == '=' ? atol(told + 1) : otherwise; }

// `told` for the body of a call, which ends here where the file says an error.
#define ASKED(card, link) \
    const char *told_ = told(__func__, card, link); \
    if (outcome(told_)) return outcome(told_)
#define ANSWER(otherwise) number(told_, otherwise)

static unsigned count(void) {
    const char *gpus = getenv("FAKE_GPUS");
    return gpus ? (unsigned)atoi(gpus) % (CARDS + 1) : 4;
}
static int is_part(nvmlDevice_t d) { return (char *)d.handle >= (char *)parts && (char *)d.handle < (char *)parts + sizeof parts; }
static part *part_of(void *handle) { return (part *)handle; }
static unsigned card(nvmlDevice_t d) { return is_part(d) ? part_of(d.handle)->card : (unsigned)((char *)d.handle - cards); }
static void uuid_of(unsigned i, char *out, unsigned n) { snprintf(out, n, "GPU-%08x-0000-4000-8000-000000000000", i); }
static nvmlReturn_t none(unsigned *n) { *n = 0; return NVML_SUCCESS; }

static void divide(void);

static void read_script(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    script[file ? fread(script, 1, sizeof script - 1, file) : 0] = 0;
    if (file) fclose(file);
}
// A caller has the devices of all cards open, as files of the folder FAKE_DEVICES.
static void open_devices(void) {
    char path[512];
    const char *folder = getenv("FAKE_DEVICES");
    for (unsigned i = 0; folder && i < count(); i++) {
        snprintf(path, sizeof path, "%s/nvidia%u", folder, i);
        if (open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) < 0) return;
    }
}
nvmlReturn_t nvmlInit_v2(void) {
    read_script();
    if (getenv("FAKE_NVML")) divide();
    ASKED(ANY, ANY);
    open_devices();
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t r) { return r == NVML_SUCCESS ? "success" : "the library without cards says no"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned n) { snprintf(v, n, "550.54.15"); return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned n) { snprintf(v, n, "12.550.54.15"); return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { *v = 12040; return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12040; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) {
    ASKED(ANY, ANY);
    *n = (unsigned)ANSWER(count());
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) {
    ASKED((int)i, ANY);
    if (i >= count()) return NVML_ERROR_INVALID_ARGUMENT;
    d->handle = (void *)(cards + i);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d) {
    char own[80];
    for (unsigned i = 0; i < count(); i++) {
        uuid_of(i, own, sizeof own);
        if (!strcmp(own, uuid)) return nvmlDeviceGetHandleByIndex_v2(i, d);
    }
    return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned n) {
    ASKED((int)card(d), ANY);
    if (*told_) {
        snprintf(out, n, "%s", told_ + 1);
    } else if (is_part(d)) {
        part *p = part_of(d.handle);
        snprintf(out, n, "MIG-%08x-%04x-4000-8000-%012x", p->card, p->profile, p->start);
    } else {
        uuid_of(card(d), out, n);
    }
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *i) { *i = card(d); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *i) { *i = card(d); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned n) {
    static const char *const sizes[] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};
    ASKED((int)card(d), ANY);
    snprintf(out, n, "%s%s%s", *told_ ? told_ + 1 : "NVIDIA A100-SXM4-40GB", is_part(d) ? " MIG " : "", is_part(d) ? sizes[part_of(d.handle)->profile] : "");
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
    ASKED((int)card(d), ANY);
    m->total = m->free = (unsigned long long)ANSWER(MEMORY_MB) << 20;
    m->used = 0;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
    m->total = m->free = (unsigned long long)MEMORY_MB << 20;
    m->used = m->reserved = 0;
    return NVML_SUCCESS;
}
static void address_of(unsigned i, const char *told, nvmlPciInfo_t *p) {
    memset(p, 0, sizeof *p);
    p->bus = i + 1;
    p->pciDeviceId = 0x20B010DE;
    snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus);
    snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "0000:%02X:00.0", p->bus);
    if (*told) snprintf(p->busId, sizeof p->busId, "%s", told + 1);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) {
    ASKED((int)card(d), ANY);
    address_of(card(d), told_, p);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) { *major = 8; *minor = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *a) { *a = NVML_DEVICE_ARCH_AMPERE; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t d, nvmlBrandType_t *b) { *b = NVML_BRAND_NVIDIA; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *l) {
    *l = NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}
// Twelve links, up where the file says so: 1 of the state; to an NVSwitch, or to the card of which it tells the number.
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned link, nvmlEnableState_t *s) {
    ASKED((int)card(d), (int)link);
    if (link >= 12) return NVML_ERROR_INVALID_ARGUMENT;
    *s = (nvmlEnableState_t)ANSWER(NVML_FEATURE_DISABLED);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned link, nvmlIntNvLinkDeviceType_t *kind) {
    ASKED((int)card(d), (int)link);
    *kind = (nvmlIntNvLinkDeviceType_t)ANSWER(NVML_NVLINK_DEVICE_TYPE_SWITCH);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *p) {
    ASKED((int)card(d), (int)link);
    address_of((unsigned)ANSWER(0), "", p);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned n, unsigned long *nodes, nvmlAffinityScope_t scope) {
    ASKED((int)card(d), ANY);
    memset(nodes, 0, n * sizeof *nodes);
    nodes[0] = (unsigned long)ANSWER(card(d) < (count() + 1) / 2 ? 1 : 2);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *now, nvmlEnableState_t *then) {
    ASKED((int)card(d), ANY);
    *now = NVML_FEATURE_ENABLED;
    *then = (nvmlEnableState_t)ANSWER(NVML_FEATURE_ENABLED);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ASKED((int)card(d), ANY);
    *corrected = *uncorrected = 0;
    *pending = (unsigned)ANSWER(0) & 1;
    *failed = (unsigned)ANSWER(0) >> 1;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t d, nvmlEnableState_t *pending) {
    ASKED((int)card(d), ANY);
    *pending = (nvmlEnableState_t)ANSWER(NVML_FEATURE_DISABLED);
    return NVML_SUCCESS;
}
// The number of the file is the clique, of a cluster that has a number; 255: the fabric manager has not begun.
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfo_v2_t *info) {
    ASKED((int)card(d), ANY);
    if (!*told_) return NVML_ERROR_NOT_SUPPORTED;
    memset(info->clusterUuid, 0xAB, sizeof info->clusterUuid);
    info->status = NVML_SUCCESS;
    info->cliqueId = (unsigned)ANSWER(0);
    info->state = info->cliqueId == 255 ? 1 : 3;
    info->healthMask = (unsigned)number(told("fabricHealth", (int)card(d), ANY), 0);
    return NVML_SUCCESS;
}

// ---- the health of cards: well, where the file says nothing; the second number of a line is a field, a kind of error, or a bank --------------------------

// 230: the recovery action; 194: degrees above the limit of operation at which hardware slows down.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *values) {
    ASKED((int)card(d), ANY);
    for (int i = 0; i < n; i++) {
        const char *of = told("field", (int)card(d), (int)values[i].fieldId);
        values[i].nvmlReturn = !*of && values[i].fieldId != 230 ? NVML_ERROR_NOT_SUPPORTED : outcome(of);
        values[i].valueType = 5;
        values[i].value.sll = 0;
        values[i].value.si = (int)number(of, 0);
    }
    return NVML_SUCCESS;
}
// Banks by the rows that they have left: 0 the most, 1 many, 2 some, 3 few, 4 none.
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t d, nvmlRowRemapperHistogramValues_t *banks) {
    ASKED((int)card(d), ANY);
    unsigned *of[] = {&banks->max, &banks->high, &banks->partial, &banks->low, &banks->none};
    for (int i = 0; i < 5; i++) *of[i] = (unsigned)number(told("bank", (int)card(d), i), i ? 0 : 640);
    return NVML_SUCCESS;
}
// 0: parity, 1: SEC-DED, 2: whether the threshold is exceeded.
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t d, nvmlEccSramErrorStatus_t *status) {
    ASKED((int)card(d), ANY);
    unsigned version = status->version;
    memset(status, 0, sizeof *status);
    status->version = version;
    status->aggregateUncParity = (unsigned long long)number(told("sram", (int)card(d), 0), 0);
    status->aggregateUncSecDed = (unsigned long long)number(told("sram", (int)card(d), 1), 0);
    status->bThresholdExceeded = (unsigned)number(told("sram", (int)card(d), 2), 0);
    return NVML_SUCCESS;
}
// 0: corrected since the driver was loaded, 1: uncorrected; 2 and 3: since the card was made.
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t since, unsigned long long *n) {
    ASKED((int)card(d), (int)(kind + 2 * since));
    *n = (unsigned long long)ANSWER(0);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(
    nvmlDevice_t d, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t since, nvmlMemoryLocation_t where, unsigned long long *n) {
    ASKED((int)card(d), (int)(kind + 2 * since));
    *n = (unsigned long long)ANSWER(0);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t d, nvmlRepairStatus_t *status) {
    ASKED((int)card(d), ANY);
    status->bChannelRepairPending = (unsigned)ANSWER(0) & 1;
    status->bTpcRepairPending = (unsigned)ANSWER(0) >> 1;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t d, nvmlUnrepairableMemory_t *status) {
    ASKED((int)card(d), ANY);
    status->unrepairableMemory = (unsigned)ANSWER(0);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t d) {
    ASKED((int)card(d), ANY);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *reasons) {
    ASKED((int)card(d), ANY);
    *reasons = (unsigned long long)ANSWER(1);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *margin) {
    ASKED((int)card(d), ANY);
    margin->marginTemperature = (int)ANSWER(50);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, nvmlEnableState_t *mode) {
    ASKED((int)card(d), ANY);
    *mode = (nvmlEnableState_t)ANSWER(NVML_FEATURE_ENABLED);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, unsigned *width) {
    ASKED((int)card(d), ANY);
    *width = (unsigned)ANSWER(16);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned *width) {
    ASKED((int)card(d), ANY);
    *width = (unsigned)ANSWER(16);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *infos) { return none(n); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *infos) { return none(n); }

// ---- events: each line `event CARD TYPE =DATA` that is appended to the file while its caller waits ------------------------------------------------------

static unsigned long long registered[CARDS];
static unsigned taken;

// The line of an event that no call returned yet; `taken` counts those before it.
static int next_event(unsigned *at, unsigned long long *type, unsigned long long *data) {
    unsigned seen = 0;
    for (const char *line = script; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (sscanf(line, "event %u %llu =%llu", at, type, data) == 3 && seen++ == taken) return 1;
    if (seen < taken) taken = seen;
    return 0;
}
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types) {
    ASKED((int)card(d), ANY);
    *types = (unsigned long long)ANSWER(0xFF9F);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    unsigned at;
    unsigned long long type, data;
    ASKED(ANY, ANY);
    memset(registered, 0, sizeof registered);
    for (taken = 0; next_event(&at, &type, &data); taken++) {}
    set->handle = (void *)cards;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set) {
    ASKED((int)card(d), ANY);
    registered[card(d)] |= types;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *found, unsigned ms) {
    unsigned at;
    unsigned long long type, data;
    for (unsigned waited = 0;; waited += 20) {
        if (getenv("FAKE_NVML")) read_script();
        ASKED(ANY, ANY);
        while (next_event(&at, &type, &data)) {
            taken++;
            if (at >= CARDS || !(registered[at] & type)) continue;
            memset(found, 0, sizeof *found);
            found->device.handle = (void *)(cards + at);
            found->eventType = type, found->eventData = data;
            found->gpuInstanceId = found->computeInstanceId = 0xFFFFFFFF;
            return NVML_SUCCESS;
        }
        if (waited >= ms) return NVML_ERROR_TIMEOUT;
        usleep(20000);
    }
}

// ---- cards that are divided ------------------------------------------------------------------------------------------------------------------

static void divide(void) {
    memset(parts, 0, sizeof parts);
    for (unsigned i = 0; i < CARDS; i++) {
        const char *wanted = told("mig", (int)i, ANY);
        mig[i] = *wanted == '=';
        unsigned at = 0;
        for (const char *one = wanted; mig[i] && one && at < PARTS; one = strchr(one + 1, ','), at++) {
            part *p = &parts[i][at];
            p->used = p->ci = sscanf(one + 1, "%u:%u", &p->profile, &p->start) == 2 && p->profile < PROFILES;
            p->card = i, p->at = at, p->size = p->used ? profiles[p->profile].size : 0;
        }
    }
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *now, unsigned *then) {
    ASKED((int)card(d), ANY);
    *now = mig[card(d)];
    *then = (unsigned)ANSWER(*now);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t d, unsigned mode, nvmlReturn_t *done) {
    mig[card(d)] = mode;
    *done = NVML_SUCCESS;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *n) { *n = PARTS; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, unsigned *is) { *is = is_part(d); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t d, nvmlDevice_t *of) { return nvmlDeviceGetHandleByIndex_v2(card(d), of); }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned i, nvmlDevice_t *found) {
    if (i >= PARTS || !parts[card(d)][i].ci) return NVML_ERROR_NOT_FOUND;
    found->handle = (void *)&parts[card(d)][i];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned *id) {
    if (!is_part(d)) return NVML_ERROR_INVALID_ARGUMENT;
    *id = part_of(d.handle)->at + 1;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned *id) { *id = 0; return is_part(d) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t d, unsigned profile, nvmlGpuInstanceProfileInfo_t *info) {
    if (profile >= PROFILES) return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->id = profile;
    info->sliceCount = profiles[profile].slices;
    info->instanceCount = profiles[profile].count;
    info->multiprocessorCount = profiles[profile].sm;
    info->memorySizeMB = profiles[profile].memory;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t d, unsigned profile, nvmlGpuInstancePlacement_t *places, unsigned *n) {
    if (profile >= PROFILES) return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; places && i < profiles[profile].count; i++) {
        places[i].start = profiles[profile].starts[i];
        places[i].size = profiles[profile].size;
    }
    *n = profiles[profile].count;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t d, unsigned profile, const nvmlGpuInstancePlacement_t *place, nvmlGpuInstance_t *made) {
    part *own = parts[card(d)], *free = NULL;
    if (!mig[card(d)] || profile >= PROFILES) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < PARTS; i++) {
        if (!own[i].used) {
            if (!free) free = &own[i], free->at = i;
        } else if (place->start < own[i].start + own[i].size && own[i].start < place->start + place->size) {
            return NVML_ERROR_INSUFFICIENT_RESOURCES;
        }
    }
    if (!free) return NVML_ERROR_INSUFFICIENT_RESOURCES;
    free->used = 1, free->ci = 0, free->profile = profile, free->start = place->start, free->size = place->size, free->card = card(d);
    made->handle = (void *)free;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t d, unsigned id, nvmlGpuInstance_t *found) {
    if (id < 1 || id > PARTS || !parts[card(d)][id - 1].used) return NVML_ERROR_NOT_FOUND;
    found->handle = (void *)&parts[card(d)][id - 1];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t d, unsigned profile, nvmlGpuInstance_t *found, unsigned *n) {
    *n = 0;
    for (unsigned i = 0; i < PARTS; i++)
        if (parts[card(d)][i].used && parts[card(d)][i].profile == profile) found[(*n)++].handle = (void *)&parts[card(d)][i];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gi, nvmlGpuInstanceInfo_t *info) {
    part *p = part_of(gi.handle);
    memset(info, 0, sizeof *info);
    nvmlDeviceGetHandleByIndex_v2(p->card, &info->device);
    info->id = p->at + 1, info->profileId = p->profile, info->placement.start = p->start, info->placement.size = p->size;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gi) { part_of(gi.handle)->used = part_of(gi.handle)->ci = 0; return NVML_SUCCESS; }

// Of compute instances an instance has one, as large as itself.
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t gi, unsigned profile, unsigned engine, nvmlComputeInstanceProfileInfo_t *info) {
    if (profile != part_of(gi.handle)->profile) return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->id = profile, info->instanceCount = 1, info->sliceCount = profiles[profile].slices;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gi, unsigned profile, nvmlComputeInstance_t *made) {
    part_of(gi.handle)->ci = 1;
    made->handle = (void *)gi.handle;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gi, unsigned profile, nvmlComputeInstance_t *found, unsigned *n) {
    *n = part_of(gi.handle)->ci;
    if (*n) found[0].handle = (void *)gi.handle;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gi, unsigned id, nvmlComputeInstance_t *found) {
    if (id || !part_of(gi.handle)->ci) return NVML_ERROR_NOT_FOUND;
    found->handle = (void *)gi.handle;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t ci, nvmlComputeInstanceInfo_t *info) {
    memset(info, 0, sizeof *info);
    nvmlDeviceGetHandleByIndex_v2(part_of(ci.handle)->card, &info->device);
    info->gpuInstance.handle = (void *)ci.handle;
    info->profileId = part_of(ci.handle)->profile;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t ci) { part_of(ci.handle)->ci = 0; return NVML_SUCCESS; }
