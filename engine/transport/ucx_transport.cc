#include "engine/transport/ucx_transport.h"

#include <utility>

#include "engine/transport/ucx_wire.h"
#include "engine/transport/wire_transport.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options) {
  auto made = MakeUcxWire(options);
  if (!made.ok()) return made.status();
  return std::make_unique<WireTransport>(WireKind::kUcx, std::move(made->worker_address),
                                         std::move(made->wire));
}

}  // namespace skein::engine
