/* A libnvidia-ml.so.1 whose GPUs are lines of a file: what tests need of NVIDIA's management library, under its names.

   The folder $FAKE_NVML holds `devices` (sections and keys: see machine.py) and `vram/PID`, one file for each process
   that uses memory (lines of UUID and bytes). Everything is read anew in every call, so tests change it under a
   running daemon; a process's memory is gone when the process is. */

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NO_PERMISSION = 4,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  DRIVER_NOT_LOADED = 9,
  TIMEOUT = 10,
  LIBRARY_NOT_FOUND = 12,
  FUNCTION_NOT_FOUND = 13,
  GPU_IS_LOST = 15,
  RESET_REQUIRED = 16,
  LIB_RM_VERSION_MISMATCH = 18,
  ARGUMENT_VERSION_MISMATCH = 25,
  UNKNOWN = 999
};

#define UUID 96
#define KNOWN 256
#define TEXT (64 * 1024)
#define NOT_AVAILABLE UINT64_MAX

typedef const char *Device; /* a UUID that this library keeps for ever: handles outlive their device */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char known[KNOWN][UUID];
static int sessions;

/* -- the file ------------------------------------------------------------------------------------------------ */

static int in_folder(char *path, size_t size, const char *name) {
  const char *folder = getenv("FAKE_NVML");
  return folder != NULL && (size_t)snprintf(path, size, "%s/%s", folder, name) < size;
}

/* The whole text, to be freed; NULL if there is none. */
static char *read_file(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  char *text = malloc(TEXT);
  ssize_t got, size = 0;
  while (text != NULL && size < TEXT - 1 && (got = read(file, text + size, TEXT - 1 - size)) > 0) size += got;
  close(file);
  if (text != NULL) text[size] = 0;
  return text;
}

static char *devices_file(void) {
  char path[4096];
  return in_folder(path, sizeof path, "devices") ? read_file(path) : NULL;
}

static const char *next_line(const char *line) {
  const char *end = strchr(line, '\n');
  return end != NULL ? end + 1 : line + strlen(line);
}

/* The first line of a section; NULL if there is no such section. */
static const char *find_section(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *line = text; *line; line = next_line(line))
    if (*line == '[' && !strncmp(line + 1, name, length) && line[length + 1] == ']') return next_line(line);
  return NULL;
}

/* Copies a key's value; 0 if it is not there. */
static int get(const char *text, const char *section, const char *key, char *value, size_t size) {
  const char *line = find_section(text, section);
  size_t length = strlen(key);
  for (; line != NULL && *line && *line != '['; line = next_line(line))
    if (!strncmp(line, key, length) && line[length] == '=') {
      size_t end = strcspn(line + length + 1, "\n");
      if (end >= size) end = size - 1;
      memcpy(value, line + length + 1, end);
      value[end] = 0;
      return 1;
    }
  return 0;
}

