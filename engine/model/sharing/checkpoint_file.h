// CheckpointFile: feed-forward weights from the checkpoint's folder, opened when they are first
// asked for: what ranks fall back to when an owner has died.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/load/feed_forward_reader.h"

namespace skein::engine {

class CheckpointFile final : public FeedForwardReader {
 public:
  // `hash`: EngineSpec::model_hash. A folder that holds another model by now is refused.
  CheckpointFile(std::string model_dir, ModelConfig config, std::string hash)
      : model_dir_(std::move(model_dir)), config_(std::move(config)), hash_(std::move(hash)) {}

  // The error of a folder that cannot be read, or FAILED_PRECONDITION of another model's. The next
  // call tries it again.
  absl::Status Read(int layer, int64_t offset, std::span<std::byte> to) override;

 private:
  absl::Status Open();

  const std::string model_dir_;
  const ModelConfig config_;
  const std::string hash_;
  std::unique_ptr<CheckpointReader> reader_;
};

}  // namespace skein::engine
