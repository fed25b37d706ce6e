#include "engine/ucx/ucx_parts.h"

#include <utility>

#include "engine/host/process_watch.h"
#include "engine/ucx/ucx_address.h"

namespace skein::engine {

absl::StatusOr<UcxParts> MakeUcxParts(const UcxOptions& options, std::shared_ptr<UcxPlane> plane) {
  UcxParts parts;
  if (options.own_wires && MayUseTcp(options)) {
    auto tcp = TcpWire::Make({.device = options.net_device,
                              .address = options.tcp_address,
                              .port = options.tcp_port,
                              .refused = options.tcp_refused});
    if (!tcp.ok()) return tcp.status();
    parts.tcp = *std::move(tcp);
  }
  if (options.own_wires && MayUseSharedMemory(options)) parts.host = HostWire::Make();
  if (plane == nullptr) {
    auto made = UcxPlane::Make(options);
    if (!made.ok()) return made.status();
    plane = *std::move(made);
  }
  parts.plane = std::move(plane);
  parts.far_refused = options.far_refused;
  parts.rma = parts.plane->fabric() || !options.own_wires;
  parts.address = SealAddress({.process = ThisProcess(),
                               .host = parts.host == nullptr ? "" : parts.host->name(),
                               .worker = parts.plane->address(),
                               .tcp = parts.tcp == nullptr ? "" : parts.tcp->name(),
                               .fabric = parts.plane->fabric()});
  return parts;
}

}  // namespace skein::engine