static uint64_t number(const char *text, const char *section, const char *key, uint64_t otherwise) {
  char value[64];
  return get(text, section, key, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

static double seconds(const char *text, const char *section, const char *key) {
  char value[64];
  return get(text, section, key, value, sizeof value) ? strtod(value, NULL) : 0;
}

/* The UUID of the `index`th device below `parent`, or of the `index`th GPU if that is NULL; 0 if there is none. */
static int nth(const char *text, const char *parent, unsigned index, char *uuid) {
  for (const char *line = text; *line; line = next_line(line)) {
    if (*line != '[') continue;
    size_t end = strcspn(line + 1, "]\n");
    if (end >= UUID) end = UUID - 1;
    memcpy(uuid, line + 1, end);
    uuid[end] = 0;
    char above[UUID] = "";
    get(text, uuid, "parent", above, sizeof above);
    if (strcmp(uuid, "driver") && !strcmp(above, parent != NULL ? parent : "") && index-- == 0) return 1;
  }
  return 0;
}

static unsigned count(const char *text, const char *parent) {
  char uuid[UUID];
  unsigned found = 0;
  while (nth(text, parent, found, uuid)) found++;
  return found;
}

/* -- calls: what goes wrong comes first ---------------------------------------------------------------------- */

/* `kind` or `kind.function` of the device or of the driver, as a text; 0 if neither is there. */
static int trouble(const char *text, Device device, const char *kind, const char *function, char *value, size_t size) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", kind, function);
  return (device != NULL && (get(text, device, key, value, size) || get(text, device, kind, value, size))) ||
         get(text, "driver", key, value, size) || get(text, "driver", kind, value, size);
}

/* Waits as long as the file says so. */
static void hang(Device device, const char *function) {
  char value[64];
  struct timespec begun, now, pause = {0, 5000000};
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (;;) {
    char *text = devices_file();
    int hangs = text != NULL && trouble(text, device, "hang", function, value, sizeof value);
    free(text);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double waited = now.tv_sec - begun.tv_sec + (now.tv_nsec - begun.tv_nsec) / 1e9;
    if (!hangs || waited >= strtod(value, NULL)) return;
    nanosleep(&pause, NULL);
  }
}

/* Begins a call: the file's text in *text (to be freed with `leave`), or an error. */
static int enter(Device device, const char *function, char **text) {
  char value[64];
  *text = NULL;
  hang(device, function);
  if (!sessions && strncmp(function, "nvmlInit", 8)) return UNINITIALIZED;
  char *read = devices_file();
  if (read == NULL) return DRIVER_NOT_LOADED;
  int error = SUCCESS;
  if (trouble(read, device, "error", function, value, sizeof value))
    error = atoi(value);
  else if (device != NULL && find_section(read, device) == NULL)
    error = GPU_IS_LOST;
  if (error != SUCCESS)
    free(read);
  else
    *text = read;
  return error;
}

static int leave(char *text, int result) {
  free(text);
  return result;
}

#define ENTER(device, function)                   \
  char *text;                                     \
  int failed = enter(device, function, &text);    \
  if (failed) return failed

static int give(const char *value, char *buffer, unsigned size) {
  if (strlen(value) >= size) return INSUFFICIENT_SIZE;
  strcpy(buffer, value);
  return SUCCESS;
}

static Device handle_of(const char *uuid) {
  Device handle = NULL;
  pthread_mutex_lock(&lock);
  for (int at = 0; at < KNOWN && handle == NULL; at++) {
    if (!known[at][0]) snprintf(known[at], UUID, "%s", uuid);
    if (!strcmp(known[at], uuid)) handle = known[at];
  }
  pthread_mutex_unlock(&lock);
  return handle;
}

/* -- processes ----------------------------------------------------------------------------------------------- */

static int alive(const char *pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
  char *text = read_file(path), *end = text != NULL ? strrchr(text, ')') : NULL;
  int lives = end != NULL && end[1] && !strchr("ZXx", end[2]); /* a zombie has no memory any more */
  free(text);
  return lives;
}

/* Seconds since a file was written, or 0. */
static double age(const char *path) {
  struct stat status;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (stat(path, &status)) return 0;
  return now.tv_sec - status.st_mtim.tv_sec + (now.tv_nsec - status.st_mtim.tv_nsec) / 1e9;
}

/* Seconds by which a report is late. */
struct lags {
  double taken, freed;
};

/* Of memory that is freed: `lag`; of memory that is taken, too, unless there is `lag.taken`. */
static struct lags lags(const char *text, Device device) {
  char value[64];
  double both = seconds(text, device, "lag");
  return (struct lags){get(text, device, "lag.taken", value, sizeof value) ? strtod(value, NULL) : both, both};
}

/* Whether the memory in this file is reported: from a while after the process took it until a while after its end (of
   which nobody tells us: it counts from the first call that found the process dead). */
static int reported(const char *path, const char *pid, struct lags lag) {
  if (alive(pid)) return age(path) >= lag.taken;
  char gone[4300];
  snprintf(gone, sizeof gone, "%s.gone", path);
  int file = open(gone, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
  return lag.freed > 0 && age(gone) < lag.freed;
}

typedef void (*Each)(void *context, unsigned pid, uint64_t bytes);

/* Calls `each` for every process with memory on the device. */
static void processes(Device device, struct lags lag, Each each, void *context) {
  char path[4096], pid_file[4200];
  if (!in_folder(path, sizeof path, "vram")) return;
  DIR *folder = opendir(path);
  if (folder == NULL) return;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (!isdigit((unsigned char)*entry->d_name) || strchr(entry->d_name, '.')) continue;
    snprintf(pid_file, sizeof pid_file, "%s/%.64s", path, entry->d_name);
    if (!reported(pid_file, entry->d_name, lag)) continue;
    char *text = read_file(pid_file), uuid[UUID];
    for (const char *line = text; line != NULL && *line; line = next_line(line)) {
      unsigned long long bytes;
      if (sscanf(line, "%95s %llu", uuid, &bytes) == 2 && !strcmp(uuid, device))
        each(context, (unsigned)atoi(entry->d_name), bytes);
    }
    free(text);
  }
  closedir(folder);
}

static void add(void *sum, unsigned pid, uint64_t bytes) {
  (void)pid;
  *(uint64_t *)sum += bytes;
}

/* What the driver says is in use, with that of its MIG devices. */
static uint64_t in_use(const char *text, Device device) {
  uint64_t sum = number(text, device, "others", 0);
  processes(device, lags(text, device), add, &sum);
  char child[UUID];
  for (unsigned at = 0; nth(text, device, at, child); at++) sum += in_use(text, child);
  return sum;
}

/* -- the library --------------------------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  ENTER(NULL, "nvmlInit");
  sessions++;
  return leave(text, SUCCESS);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  ENTER(NULL, "nvmlShutdown");
  sessions--;
  return leave(text, SUCCESS);
}

const char *nvmlErrorString(int result) {
  switch (result) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires restart";
    case LIB_RM_VERSION_MISMATCH: return "RM/NVML version mismatch";
    case ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

static int version_text(const char *function, const char *key, const char *otherwise, char *buffer, unsigned size) {
  char value[80];
  ENTER(NULL, function);
  int there = get(text, "driver", key, value, sizeof value);
  return leave(text, give(there ? value : otherwise, buffer, size));
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
  return version_text("nvmlSystemGetDriverVersion", "version", "570.86.15", buffer, size);
}

int nvmlSystemGetNVMLVersion(char *buffer, unsigned size) {
  return version_text("nvmlSystemGetNVMLVersion", "nvml", "12.570.86.15", buffer, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  ENTER(NULL, "nvmlSystemGetCudaDriverVersion");
  *version = (int)number(text, "driver", "cuda", 12080);
  return leave(text, SUCCESS);
}

int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(unsigned *devices) {
  ENTER(NULL, "nvmlDeviceGetCount");
  *devices = (unsigned)number(text, "driver", "count", count(text, NULL));
  return leave(text, SUCCESS);
}

static int open_device(const char *uuid, const char *function, Device *device) {
  Device found = handle_of(uuid);
  ENTER(found, function);
  *device = found;
  return leave(text, SUCCESS);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  char uuid[UUID];
  ENTER(NULL, "nvmlDeviceGetHandleByIndex");
  int there = nth(text, NULL, index, uuid);
  return leave(text, there ? open_device(uuid, "nvmlDeviceGetHandleByIndex", device) : INVALID_ARGUMENT);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
  ENTER(NULL, "nvmlDeviceGetHandleByUUID");
  int there = strcmp(uuid, "driver") && find_section(text, uuid) != NULL;
  return leave(text, there ? open_device(uuid, "nvmlDeviceGetHandleByUUID", device) : NOT_FOUND);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device *device) {
  char uuid[UUID], value[64];
  ENTER(NULL, "nvmlDeviceGetHandleByPciBusId");
  for (unsigned at = 0; nth(text, NULL, at, uuid); at++)
    if (get(text, uuid, "pci", value, sizeof value) && !strcasecmp(value, bus))
      return leave(text, open_device(uuid, "nvmlDeviceGetHandleByPciBusId", device));
  return leave(text, NOT_FOUND);
}

int nvmlDeviceGetIndex(Device device, unsigned *index) {
  char uuid[UUID];
  ENTER(device, "nvmlDeviceGetIndex");
  for (*index = 0; nth(text, NULL, *index, uuid); ++*index)
    if (!strcmp(uuid, device)) return leave(text, SUCCESS);
  return leave(text, INVALID_ARGUMENT);
}

int nvmlDeviceGetUUID(Device device, char *buffer, unsigned size) {
  ENTER(device, "nvmlDeviceGetUUID");
  return leave(text, give(device, buffer, size));
}

int nvmlDeviceGetName(Device device, char *buffer, unsigned size) {
  char value[96] = "";
  ENTER(device, "nvmlDeviceGetName");
  get(text, device, "name", value, sizeof value);
  return leave(text, give(value, buffer, size));
}

static int is_mig(const char *text, Device device) {
  char parent[UUID];
  return get(text, device, "parent", parent, sizeof parent);
}

struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char place[32];
};

int nvmlDeviceGetPciInfo_v3(Device device, struct pci *info) {
  ENTER(device, "nvmlDeviceGetPciInfo");
  if (is_mig(text, device)) return leave(text, INVALID_ARGUMENT); /* asked of its GPU */
  memset(info, 0, sizeof *info);
  get(text, device, "pci", info->place, sizeof info->place);
  sscanf(info->place, "%x:%x:%x", &info->domain, &info->bus, &info->device);
  snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF, info->bus & 0xFF,
           info->device & 0xFF);
  return leave(text, SUCCESS);
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
  char value[32] = "0.0";
  ENTER(device, "nvmlDeviceGetCudaComputeCapability");
  if (is_mig(text, device)) return leave(text, INVALID_ARGUMENT);
  get(text, device, "compute", value, sizeof value);
  return leave(text, sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : UNKNOWN);
}

