#include "engine/model/sharing/checkpoint_file.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_hash.h"
#include "engine/checkpoint/tensor_store.h"

namespace skein::engine {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

}  // namespace

absl::Status CheckpointFile::Open() {
  const absl::StatusOr<std::string> text =
      ReadSmallFile(model_dir_ + "/config.json", kConfigBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<TensorStore> tensors = TensorStore::Open(model_dir_, MappedUse::kOnce);
  if (!tensors.ok()) return tensors.status();
  if (ModelHash(*text, *tensors) != hash_) {
    return absl::FailedPreconditionError(absl::StrCat(model_dir_, ": holds another model by now"));
  }
  const absl::StatusOr<ModelWeights> weights = BindWeights(config_, *tensors);
  if (!weights.ok()) return weights.status();
  std::vector<FeedForwardWeights> layers;
  layers.reserve(weights->layers.size());
  for (const LayerWeights& layer : weights->layers) layers.push_back(layer.feed_forward);
  reader_ = std::make_unique<CheckpointReader>(
      std::make_shared<const TensorStore>(*std::move(tensors)), std::move(layers));
  return absl::OkStatus();
}

absl::Status CheckpointFile::Read(int layer, int64_t offset, std::span<std::byte> to) {
  if (reader_ == nullptr) {
    absl::Status opened = Open();
    if (!opened.ok()) return opened;
  }
  return reader_->Read(layer, offset, to);
}

}  // namespace skein::engine
