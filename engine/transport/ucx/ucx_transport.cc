#include "engine/transport/ucx/ucx_transport.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/transport/ucx/ucx_wire.h"
#include "engine/transport/wire_transport.h"
#include "engine/ucx/ucx_parts.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options,
                                                            std::shared_ptr<CopyStream> copies,
                                                            std::shared_ptr<PeerOpener> opener,
                                                            std::shared_ptr<UcxPlane> plane) {
  auto parts = MakeUcxParts(options, std::move(plane));
  if (!parts.ok()) return parts.status();
  const std::string address = parts->address;
  return std::make_unique<WireTransport>(
      TransportKind::kUcx, address,
      MakeUcxWire(*std::move(parts), std::move(copies), std::move(opener)));
}

}  // namespace skein::engine