struct memory {
  uint64_t total, free, used;
};

/* Keys `raw.*` are what is answered, however little sense it makes. */
static struct memory memory(const char *text, Device device, uint64_t reserved) {
  uint64_t total = number(text, device, "total", 0), used = in_use(text, device) + reserved;
  if (used > total) used = total;
  return (struct memory){number(text, device, "raw.total", total), number(text, device, "raw.free", total - used),
                         number(text, device, "raw.used", used)};
}

int nvmlDeviceGetMemoryInfo(Device device, struct memory *info) {
  ENTER(device, "nvmlDeviceGetMemoryInfo");
  *info = memory(text, device, number(text, device, "reserved", 0));
  return leave(text, SUCCESS);
}

struct memory_v2 {
  unsigned version;
  uint64_t total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(Device device, struct memory_v2 *info) {
  ENTER(device, "nvmlDeviceGetMemoryInfo");
  if (info->version != (sizeof *info | 2 << 24)) return leave(text, ARGUMENT_VERSION_MISMATCH);
  uint64_t reserved = number(text, device, "reserved", 0);
  struct memory all = memory(text, device, reserved);
  info->total = all.total, info->free = all.free, info->reserved = reserved;
  info->used = all.used > reserved ? all.used - reserved : 0;
  return leave(text, SUCCESS);
}

/* -- MIG ------------------------------------------------------------------------------------------------------ */

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
  ENTER(device, "nvmlDeviceGetMigMode");
  uint64_t mode = number(text, device, "mig", UINT64_MAX);
  if (mode == UINT64_MAX) return leave(text, NOT_SUPPORTED);
  *current = *pending = (unsigned)mode;
  return leave(text, SUCCESS);
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *most) {
  ENTER(device, "nvmlDeviceGetMaxMigDeviceCount");
  *most = number(text, device, "mig", UINT64_MAX) == UINT64_MAX ? 0 : 7;
  return leave(text, SUCCESS);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *child) {
  char uuid[UUID];
  ENTER(device, "nvmlDeviceGetMigDeviceHandleByIndex");
  int there = nth(text, device, index, uuid);
  return leave(text, there ? open_device(uuid, "nvmlDeviceGetMigDeviceHandleByIndex", child) : NOT_FOUND);
}

