// HandoffShape on the wire: a KvSpec, a model hash, a layout and the bytes of a block.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/common.pb.h"
#include "scheduler/kv/handoff_shape.h"

namespace skein::services {

v1::KvLayout ToProto(const KvLayout& layout);
// INVALID_ARGUMENT "layout.tp: ..." when it is 0 or too large.
absl::StatusOr<KvLayout> KvLayoutFrom(const v1::KvLayout& layout);

v1::KvSpec KvSpecOf(const scheduler::HandoffShape& shape);

// INVALID_ARGUMENT for an unknown dtype, sizes that are 0 or too large, and bytes of a block that
// are not those of the shape.
absl::StatusOr<scheduler::HandoffShape> HandoffShapeFrom(const v1::KvSpec& spec,
                                                         const std::string& hash,
                                                         uint32_t layout_tp, uint64_t block_bytes);

}  // namespace skein::services
