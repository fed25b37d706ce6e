#include "engine/ucx/ucx_parts.h"

#include <utility>

#include "engine/host/process_watch.h"
#include "engine/ucx/ucx_address.h"

namespace skein::engine {

absl::StatusOr<UcxParts> MakeUcxParts(const UcxOptions& options, std::span<const UcxSetting> more) {
  UcxParts parts;
  if (options.own_wires && MayUseTcp(options)) {
    auto tcp = TcpWire::Make({.device = options.net_device, .port = options.tcp_port});
    if (!tcp.ok()) return tcp.status();
    parts.tcp = *std::move(tcp);
  }
  if (options.own_wires && MayUseSharedMemory(options)) parts.host = HostWire::Make();
  auto context = MakeUcxContext(options, more);
  if (!context.ok()) return context.status();
  parts.context = *std::move(context);
  parts.rma = parts.context.fabric || !options.own_wires;
  parts.address = SealAddress({.process = ThisProcess(),
                               .host = parts.host == nullptr ? "" : parts.host->name(),
                               .worker = parts.context.worker_address,
                               .tcp = parts.tcp == nullptr ? "" : parts.tcp->name(),
                               .fabric = parts.context.fabric});
  return parts;
}

}  // namespace skein::engine
