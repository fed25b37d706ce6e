#include "services/codec/handoff_shape.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "services/codec/internal.h"

namespace skein::services {
namespace {

struct DTypePair {
  v1::DType wire;
  DType dtype;
};
constexpr DTypePair kDTypes[] = {
    {v1::DTYPE_F32, DType::kF32}, {v1::DTYPE_BF16, DType::kBF16}, {v1::DTYPE_F16, DType::kF16}};

// INVALID_ARGUMENT unless it is what the shape gives: it is told for peers of other builds.
absl::Status CheckBlockBytes(const KvShape& shape, uint64_t told) {
  if (told < 1 || told > uint64_t{kMaxTotal}) {
    return Invalid("block_bytes", absl::StrCat(told, " is not between 1 and 2^50"));
  }
  // No overflow: three sizes of at most 2^20, K and V, and 4 bytes.
  const uint64_t bytes = uint64_t{2} * static_cast<uint64_t>(shape.kv_heads) *
                         static_cast<uint64_t>(shape.block_tokens) *
                         static_cast<uint64_t>(shape.head_dim) * BytesOf(shape.dtype);
  if (told == bytes) return absl::OkStatus();
  return Invalid("block_bytes", absl::StrCat(told, " is not ", bytes, ", which the shape gives"));
}

absl::StatusOr<int32_t> Size(const char* field, uint32_t value) {
  constexpr uint32_t kMaxSize = 1 << 20;
  if (value >= 1 && value <= kMaxSize) return static_cast<int32_t>(value);
  return Invalid(field, absl::StrCat(value, " is not between 1 and ", kMaxSize));
}

}  // namespace

v1::KvLayout ToProto(const KvLayout& layout) {
  v1::KvLayout out;
  out.set_tp(static_cast<uint32_t>(layout.tp));
  return out;
}

absl::StatusOr<KvLayout> KvLayoutFrom(const v1::KvLayout& layout) {
  const absl::StatusOr<int32_t> tp = Size("layout.tp", layout.tp());
  if (!tp.ok()) return tp.status();
  return KvLayout{*tp};
}

v1::KvSpec KvSpecOf(const scheduler::HandoffShape& shape) {
  v1::KvSpec out;
  for (const DTypePair& pair : kDTypes) {
    if (shape.dtype == pair.dtype) out.set_dtype(pair.wire);
  }
  out.set_num_layers(static_cast<uint32_t>(shape.num_layers));
  out.set_kv_heads(static_cast<uint32_t>(shape.kv_heads));
  out.set_head_dim(static_cast<uint32_t>(shape.head_dim));
  out.set_block_tokens(static_cast<uint32_t>(shape.block_tokens));
  out.set_format(shape.kv_format);
  return out;
}

absl::StatusOr<scheduler::HandoffShape> HandoffShapeFrom(const v1::KvSpec& spec,
                                                         const std::string& hash,
                                                         uint32_t layout_tp, uint64_t block_bytes) {
  scheduler::HandoffShape shape;
  shape.model_hash = hash;
  shape.kv_format = spec.format();
  const auto* const pair = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                        [&](const auto& one) { return one.wire == spec.dtype(); });
  if (pair == std::end(kDTypes)) {
    return Invalid("kv.dtype", absl::StrCat(static_cast<int>(spec.dtype()), " is not a dtype"));
  }
  shape.dtype = pair->dtype;
  const struct {
    const char* field;
    uint32_t value;
    int32_t* out;
  } sizes[] = {{"kv.num_layers", spec.num_layers(), &shape.num_layers},
               {"kv.kv_heads", spec.kv_heads(), &shape.kv_heads},
               {"kv.head_dim", spec.head_dim(), &shape.head_dim},
               {"kv.block_tokens", spec.block_tokens(), &shape.block_tokens},
               {"layout.tp", layout_tp, &shape.layout.tp}};
  for (const auto& size : sizes) {
    const absl::StatusOr<int32_t> value = Size(size.field, size.value);
    if (!value.ok()) return value.status();
    *size.out = *value;
  }
  if (absl::Status status = CheckBlockBytes(shape, block_bytes); !status.ok()) return status;
  return shape;
}

}  // namespace skein::services
