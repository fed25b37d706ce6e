// NCCL, loaded when it is first asked for: a worker on a machine without it runs, too. Internal to
// this folder.
#pragma once

#include <nccl.h>

#include "absl/status/statusor.h"

namespace skein::engine {

struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
};

// UNAVAILABLE if the loader finds no libnccl.so.2, or one without these functions. The result holds
// for the process's life.
absl::StatusOr<const NcclApi*> LoadNccl();

}  // namespace skein::engine
