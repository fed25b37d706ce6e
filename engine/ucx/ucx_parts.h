// All by which a process reaches others, for engine/transport and engine/comm: rings within the
// host and tcp, of which each has its own, so that either wakes for its own messages only; and UCX
// for what neither reaches, which both share (ucx_plane.h). Internal to them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/host/host_wire.h"
#include "engine/net/tcp_wire.h"
#include "engine/ucx/ucx_options.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

struct UcxParts {
  std::shared_ptr<UcxPlane> plane;
  std::unique_ptr<HostWire> host;  // null: not permitted, or /proc does not allow it
  std::unique_ptr<TcpWire> tcp;    // null: not permitted
  std::string far_refused;         // UcxOptions::far_refused
  bool rma = false;                // peers may put into memory here by UCX's RMA
  std::string address;             // from SealAddress
};

// UNAVAILABLE, RESOURCE_EXHAUSTED or INVALID_ARGUMENT if something does not start with these
// options. Null `plane`: one of its own.
absl::StatusOr<UcxParts> MakeUcxParts(const UcxOptions& options,
                                      std::shared_ptr<UcxPlane> plane = nullptr);

}  // namespace skein::engine
