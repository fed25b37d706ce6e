#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/comm/ucx/ucx_link_fabric.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<PathFabric>> MakeHostFabric(const WorkerFabricOptions& options) {
  if (options.path.has_value() && options.path != CommPath::kHost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "comm_path: '", std::string(NameOf(*options.path)), "' takes a GPU (device cuda:N)"));
  }
  auto hosts = MakeUcxLinkFabric(options.hosts, options.plane);
  if (!hosts.ok()) return hosts.status();
  CommWays ways;
  ways.host = *std::move(hosts);
  return PathFabric::Make({.wants = options.path}, std::move(ways), {}, {.warn = options.warn});
}

}  // namespace skein::engine
