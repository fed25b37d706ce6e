// The UCX fabric for fabrics that build on it. Internal to engine/comm.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/algorithms/link_fabric.h"
#include "engine/ucx/ucx_options.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

// As MakeUcxFabric.
absl::StatusOr<std::unique_ptr<LinkFabric>> MakeUcxLinkFabric(
    const UcxOptions& options, std::shared_ptr<UcxPlane> plane = nullptr);

}  // namespace skein::engine
