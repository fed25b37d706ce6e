#include "services/codec/kv_shape.h"

#include "absl/strings/str_cat.h"
#include "services/codec/internal.h"

namespace skein::services {
namespace {

struct DTypeName {
  v1::DType dtype;
  const char* name;
};
constexpr DTypeName kDTypes[] = {
    {v1::DTYPE_F32, "f32"}, {v1::DTYPE_BF16, "bf16"}, {v1::DTYPE_F16, "f16"}};

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

v1::KvSpec KvSpecOf(const scheduler::KvShape& shape) {
  v1::KvSpec out;
  for (const auto& [dtype, name] : kDTypes) {
    if (shape.dtype == name) out.set_dtype(dtype);
  }
  out.set_num_layers(static_cast<uint32_t>(shape.num_layers));
  out.set_kv_heads(static_cast<uint32_t>(shape.kv_heads));
  out.set_head_dim(static_cast<uint32_t>(shape.head_dim));
  out.set_block_tokens(static_cast<uint32_t>(shape.block_tokens));
  out.set_format(shape.kv_format);
  return out;
}

absl::StatusOr<scheduler::KvShape> KvShapeFrom(const v1::KvSpec& spec, const std::string& hash,
                                               uint32_t layout_tp, uint64_t block_bytes) {
  scheduler::KvShape shape;
  shape.model_hash = hash;
  shape.kv_format = spec.format();
  for (const auto& [dtype, name] : kDTypes) {
    if (spec.dtype() == dtype) shape.dtype = name;
  }
  if (shape.dtype.empty()) {
    return Invalid("kv.dtype", absl::StrCat(static_cast<int>(spec.dtype()), " is not a dtype"));
  }
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
  if (block_bytes < 1 || block_bytes > uint64_t{kMaxTotal}) {
    return Invalid("block_bytes", absl::StrCat(block_bytes, " is not between 1 and 2^50"));
  }
  shape.block_bytes = static_cast<int64_t>(block_bytes);
  return shape;
}

}  // namespace skein::services
