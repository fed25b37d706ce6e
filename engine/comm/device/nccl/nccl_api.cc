#include "engine/comm/device/nccl/nccl_api.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<NcclApi> Load() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(absl::StrCat("no NCCL: ", dlerror()));
  NcclApi api;
  const bool all = Find(library, "ncclGetVersion", &api.get_version) &&
                   Find(library, "ncclGetErrorString", &api.get_error_string) &&
                   Find(library, "ncclGetUniqueId", &api.get_unique_id) &&
                   Find(library, "ncclCommInitRankConfig", &api.comm_init_rank_config) &&
                   Find(library, "ncclCommGetAsyncError", &api.comm_get_async_error) &&
                   Find(library, "ncclCommAbort", &api.comm_abort) &&
                   Find(library, "ncclGroupStart", &api.group_start) &&
                   Find(library, "ncclGroupEnd", &api.group_end) &&
                   Find(library, "ncclSend", &api.send) && Find(library, "ncclRecv", &api.recv);
  if (!all) return absl::UnavailableError("this NCCL is too old: 2.14 or newer is needed");
  return api;
}

}  // namespace

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const absl::StatusOr<NcclApi> api = Load();
  if (!api.ok()) return api.status();
  return &*api;
}

}  // namespace skein::engine
