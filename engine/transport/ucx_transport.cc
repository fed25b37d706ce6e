#include "engine/transport/ucx_transport.h"

#include <memory>
#include <utility>

#include "engine/transport/ucx_context.h"
#include "engine/transport/ucx_wire.h"
#include "engine/transport/wire_transport.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options,
                                                            std::shared_ptr<CopyStream> copies) {
  auto context = MakeUcxContext(options);
  if (!context.ok()) return context.status();
  return std::make_unique<WireTransport>(WireKind::kUcx, context->worker_address,
                                         MakeUcxWire(*context, std::move(copies)));
}

}  // namespace skein::engine
