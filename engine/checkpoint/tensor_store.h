// All tensors of a checkpoint folder: `model.safetensors`, or else the shards that
// `model.safetensors.index.json` lists. Files stay mapped read-only for the store's life; tensors
// are views in their file's dtype. Immutable after Open; any thread may read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/safetensors.h"

namespace skein::engine {

class TensorStore {
 public:
  // NOT_FOUND when the folder has neither file, or names the missing shard. INVALID_ARGUMENT when a
  // header lies, the index names a path outside the folder, a tensor is missing from its shard, in
  // a shard but not in the index, or in two shards.
  static absl::StatusOr<TensorStore> Open(const std::string& model_dir,
                                          MappedUse use = MappedUse::kAgainAndAgain);

  // By name, in order of names.
  const std::map<std::string, FileTensor, std::less<>>& tensors() const { return tensors_; }
  bool Has(std::string_view name) const { return tensors_.contains(name); }

  // The tensor as a matrix of rows × cols (a vector when rows == 1: then the file's shape must be
  // [cols]). NOT_FOUND names a missing tensor; INVALID_ARGUMENT names expected and actual shape, or
  // a dtype that is not BF16, F16 or F32.
  absl::StatusOr<ConstMatrix> Vector(std::string_view name, int64_t size) const;
  absl::StatusOr<ConstMatrix> Matrix(std::string_view name, int64_t rows, int64_t cols) const;

 private:
  explicit TensorStore(MappedUse use) : use_(use) {}
  absl::Status AddFile(const std::string& model_dir, const std::string& file_name);
  absl::Status AddShards(const std::string& model_dir, std::string_view index_text);
  absl::StatusOr<ConstMatrix> View(std::string_view name, const std::vector<int64_t>& shape) const;
  void AlignTensors();

  MappedUse use_;
  std::vector<MappedFile> files_;
  std::vector<std::unique_ptr<uint64_t[]>> copies_;  // of tensors at odd addresses
  std::map<std::string, FileTensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_;  // tensor → file name
};

}  // namespace skein::engine
