#include "scheduler/kv/kv_shape.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

template <class T>
absl::Status Differ(const char* field, const T& prefill, const T& decode) {
  return absl::FailedPreconditionError(
      absl::StrCat(field, ": prefill ", prefill, ", decode ", decode));
}

}  // namespace

absl::Status CheckSameShape(const KvShape& prefill, const KvShape& decode) {
  if (prefill.model_hash != decode.model_hash)
    return Differ("model_hash", prefill.model_hash, decode.model_hash);
  if (prefill.dtype != decode.dtype) return Differ("dtype", prefill.dtype, decode.dtype);
  if (prefill.layout_tp != decode.layout_tp)
    return Differ("layout_tp", prefill.layout_tp, decode.layout_tp);
  if (prefill.block_tokens != decode.block_tokens)
    return Differ("block_tokens", prefill.block_tokens, decode.block_tokens);
  if (prefill.num_layers != decode.num_layers)
    return Differ("num_layers", prefill.num_layers, decode.num_layers);
  if (prefill.kv_heads != decode.kv_heads)
    return Differ("kv_heads", prefill.kv_heads, decode.kv_heads);
  if (prefill.head_dim != decode.head_dim)
    return Differ("head_dim", prefill.head_dim, decode.head_dim);
  if (prefill.block_bytes != decode.block_bytes)
    return Differ("block_bytes", prefill.block_bytes, decode.block_bytes);
  return absl::OkStatus();
}

}  // namespace skein::scheduler
