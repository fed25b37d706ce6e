#include "scheduler/kv/handoff_shape.h"

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

absl::Status CheckSameLayout(const KvLayout& a, const KvLayout& b, std::string_view a_name,
                             std::string_view b_name) {
  if (a == b) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("layout.tp: ", std::string(a_name), " ", a.tp,
                                                    ", ", std::string(b_name), " ", b.tp));
}

absl::Status CheckSameShape(const HandoffShape& a, const HandoffShape& b, std::string_view a_name,
                            std::string_view b_name) {
  absl::Status status;
  if (SKEIN_PLANT(block_of_the_wrong_layout)) return status;
  const auto compare = [&](const char* field, const auto& of_a, const auto& of_b) {
    if (!status.ok() || of_a == of_b) return;
    status = absl::FailedPreconditionError(absl::StrCat(field, ": ", std::string(a_name), " ", of_a,
                                                        ", ", std::string(b_name), " ", of_b));
  };
  compare("kv_format", a.kv_format, b.kv_format);
  compare("model_hash", a.model_hash, b.model_hash);
  compare("dtype", std::string(NameOf(a.dtype)), std::string(NameOf(b.dtype)));
  compare("layout_tp", a.layout.tp, b.layout.tp);
  compare("block_tokens", a.block_tokens, b.block_tokens);
  compare("num_layers", a.num_layers, b.num_layers);
  compare("kv_heads", a.kv_heads, b.kv_heads);
  compare("head_dim", a.head_dim, b.head_dim);
  return status;
}

}  // namespace skein::scheduler
