#include "engine/transport/ucx/ucx_transport.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/host/host_wire.h"
#include "engine/host/process_watch.h"
#include "engine/transport/ucx/ucx_wire.h"
#include "engine/transport/wire_transport.h"
#include "engine/ucx/ucx_address.h"
#include "engine/ucx/ucx_context.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options,
                                                            std::shared_ptr<CopyStream> copies,
                                                            std::shared_ptr<PeerOpener> opener) {
  auto context = MakeUcxContext(options);
  if (!context.ok()) return context.status();
  auto host = MayUseSharedMemory(options) ? HostWire::Make() : nullptr;
  const std::string address =
      SealAddress({ThisProcess(), host == nullptr ? "" : host->name(), context->worker_address});
  return std::make_unique<WireTransport>(
      TransportKind::kUcx, address,
      MakeUcxWire(*context, std::move(host), address, std::move(copies), std::move(opener)));
}

}  // namespace skein::engine