int nvmlDeviceIsMigDeviceHandle(Device device, unsigned *is) {
  ENTER(device, "nvmlDeviceIsMigDeviceHandle");
  *is = (unsigned)is_mig(text, device);
  return leave(text, SUCCESS);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device device, Device *parent) {
  char uuid[UUID];
  ENTER(device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  int there = get(text, device, "parent", uuid, sizeof uuid);
  return leave(text, there ? open_device(uuid, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", parent)
                           : INVALID_ARGUMENT);
}

static int instance(Device device, const char *function, const char *key, unsigned *id) {
  ENTER(device, function);
  *id = (unsigned)number(text, device, key, 0);
  return leave(text, is_mig(text, device) ? SUCCESS : NOT_SUPPORTED);
}

int nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) {
  return instance(device, "nvmlDeviceGetGpuInstanceId", "gpu_instance", id);
}

int nvmlDeviceGetComputeInstanceId(Device device, unsigned *id) {
  return instance(device, "nvmlDeviceGetComputeInstanceId", "compute_instance", id);
}

struct attributes {
  unsigned multiprocessors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
  uint64_t mib;
};

int nvmlDeviceGetAttributes_v2(Device device, struct attributes *found) {
  ENTER(device, "nvmlDeviceGetAttributes");
  memset(found, 0, sizeof *found);
  found->mib = number(text, device, "total", 0) >> 20;
  return leave(text, is_mig(text, device) ? SUCCESS : NOT_SUPPORTED);
}

/* -- who uses a device ----------------------------------------------------------------------------------------- */

struct process {
  unsigned pid;
  uint64_t bytes;
  unsigned gpu_instance, compute_instance;
};

struct process_v1 {
  unsigned pid;
  uint64_t bytes;
};

struct list {
  void *entries;
  int old, without_bytes;
  unsigned room, found;
};

static void list_one(void *context, unsigned pid, uint64_t bytes) {
  struct list *list = context;
  unsigned at = list->found++;
  if (list->entries == NULL || at >= list->room) return;
  if (list->without_bytes) bytes = NOT_AVAILABLE;
  if (list->old)
    ((struct process_v1 *)list->entries)[at] = (struct process_v1){pid, bytes};
  else
    ((struct process *)list->entries)[at] = (struct process){pid, bytes, ~0u, ~0u};
}

/* `strangers`: the key with processes that are not ours, `PID:BYTES` separated by commas. The key `processes` says how
   much is told of ours: all of it, `pids` without bytes, or `none`, as in a container. With a key `prompt` the list is
   not late, only memory is. */
static int running(Device device, const char *function, const char *strangers, int ours, int old, unsigned *room,
                   void *entries) {
  char value[1024] = "", told[16] = "";
  ENTER(device, function);
  get(text, device, "processes", told, sizeof told);
  struct list list = {entries, old, !strcmp(told, "pids"), *room, 0};
  if (strcmp(told, "none")) {
    get(text, device, strangers, value, sizeof value);
    char *rest = value;
    for (char *one; (one = strsep(&rest, ",")) != NULL;) {
      unsigned pid;
      unsigned long long bytes;
      if (sscanf(one, "%u:%llu", &pid, &bytes) == 2) list_one(&list, pid, bytes);
    }
    struct lags lag = lags(text, device), none = {0, 0};
    if (ours) processes(device, get(text, device, "prompt", value, sizeof value) ? none : lag, list_one, &list);
  }
  *room = list.found;
  return leave(text, list.found > list.room ? INSUFFICIENT_SIZE : SUCCESS);
}

#define RUNNING(name, version, strangers, ours, old)                               \
  int name##version(Device device, unsigned *room, void *entries) {                \
    return running(device, #name, strangers, ours, old, room, entries);            \
  }

RUNNING(nvmlDeviceGetComputeRunningProcesses, , "compute_processes", 1, 1)
RUNNING(nvmlDeviceGetComputeRunningProcesses, _v2, "compute_processes", 1, 0)
RUNNING(nvmlDeviceGetComputeRunningProcesses, _v3, "compute_processes", 1, 0)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, , "graphics_processes", 0, 1)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, _v2, "graphics_processes", 0, 0)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, _v3, "graphics_processes", 0, 0)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, _v3, "mps_processes", 0, 0)
