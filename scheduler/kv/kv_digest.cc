#include "scheduler/kv/kv_digest.h"

#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {
namespace {

class Mixer {
 public:
  void Add(uint64_t value) { state_ = Mix64(state_ + kMix64Step + Mix64(value + kMix64Step)); }
  uint64_t digest() const { return state_ == 0 ? 1 : state_; }

 private:
  uint64_t state_ = 0;
};

// By the numbers of v1::DType, which never change.
uint64_t NumberOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 1;
    case DType::kBF16:
      return 2;
    case DType::kF16:
      return 3;
  }
  return 0;
}

}  // namespace

uint64_t KvDigest(const HandoffShape& shape) {
  Mixer mixer;
  mixer.Add(shape.kv_format);
  mixer.Add(shape.model_hash.size());
  for (const char c : shape.model_hash) mixer.Add(static_cast<unsigned char>(c));
  mixer.Add(NumberOf(shape.dtype));
  for (const int64_t size :
       {int64_t{shape.layout.tp}, int64_t{shape.block_tokens}, int64_t{shape.num_layers},
        int64_t{shape.kv_heads}, int64_t{shape.head_dim}}) {
    mixer.Add(static_cast<uint64_t>(size));
  }
  return mixer.digest();
}

}  // namespace skein::scheduler
