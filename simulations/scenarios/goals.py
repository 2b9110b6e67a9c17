"""Situations that the exploration has to reach: a rule that is never in danger is not tested."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Goal"]


class Goal(StrEnum):
    # cancelled
    LEFT_AT_ONCE = "left in the instant in which it came"
    LEFT_UNANNOUNCED = "left while it waited for the first look at the machine"
    LEFT_QUEUED = "left the queue"
    LEFT_BEHIND_LOAD = "left while another load was on its device"
    LEFT_MEASURING = "left while memory was measured for it"
    LEFT_EVICTING = "left while busy runners were to make room for it"
    LEFT_DRAINING = "left while a runner that makes room finished its last requests"
    LEFT_VRAM_WAIT = "left while memory came back for it"
    LEFT_CLAIMED = "left while somebody earlier wanted its runner gone"
    LEFT_PREDECESSOR = "left while its model's last runner was on its way out"
    LEFT_OTHER_OPTIONS = "left while its model loaded with other options"
    LEFT_OOM_RETRY = "left while everything was to go for its retry"
    LEFT_LOADING = "left during its load"
    LEFT_SHARED_LOAD = "the first of a shared load left, and the others got it"
    LEFT_SLOT = "left while it waited for a slot"
    LEFT_PREFILL = "left while its prompt was read"
    LEFT_STREAM = "left while it streamed"
    LEFT_BATCH = "left in the middle of a batch"
    LEFT_HOLDING = "left when it had all and still held its lease"
    # loads
    LOAD_SHARED = "several got one load"
    LOAD_ABORTED = "a load was aborted when nobody waited for it any more"
    LOAD_FINISHED_FOR_NOBODY = "a load went on to its end although nobody waited for it any more"
    LOAD_AFTER_ABORT = "a model was loaded again after its load had been aborted"
    LOADS_IN_PARALLEL = "two loads at the same time"
    LOAD_WIDE = "a load over several GPUs"
    LOAD_PARTIAL = "a load with a part of the layers on GPUs"
    LOAD_CPU = "a load without any GPU"
    LOAD_FAILED = "a process said that it cannot load"
    LOAD_STALLED = "a load without a sign of life was given up"
    LOAD_DIED = "a process ended during its load"
    SPAWN_FAILED = "a process could not be started"
    ABORTED_UNSPAWNED = "a load was aborted before its process was there"
    # evictions and other ends
    EVICTED_IDLE = "an idle runner made room"
    EVICTED_BUSY = "a busy runner finished and made room"
    EVICTED_SEVERAL = "several runners made room for one request"
    RELOADED = "a runner went for other options of its own model"
    LAST_CALL = "a last call before a runner went"
    MODEL_LIMIT = "waited for a place among the loaded models"
    EXPIRED = "a keep-alive ended"
    EXPIRED_ON_REQUEST = "a keep-alive ended in the instant of a request for its model"
    STOPPED_LOADING = "stopped during its load"
    STOPPED_BUSY = "stopped while it worked"
    STOPPED_IDLE = "stopped while idle"
    MEMORY_LATE = "memory came back late"
    MEMORY_LOST = "memory did not come back within the bound"
    # memory runs out
    OOM_EVICTS = "a load without memory is tried again alone"
    OOM_STEPS_DOWN = "a load without memory is tried again with less context"
    OOM_RECOVERED = "the second try of a load found memory"
    OOM_FAILED = "the second try of a load found no memory either"
    OOM_RUNNING = "a running process had no memory"
    # refusals
    QUEUE_FULL = "the queue was full"
    NEVER_FITS = "a model was too large for the machine"
    CRASH_BACKOFF = "a model that kept crashing was not tried"
    PREDECESSOR_STUCK = "a model was refused because its last process would not die"
    # faults of processes
    CRASH_IDLE = "a process ended while idle"
    CRASH_BUSY = "a process ended while it worked"
    CRASH_DRAINING = "a process ended while it finished its last requests"
    HUNG_CALL = "a runner that answered nobody was recycled"
    HUNG_SLOT = "a runner that kept the slot of somebody who left was recycled"
    STUCK = "a process did not die of SIGKILL"
    STUCK_GONE = "a process died of SIGKILL after all"
    FAULT = "a supervisor failed in a way that nobody thought of"
    # machine
    VANISHED = "a device with a runner on it vanished"
    QUERY_FAILED = "a look at the machine failed while somebody waited for it"
    # shutdown
    SHUTDOWN_LOADING = "the server ended during a load"
    SHUTDOWN_EVICTING = "the server ended while somebody waited for room"
    SHUTDOWN_VRAM_WAIT = "the server ended while memory came back for somebody"
    SHUTDOWN_QUEUED = "the server ended while somebody queued"
    SHUTDOWN_SLOT = "the server ended while somebody waited for a slot"
    SHUTDOWN_BUSY = "the server ended under somebody's lease"
    SHUTDOWN_LETS_FINISH = "the server took nobody new, and let somebody finish"
